#include "chat/captured_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include "base/error.h"

namespace carat::chat {

namespace {

using Clock = std::chrono::steady_clock;

// How often a process is looked at while it says nothing: its end, the deadline and the cancel flag wake no poll().
constexpr int kTickMilliseconds = 5;
// How long a process may take to end after SIGTERM.
constexpr std::chrono::milliseconds kPatience{300};

struct Pipe {
  Descriptor read;
  Descriptor write;
};

// A program started with a closed standard stream would get a pipe in its place, and the child's dup2 would mix them
// up.
Descriptor above_standard_streams(int number) {
  Descriptor descriptor(number);
  if (number > STDERR_FILENO) return descriptor;
  return Descriptor(::fcntl(number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    fail(ErrorCode::kIo, "cannot make a pipe for a tool: {}", std::strerror(errno));
  }
  Pipe pipe{above_standard_streams(ends[0]), above_standard_streams(ends[1])};
  if (!pipe.read.is_open() || !pipe.write.is_open()) {
    fail(ErrorCode::kIo, "cannot make a pipe for a tool: {}", std::strerror(errno));
  }
  return pipe;
}

void make_non_blocking(const Descriptor& descriptor) {
  ::fcntl(descriptor.number(), F_SETFL, ::fcntl(descriptor.number(), F_GETFL) | O_NONBLOCK);
}

// Holds SIGPIPE back in this thread, so that a child that does not read its input gives EPIPE, and takes away the one
// it caused. The disposition of the signal is the whole process's and stays as it is.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  ~WithoutSigpipe() {
    constexpr timespec kNow{};
    if (!was_pending_) sigtimedwait(&sigpipe_, nullptr, &kNow);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  sigset_t sigpipe_;
  sigset_t before_;
  bool was_pending_ = false;
};

// Reads what is in the pipe now, and no more: what is written meanwhile waits for the next time, so that a process that
// never stops writing cannot keep us here. Keeps up to `most` bytes in all; closes the pipe at its end.
void read_available(Descriptor& pipe, std::string& kept, size_t most) {
  int available = 0;
  if (!pipe.is_open() || ::ioctl(pipe.number(), FIONREAD, &available) != 0) return;
  std::array<char, 16 << 10> buffer;
  do {  // once at least: only read() tells an empty pipe from one that has ended
    const ssize_t count = ::read(pipe.number(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count == 0 || (count < 0 && errno != EAGAIN)) pipe.close();
    if (count <= 0) return;
    kept.append(buffer.data(), std::min(static_cast<size_t>(count), most - kept.size()));
    available -= static_cast<int>(count);
  } while (available > 0);
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    close();
    number_ = other.release();
  }
  return *this;
}

void Descriptor::close() {
  if (is_open()) ::close(release());
}

int Descriptor::release() { return std::exchange(number_, -1); }

CapturedProcess::CapturedProcess(std::span<const std::string> command, std::string_view input) : input_(input) {
  CARAT_CHECK(!command.empty());
  Pipe in = make_pipe();
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  spawn(command, in.read, out.write, err.write);
  if (start_error_ != 0) return;
  in_ = std::move(in.write);
  out_ = std::move(out.read);
  err_ = std::move(err.read);
  for (const Descriptor* end : {&in_, &out_, &err_}) make_non_blocking(*end);
}

CapturedProcess::~CapturedProcess() {
  if (process_ < 0) return;
  end_group();
  reap();
}

void CapturedProcess::spawn(std::span<const std::string> command, const Descriptor& in, const Descriptor& out,
                            const Descriptor& err) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t streams;
  posix_spawn_file_actions_init(&streams);
  posix_spawn_file_actions_adddup2(&streams, in.number(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&streams, out.number(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&streams, err.number(), STDERR_FILENO);
  // Close-on-exec is not enough: descriptors we inherited ourselves may lack it.
  posix_spawn_file_actions_addclosefrom_np(&streams, STDERR_FILENO + 1);

  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  for (const int signal : {SIGPIPE, SIGINT, SIGQUIT, SIGTERM, SIGCHLD}) sigaddset(&signals, signal);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  start_error_ = posix_spawnp(&process_, arguments[0], &streams, &attributes, arguments.data(), environ);
  if (start_error_ != 0) process_ = -1;
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&streams);
}

CapturedProcess::End CapturedProcess::watch(const Limits& limits) {
  CARAT_CHECK(process_ > 0);
  const WithoutSigpipe without_sigpipe;
  const End end = watch_until_end(limits);
  if (end != End::kExited) end_group();
  reap();
  return end;
}

CapturedProcess::End CapturedProcess::watch_until_end(const Limits& limits) {
  while (true) {
    if (limits.cancelled != nullptr && limits.cancelled->load()) return End::kCancelled;
    if (Clock::now() >= limits.deadline) return End::kTimedOut;
    const bool exited = has_exited();  // looked at first: all it wrote is then in the pipes
    feed();
    read_available(out_, output_, limits.output_bytes + 1);
    read_available(err_, errors_, kErrorBytes);
    if (output_.size() > limits.output_bytes) {
      output_.resize(limits.output_bytes);
      return End::kTooMuchOutput;
    }
    if (exited) return End::kExited;
    wait_for_news();
  }
}

// Leaves the zombie in place, so that its process group keeps its number until reap().
bool CapturedProcess::has_exited() const {
  siginfo_t info{};
  const int result = ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT);
  return result == 0 ? info.si_pid == process_ : errno == ECHILD;
}

void CapturedProcess::feed() {
  while (in_.is_open() && !input_.empty()) {
    const ssize_t count = ::write(in_.number(), input_.data(), input_.size());
    if (count > 0) {
      input_.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      break;  // EPIPE: it does not want to read all, which is its own business
    }
  }
  in_.close();
}

void CapturedProcess::wait_for_news() const {
  std::array<pollfd, 3> pipes = {pollfd{in_.number(), POLLOUT, 0}, pollfd{out_.number(), POLLIN, 0},
                                 pollfd{err_.number(), POLLIN, 0}};  // closed ones are negative, which poll() skips
  ::poll(pipes.data(), pipes.size(), kTickMilliseconds);
}

void CapturedProcess::end_group() {
  ::kill(-process_, SIGTERM);
  ::kill(-process_, SIGCONT);  // a stopped process gets SIGTERM only when it goes on
  const auto deadline = Clock::now() + kPatience;
  while (!has_exited() && Clock::now() < deadline) ::poll(nullptr, 0, kTickMilliseconds);
  ::kill(-process_, SIGKILL);
}

void CapturedProcess::reap() {
  int status = 0;
  pid_t reaped = -1;
  do {
    reaped = ::waitpid(process_, &status, 0);
  } while (reaped < 0 && errno == EINTR);
  if (reaped == process_) status_ = status;
  process_ = -1;
}

}  // namespace carat::chat
