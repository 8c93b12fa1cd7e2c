#include "server/api/reply.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ctime>

namespace carat::server {

void append_sse(std::string_view json, std::string& out, std::string_view event) {
  if (!event.empty()) out.append("event: ").append(event).append("\n");
  out.append("data: ").append(json).append("\n\n");
}

void add_retry_headers(const Problem& problem, Response& response) {
  constexpr double kMostSeconds = 86400.0;
  if (problem.retry_after) {
    // A NaN counts as no time at all.
    const double seconds = *problem.retry_after > 0.0 ? std::min(*problem.retry_after, kMostSeconds) : 0.0;
    response.headers.emplace_back("retry-after",
                                  fmt::format("{}", std::max<int64_t>(1, std::llround(std::ceil(seconds)))));
    response.headers.emplace_back("retry-after-ms", fmt::format("{}", std::llround(std::ceil(1e3 * seconds))));
  }
  const bool fails_again =
      problem.refusal == Refusal::kNotSupported || (problem.refusal == Refusal::kFailed && problem.is_repeatable);
  if (fails_again) response.headers.emplace_back("x-should-retry", "false");
}

std::string rfc3339(double unix_seconds, bool nanoseconds) {
  const double whole = std::floor(unix_seconds);
  const std::tm utc = fmt::gmtime(static_cast<std::time_t>(whole));
  if (!nanoseconds) return fmt::format("{:%Y-%m-%dT%H:%M:%S}Z", utc);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:09}Z", utc, static_cast<long>((unix_seconds - whole) * 1e9));
}

}  // namespace carat::server
