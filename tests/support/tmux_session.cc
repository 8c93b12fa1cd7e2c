#include "support/tmux_session.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>

namespace carat::test {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookInterval{20};
// What a program wrote before its end may reach the screen a little after it.
constexpr std::chrono::seconds kLastWords{2};

// No line is taken away for a status, and what a program has written stays when it ends. Escape is a key of its own at
// once, and long transcripts are kept.
constexpr std::string_view kConfiguration =
    "set -g status off\n"
    "set -g remain-on-exit on\n"
    "set -g history-limit 20000\n"
    "set -g default-terminal screen-256color\n"
    "set -s escape-time 0\n";

// Runs the program and writes how it ended to the file $0; tmux itself sometimes misses the end of a child. The trap
// keeps Ctrl-C, which all of the terminal's processes get, from ending this shell; the program does not inherit it.
constexpr std::string_view kKeepStatus =
    "trap : INT QUIT; \"$@\"; status=$?; echo $status > \"$0.new\"; mv \"$0.new\" \"$0\"";

std::string shell_word(std::string_view word) {
  std::string result = "'";
  for (const char c : word) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

void strip_end(std::string& text, std::string_view characters) {
  text.erase(text.find_last_not_of(characters) + 1);  // npos + 1 is 0: all of it
}

std::string without_trailing_space(const std::string& text) {
  std::string result;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    strip_end(line, " ");
    result += line + "\n";
    begin = end + 1;
  }
  strip_end(result, "\n");
  return result;
}

[[noreturn]] void execute_server(const std::string& socket, const std::string& configuration) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  ::setenv("LC_ALL", "C.UTF-8", 1);
  for (const char* variable : {"TMUX", "NO_COLOR", "CARAT_KERNELS", "COLUMNS", "LINES"}) ::unsetenv(variable);
  // -D: no daemon, so that the server is our child and dies with us.
  ::execlp("tmux", "tmux", "-u", "-D", "-S", socket.c_str(), "-f", configuration.c_str(), nullptr);
  ::_exit(127);
}

}  // namespace

bool TmuxSession::is_installed() {
  static const bool installed = std::system("tmux -V > /dev/null 2>&1") == 0;  // NOLINT: no thread changes the PATH
  return installed;
}

// Delegates so that the destructor ends the server when something here throws.
TmuxSession::TmuxSession(const std::vector<std::string>& command, const Options& options) : TmuxSession() {
  start_server();
  std::vector<std::string> arguments = {
      "new-session", "-d", "-x", std::to_string(options.columns), "-y", std::to_string(options.rows)};
  for (const std::string& variable : options.environment) {
    arguments.push_back("-e");
    arguments.push_back(variable);
  }
  arguments.insert(arguments.end(), {"--", "sh", "-c", std::string(kKeepStatus), status_file()});
  arguments.insert(arguments.end(), command.begin(), command.end());
  tmux(arguments);
  tmux({"pipe-pane", "exec cat > " + shell_word(folder_.file("written"))});
}

TmuxSession::~TmuxSession() {
  if (server_ < 0) return;
  ::kill(server_, SIGTERM);  // hangs up on the program too
  ::waitpid(server_, nullptr, 0);
}

void TmuxSession::start_server() {
  const std::string socket = folder_.file("socket");
  const std::string configuration = folder_.file("tmux.conf");
  write_text(configuration, kConfiguration);
  server_ = ::fork();
  if (server_ < 0) throw std::runtime_error("fork failed");
  if (server_ == 0) execute_server(socket, configuration);
  for (const auto deadline = Clock::now() + kPatience; !server_answers();) {
    if (::waitpid(server_, nullptr, WNOHANG) != 0) {
      server_ = -1;
      throw std::runtime_error("the tmux server has ended");
    }
    if (Clock::now() > deadline) throw std::runtime_error("the tmux server does not answer");
    std::this_thread::sleep_for(kLookInterval);
  }
}

bool TmuxSession::server_answers() const {
  try {
    tmux({"show-options", "-g"});
    return true;
  } catch (const std::runtime_error&) {  // not yet
    return false;
  }
}

// -N: a client that finds no server must not start a second one.
std::string TmuxSession::tmux(const std::vector<std::string>& arguments) const {
  std::string command = "tmux -u -N -S " + shell_word(folder_.file("socket"));
  for (const std::string& argument : arguments) command += " " + shell_word(argument);
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot run tmux");
  std::string output;
  std::array<char, 4096> buffer;
  while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) output.append(buffer.data(), count);
  if (const int status = ::pclose(pipe); status != 0) {
    throw std::runtime_error(fmt::format("tmux {} failed: {}", arguments.at(0), output));
  }
  return output;
}

void TmuxSession::send_text(std::string_view text) { tmux({"send-keys", "-l", "--", std::string(text)}); }

void TmuxSession::send_key(std::string_view key) { tmux({"send-keys", "--", std::string(key)}); }

void TmuxSession::send_line(std::string_view text) {
  send_text(text);
  send_key("Enter");
}

void TmuxSession::resize(int columns, int rows) {
  tmux({"resize-window", "-x", std::to_string(columns), "-y", std::to_string(rows)});
}

std::string TmuxSession::capture(const std::vector<std::string>& flags) const {
  std::vector<std::string> arguments = {"capture-pane", "-p"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return without_trailing_space(tmux(arguments));
}

std::string TmuxSession::screen() const { return capture({}); }

std::string TmuxSession::transcript() const { return capture({"-J", "-S", "-"}); }

std::string TmuxSession::coloured_screen() const { return capture({"-e"}); }

std::string TmuxSession::written() const {
  const std::string path = folder_.file("written");
  return std::filesystem::exists(path) ? read_text(path) : std::string();
}

bool TmuxSession::is_running() const { return !std::filesystem::exists(status_file()); }

testing::AssertionResult TmuxSession::wait_until(const std::function<bool(const std::string& transcript)>& condition,
                                                 std::string_view what, std::chrono::seconds patience) const {
  auto deadline = Clock::now() + patience;
  for (bool ended = false; !condition(transcript()); std::this_thread::sleep_for(kLookInterval)) {
    if (!ended && !is_running()) {
      ended = true;
      deadline = std::min(deadline, Clock::now() + kLastWords);
    }
    if (Clock::now() > deadline) {
      return testing::AssertionFailure() << (ended ? "the program ended before " : "waited in vain for ") << what
                                         << "; the screen:\n--------\n"
                                         << screen() << "\n--------";
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult TmuxSession::wait_for(std::string_view text, std::chrono::seconds patience) const {
  return wait_until([text](const std::string& transcript) { return transcript.find(text) != std::string::npos; },
                    fmt::format("\"{}\"", text), patience);
}

testing::AssertionResult TmuxSession::ends_with(int exit_status, std::chrono::seconds patience) const {
  const auto ended = [this](const std::string&) { return !is_running(); };
  if (auto result = wait_until(ended, "the program's end", patience); !result) return result;
  const int status = std::stoi(read_text(status_file()));
  if (status == exit_status) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "exit status " << status << " instead of " << exit_status
                                     << "; the screen:\n--------\n"
                                     << screen() << "\n--------";
}

}  // namespace carat::test
