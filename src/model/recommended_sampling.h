#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gguf/reader.h"

namespace carat::model {

// How a model file wants its tokens to be chosen: the keys general.sampling.* as llama.cpp's converter writes them, and
// the family's defaults (docs/gemma4.md 5.8) for what the file does not say.
struct RecommendedSampling {
  float temperature = 1.0f;
  uint32_t top_k = 64;  // 0: no limit
  float top_p = 0.95f;
  float min_p = 0.0f;
  float repeat_penalty = 1.0f;
  uint32_t repeat_last_n = 64;  // the largest number: all tokens

  // Full keys that the file has, those that were read into the fields above and those that ask for something carat
  // does not do, such as Mirostat.
  std::vector<std::string> given;
  std::vector<std::string> unsupported;

  // What a user should be told; empty when there is nothing.
  std::string warning() const;
};

// Throws kBadFile naming the key when a value is beyond its range.
RecommendedSampling read_recommended_sampling(const gguf::Metadata& metadata);

}  // namespace carat::model
