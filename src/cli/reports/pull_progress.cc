#include "cli/reports/pull_progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <string_view>

#include "base/byte_size.h"

namespace carat::cli {

namespace {
using std::chrono::duration;
using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenLines{200};
constexpr std::chrono::seconds kRateWindow{8};
constexpr double kShortestRate = 0.5;  // seconds

// Asked each time, because a window can change its size.
size_t stderr_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}
}  // namespace

void TransferRate::add(uint64_t bytes, Time now) {
  if (!samples_.empty() && bytes < samples_.back().bytes) samples_.clear();  // another file, or from the start again
  samples_.push_back({now, bytes});
  while (samples_.size() > 2 && now - samples_.front().time > kRateWindow) samples_.pop_front();
}

std::optional<double> TransferRate::bytes_per_second() const {
  if (samples_.empty()) return std::nullopt;
  const double seconds = duration<double>(samples_.back().time - samples_.front().time).count();
  if (seconds < kShortestRate) return std::nullopt;
  return static_cast<double>(samples_.back().bytes - samples_.front().bytes) / seconds;
}

std::string describe_seconds(uint64_t seconds) {
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min {} s", seconds / 60, seconds % 60);
  return fmt::format("{} h {} min", seconds / 3600, seconds % 3600 / 60);
}

std::string describe_progress(const hub::DownloadProgress& progress, std::optional<double> bytes_per_second) {
  const uint64_t percent = progress.total == 0 ? 100 : progress.done * 100 / progress.total;
  if (progress.stage == hub::DownloadProgress::Stage::kChecking) {
    return fmt::format("{}: reading the {} that are here, {} %", progress.path, byte_size(progress.total), percent);
  }
  std::string text =
      fmt::format("{}: {} of {}, {} %", progress.path, byte_size(progress.done), byte_size(progress.total), percent);
  if (!bytes_per_second) return text;
  text += fmt::format(", {}/s", byte_size(static_cast<uint64_t>(*bytes_per_second)));
  if (*bytes_per_second >= 1.0) {
    const double left = static_cast<double>(progress.total - progress.done) / *bytes_per_second;
    text += fmt::format(", {} left", describe_seconds(static_cast<uint64_t>(left)));
  }
  return text;
}

std::string fit_progress(const hub::DownloadProgress& progress, std::optional<double> bytes_per_second,
                         size_t columns) {
  std::string text = describe_progress(progress, bytes_per_second);
  if (text.size() <= columns) return text;
  text.erase(0, progress.path.size() + std::string_view(": ").size());
  return text.substr(0, columns);
}

PullProgress::PullProgress(const hub::PullPlan& plan) : plan_(plan), started_(steady_clock::now()) {
  if (plan.missing_bytes() == 0) return;
  write_message(fmt::format("carat: downloading {} of {} into {}", byte_size(plan.missing_bytes()),
                            plan.reference.text(), plan.repo_folder().string()));
}

void PullProgress::show(const hub::DownloadProgress& progress) {
  const auto now = steady_clock::now();
  if (progress.stage == hub::DownloadProgress::Stage::kDownloading) rate_.add(progress.done, now);
  if (!stderr_is_terminal()) return show_plain(progress);
  if (now - shown_ < kBetweenLines && progress.done < progress.total) return;
  shown_ = now;
  line_.show(fit_progress(progress, rate_.bytes_per_second(), stderr_columns() - 1));
}

void PullProgress::show_plain(const hub::DownloadProgress& progress) {
  if (progress.stage != hub::DownloadProgress::Stage::kDownloading || progress.total == 0) return;
  if (path_ != progress.path) {
    path_ = progress.path;
    quarter_ = static_cast<int>(progress.done * 4 / progress.total);
    return;
  }
  const int quarter = static_cast<int>(progress.done * 4 / progress.total);
  if (quarter <= quarter_) return;
  quarter_ = quarter;
  write_message(fmt::format("carat: {}", describe_progress(progress, rate_.bytes_per_second())));
}

void PullProgress::finish() {
  clear();
  if (plan_.missing_bytes() == 0)
    return write_message(fmt::format("carat: {} is here already", plan_.reference.text()));
  const double seconds = duration<double>(steady_clock::now() - started_).count();
  write_message(fmt::format("carat: downloaded {} in {:.1f} s ({}/s); the checksum is right",
                            byte_size(plan_.missing_bytes()), seconds,
                            byte_size(static_cast<uint64_t>(static_cast<double>(plan_.missing_bytes()) / seconds))));
}

}  // namespace carat::cli
