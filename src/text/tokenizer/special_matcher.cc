#include "text/tokenizer/special_matcher.h"

#include <algorithm>
#include <cstdint>

namespace carat::text {

SpecialMatcher::SpecialMatcher(const Vocab& vocab) {
  entries_.reserve(vocab.specials().size());
  for (const TokenId token : vocab.specials()) entries_.push_back({vocab.text(token), token});
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.text < b.text; });
  for (const Entry& entry : entries_) starts_[static_cast<uint8_t>(entry.text[0])] = true;
}

std::optional<SpecialMatcher::Match> SpecialMatcher::next(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<uint8_t>(text[begin])]) continue;
    if (const auto match = match_at(text, begin)) return match;
  }
  return std::nullopt;
}

std::optional<SpecialMatcher::Match> SpecialMatcher::match_at(std::string_view text, size_t begin) const {
  std::optional<Match> longest;
  // Invariant: [low, high) are the entries that agree with the text in their first `depth` bytes.
  auto low = entries_.begin(), high = entries_.end();
  for (size_t depth = 0; low != high; ++depth) {
    if (low->text.size() == depth) {  // of entries with a common prefix, the one that is just the prefix comes first
      longest = Match{begin, begin + depth, low->token};
      ++low;
    }
    if (begin + depth == text.size()) break;
    const auto byte = static_cast<uint8_t>(text[begin + depth]);
    const auto at_depth = [depth](const Entry& entry) { return static_cast<uint8_t>(entry.text[depth]); };
    low = std::partition_point(low, high, [&](const Entry& entry) { return at_depth(entry) < byte; });
    high = std::partition_point(low, high, [&](const Entry& entry) { return at_depth(entry) == byte; });
  }
  return longest;
}

}  // namespace carat::text
