#include "cli/view/status_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cli/view/sanitise.h"
#include "cli/view/styled_text.h"
#include "cli/view/text_width.h"

namespace carat::cli {

namespace {

// 1204 as "1,204".
std::string grouped(uint64_t value) {
  std::string digits = std::to_string(value);
  for (size_t position = digits.size(); position > 3;) digits.insert(position -= 3, 1, ',');
  return digits;
}

std::string speed(double tps) {
  if (!(tps > 0) || !std::isfinite(tps)) return "";
  if (tps < 10) return fmt::format("{:.1f} t/s", tps);
  return grouped(static_cast<uint64_t>(std::llround(std::min(tps, 1e15)))) + " t/s";
}

std::string with_speed(const std::string& text, double tps) {
  const std::string rate = speed(tps);
  return rate.empty() ? text : text + ", " + rate;
}

unsigned percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<unsigned>((part * 100 + whole / 2) / whole);
}

// The same facts, from the most words to the fewest.
std::vector<std::string> wordings(const TurnStatus& status) {
  const std::string reused = grouped(status.prompt_reused);
  const std::string fresh = grouped(status.prompt_new);
  const std::string made = grouped(status.generated);
  const std::string used = grouped(status.context_used);
  const std::string size = grouped(status.context_size);
  const unsigned share = percent(status.context_used, status.context_size);
  const std::string prompt = fmt::format("prompt {} reused + {} new", reused, fresh);
  const std::string tokens = made + (status.generated == 1 ? " token" : " tokens");
  const std::string short_prompt = fmt::format("{}+{}", reused, fresh);
  const std::string decode = speed(status.decode_tps);
  const std::string pace = decode.empty() ? made + " tok" : decode;
  const std::string answer = with_speed(tokens, status.decode_tps);
  std::string lookup, short_lookup;
  if (status.drafted > 0) {
    const unsigned accepted = percent(status.accepted, status.drafted);
    lookup = fmt::format(" · lookup {:.1f} tokens/pass, {}% accepted", status.tokens_per_pass, accepted);
    short_lookup = fmt::format(" · lookup {:.1f}/pass, {}%", status.tokens_per_pass, accepted);
  }
  return {
      fmt::format("{} · {}{} · context {}/{} ({}%)", with_speed(prompt, status.prompt_tps), answer, lookup, used, size,
                  share),
      fmt::format("prompt {} · {}{} · context {}/{}", with_speed(short_prompt, status.prompt_tps), answer, short_lookup,
                  used, size),
      fmt::format("prompt {} · {}{} · context {}%", short_prompt, answer, short_lookup, share),
      fmt::format("{} · {} · ctx {}%", short_prompt, with_speed(made + " tok", status.decode_tps), share),
      fmt::format("{} · ctx {}%", with_speed(made + " tok", status.decode_tps), share),
      fmt::format("{} · ctx {}%", pace, share),
      fmt::format("ctx {}%", share),
  };
}

void add_note(std::string& text, const std::string& note, unsigned columns) {
  if (note.empty()) return;
  for (const std::string& line : wrap_plain(sanitise(note), columns)) text += "\n" + line;
}

std::string duration(double seconds) {
  if (seconds < 100) return fmt::format("{:.0f} s", std::ceil(seconds));
  if (seconds < 6000) return fmt::format("{:.0f} min", std::ceil(seconds / 60));
  return fmt::format("{:.0f} h", std::ceil(std::min(seconds / 3600, 1e6)));
}

}  // namespace

std::string status_line(const TurnStatus& status, unsigned columns) {
  columns = std::max(columns, 1u);
  std::string line;
  for (std::string& wording : wordings(status)) {
    line = std::move(wording);
    if (text_width(line) <= columns) break;
  }
  line = cut_to_width(line, columns);
  add_note(line, status.ending, columns);
  add_note(line, status.cache_note, columns);
  return line;
}

std::string prefill_progress(uint32_t done, uint32_t total, double tps, unsigned columns) {
  constexpr size_t kSmallestBar = 4;
  const size_t room = std::max(columns, 2u) - 1;
  done = std::min(done, total);
  // Rounded down, so that 100% means all of it.
  const unsigned share = total == 0 ? 100 : static_cast<unsigned>(uint64_t{done} * 100 / total);
  std::vector<std::string> parts = {fmt::format("{:3}%", share), fmt::format("{}/{}", grouped(done), grouped(total))};
  if (const std::string rate = speed(tps); !rate.empty()) {
    parts.push_back(rate);
    if (done < total) parts.push_back(duration((total - done) / tps) + " left");
  }
  // The first of them is the most important.
  std::string figures;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string more = (i == 0 ? " " : i == 1 ? "  " : " · ") + parts[i];
    if (text_width(figures) + text_width(more) + kSmallestBar > room) break;
    figures += more;
  }
  const size_t width = room - text_width(figures);
  const size_t filled = total == 0 ? width : static_cast<size_t>(uint64_t{done} * width / total);
  std::string bar;
  for (size_t i = 0; i < width; ++i) bar += i < filled ? "█" : "░";
  return bar + figures;
}

}  // namespace carat::cli
