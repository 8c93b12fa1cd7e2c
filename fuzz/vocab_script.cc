#include "vocab_script.h"

#include <charconv>
#include <limits>
#include <span>

namespace carat::fuzz {

namespace {

using gguf::Array;
using gguf::Value;
using gguf::ValueType;

std::string unescape(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      ++i;
      plain += text[i] == 'n' ? '\n' : text[i];
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// 0 for what is no number: any value will do.
int64_t number(std::string_view text) {
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

template <typename T>
Value numbers(ValueType type, const std::vector<T>& values) {
  return {ValueType::kArray, Array{type, values.size(), std::as_bytes(std::span(values)), {}}};
}

Value strings(const std::vector<std::string_view>& values) {
  return {ValueType::kArray, Array{ValueType::kString, values.size(), {}, values}};
}

}  // namespace

VocabScript::VocabScript(std::string_view script) {
  while (!script.empty()) {
    const size_t end = script.find('\n');
    run(script.substr(0, end));
    script.remove_prefix(end == std::string_view::npos ? script.size() : end + 1);
  }
  add_arrays();
}

std::string_view VocabScript::keep(std::string text) { return kept_.emplace_back(std::move(text)); }

void VocabScript::run(std::string_view line) {
  if (line.empty()) return;
  const std::string argument = unescape(line.substr(1));
  switch (line[0]) {
    case 't':
      if (argument.empty()) return;
      types_.push_back(argument[0] - '0');
      tokens_.push_back(keep(argument.substr(1)));
      return;
    case 'm':
      merges_.push_back(keep(argument));
      return;
    case 's':
      suppressed_.push_back(static_cast<int32_t>(number(argument)));
      return;
    case 'g':
      model_ = argument;
      return;
    case 'c':
      metadata_.add("tokenizer.chat_template", {ValueType::kString, keep(argument)});
      return;
    case 'k':
      metadata_.add(keep("tokenizer.ggml." + argument), {ValueType::kBool, true});
      return;
    case 'n':
      nan_score_ = true;
      return;
    case '-':
      ++missing_scores_;
      return;
    case '>':
      text_ += argument;
      return;
    case 'i': {
      const size_t equals = argument.find('=');
      if (equals == std::string::npos) return;
      const std::string_view key = keep("tokenizer.ggml." + argument.substr(0, equals) + "_token_id");
      metadata_.add(key, {ValueType::kI64, number(std::string_view(argument).substr(equals + 1))});
      return;
    }
    default:
      return;
  }
}

void VocabScript::add_arrays() {
  scores_.assign(tokens_.size() - std::min(missing_scores_, tokens_.size()), -1000.0f);
  if (nan_score_ && !scores_.empty()) scores_.back() = std::numeric_limits<float>::quiet_NaN();
  metadata_.add("tokenizer.ggml.model", {ValueType::kString, std::string_view(model_)});
  metadata_.add("tokenizer.ggml.tokens", strings(tokens_));
  metadata_.add("tokenizer.ggml.merges", strings(merges_));
  metadata_.add("tokenizer.ggml.token_type", numbers(ValueType::kI32, types_));
  metadata_.add("tokenizer.ggml.scores", numbers(ValueType::kF32, scores_));
  if (!suppressed_.empty()) {
    metadata_.add("tokenizer.ggml.suppress_tokens", numbers(ValueType::kI32, suppressed_));
  }
}

}  // namespace carat::fuzz
