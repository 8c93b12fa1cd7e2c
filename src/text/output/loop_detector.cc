#include "text/output/loop_detector.h"

#include <algorithm>

#include "base/error.h"

namespace carat::text {

LoopDetector::LoopDetector(const Options& options) : options_(options) {
  if (options.longest_period == 0 || options.copies == 0) {
    fail(ErrorCode::kBadArgument, "loop detection needs a longest period and a number of copies of at least 1");
  }
  recent_.resize(options.longest_period);
  matches_.resize(options.longest_period);
}

std::optional<LoopDetector::Loop> LoopDetector::append(TokenId token) {
  const uint64_t longest = options_.longest_period;
  std::optional<Loop> loop;
  for (uint64_t period = 1; period <= std::min(count_, longest); ++period) {
    uint64_t& matches = matches_[period - 1];
    matches = recent_[(count_ - period) % longest] == token ? matches + 1 : 0;
    if (!loop && matches >= std::max<uint64_t>(options_.copies * period, options_.tokens)) {
      loop = Loop{static_cast<uint32_t>(period), matches / period + 1};
    }
  }
  recent_[count_ % longest] = token;
  ++count_;
  return loop;
}

}  // namespace carat::text
