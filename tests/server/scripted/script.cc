#include "server/scripted/script.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace carat::test {

namespace {

using nlohmann::json;
using text::Tokenizer;

std::vector<std::string> texts_of(const json& rule, const char* key) {
  if (!rule.contains(key)) return {};
  const json& value = rule[key];
  if (value.is_string()) return {value.get<std::string>()};
  return value.get<std::vector<std::string>>();
}

void append_said(const json& said, const Tokenizer& tokenizer, std::vector<text::TokenId>& tokens) {
  if (said.is_string()) {
    tokenizer.encode(said.get<std::string>(), Tokenizer::Specials::kParse, tokens);
  } else if (said.is_number_integer()) {
    tokens.push_back(said.get<text::TokenId>());
  } else if (said.is_array()) {
    for (const json& part : said) append_said(part, tokenizer, tokens);
  } else {
    const auto text = said.at("repeat").get<std::string>();
    for (int times = said.at("times").get<int>(); times > 0; --times) append_said(text, tokenizer, tokens);
  }
}

Afterwards afterwards_of(const std::string& word) {
  if (word == "stop") return Afterwards::kStop;
  if (word == "non_finite") return Afterwards::kNonFinite;
  if (word == "fail") return Afterwards::kFail;
  if (word == "lose") return Afterwards::kLose;
  fail(ErrorCode::kBadArgument, "\"then\" is \"{}\"; known are stop, non_finite, fail and lose", word);
}

Rule read_rule(const json& value, const Tokenizer& tokenizer) {
  Rule rule;
  rule.in_tail = texts_of(value, "when");
  rule.in_prompt = texts_of(value, "prompt");
  if (value.contains("say")) append_said(value["say"], tokenizer, rule.say);
  rule.says_tail = value.value("say_tail", false);
  rule.says_prompt = value.value("say_prompt", false);
  rule.afterwards = afterwards_of(value.value("then", "stop"));
  rule.token_seconds = 1e-3 * value.value("token_ms", 0.0);
  return rule;
}

bool has_all(std::string_view text, const std::vector<std::string>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(),
                     [&](const std::string& part) { return text.find(part) != std::string_view::npos; });
}

}  // namespace

Script Script::parse(std::string_view text, const Tokenizer& tokenizer) {
  Script script;
  try {
    const json parsed = json::parse(text);
    if (parsed.is_object()) script.prompt_row_seconds = 1e-3 * parsed.value("prompt_row_ms", 0.0);
    for (const json& rule : parsed.is_object() ? parsed.at("rules") : parsed) {
      try {
        script.rules.push_back(read_rule(rule, tokenizer));
      } catch (const std::exception& error) {
        fail(ErrorCode::kBadArgument, "the script's rule {}: {}", script.rules.size(), error.what());
      }
    }
  } catch (const json::exception& error) {
    fail(ErrorCode::kBadArgument, "the script: {}", error.what());
  }
  return script;
}

const Rule* Script::find(std::string_view prompt, std::string_view tail) const {
  const auto fits = [&](const Rule& rule) { return has_all(tail, rule.in_tail) && has_all(prompt, rule.in_prompt); };
  const auto found = std::find_if(rules.begin(), rules.end(), fits);
  return found == rules.end() ? nullptr : &*found;
}

}  // namespace carat::test
