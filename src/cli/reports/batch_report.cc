#include "cli/reports/batch_report.h"

#include "cli/reports/pull_progress.h"

namespace carat::cli {

namespace {

constexpr std::chrono::milliseconds kBetweenLines{200};
constexpr double kShortestRate = 1.0;  // seconds

// "12,345"
std::string grouped(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

}  // namespace

std::string describe_batch(const batch::BatchProgress& progress, std::optional<double> lines_per_second) {
  std::string text = fmt::format("{} of {} lines", grouped(progress.done), grouped(progress.total));
  if (progress.failed > 0) text += fmt::format(" · {} failed", grouped(progress.failed));
  if (!lines_per_second) return text;
  text += fmt::format(" · {:.{}f} lines/s · {} t/s", *lines_per_second, *lines_per_second < 100.0 ? 1 : 0,
                      grouped(static_cast<uint64_t>(progress.tokens_per_second)));
  if (*lines_per_second <= 0.0 || progress.done == progress.total) return text;
  const double left = static_cast<double>(progress.total - progress.done) / *lines_per_second;
  return text + fmt::format(" · {} left", describe_seconds(static_cast<uint64_t>(left)));
}

void BatchReport::show(const batch::BatchProgress& progress) {
  const auto now = Clock::now();
  if (stderr_is_terminal()) {
    if (now - shown_ < kBetweenLines) return;
    shown_ = now;
    return line_.show(describe_batch(progress, lines_per_second(progress)));
  }
  const uint64_t tenth = progress.total == 0 ? 10 : 10 * progress.done / progress.total;
  if (tenth == tenth_) return;
  tenth_ = tenth;
  if (progress.done == done_before_) return;
  write_message("carat: " + describe_batch(progress, lines_per_second(progress)));
}

std::optional<double> BatchReport::lines_per_second(const batch::BatchProgress& progress) const {
  const double seconds = std::chrono::duration<double>(Clock::now() - started_).count();
  if (seconds < kShortestRate || progress.done == done_before_) return std::nullopt;
  return static_cast<double>(progress.done - done_before_) / seconds;
}

}  // namespace carat::cli
