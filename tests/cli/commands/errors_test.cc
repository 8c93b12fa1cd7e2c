#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/carat_process.h"

namespace carat::test {
namespace {

using testing::HasSubstr;

void expect_refused(const std::vector<std::string>& arguments, int exit_code, const std::string& message) {
  const ProcessResult result = run_carat(arguments);
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("carat: error: "));
  EXPECT_THAT(result.err, HasSubstr(message));
}

TEST(ExitCodes, BadUsageIsOne) {
  expect_refused({}, 1, "subcommand is required");
  expect_refused({"walk"}, 1, "there is no command \"walk\"; known are chat, run, ");
  expect_refused({"run", "--no-such-flag"}, 1, "--no-such-flag");
  expect_refused({"serve", "--prot", "1"}, 1, "carat serve has no flag --prot; did you mean --port?");
  expect_refused({"serve", "--api_key=k"}, 1, "did you mean --api-key?");
  expect_refused({"serve", "--host", "0.0.0.0"}, 1, "give an --api-key, or --allow-no-key");
  expect_refused({"serve", "--tls-cert", "x.pem"}, 1, "--tls-cert and --tls-key belong together");
  expect_refused({"serve", "--metrics-compat", "graphite"}, 1, "metrics-compat");
  expect_refused({"serve", "-np", "0"}, 1, "-np");
  expect_refused({"run", "-p", "hi", "-n", "many"}, 1, "many");
  expect_refused({"run", "-p", "hi", "-n", "-2"}, 1, "-n -2");
  expect_refused({"run", "-p", "hi", "-f", "file"}, 1, "either -p or -f");
  expect_refused({"run", "-p", "hi", "--raw", "--think"}, 1, "--raw");
  expect_refused({"run", "-p", "hi", "--device", "tpu"}, 1, "--device tpu");
  expect_refused({"run", "-p", "hi", "--kernels", "x=y"}, 1, "--kernels");
  expect_refused({"run", "-p", "hi", "--temp", "nan"}, 1, "temperature");
  expect_refused({"run", "-p", "hi", "--top-p", "0"}, 1, "top-p");
  expect_refused({"run", "-p", "hi", "--min-p", "2"}, 1, "min-p");
  expect_refused({"run", "-p", "hi", "--repeat-penalty", "0"}, 1, "repeat-penalty");
  expect_refused({"run", "-p", "hi", "--logit-bias", "99999999=1"}, 1, "logit-bias names token 99999999");
  expect_refused({"run", "-p", "hi", "-ctk", "q9"}, 1, "-ctk q9");
  expect_refused({"run", "-p", "hi", "-ngl", "some"}, 1, "-ngl some");
  expect_refused({"run", "-p", "hi", "-ub", "0"}, 1, "-ub");
  expect_refused({"bench", "-p", "5,x"}, 1, "-p 5,x");
  expect_refused({"bench", "-p", "0", "-n", "0"}, 1, "nothing to measure");
  expect_refused({"bench", "-r", "0"}, 1, "-r must be");
  expect_refused({"bench", "-o", "xml"}, 1, "-o xml");
  expect_refused({"bench", "-pg", "5"}, 1, "-pg 5");
  expect_refused({"bench", "--lookup-text", "/nowhere"}, 2, "/nowhere");
  expect_refused({"bench", "--lookup-text", "/dev/null", "-n", "0"}, 1, "--lookup-text");
  expect_refused({"run", "-p", "x", "--lookup", "perhaps"}, 1, "--lookup perhaps");
  expect_refused({"run", "-p", "x", "--lookup-draft", "0"}, 1, "--lookup-draft 0");
  expect_refused({"run", "-p", "x", "--lookup-ngram", "1"}, 1, "--lookup-ngram 1");
  expect_refused({"plot", "=x"}, 1, "ENGINE=FILE");
  expect_refused({"perplexity"}, 1, "-f");
  expect_refused({"tokenize", "a", "-f", "b"}, 1, "either a text or -f");
}

TEST(ExitCodes, AFileThatCannotBeReadIsTwo) {
  const TemporaryDirectory folder;
  expect_refused({"run", "-m", folder.file("missing.gguf"), "-p", "hi"}, 2, "missing.gguf");
  expect_refused({"run", "-m", folder.path().string(), "-p", "hi"}, 2, "directory");
  expect_refused({"run", "-f", folder.file("missing.txt")}, 2, "missing.txt");
  expect_refused({"run", "-f", folder.path().string()}, 2, "it is a directory");
  expect_refused({"perplexity", "-f", folder.file("missing.txt")}, 2, "missing.txt");
}

TEST(ExitCodes, ADamagedFileIsThree) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("damaged.gguf");
  write_text(path, std::string("GGUF\3\0\0\0 and nothing that makes sense", 36));
  expect_refused({"run", "-m", path, "-p", "hi"}, 3, "damaged.gguf");
  expect_refused({"tokenize", "-m", path, "hi"}, 3, "damaged.gguf");
  expect_refused({"bench", "-m", path}, 3, "damaged.gguf");
  write_text(path, "not even the magic word");
  expect_refused({"run", "-m", path, "-p", "hi"}, 3, "damaged.gguf");
}

TEST(ExitCodes, WhatThisBuildCannotDoIsFour) {
  expect_refused({"run", "-m", model_path("demo-e-assistant-q8_0.gguf"), "-p", "hi"}, 4, "drafter");
  expect_refused({"run", "-p", "hi", "-ctk", "f16", "-ctv", "f32"}, 4, "same type");
#ifndef CARAT_HAVE_CUDA
  expect_refused({"run", "-p", "hi", "--device", "gpu"}, 4, "no GPU support");
#endif
}

TEST(ExitCodes, AFullDiskIsTwo) {
  CaratProcess process({"version"}, "", "/dev/full");
  const ProcessResult result = process.wait();
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("cannot write to standard output"));
}

TEST(ExitCodes, HelpIsSuccess) {
  const ProcessResult result = run_carat({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* command :
       {"run", "info", "tokenize", "bench", "perplexity", "quantize", "synth", "kernels", "version"}) {
    EXPECT_THAT(result.out, HasSubstr(command));
    EXPECT_EQ(run_carat({command, "--help"}).exit_code, 0) << command;
  }
  EXPECT_EQ(run_carat({"--version"}).exit_code, 0);
}

}  // namespace
}  // namespace carat::test
