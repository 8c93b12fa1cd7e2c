#include "engine/slot_choice.h"

#include "base/error.h"

namespace carat::engine {

uint32_t choose_slot(std::span<const SlotOffer> offers, uint32_t prompt_tokens, uint32_t slots) {
  CARAT_CHECK(!offers.empty());
  const auto cost = [&](const SlotOffer& offer) {
    const double idle_rounds = static_cast<double>(offer.age) / slots;
    return (prompt_tokens - offer.reused) + (offer.cached - offer.reused) / (1.0 + idle_rounds);
  };
  const SlotOffer* best = &offers.front();
  for (const SlotOffer& offer : offers.subspan(1)) {
    const double difference = cost(offer) - cost(*best);
    if (difference < 0.0 || (difference == 0.0 && offer.age > best->age)) best = &offer;
  }
  return best->slot;
}

}  // namespace carat::engine
