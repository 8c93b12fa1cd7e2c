#include "cli/terminal.h"

#include <fmt/format.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "cli/view/message.h"

namespace carat::cli {

namespace {

class MessageSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    std::string_view text(line.data(), line.size());
    if (text.ends_with('\n')) text.remove_suffix(1);
    write_message(text);
  }
  void flush_() override {}  // write_message leaves nothing in buffers
};

}  // namespace

bool stdin_is_terminal() { return ::isatty(STDIN_FILENO) == 1; }
bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

void write_stdout(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    fail(ErrorCode::kIo, "cannot write to standard output: {}", std::strerror(errno));
  }
}

void write_stderr(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void write_message(std::string_view text) {
  write_stderr(message_lines(text, Screen::of(STDERR_FILENO, ColourChoice::kNever)));
}

Logger make_logger(bool verbose) {
  auto logger = std::make_shared<spdlog::logger>("carat", std::make_shared<MessageSink>());
  logger->set_pattern("%n: %l: %v");
  logger->set_level(verbose ? spdlog::level::info : spdlog::level::warn);
  return logger;
}

ProgressLine::ProgressLine() : enabled_(stderr_is_terminal()) {}

ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::show(std::string_view text) {
  if (!enabled_) return;
  write_stderr(fmt::format("\r{:<{}}", text, shown_));
  shown_ = text.size();
}

void ProgressLine::clear() {
  if (shown_ == 0) return;
  write_stderr(fmt::format("\r{:{}}\r", "", shown_));
  shown_ = 0;
}

}  // namespace carat::cli
