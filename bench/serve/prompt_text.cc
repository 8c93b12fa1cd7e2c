#include "serve/prompt_text.h"

#include <array>
#include <string_view>

namespace carat::serve_bench {

namespace {
constexpr std::array<std::string_view, 128> kWords = {
    "time",      "year",       "people",      "way",       "day",       "man",       "thing",  "woman",   "life",
    "child",     "world",      "school",      "state",     "family",    "student",   "group",  "country", "problem",
    "hand",      "part",       "place",       "case",      "week",      "company",   "system", "program", "question",
    "work",      "government", "number",      "night",     "point",     "home",      "water",  "room",    "mother",
    "area",      "money",      "story",       "fact",      "month",     "lot",       "right",  "study",   "book",
    "eye",       "job",        "word",        "business",  "issue",     "side",      "kind",   "head",    "house",
    "service",   "friend",     "father",      "power",     "hour",      "game",      "line",   "end",     "member",
    "law",       "car",        "city",        "community", "name",      "president", "team",   "minute",  "idea",
    "kid",       "body",       "information", "back",      "parent",    "face",      "others", "level",   "office",
    "door",      "health",     "person",      "art",       "war",       "history",   "party",  "result",  "change",
    "morning",   "reason",     "research",    "girl",      "guy",       "moment",    "air",    "teacher", "force",
    "education", "good",       "new",         "first",     "last",      "long",      "great",  "little",  "own",
    "other",     "old",        "big",         "high",      "different", "small",     "large",  "next",    "early",
    "young",     "important",  "few",         "public",    "bad",       "same",      "able",   "white",   "black",
    "red",       "blue"};
}  // namespace

std::string PromptText::draw(uint32_t tokens) {
  std::string text;
  if (vocabulary_ == 0) {
    text.reserve(size_t{tokens} * 7);
    for (uint32_t i = 0; i < tokens; ++i) {
      if (i > 0) text += ' ';
      text += kWords[random_() % kWords.size()];
    }
    return text;
  }
  // Control tokens stand at both ends of vocabularies.
  const uint32_t first = vocabulary_ / 8, count = vocabulary_ / 2 + 1;
  for (uint32_t i = 0; i < tokens; ++i) {
    if (i > 0) text += ',';
    text += std::to_string(first + random_() % count);
  }
  return text;
}

std::string PromptText::joined(const std::string& first, const std::string& second) const {
  if (first.empty() || second.empty()) return first + second;
  return first + (vocabulary_ == 0 ? ' ' : ',') + second;
}

}  // namespace carat::serve_bench
