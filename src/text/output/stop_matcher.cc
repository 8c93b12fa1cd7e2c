#include "text/output/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace carat::text {

namespace {

std::vector<size_t> borders_of(std::string_view text) {
  std::vector<size_t> borders(text.size() + 1, 0);
  for (size_t i = 1; i < text.size(); ++i) {
    size_t border = borders[i];
    while (border > 0 && text[border] != text[i]) border = borders[border];
    borders[i + 1] = text[border] == text[i] ? border + 1 : 0;
  }
  return borders;
}

// The first `count` bytes of two texts behind each other.
std::string beginning(std::string_view first, std::string_view second, size_t count) {
  std::string out(first.substr(0, std::min(count, first.size())));
  if (count > first.size()) out += second.substr(0, count - first.size());
  return out;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    if (stop.empty()) fail(ErrorCode::kBadArgument, "a stop text is empty; leave it out");
    std::vector<size_t> borders = borders_of(stop);
    stops_.push_back({std::move(stop), std::move(borders)});
  }
}

void StopMatcher::advance(Stop& stop, char c) {
  if (stop.matched == stop.text.size()) stop.matched = stop.borders[stop.matched];
  while (stop.matched > 0 && stop.text[stop.matched] != c) stop.matched = stop.borders[stop.matched];
  if (stop.text[stop.matched] == c) ++stop.matched;
}

size_t StopMatcher::most_matched() const {
  size_t best = kNone;
  for (size_t i = 0; i < stops_.size(); ++i) {
    if (stops_[i].matched > (best == kNone ? 0 : stops_[best].matched)) best = i;
  }
  return best;
}

std::string StopMatcher::append(std::string_view text) {
  if (has_found()) return {};
  if (stops_.empty()) return std::string(text);
  // What was held back is a beginning of a stop, so it need not be kept.
  const size_t holder = most_matched();
  const std::string_view held =
      holder == kNone ? std::string_view() : std::string_view(stops_[holder].text).substr(0, stops_[holder].matched);
  for (size_t i = 0; i < text.size(); ++i) {
    for (size_t j = 0; j < stops_.size(); ++j) {
      advance(stops_[j], text[i]);
      const bool is_whole = stops_[j].matched == stops_[j].text.size();
      if (is_whole && (!has_found() || stops_[j].text.size() > found().size())) found_ = j;
    }
    if (has_found()) return beginning(held, text, held.size() + i + 1 - found().size());
  }
  const size_t last = most_matched();
  const size_t kept = last == kNone ? 0 : stops_[last].matched;
  return beginning(held, text, held.size() + text.size() - kept);
}

std::string StopMatcher::flush() {
  const size_t holder = most_matched();
  if (has_found() || holder == kNone) return {};
  std::string held = stops_[holder].text.substr(0, stops_[holder].matched);
  for (Stop& stop : stops_) stop.matched = 0;
  return held;
}

}  // namespace carat::text
