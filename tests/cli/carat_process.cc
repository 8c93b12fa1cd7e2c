#include "cli/carat_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>

namespace carat::test {

namespace {
[[noreturn]] void execute(const std::vector<std::string>& arguments, const std::string& in, const std::string& out,
                          const std::string& err) {
  ::dup2(::open(in.c_str(), O_RDONLY), STDIN_FILENO);
  ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
  ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
  std::vector<char*> values{const_cast<char*>(CARAT_PROGRAM)};
  for (const std::string& argument : arguments) values.push_back(const_cast<char*>(argument.c_str()));
  values.push_back(nullptr);
  ::unsetenv("CARAT_KERNELS");
  ::execv(CARAT_PROGRAM, values.data());
  ::_exit(99);
}
}  // namespace

CaratProcess::CaratProcess(const std::vector<std::string>& arguments, const std::string& input,
                           const std::string& out_path)
    : out_path_(out_path.empty() ? folder_.file("out") : out_path), err_path_(folder_.file("err")) {
  write_text(folder_.file("in"), input);
  child_ = ::fork();
  if (child_ < 0) throw std::runtime_error("fork failed");
  if (child_ == 0) execute(arguments, folder_.file("in"), out_path_, err_path_);
}

CaratProcess::~CaratProcess() {
  if (child_ > 0) {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
}

void CaratProcess::send(int signal) const { ::kill(child_, signal); }

std::string CaratProcess::output_so_far() const {
  return std::filesystem::exists(out_path_) ? read_text(out_path_) : std::string();
}

ProcessResult CaratProcess::wait() {
  int status = 0;
  if (::waitpid(child_, &status, 0) != child_) throw std::runtime_error("waitpid failed");
  child_ = -1;
  ProcessResult result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  if (std::filesystem::is_regular_file(out_path_)) result.out = read_text(out_path_);
  // A process that was killed at once has no streams yet.
  if (std::filesystem::is_regular_file(err_path_)) result.err = read_text(err_path_);
  return result;
}

ProcessResult run_carat(const std::vector<std::string>& arguments, const std::string& input) {
  CaratProcess process(arguments, input);
  return process.wait();
}

}  // namespace carat::test
