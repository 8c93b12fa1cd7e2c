#include "server/api/dialect.h"

#include <algorithm>

#include "server/api/anthropic/common.h"
#include "server/api/ollama/common.h"
#include "server/api/openai/common.h"

namespace carat::server {

namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string_view without_latest(std::string_view name) {
  constexpr std::string_view kLatest = ":latest";
  const size_t length = name.size() - std::min(name.size(), kLatest.size());
  const std::string_view tag = name.substr(length);
  return std::equal(tag.begin(), tag.end(), kLatest.begin(), kLatest.end(),
                    [](char a, char b) { return lower(a) == b; })
             ? name.substr(0, length)
             : name;
}

bool same_model(std::string_view a, std::string_view b) {
  a = without_latest(a);
  b = without_latest(b);
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace

Response refusal_response(Dialect dialect, const Problem& problem, std::string_view request_id) {
  switch (dialect) {
    case Dialect::kOpenAi:
      return openai_error(problem);
    case Dialect::kAnthropic:
      return anthropic_error(problem, request_id);
    case Dialect::kOllama:
      return ollama_error(problem);
  }
  return openai_error(problem);
}

bool matches_model(std::string_view name, const ServerFacts& facts) {
  if (name.empty() || same_model(name, facts.model_id)) return true;
  return std::any_of(facts.aliases.begin(), facts.aliases.end(),
                     [&](const std::string& alias) { return same_model(name, alias); });
}

}  // namespace carat::server
