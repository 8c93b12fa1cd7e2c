#include "cli/view/thought_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cli/view/styled_text.h"
#include "cli/view/text_width.h"

namespace carat::cli {

namespace {

constexpr Style kDim = {.dim = true};

Line dimmed(std::string_view text, const Screen& screen) {
  return {styled(text, kDim, screen.colour), text_width(text), 0};
}

std::string count_of_tokens(uint32_t tokens) { return tokens == 1 ? "1 token" : fmt::format("{} tokens", tokens); }

}  // namespace

ShowThinking parse_show_thinking(std::string_view word) {
  if (word == "full") return ShowThinking::kFull;
  if (word == "summary") return ShowThinking::kSummary;
  if (word == "none") return ShowThinking::kNone;
  fail(ErrorCode::kBadArgument, "--show-thinking {}: use full, summary or none", word);
}

ThoughtView::ThoughtView(Write write, const Screen& screen, ShowThinking show)
    : screen_(screen), show_(show), plain_(!screen.is_terminal), region_(std::move(write), screen) {}

void ThoughtView::append(std::string_view utf8) {
  if (show_ != ShowThinking::kFull || utf8.empty()) return;
  if (plain_) {
    region_.write_text(utf8);
    ends_line_ = utf8.ends_with('\n');
  } else {
    take(sanitiser_.append(utf8));
  }
  region_.flush();
}

void ThoughtView::take(std::string_view text) {
  if (!text.empty() && !std::exchange(begun_, true)) region_.update({dimmed("thinking", screen_)}, 1);
  while (!text.empty()) {
    const size_t newline = text.find('\n');
    line_ += text.substr(0, newline);
    draw(newline != std::string_view::npos);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
  }
}

// Lines but the last cannot change any more, since words only come to the end; the last one can still lose its last
// word to the next.
void ThoughtView::draw(bool line_ends) {
  const size_t width = std::max(screen_.columns(), 12u) - 1;
  const std::vector<StyledLine> wrapped = wrap({{line_, kDim}}, width);
  std::vector<Line> lines;
  for (const StyledLine& line : wrapped) lines.push_back(write_line(line, screen_.colour));
  if (line_ends) {
    if (lines.empty()) lines.emplace_back();
    region_.update(lines, lines.size());
    line_.clear();
    return;
  }
  if (lines.empty()) return;
  region_.update(lines, lines.size() - 1);
  line_.erase(0, wrapped.back().source);
}

// The tokens are left out where there is no room for them.
void ThoughtView::show_summary(const std::string& time, const std::string& tokens, bool last) {
  const size_t width = std::max(screen_.columns(), 2u) - 1;
  const std::string whole = time + tokens;
  const std::string_view text = text_width(whole) <= width ? std::string_view(whole) : cut_to_width(time, width);
  region_.update({dimmed(text, screen_)}, last ? 1 : 0);
  region_.flush();
}

void ThoughtView::progress(double seconds, uint32_t tokens) {
  if (show_ != ShowThinking::kSummary || !screen_.can_move_cursor) return;
  show_summary(fmt::format("thinking… {:.0f} s", std::floor(seconds)), ", " + count_of_tokens(tokens), false);
}

void ThoughtView::finish(double seconds, uint32_t tokens) {
  if (show_ == ShowThinking::kSummary && screen_.is_terminal) {
    return show_summary(fmt::format("thought for {:.1f} s", seconds), fmt::format(" ({})", count_of_tokens(tokens)),
                        true);
  }
  if (show_ != ShowThinking::kFull) return;
  if (plain_) {
    if (!std::exchange(ends_line_, true)) region_.end_line();
  } else {
    take(sanitiser_.finish());
    if (!line_.empty()) draw(true);
  }
  region_.flush();
}

}  // namespace carat::cli
