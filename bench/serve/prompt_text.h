#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace carat::serve_bench {

// Makes prompts of a wanted length. Words are common enough to be one token each in most vocabularies, so that a
// length in words is nearly the length in tokens; token ids are exact. Both are written so that they can stand in JSON
// as they are.
class PromptText {
 public:
  // `vocabulary` 0: words; otherwise ids of a vocabulary of that size.
  PromptText(uint64_t seed, uint32_t vocabulary) : random_(seed), vocabulary_(vocabulary) {}

  std::string draw(uint32_t tokens);
  // Two of them, one after the other.
  std::string joined(const std::string& first, const std::string& second) const;
  std::mt19937_64& random() { return random_; }

 private:
  std::mt19937_64 random_;
  uint32_t vocabulary_;
};

}  // namespace carat::serve_bench
