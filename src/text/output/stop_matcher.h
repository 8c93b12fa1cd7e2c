#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace carat::text {

// Looks for the first of several texts, the stops, in a text that comes in pieces of any size. What may be the
// beginning of a stop is held back until it is decided. The time is linear in the text for each stop, and so is the
// memory in the length of the stops.
class StopMatcher {
 public:
  // Throws kBadArgument for an empty stop.
  explicit StopMatcher(std::vector<std::string> stops = {});

  // The text that comes before any stop, as far as that is certain. Of several stops the one that ends first is found,
  // and of those that end at the same place the longest. Everything after it is dropped.
  std::string append(std::string_view text);
  // What was held back: it is followed by the end, or by something that no stop goes on behind.
  std::string flush();

  bool has_found() const { return found_ != kNone; }
  const std::string& found() const { return stops_[found_].text; }  // only where has_found()

 private:
  static constexpr size_t kNone = SIZE_MAX;
  struct Stop {
    std::string text;
    // By length of a beginning of the stop: the longest of its ends that is a shorter beginning of the stop itself.
    std::vector<size_t> borders;
    size_t matched = 0;  // the longest beginning of the stop that the text so far ends with
  };

  static void advance(Stop& stop, char c);
  // The stop of which most is matched; kNone when nothing is.
  size_t most_matched() const;

  std::vector<Stop> stops_;
  size_t found_ = kNone;
};

}  // namespace carat::text
