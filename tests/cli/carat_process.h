#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "support/files.h"

namespace carat::test {

struct ProcessResult {
  int exit_code = -1;  // minus the signal's number when a signal ended it
  std::string out;
  std::string err;
};

// The built carat program as a child process, with files as its three streams so that nothing can block.
class CaratProcess {
 public:
  // `out_path`: where standard output goes instead of a file of ours.
  explicit CaratProcess(const std::vector<std::string>& arguments, const std::string& input = "",
                        const std::string& out_path = "");
  ~CaratProcess();
  CaratProcess(const CaratProcess&) = delete;
  CaratProcess& operator=(const CaratProcess&) = delete;

  void send(int signal) const;
  // What it has written to standard output until now.
  std::string output_so_far() const;
  ProcessResult wait();

 private:
  TemporaryDirectory folder_;
  std::string out_path_;
  std::string err_path_;
  pid_t child_ = -1;
};

// Runs it to its end.
ProcessResult run_carat(const std::vector<std::string>& arguments, const std::string& input = "");

}  // namespace carat::test
