#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace carat::chat {

// An open file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;

  int number() const { return number_; }  // -1: none
  bool is_open() const { return number_ >= 0; }
  void close();
  int release();

 private:
  int number_ = -1;
};

// A child process in a session of its own whose input is a text and whose output is kept in memory, within limits. Used
// by one thread. The destructor ends the process, all of its process group, and leaves no zombie.
class CapturedProcess {
 public:
  struct Limits {
    std::chrono::steady_clock::time_point deadline;
    size_t output_bytes;
    const std::atomic<bool>* cancelled;  // may be null
  };
  enum class End { kExited, kTimedOut, kTooMuchOutput, kCancelled };

  // What is kept of standard error; the rest is read and dropped.
  static constexpr size_t kErrorBytes = size_t{4} << 10;

  // Looks command[0] up in the PATH. Where the system refuses to start it, start_error() is its errno.
  CapturedProcess(std::span<const std::string> command, std::string_view input);
  ~CapturedProcess();
  CapturedProcess(const CapturedProcess&) = delete;
  CapturedProcess& operator=(const CapturedProcess&) = delete;

  int start_error() const { return start_error_; }
  // Feeds and reads the process until it or a limit ends it; once. After anything but kExited it is no longer running.
  End watch(const Limits& limits);

  const std::string& output() const { return output_; }
  const std::string& errors() const { return errors_; }
  // As waitpid gives it, after watch(); none when somebody else took it (a parent that ignores SIGCHLD).
  std::optional<int> status() const { return status_; }

 private:
  void spawn(std::span<const std::string> command, const Descriptor& in, const Descriptor& out, const Descriptor& err);
  End watch_until_end(const Limits& limits);
  bool has_exited() const;
  void feed();
  void wait_for_news() const;
  void end_group();
  void reap();

  pid_t process_ = -1;
  int start_error_ = 0;
  std::string_view input_;  // what is not written yet
  Descriptor in_;           // our ends of the three pipes
  Descriptor out_;
  Descriptor err_;
  std::string output_;
  std::string errors_;
  std::optional<int> status_;
};

}  // namespace carat::chat
