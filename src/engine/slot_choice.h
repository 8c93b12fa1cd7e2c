#pragma once

#include <cstdint>
#include <span>

namespace carat::engine {

// What a free slot is worth to a new prompt, and what is lost by taking it.
struct SlotOffer {
  uint32_t slot;
  uint32_t cached;  // tokens whose keys and values it holds
  uint32_t reused;  // of them, those the prompt begins with and need not be run again
  uint64_t age;     // requests that got a slot since this one was last taken
};

// The slot with the least cost, counted in tokens: those of the prompt that have to be run, and those the slot holds
// beyond what is reused, because whoever they belong to has to run them again. A conversation that nobody went on with
// while as many requests were admitted as there are slots counts half, after twice as many a third, and so on. Among
// equal costs the slot that was unused for longest is taken. `offers` must not be empty.
uint32_t choose_slot(std::span<const SlotOffer> offers, uint32_t prompt_tokens, uint32_t slots);

}  // namespace carat::engine
