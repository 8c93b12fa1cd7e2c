#include "chat/tool_runner.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/utf8.h"
#include "chat/captured_process.h"
#include "text/value_json.h"

namespace carat::chat {

namespace {

using Clock = std::chrono::steady_clock;

// Reads the words of a command one character at a time.
class CommandSplitter {
 public:
  explicit CommandSplitter(std::string_view text) : rest_(text) {}

  std::vector<std::string> words() {
    while (!rest_.empty()) read_one();
    end_word();
    if (words_.empty()) fail(ErrorCode::kBadArgument, "--tool-exec: the command is empty; name a program to run");
    return std::move(words_);
  }

 private:
  void read_one() {
    const char c = take();
    if (c == ' ' || c == '\t' || c == '\n') {
      end_word();
    } else if (c == '\'') {
      word();
      while (next_in_quotes('\'') != '\'') word() += take();
      take();
    } else if (c == '"') {
      word();
      while (next_in_quotes('"') != '"') read_double_quoted();
      take();
    } else if (c == '\\') {
      if (rest_.empty()) fail(ErrorCode::kBadArgument, "--tool-exec: nothing follows the \\ at the end");
      word() += take();
    } else {
      word() += c;
    }
  }

  // Inside "..." a backslash quotes only what a shell would treat specially there.
  void read_double_quoted() {
    const char c = take();
    const bool quotes = c == '\\' && !rest_.empty() && std::string_view("$`\"\\").find(rest_[0]) != rest_.npos;
    word() += quotes ? take() : c;
  }

  char next_in_quotes(char quote) const {
    if (rest_.empty()) fail(ErrorCode::kBadArgument, "--tool-exec: a {} is never closed", quote);
    return rest_[0];
  }

  char take() {
    const char c = rest_[0];
    if (c == '\0') fail(ErrorCode::kBadArgument, "--tool-exec: a command cannot hold a NUL byte");
    rest_.remove_prefix(1);
    return c;
  }

  std::string& word() {
    if (!word_) word_.emplace();
    return *word_;
  }

  void end_word() {
    if (word_) words_.push_back(std::move(*word_));
    word_.reset();
  }

  std::string_view rest_;
  std::optional<std::string> word_;  // '' is a word too, so it may be there and empty
  std::vector<std::string> words_;
};

// The first lines of what a tool says, fit for a message on a terminal: without control characters, the two-byte ones
// (U+0080 to U+009F) included.
std::string first_lines(std::string_view text) {
  constexpr size_t kMostLines = 5;
  constexpr size_t kMostBytes = 400;
  const std::string clean = utf8_sanitise(text);
  std::string shown;
  size_t lines = 1;
  for (std::string_view rest = clean; !rest.empty();) {
    const std::string_view character = rest.substr(0, utf8_sequence_length(rest));
    rest.remove_prefix(character.size());
    const auto first = static_cast<unsigned char>(character[0]);
    if (first == '\n' && ++lines > kMostLines) break;
    const bool is_control = (first < 0x20 && first != '\n' && first != '\t') || first == 0x7f ||
                            (first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0);
    if (is_control) continue;
    if (shown.size() + character.size() > kMostBytes) {
      shown += "...";
      break;
    }
    shown += character;
  }
  while (!shown.empty() && (shown.back() == '\n' || shown.back() == ' ')) shown.pop_back();
  return shown;
}

// Why a call is not even tried, or nothing. The name becomes an argument of the user's command, which must not take it
// for a flag.
std::string refusal(const text::ToolCall& call) {
  if (call.name.empty()) return "the call names no tool";
  if (call.name.starts_with('-')) {
    return fmt::format("the name \"{}\" is refused: the command would take it for a flag", first_lines(call.name));
  }
  if (call.name.find('\0') != std::string::npos) return "the name is refused: it contains a NUL byte";
  if (call.arguments.empty()) return "";
  try {
    if (text::parse_json(call.arguments, false, "arguments").is_map()) return "";
  } catch (const Error&) {  // below
  }
  return "the arguments are no JSON object";
}

// JSON has line breaks only between its tokens, so this changes no value, and no number loses a digit.
std::string as_one_line(std::string json) {
  if (json.empty()) json = "{}";
  std::replace_if(
      json.begin(), json.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return json + '\n';
}

std::string duration_text(std::chrono::milliseconds time) {
  const auto count = time.count();
  return count % 1000 == 0 ? fmt::format("{} s", count / 1000) : fmt::format("{} ms", count);
}

std::string size_text(size_t bytes) {
  return bytes % 1024 == 0 ? fmt::format("{} KiB", bytes / 1024) : fmt::format("{} bytes", bytes);
}

// Why a process that ended by itself has failed; empty when it has not.
std::string status_problem(const CapturedProcess& process) {
  if (!process.status()) return "its exit status was lost (carat was started with SIGCHLD ignored)";
  const int status = *process.status();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  std::string problem = WIFSIGNALED(status)
                            ? fmt::format("killed by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)))
                            : fmt::format("exit status {}", WEXITSTATUS(status));
  std::string said = first_lines(process.errors());
  if (said.empty()) said = first_lines(process.output());
  return said.empty() ? problem : problem + ": " + said;
}

std::string ending_problem(CapturedProcess::End end, const CapturedProcess& process, const ToolLimits& limits) {
  switch (end) {
    case CapturedProcess::End::kExited:
      return status_problem(process);
    case CapturedProcess::End::kTimedOut:
      return fmt::format("timed out after {}", duration_text(limits.timeout));
    case CapturedProcess::End::kTooMuchOutput:
      return fmt::format("its output is longer than {}", size_text(limits.output_bytes));
    case CapturedProcess::End::kCancelled:
      return "interrupted";
  }
  return "";
}

}  // namespace

std::vector<std::string> split_command(std::string_view text) { return CommandSplitter(text).words(); }

ToolOutcome run_tool(std::span<const std::string> command, const text::ToolCall& call, const ToolLimits& limits,
                     const std::atomic<bool>* cancelled) {
  CARAT_CHECK(!command.empty());  // or the tool's name would be the program
  ToolOutcome outcome;
  outcome.problem = refusal(call);
  if (!outcome.problem.empty()) return outcome;

  const auto start = Clock::now();
  std::vector<std::string> words(command.begin(), command.end());
  words.push_back(call.name);
  const std::string input = as_one_line(call.arguments);
  CapturedProcess process(words, input);
  if (process.start_error() != 0) {
    outcome.problem = fmt::format("cannot start \"{}\": {}; --tool-exec needs a program that is executable and found",
                                  words[0], std::strerror(process.start_error()));
    return outcome;
  }
  const CapturedProcess::End end = process.watch({start + limits.timeout, limits.output_bytes, cancelled});
  outcome.output = utf8_sanitise(process.output());
  outcome.problem = ending_problem(end, process, limits);
  outcome.ok = outcome.problem.empty();
  outcome.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return outcome;
}

text::Message tool_message(const text::ToolCall& call, const ToolOutcome& outcome) {
  text::Message message{text::Role::kTool};
  message.tool_call_id = call.id;
  message.tool_name = call.name;
  if (!outcome.ok) {
    text::ValueMap error;
    error.set(text::MarkedText("error", false), text::Value::string(outcome.problem, false));
    message.result_json = text::to_compact_json(text::Value::map(std::move(error)));
    return message;
  }
  std::string output = outcome.output;
  while (!output.empty() && (output.back() == '\n' || output.back() == '\r')) output.pop_back();
  try {
    const text::Value value = text::parse_json(output, false, "output");
    if (value.is_string()) {
      message.content = value.text();
    } else {
      message.result_json = output;
    }
  } catch (const Error&) {  // no JSON: the text itself is the result
    message.content = output;
  }
  return message;
}

}  // namespace carat::chat
