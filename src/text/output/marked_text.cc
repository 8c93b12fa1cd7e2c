#include "text/output/marked_text.h"

#include <algorithm>

namespace carat::text {

void MarkedText::append(std::string_view text, bool from_template) {
  if (text.empty()) return;
  text_ += text;
  if (runs_.empty() || runs_.back().from_template != from_template) {
    runs_.push_back({text_.size(), from_template});
  } else {
    runs_.back().end = text_.size();
  }
}

void MarkedText::append(const MarkedText& other) {
  if (&other == this) return append(MarkedText(other));
  other.for_each_run([&](std::string_view run, bool from_template) { append(run, from_template); });
}

MarkedText MarkedText::part(size_t begin, size_t end) const {
  MarkedText result;
  auto run = std::upper_bound(runs_.begin(), runs_.end(), begin, [](size_t at, const Run& r) { return at < r.end; });
  for (; begin < end; ++run) {
    const size_t stop = std::min(end, run->end);
    result.append(std::string_view(text_).substr(begin, stop - begin), run->from_template);
    begin = stop;
  }
  return result;
}

std::vector<PromptPiece> MarkedText::pieces() const {
  std::vector<PromptPiece> pieces;
  pieces.reserve(runs_.size());
  for_each_run([&](std::string_view run, bool from_template) { pieces.push_back({std::string(run), from_template}); });
  return pieces;
}

}  // namespace carat::text
