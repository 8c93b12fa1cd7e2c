#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "gguf/reader.h"
#include "text/tokenizer/vocab.h"

namespace carat::text::test {

// The vocabulary keys of a file, to be spoiled at will. Starts as a small sane vocabulary: Gemma 4's special tokens,
// all bytes, the letters a to e, some signs, and a few merges.
struct VocabBuilder {
  VocabBuilder();

  TokenId add_token(std::string_view text, TokenType type = TokenType::kNormal);
  void add_merge(std::string_view left, std::string_view right);  // adds the joined token when it is new
  TokenId id(std::string_view text) const;

  std::shared_ptr<const Vocab> build() const;
  // The message of the error build() throws; fails the test when it throws none or one of another code.
  std::string error(ErrorCode code = ErrorCode::kBadFile) const;

  std::optional<std::string> model = "gemma4";
  std::optional<std::string> pre;
  std::optional<std::vector<std::string>> tokens;
  std::optional<std::vector<int32_t>> types;
  std::optional<std::vector<float>> scores;
  std::optional<std::vector<std::string>> merges;
  std::map<std::string, uint32_t> ids;  // tokenizer.ggml.KEY_token_id
  std::optional<std::vector<int32_t>> suppressed;
  std::optional<std::string> chat_template;
};

}  // namespace carat::text::test
