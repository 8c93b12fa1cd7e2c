#include "text/vocab_builder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <utility>

namespace carat::text::test {

namespace {

gguf::Value string_value(std::string_view text) { return {gguf::ValueType::kString, text}; }

gguf::Value strings_value(const std::vector<std::string>& texts) {
  gguf::Array array;
  array.element = gguf::ValueType::kString;
  array.count = texts.size();
  array.strings.assign(texts.begin(), texts.end());
  return {gguf::ValueType::kArray, std::move(array)};
}

template <typename T>
gguf::Value numbers_value(gguf::ValueType element, const std::vector<T>& numbers) {
  gguf::Array array;
  array.element = element;
  array.count = numbers.size();
  array.bytes = std::as_bytes(std::span(numbers));
  return {gguf::ValueType::kArray, std::move(array)};
}

}  // namespace

VocabBuilder::VocabBuilder() {
  tokens.emplace();
  types.emplace();
  merges.emplace();
  for (const char* text : {"<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<|turn>", "<turn|>", "<|think|>"}) {
    add_token(text, TokenType::kControl);
  }
  for (const char* text : {"<|channel>", "<channel|>", "<|tool_response>", "<tool_response|>"}) {
    add_token(text, TokenType::kUserDefined);
  }
  for (int byte = 0; byte < 256; ++byte) add_token(fmt::format("<0x{:02X}>", byte), TokenType::kByte);
  for (const char* text : {"\n", "\xe2\x96\x81", "a", "b", "c", "d", "e", "<", ">", "/", "s", "|"}) add_token(text);
  add_token("</s>");
  add_merge("\n", "\n");
  add_merge("a", "b");
  add_merge("b", "c");
  add_merge("ab", "c");
  add_merge("\xe2\x96\x81", "a");
  scores = std::vector<float>(tokens->size(), -1000.0f);
  ids = {{"bos", id("<bos>")}, {"eos", id("<eos>")}, {"unknown", id("<unk>")}, {"padding", id("<pad>")}};
}

TokenId VocabBuilder::add_token(std::string_view text, TokenType type) {
  tokens->emplace_back(text);
  types->push_back(static_cast<int32_t>(type));
  if (scores) scores->push_back(-1000.0f);
  return static_cast<TokenId>(tokens->size() - 1);
}

void VocabBuilder::add_merge(std::string_view left, std::string_view right) {
  merges->push_back(fmt::format("{} {}", left, right));
  const std::string joined = fmt::format("{}{}", left, right);
  if (std::find(tokens->begin(), tokens->end(), joined) == tokens->end()) add_token(joined);
}

TokenId VocabBuilder::id(std::string_view text) const {
  const auto found = std::find(tokens->begin(), tokens->end(), text);
  if (found == tokens->end()) throw std::out_of_range(fmt::format("no token {}", text));
  return static_cast<TokenId>(found - tokens->begin());
}

std::shared_ptr<const Vocab> VocabBuilder::build() const {
  gguf::Metadata metadata;
  if (model) metadata.add("tokenizer.ggml.model", string_value(*model));
  if (pre) metadata.add("tokenizer.ggml.pre", string_value(*pre));
  if (tokens) metadata.add("tokenizer.ggml.tokens", strings_value(*tokens));
  if (types) metadata.add("tokenizer.ggml.token_type", numbers_value(gguf::ValueType::kI32, *types));
  if (scores) metadata.add("tokenizer.ggml.scores", numbers_value(gguf::ValueType::kF32, *scores));
  if (merges) metadata.add("tokenizer.ggml.merges", strings_value(*merges));
  std::vector<std::string> keys;
  keys.reserve(ids.size());  // the metadata refers to them
  for (const auto& [name, value] : ids) {
    keys.push_back(fmt::format("tokenizer.ggml.{}_token_id", name));
    metadata.add(keys.back(), {gguf::ValueType::kU32, uint64_t{value}});
  }
  if (suppressed) metadata.add("tokenizer.ggml.suppress_tokens", numbers_value(gguf::ValueType::kI32, *suppressed));
  if (chat_template) metadata.add("tokenizer.chat_template", string_value(*chat_template));
  return Vocab::from_metadata(metadata);
}

std::string VocabBuilder::error(ErrorCode code) const {
  try {
    build();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "the vocabulary was accepted";
  return "";
}

}  // namespace carat::text::test
