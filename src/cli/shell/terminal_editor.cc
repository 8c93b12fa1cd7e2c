#include "cli/shell/terminal_editor.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#ifdef CARAT_HAVE_LIBEDIT
#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <utility>

#include "base/utf8.h"
#include "cli/shell/terminal_guard.h"
#include "cli/view/sanitise.h"
#include "cli/view/text_width.h"
#endif

namespace carat::cli {

Completion complete_word(std::string_view word, const std::vector<std::string>& candidates) {
  Completion completion;
  for (const std::string& candidate : candidates) {
    if (candidate.starts_with(word)) completion.choices.push_back(candidate);
  }
  std::vector<std::string>& choices = completion.choices;
  if (choices.empty()) return completion;
  std::string_view shared = choices.front();
  for (const std::string& choice : choices) {
    const auto differs = std::mismatch(shared.begin(), shared.end(), choice.begin(), choice.end()).first;
    shared = shared.substr(0, static_cast<size_t>(differs - shared.begin()));
  }
  completion.addition = shared.substr(word.size());
  // A folder is likely to be continued.
  if (choices.size() == 1 && !choices.front().ends_with('/')) completion.addition += ' ';
  if (!completion.addition.empty()) choices.clear();
  return completion;
}

#ifndef CARAT_HAVE_LIBEDIT

bool TerminalEditor::is_available() { return false; }

std::unique_ptr<TerminalEditor> TerminalEditor::open(int, Complete) { return nullptr; }

#else

namespace {

constexpr size_t kLargestPaste = size_t{4} << 20;  // characters; far beyond any context
constexpr int kHistorySize = 2000;
constexpr wchar_t kPromptMark = L'\1';  // around what takes no column in a prompt
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";

// wchar_t holds code points here, whatever the locale.
std::wstring widen(std::string_view text) {
  std::wstring wide;
  while (!text.empty()) {
    const CodePoint next = first_code_point(text);
    wide += static_cast<wchar_t>(next.value);
    text.remove_prefix(next.length);
  }
  return wide;
}

std::string narrow(std::wstring_view wide) {
  std::string text;
  for (const wchar_t character : wide) append_utf8(text, static_cast<uint32_t>(character));
  return text;
}

// libedit must be told which parts of a prompt are colours. It drops one at the very end, so that goes before the last
// space.
std::wstring marked_prompt(std::string_view prompt) {
  std::string text(prompt);
  const size_t last = text.rfind(' ');
  if (text.ends_with('m') && last != std::string::npos && text.find('\x1b', last) == last + 1) {
    text = text.substr(0, last) + text.substr(last + 1) + " ";
  }
  std::wstring marked;
  bool in_sequence = false;
  for (const wchar_t character : widen(text)) {
    if (character == L'\x1b') {
      marked += kPromptMark;
      in_sequence = true;
    }
    marked += character;
    if (in_sequence && character == L'm') {
      marked += kPromptMark;
      in_sequence = false;
    }
  }
  return marked;
}

// What of a marked prompt takes columns.
std::string without_marked(std::wstring_view prompt) {
  std::wstring plain;
  bool in_mark = false;
  for (const wchar_t character : prompt) {
    if (character == kPromptMark) {
      in_mark = !in_mark;
    } else if (!in_mark) {
      plain += character;
    }
  }
  return narrow(plain);
}

// libedit decodes and writes characters as the locale says. Where that is not UTF-8 (the C locale of many containers)
// the portable UTF-8 one is taken, for characters only.
void use_utf8_characters() {
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
}

volatile std::sig_atomic_t window_changed = 0;
void note_window_change(int) { window_changed = 1; }

// Lets a changed window interrupt the waiting for a key, and only that: a change at any other time is noted when the
// waiting begins, so that none is missed between a look at the flag and the wait.
class WindowWatch {
 public:
  WindowWatch() {
    struct sigaction action = {};
    action.sa_handler = note_window_change;
    sigemptyset(&action.sa_mask);
    ::sigaction(SIGWINCH, &action, &before_);
    sigset_t change;
    sigemptyset(&change);
    sigaddset(&change, SIGWINCH);
    ::pthread_sigmask(SIG_BLOCK, &change, &mask_before_);
    while_waiting_ = mask_before_;
    sigdelset(&while_waiting_, SIGWINCH);
  }
  ~WindowWatch() {
    ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
    ::sigaction(SIGWINCH, &before_, nullptr);
  }
  WindowWatch(const WindowWatch&) = delete;
  WindowWatch& operator=(const WindowWatch&) = delete;

  // False when a signal came first.
  bool wait_for_input() const {
    pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    return ::ppoll(&input, 1, nullptr, &while_waiting_) >= 0 || errno != EINTR;
  }

 private:
  struct sigaction before_ = {};
  sigset_t mask_before_ = {}, while_waiting_ = {};
};

// Signals of the keyboard are off while a line is edited: Ctrl-C and Ctrl-Z are keys like others. So libedit need not
// handle signals (it would send them on to the whole process group). CR and LF stay what they are, so that both
// together in pasted text are one newline.
class LibeditEditor : public TerminalEditor {
 public:
  LibeditEditor(int output, Complete complete);
  ~LibeditEditor() override;

  LineEditor::Read read(std::string_view prompt, std::string& line) override;
  void remember(const std::string& entry) override;

 private:
  static LibeditEditor& of(EditLine* edit);
  static wchar_t* prompt_of(EditLine* edit);
  static int get_character(EditLine* edit, wchar_t* character);
  template <unsigned char (LibeditEditor::*kCommand)()>
  static unsigned char on_key(EditLine* edit, wint_t);

  unsigned char complete_line();
  unsigned char interrupt();
  unsigned char suspend();
  unsigned char paste();
  void bind(const wchar_t* key, const wchar_t* command);
  void bind_own(const wchar_t* key, const wchar_t* name, unsigned char (*command)(EditLine*, wint_t));
  int read_byte(char& byte);
  void list(const std::vector<std::string>& choices);
  void redraw();
  size_t window_columns() const;

  int output_;
  Complete complete_;
  FILE* stream_ = nullptr;
  EditLine* edit_ = nullptr;
  HistoryW* history_ = nullptr;
  std::wstring prompt_;
  std::string plain_prompt_;            // without colours
  TerminalGuard* guard_ = nullptr;      // while a line is read
  const WindowWatch* watch_ = nullptr;  // the same
  bool interrupted_ = false;
  std::exception_ptr failure_;
};

LibeditEditor::LibeditEditor(int output, Complete complete) : output_(output), complete_(std::move(complete)) {
  use_utf8_characters();
  stream_ = output == STDOUT_FILENO ? stdout : stderr;
  edit_ = el_init_fd("carat", stdin, stream_, stderr, STDIN_FILENO, output, STDERR_FILENO);
  history_ = history_winit();
  if (edit_ == nullptr || history_ == nullptr) throw std::bad_alloc();
  HistEventW event = {};
  history_w(history_, &event, H_SETSIZE, kHistorySize);
  el_wset(edit_, EL_CLIENTDATA, this);
  el_wset(edit_, EL_PROMPT_ESC, &prompt_of, kPromptMark);
  el_wset(edit_, EL_EDITOR, L"emacs");
  el_wset(edit_, EL_HIST, &history_w, history_);
  el_wset(edit_, EL_GETCFN, &get_character);
  el_wset(edit_, EL_SIGNAL, 0);
  el_wset(edit_, EL_SETTY, L"-d", L"-isig", L"-icrnl", L"-inlcr", static_cast<wchar_t*>(nullptr));
  bind(L"^R", L"em-inc-search-prev");
  bind(L"^W", L"ed-delete-prev-word");
  bind(L"^U", L"vi-kill-line-prev");
  for (const wchar_t* home : {L"\\e[H", L"\\e[1~", L"\\eOH"}) bind(home, L"ed-move-to-beg");
  for (const wchar_t* end : {L"\\e[F", L"\\e[4~", L"\\eOF"}) bind(end, L"ed-move-to-end");
  bind(L"\\e[3~", L"ed-delete-next-char");
  bind(L"\\e[1;5C", L"em-next-word");
  bind(L"\\e[1;5D", L"ed-prev-word");
  el_source(edit_, nullptr);  // what the user's ~/.editrc wants
  bind_own(L"^I", L"carat-complete", &on_key<&LibeditEditor::complete_line>);
  bind_own(L"^C", L"carat-interrupt", &on_key<&LibeditEditor::interrupt>);
  bind_own(L"^Z", L"carat-suspend", &on_key<&LibeditEditor::suspend>);
  bind_own(L"\\e[200~", L"carat-paste", &on_key<&LibeditEditor::paste>);
}

LibeditEditor::~LibeditEditor() {
  el_end(edit_);
  history_wend(history_);
}

void LibeditEditor::bind(const wchar_t* key, const wchar_t* command) {
  el_wset(edit_, EL_BIND, key, command, static_cast<wchar_t*>(nullptr));
}

void LibeditEditor::bind_own(const wchar_t* key, const wchar_t* name, unsigned char (*command)(EditLine*, wint_t)) {
  el_wset(edit_, EL_ADDFN, name, L"of carat", command);
  bind(key, name);
}

LibeditEditor& LibeditEditor::of(EditLine* edit) {
  void* self = nullptr;
  el_wget(edit, EL_CLIENTDATA, &self);
  return *static_cast<LibeditEditor*>(self);
}

wchar_t* LibeditEditor::prompt_of(EditLine* edit) { return of(edit).prompt_.data(); }

// 1, or 0 at the end, or -1 for an error. Byte by byte: what is typed ahead for the next program must stay where it is.
int LibeditEditor::read_byte(char& byte) {
  while (true) {
    if (window_changed != 0) {
      window_changed = 0;
      redraw();
    }
    if (watch_ != nullptr && !watch_->wait_for_input()) continue;
    const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
    if (got >= 0) return static_cast<int>(got);
    if (errno != EINTR) return -1;
  }
}

// For a window of another size. libedit would draw the line again where the cursor is; so that goes to where the line
// begins first, which is as far up as a terminal folds what stands before the cursor.
void LibeditEditor::redraw() {
  el_resize(edit_);
  const size_t columns = window_columns();
  const LineInfoW* info = el_wline(edit_);
  std::string before = plain_prompt_ + narrow({info->buffer, static_cast<size_t>(info->cursor - info->buffer)});
  size_t rows = 0;
  for (size_t start = 0; start <= before.size();) {
    const size_t end = std::min(before.find('\n', start), before.size());
    rows += text_width(std::string_view(before).substr(start, end - start)) / columns;
    if (end < before.size()) ++rows;
    start = end + 1;
  }
  const std::string up = rows > 0 ? "\x1b[" + std::to_string(rows) + "A" : "";
  const std::string sequence = up + "\r\x1b[J";
  std::fwrite(sequence.data(), 1, sequence.size(), stream_);
  std::fflush(stream_);
  el_wset(edit_, EL_REFRESH);
}

size_t LibeditEditor::window_columns() const {
  winsize window = {};
  return ::ioctl(output_, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 ? window.ws_col : 80;
}

int LibeditEditor::get_character(EditLine* edit, wchar_t* character) {
  std::string bytes;
  do {
    char byte = 0;
    const int got = of(edit).read_byte(byte);
    if (got <= 0) return got;
    bytes += byte;
  } while (utf8_incomplete_suffix(bytes) == bytes.size());
  *character = widen(bytes).front();
  return 1;
}

// Exceptions must not pass through libedit, which is C: the line ends, and they are thrown again behind it.
template <unsigned char (LibeditEditor::*kCommand)()>
unsigned char LibeditEditor::on_key(EditLine* edit, wint_t) {
  LibeditEditor& self = of(edit);
  try {
    return (self.*kCommand)();
  } catch (...) {
    self.failure_ = std::current_exception();
    return CC_EOF;
  }
}

unsigned char LibeditEditor::complete_line() {
  if (!complete_) return CC_ERROR;
  const LineInfoW* info = el_wline(edit_);
  const std::string before = narrow({info->buffer, static_cast<size_t>(info->cursor - info->buffer)});
  const std::string line = before + narrow({info->cursor, static_cast<size_t>(info->lastchar - info->cursor)});
  const std::string_view word = std::string_view(before).substr(before.find_last_of(" \n") + 1);
  const Completion completion = complete_word(word, complete_(line, before.size()));
  if (!completion.addition.empty()) {
    el_winsertstr(edit_, widen(completion.addition).c_str());
    return CC_REFRESH;
  }
  if (completion.choices.empty()) return CC_REFRESH_BEEP;
  list(completion.choices);
  return CC_REDISPLAY;
}

void LibeditEditor::list(const std::vector<std::string>& choices) {
  const size_t columns = window_columns();
  std::string text = "\n";
  size_t used = 0;
  for (const std::string& choice : choices) {
    const std::string shown = sanitise(choice);
    const size_t width = text_width(shown);
    if (used > 0 && used + 2 + width >= columns) {
      text += '\n';
      used = 0;
    }
    text += (used > 0 ? "  " : "") + shown;
    used += width + (used > 0 ? 2 : 0);
  }
  text += '\n';
  std::fwrite(text.data(), 1, text.size(), stream_);
  std::fflush(stream_);
}

// Ends the line as Enter would, which leaves the cursor below it.
unsigned char LibeditEditor::interrupt() {
  interrupted_ = true;
  const LineInfoW* info = el_wline(edit_);
  el_cursor(edit_, static_cast<int>(info->lastchar - info->cursor));
  el_winsertstr(edit_, L"^C");
  el_wpush(edit_, L"\n");
  return CC_REFRESH;
}

unsigned char LibeditEditor::suspend() {
  el_wset(edit_, EL_PREP_TERM, 0);
  guard_->pause();
  std::raise(SIGTSTP);
  guard_->resume();
  el_wset(edit_, EL_PREP_TERM, 1);
  return CC_REDISPLAY;
}

// The terminal sends pasted text between brackets, with CR for the ends of lines.
unsigned char LibeditEditor::paste() {
  std::wstring pasted;
  bool after_return = false;
  std::wstring tail;  // what may be the closing bracket
  while (tail != kPasteEnd) {
    wchar_t character = 0;
    if (get_character(edit_, &character) != 1) return CC_EOF;
    const bool goes_on = tail.size() < kPasteEnd.size() && kPasteEnd[tail.size()] == character;
    if (goes_on) {
      tail += character;
      continue;
    }
    // Not the bracket after all: its first character is a control character, which goes, and the rest is text.
    if (!tail.empty()) pasted += tail.substr(1);
    tail.assign(character == L'\x1b' ? 1 : 0, character);
    const bool line_feed_of_pair = character == L'\n' && after_return;
    after_return = character == L'\r';
    if (line_feed_of_pair || pasted.size() >= kLargestPaste) continue;
    if (character == L'\r' || character == L'\n') pasted += L'\n';
    const bool is_control = character < 0x20 || (character >= 0x7f && character < 0xa0);
    if (!is_control || character == L'\t') pasted += character;
  }
  // A newline at the end would only be an empty line: the Enter key sends the text.
  pasted.erase(pasted.find_last_not_of(L'\n') + 1);
  if (el_winsertstr(edit_, pasted.c_str()) != 0) return CC_REFRESH_BEEP;
  return CC_REFRESH;
}

LineEditor::Read LibeditEditor::read(std::string_view prompt, std::string& line) {
  prompt_ = marked_prompt(prompt);
  plain_prompt_ = without_marked(prompt_);
  interrupted_ = false;
  TerminalGuard guard(STDIN_FILENO, output_);
  const WindowWatch watch;
  guard_ = &guard;
  watch_ = &watch;
  window_changed = 0;
  el_resize(edit_);                 // the window may have changed since the last line
  el_wset(edit_, EL_PREP_TERM, 1);  // before the prompt: a key pressed once it shows is the editor's
  int count = 0;
  const wchar_t* typed = el_wgets(edit_, &count);
  guard_ = nullptr;
  watch_ = nullptr;
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  if (interrupted_) return LineEditor::Read::kInterrupted;
  if (typed == nullptr || count <= 0) {
    std::fputs("\n", stream_);
    std::fflush(stream_);
    return LineEditor::Read::kEnd;
  }
  std::wstring_view text(typed, static_cast<size_t>(count));
  if (text.ends_with(L'\n')) text.remove_suffix(1);
  line = narrow(text);
  return LineEditor::Read::kLine;
}

void LibeditEditor::remember(const std::string& entry) {
  HistEventW event = {};
  history_w(history_, &event, H_ENTER, widen(entry).c_str());
}

}  // namespace

bool TerminalEditor::is_available() { return true; }

std::unique_ptr<TerminalEditor> TerminalEditor::open(int output, Complete complete) {
  const char* kind = std::getenv("TERM");
  const bool usable = kind != nullptr && std::string_view(kind) != "dumb" && std::string_view(kind) != "";
  if (!usable || ::isatty(STDIN_FILENO) != 1 || ::isatty(output) != 1) return nullptr;
  return std::make_unique<LibeditEditor>(output, std::move(complete));
}

#endif

}  // namespace carat::cli
