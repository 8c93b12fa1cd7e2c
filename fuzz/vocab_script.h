#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/reader.h"

namespace carat::fuzz {

// Vocabulary metadata from a line-oriented script, so that the fuzzer can change vocabularies instead of breaking
// length fields. Each line is a letter and its argument; unknown letters are ignored, and \n and \\ stand for
// themselves:
//   t3<bos>      a token and its type          m▁ a         a merge
//   ibos=2       tokenizer.ggml.bos_token_id   s7           an entry of suppress_tokens
//   gllama       tokenizer.ggml.model          c{{x}}       the chat template
//   ktokens      a bool under tokenizer.ggml.tokens: a value of the wrong type
//   n            one score is NaN              -            one score is missing
//   >some text   text to encode with the vocabulary
// Adding to the metadata may throw carat::Error, as reading a file may.
class VocabScript {
 public:
  explicit VocabScript(std::string_view script);
  VocabScript(const VocabScript&) = delete;
  VocabScript& operator=(const VocabScript&) = delete;

  const gguf::Metadata& metadata() const { return metadata_; }
  const std::string& text() const { return text_; }

 private:
  void run(std::string_view line);
  void add_arrays();
  std::string_view keep(std::string text);

  gguf::Metadata metadata_;
  std::deque<std::string> kept_;  // what the metadata's views point to
  std::vector<std::string_view> tokens_, merges_;
  std::vector<int32_t> types_, suppressed_;
  std::vector<float> scores_;
  std::string model_ = "gemma4";
  std::string text_;
  bool nan_score_ = false;
  size_t missing_scores_ = 0;
};

}  // namespace carat::fuzz
