#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace carat::model {

// A made-up vocabulary in the layout of the real one (docs/gemma4.md 4.2): special tokens, runs of newlines and spaces
// and byte tokens at their real ids, then single characters and pieces of two to four letters with the merges that
// build them. The image and audio tokens are at their real ids where the vocabulary reaches that far, otherwise at its
// end.
struct SynthVocabulary {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;  // tokenizer.ggml.token_type
  std::vector<std::string> merges;
  std::vector<int32_t> media_ends;  // end-of-image and end-of-audio, which the 12B suppresses
};

inline constexpr uint32_t kMinVocabulary = 768;
inline constexpr uint32_t kMaxVocabulary = 262144;

SynthVocabulary make_vocabulary(uint32_t size);  // kMinVocabulary <= size <= kMaxVocabulary

}  // namespace carat::model
