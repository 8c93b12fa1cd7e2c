#include "cli/help/nearest_flag.h"

#include <algorithm>
#include <vector>

namespace carat::cli {

size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the table of distances between beginnings of both.
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::string nearest_flag(const CLI::App& command, std::string_view word) {
  const std::string_view name = word.substr(0, word.find('='));
  std::string nearest;
  size_t best = std::max<size_t>(2, name.size() / 3) + 1;
  const auto consider = [&](const std::string& flag) {
    // A flag that only begins with what was written is nearer than its length says.
    const size_t distance = flag.starts_with(name) && name.size() > 3 ? 1 : edit_distance(name, flag);
    if (distance < best) {
      best = distance;
      nearest = flag;
    }
  };
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& flag : option->get_lnames()) consider("--" + flag);
    for (const std::string& flag : option->get_snames()) consider("-" + flag);
  }
  return nearest;
}

}  // namespace carat::cli
