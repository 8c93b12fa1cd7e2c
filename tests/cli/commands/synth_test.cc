#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "cli/carat_process.h"

namespace carat::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SynthCommand, SaysWhatItWroteAndTheFileRuns) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("model.gguf");
  const ProcessResult result = run_carat({"synth", "tiny-e2b", "q4_0", path, "--vocab", "800", "--context", "512"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("tiny-e2b q4_0: 7 layers (3 with keys and values"), HasSubstr("800 tokens"),
                                HasSubstr("wrote " + path)));
  EXPECT_EQ(result.err, "");
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  const ProcessResult run = run_carat({"run", "-m", path, "--raw", "-n", "4", "-p", "abc def"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
}

TEST(SynthCommand, SeedDecidesTheBytes) {
  const TemporaryDirectory folder;
  const auto make = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"synth", "tiny-12b", "q8_0-pure", folder.file(name), "--layers", "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(run_carat(arguments).exit_code, 0);
    return read_bytes(folder.file(name));
  };
  const auto first = make("a.gguf", {"--threads", "1"});
  EXPECT_EQ(first, make("b.gguf", {"--threads", "3"}));
  EXPECT_NE(first, make("c.gguf", {"--seed", "9"}));
}

TEST(SynthCommand, DryRunKnowsTheSizeOfTheLargestModel) {
  const ProcessResult result = run_carat({"synth", "31b", "q4_0", "--dry-run"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("833 tensors"), HasSubstr("30,697,345,596 parameters"), HasSubstr("17.6 GB")));
}

TEST(SynthCommand, RefusesBadArguments) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("x.gguf");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"synth", "e9b", "q4_0", path}, "26b-a4b"},
      {{"synth", "e2b", "q9", path}, "q4_k_m"},
      {{"synth", "e2b", "q4_0"}, "--dry-run"},
      {{"synth", "e2b", "q4_0", path, "--layers", "99"}, "2 to 35"},
      {{"synth", "e2b", "q4_0", path, "--vocab", "5"}, "768 to 262144"},
  };
  for (const auto& [arguments, part] : cases) {
    const ProcessResult result = run_carat(arguments);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr(part));
  }
  EXPECT_EQ(run_carat({"synth", "tiny-e2b", "q4_0", folder.file("no/such/folder.gguf")}).exit_code, 2);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SynthCommand, InterruptLeavesNoFile) {
  const TemporaryDirectory folder;
  CaratProcess process({"synth", "e2b", "f32", folder.file("large.gguf"), "--layers", "4", "--threads", "1"});
  while (!std::filesystem::exists(folder.file("large.gguf.partial"))) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  process.send(SIGINT);
  EXPECT_EQ(process.wait().exit_code, 130);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace carat::test
