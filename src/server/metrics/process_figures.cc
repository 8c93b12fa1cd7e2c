#include "server/metrics/process_figures.h"

#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace carat::server {

namespace {

std::string content_of(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

std::optional<uint64_t> number_in(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

std::vector<std::string_view> words_of(std::string_view text) {
  constexpr std::string_view kSpaces = " \n";
  std::vector<std::string_view> words;
  for (size_t begin = text.find_first_not_of(kSpaces); begin != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kSpaces, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kSpaces, end);
  }
  return words;
}

std::optional<uint64_t> boot_time_in(std::string_view machine_stat) {
  constexpr std::string_view kName = "\nbtime ";
  const size_t at = machine_stat.find(kName);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = machine_stat.substr(at + kName.size());
  return number_in(rest.substr(0, rest.find('\n')));
}

}  // namespace

std::optional<ProcessFigures> process_figures_of(std::string_view self_stat, std::string_view machine_stat,
                                                 double ticks_per_second, uint64_t page_bytes) {
  // The second field is the program's name in parentheses, which may hold anything; the others are counted as
  // proc(5) does, where the state is the third.
  const size_t name_end = self_stat.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  const std::vector<std::string_view> fields = words_of(self_stat.substr(name_end + 1));
  const auto field = [&](size_t number) {
    return number - 3 < fields.size() ? number_in(fields[number - 3]) : std::nullopt;
  };
  const auto user_ticks = field(14), system_ticks = field(15), threads = field(20), start_ticks = field(22),
             virtual_bytes = field(23), resident_pages = field(24), boot_time = boot_time_in(machine_stat);
  if (!user_ticks || !system_ticks || !threads || !start_ticks || !virtual_bytes || !resident_pages || !boot_time) {
    return std::nullopt;
  }
  ProcessFigures figures;
  figures.cpu_seconds = static_cast<double>(*user_ticks + *system_ticks) / ticks_per_second;
  figures.start_seconds = static_cast<double>(*boot_time) + static_cast<double>(*start_ticks) / ticks_per_second;
  figures.virtual_bytes = *virtual_bytes;
  figures.resident_bytes = *resident_pages * page_bytes;
  figures.threads = *threads;
  return figures;
}

std::optional<ProcessFigures> read_process_figures() {
  auto figures =
      process_figures_of(content_of("/proc/self/stat"), content_of("/proc/stat"),
                         static_cast<double>(sysconf(_SC_CLK_TCK)), static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
  if (!figures) return std::nullopt;
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator("/proc/self/fd", error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    ++figures->open_files;
  }
  if (figures->open_files > 0) --figures->open_files;  // the folder that was being read
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) figures->most_files = limit.rlim_cur;
  return figures;
}

}  // namespace carat::server
