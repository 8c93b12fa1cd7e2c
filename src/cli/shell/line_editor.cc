#include "cli/shell/line_editor.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "cli/shell/terminal_editor.h"
#include "cli/view/message.h"

namespace carat::cli {

namespace {

constexpr std::string_view kQuotes = "\"\"\"";
constexpr std::string_view kContinuation = "... ";
constexpr size_t kLongestLine = size_t{64} << 20;

void warn_on_stderr(std::string_view text) {
  const std::string line =
      message_lines(fmt::format("carat: warning: {}", text), Screen::of(STDERR_FILENO, ColourChoice::kNever));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::string_view without_spaces_at_end(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \t") + 1);
}

// The terminal that shows what is typed: standard output, or standard error where the answers go to a file.
int prompt_descriptor() { return ::isatty(STDOUT_FILENO) == 1 ? STDOUT_FILENO : STDERR_FILENO; }

void show_prompt(std::string_view prompt) {
  if (::isatty(STDIN_FILENO) != 1) return;
  // A prompt that cannot be shown is no reason not to read.
  [[maybe_unused]] const ssize_t written = ::write(prompt_descriptor(), prompt.data(), prompt.size());
}

}  // namespace

LineEditor::LineEditor(Options options)
    : history_(std::move(options.history_file), options.warn ? options.warn : warn_on_stderr),
      editor_(TerminalEditor::open(prompt_descriptor(), std::move(options.complete))) {
  if (!editor_) return;
  for (const std::string& entry : history_.entries()) editor_->remember(entry);
}

LineEditor::~LineEditor() = default;

LineEditor::Read LineEditor::ask(std::string_view prompt, std::string& line) {
  line.clear();
  return editor_ ? editor_->read(prompt, line) : read_plain(prompt, line);
}

LineEditor::Read LineEditor::read(std::string_view prompt, std::string& line) {
  was_quoted_ = false;
  std::string typed;
  const Read first = ask(prompt, typed);
  if (first != Read::kLine) return first;
  if (typed.starts_with(kQuotes)) {
    was_quoted_ = true;
    while (!without_spaces_at_end(typed).substr(kQuotes.size()).ends_with(kQuotes)) {
      std::string more;
      const Read next = ask(kContinuation, more);
      if (next == Read::kInterrupted) return next;
      if (next == Read::kEnd) {
        typed += "\n\"\"\"";  // the end of the input closes the quotes
        break;
      }
      (typed += '\n') += more;
    }
  }
  if (history_.add(typed) && editor_) editor_->remember(typed);
  if (!was_quoted_) {
    line = std::move(typed);
    return Read::kLine;
  }
  std::string_view content = without_spaces_at_end(typed);
  content = content.substr(kQuotes.size(), content.size() - 2 * kQuotes.size());
  if (content.starts_with('\n')) content.remove_prefix(1);
  if (content.ends_with('\n')) content.remove_suffix(1);
  line = content;
  return Read::kLine;
}

LineEditor::Read LineEditor::read_plain(std::string_view prompt, std::string& line) {
  show_prompt(prompt);
  size_t searched = 0;
  size_t newline = std::string::npos;
  while (!at_end_ && (newline = buffered_.find('\n', searched)) == std::string::npos) {
    searched = buffered_.size();
    if (searched > kLongestLine) {
      fail(ErrorCode::kBadArgument, "standard input has a line of more than 64 MiB: give long texts in several lines");
    }
    std::array<char, 64 << 10> block;
    const ssize_t got = ::read(STDIN_FILENO, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(ErrorCode::kIo, "cannot read standard input: {}", std::strerror(errno));
    at_end_ = got == 0;
    buffered_.append(block.data(), static_cast<size_t>(got));
  }
  if (at_end_) newline = buffered_.find('\n');
  if (newline == std::string::npos && buffered_.empty()) return Read::kEnd;
  line = buffered_.substr(0, newline);
  buffered_.erase(0, newline == std::string::npos ? newline : newline + 1);
  if (line.ends_with('\r')) line.pop_back();
  return Read::kLine;
}

}  // namespace carat::cli
