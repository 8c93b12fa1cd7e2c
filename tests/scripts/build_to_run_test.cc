// scripts/build_to_run.sh with a machine of the test's making: its own cmake, nvcc and files of a driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "support/files.h"
#include "support/tmux_session.h"

namespace carat::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Prints what ninja prints for a build of forty steps, and fails in the last one where a file says so.
constexpr std::string_view kCmake = R"(#!/bin/sh
echo "$*" >> "$CALLS"
case "$1" in
  --preset) echo "-- Configuring done" ;;
  --build)
    n=0
    while [ $n -lt 39 ]; do
      n=$((n + 1))
      echo "[$n/40] Building CXX object src/text/jinja/CMakeFiles/carat_text.dir/lexer.cc.o"
    done
    if [ -e "$FAILS" ]; then echo "lexer.cc:1: error: no such thing"; exit 1; fi
    while [ -e "$WAITS" ]; do sleep 0.02; done
    echo "[40/40] Linking CXX executable src/cli/carat" ;;
esac
)";

class BuildToRun : public testing::Test {
 protected:
  BuildToRun() {
    fs::create_directories(folder_.path() / "tree/scripts");
    fs::create_directories(folder_.path() / "bin");
    fs::copy(source_directory() / "scripts/build_to_run.sh", folder_.path() / "tree/scripts");
    for (const char* tool : {"bash", "cat", "dirname", "env", "fold", "mkdir", "nproc", "sh", "sleep", "stty", "tee"}) {
      fs::create_symlink(std::string("/usr/bin/") + tool, folder_.path() / "bin" / tool);
    }
    add_program("bin/cmake", kCmake);
  }

  void add_program(const std::string& name, std::string_view text) {
    fs::create_directories((folder_.path() / name).parent_path());
    write_text(folder_.file(name), std::string(text));
    ::chmod(folder_.file(name).c_str(), 0700);
  }
  void add_driver() {
    fs::create_directories(folder_.path() / "root/proc/driver/nvidia");
    write_text(folder_.file("root/proc/driver/nvidia/version"), "NVRM version");
  }
  void add_nvcc() { add_program("root/usr/local/cuda/bin/nvcc", "#!/bin/sh\n"); }

  std::vector<std::string> command(const std::vector<std::string>& variables) const {
    std::vector<std::string> words = {"/usr/bin/env",
                                      "-i",
                                      "PATH=" + folder_.file("bin"),
                                      "SYSTEM_ROOT=" + folder_.file("root"),
                                      "CALLS=" + folder_.file("calls"),
                                      "FAILS=" + folder_.file("fails"),
                                      "WAITS=" + folder_.file("waits"),
                                      "JOBS=3"};
    words.insert(words.end(), variables.begin(), variables.end());
    words.insert(words.end(), {"bash", folder_.file("tree/scripts/build_to_run.sh")});
    return words;
  }

  // Runs it with files as its streams; returns its exit status.
  int run(const std::vector<std::string>& variables = {}) {
    std::string line;
    for (const std::string& word : command(variables)) line += "'" + word + "' ";
    const int status = std::system((line + "> '" + folder_.file("out") + "' 2> '" + folder_.file("err") + "'").c_str());
    out_ = read_text(folder_.file("out"));
    err_ = read_text(folder_.file("err"));
    return WEXITSTATUS(status);
  }
  std::string calls() const { return read_text(folder_.file("calls")); }

  TemporaryDirectory folder_;
  std::string out_, err_;
};

TEST_F(BuildToRun, WithoutADriverCompilesNoCuda) {
  add_nvcc();
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(err_,
              StartsWith("carat: building for the CPU alone: this machine has no NVIDIA driver (make run CUDA=1 "));
  EXPECT_EQ(calls(), "--preset run -DCARAT_CUDA=OFF\n--build --preset run --target carat -j 3\n");
  EXPECT_EQ(out_, "build/run/src/cli/carat\n");
}

TEST_F(BuildToRun, WithADriverAndNvccCompilesCuda) {
  add_nvcc();
  add_driver();
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(err_, StartsWith("carat: building for the CPU and NVIDIA GPUs\n"));
  EXPECT_THAT(calls(), StartsWith("--preset run -DCARAT_CUDA=ON\n"));
}

TEST_F(BuildToRun, WithADriverAloneSaysWhatToInstallAndGoesOn) {
  add_driver();
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(err_,
              StartsWith("carat: building for the CPU alone: here is an NVIDIA driver but no nvcc; to use the GPU, "
                         "install the CUDA toolkit 12 or newer"));
  EXPECT_THAT(calls(), StartsWith("--preset run -DCARAT_CUDA=OFF\n"));
}

TEST_F(BuildToRun, CudaCanBeForcedAndForbidden) {
  add_nvcc();
  EXPECT_EQ(run({"CUDA=1"}), 0);
  EXPECT_THAT(err_, StartsWith("carat: building for the CPU and NVIDIA GPUs, as CUDA=1 says\n"));
  EXPECT_THAT(calls(), StartsWith("--preset run -DCARAT_CUDA=ON\n"));
  add_driver();
  fs::remove(folder_.path() / "calls");
  EXPECT_EQ(run({"CUDA=0"}), 0);
  EXPECT_THAT(err_, StartsWith("carat: building for the CPU alone, as CUDA=0 says\n"));
  EXPECT_THAT(calls(), StartsWith("--preset run -DCARAT_CUDA=OFF\n"));
  EXPECT_EQ(run({"CUDA=yes"}), 1);
  EXPECT_THAT(err_, HasSubstr("CUDA=yes is neither 1 nor 0"));
}

TEST_F(BuildToRun, ForcedCudaWithoutNvccIsAnErrorThatSaysWhatToInstall) {
  EXPECT_EQ(run({"CUDA=1"}), 1);
  EXPECT_THAT(err_, AllOf(StartsWith("carat: CUDA=1 needs nvcc"), HasSubstr("CUDA toolkit 12 or newer")));
  EXPECT_FALSE(fs::exists(folder_.path() / "calls"));
  EXPECT_EQ(run({"CUDA=1", "CUDACXX=/opt/cuda/nvcc"}), 0);
}

TEST_F(BuildToRun, SaysHowFarItIsInPlainLinesWhereNobodyWatches) {
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(err_, HasSubstr("\ncarat: building: 4 of 40\ncarat: building: 8 of 40\n"));
  EXPECT_THAT(err_, EndsWith("\ncarat: building: 40 of 40\n"));
  EXPECT_THAT(err_, AllOf(Not(HasSubstr("\r")), Not(HasSubstr("\033")), Not(HasSubstr("Configuring"))));
  EXPECT_THAT(read_text(folder_.file("tree/build/run.log")), HasSubstr("-- Configuring done\n[1/40] Building CXX"));
}

TEST_F(BuildToRun, OfAFailedBuildShowsEverything) {
  write_text(folder_.file("fails"), "");
  EXPECT_EQ(run(), 1);
  EXPECT_THAT(err_, AllOf(HasSubstr("-- Configuring done\n"), HasSubstr("\nlexer.cc:1: error: no such thing\n"),
                          EndsWith("carat: the build failed; all it said is above and in build/run.log\n")));
  EXPECT_EQ(out_, "");
}

TEST_F(BuildToRun, OnATerminalOneLineMoves) {
  if (!TmuxSession::is_installed()) GTEST_SKIP() << "skipped: no tmux";
  write_text(folder_.file("waits"), "");
  TmuxSession session(command({}), {.columns = 60});
  const std::string first =
      "carat: building for the CPU alone: this machine has no\n"
      "NVIDIA driver (make run CUDA=1 builds for GPUs all the same)\n";
  ASSERT_TRUE(session.wait_for("building: 39 of 40, src/text/jinja/lexer.cc"));
  EXPECT_EQ(session.transcript(), first + "building: 39 of 40, src/text/jinja/lexer.cc");
  fs::remove(folder_.path() / "waits");
  ASSERT_TRUE(session.ends_with(0));
  EXPECT_THAT(session.transcript(), StartsWith(first + "build/run/src/cli/carat"));
}

}  // namespace
}  // namespace carat::test
