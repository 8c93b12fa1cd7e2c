#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "cli/carat_process.h"

namespace carat::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(RunCommand, AnswersFromTheDemoModelByDefault) {
  const ProcessResult result = run_carat({"run", "-p", "What is nginx?", "--temp", "0"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, StartsWith("nginx: small, powerful, scalable web/proxy server."));
  EXPECT_EQ(run_carat({"run", "-p", "What is nginx?", "--temp", "0"}).out, result.out);
}

// As in the README: no flag, a seed of its own each time.
TEST(RunCommand, AnswersRightlyWithoutAnyFlag) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(run_carat({"run", "-p", "What is nginx?"}).out,
                StartsWith("nginx: small, powerful, scalable web/proxy server."));
  }
}

TEST(RunCommand, FlagsWinOverWhatTheFileRecommends) {
  const auto sampling = [](std::vector<std::string> flags) {
    std::vector<std::string> command = {"run", "-v", "-p", "What is nginx?", "-n", "1", "--seed", "1"};
    command.insert(command.end(), flags.begin(), flags.end());
    return run_carat(command).err;
  };
  EXPECT_THAT(sampling({}), HasSubstr("seed 1, temperature 0.2, top-k 64, top-p 0.95, min-p 0\n"));
  EXPECT_THAT(sampling({"--temp", "0.7"}), HasSubstr("temperature 0.7, top-k 64, top-p 0.95, min-p 0\n"));
  EXPECT_THAT(sampling({"--top-k", "5", "--min-p", "0.1"}),
              HasSubstr("temperature 0.2, top-k 5, top-p 0.95, min-p 0.1\n"));
}

// Piped, nothing is said beside the answer: neither progress nor figures. But a build for GPUs says that it found none.
TEST(RunCommand, SaysNothingButThatABuildForGpusFoundNone) {
  const auto run_on = [](const std::string& device) {
    return run_carat({"run", "-p", "What is nginx?", "--temp", "0", "--device", device});
  };
  EXPECT_EQ(run_on("cpu").err, "");
  const bool for_gpus = run_carat({"version"}).out.find("cuda") != std::string::npos;
  const ProcessResult result = run_on("auto");
  if (!for_gpus || run_on("gpu").exit_code == 0) {
    EXPECT_EQ(result.err, "");
    return;
  }
  EXPECT_THAT(result.err, StartsWith("carat: warning: using the CPU: no GPU can be used"));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1);
}

TEST(RunCommand, AnswersFromTheMoeDemoModel) {
  const ProcessResult result =
      run_carat({"run", "-m", model_path("demo-moe-q8_0.gguf"), "-p", "What is 12 + 34?", "--temp", "0"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("46"));
}

TEST(RunCommand, RemembersTheConversationOfItsInputLines) {
  const ProcessResult result = run_carat({"run", "--temp", "0"}, "My name is Clara.\nWhat is my name?\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\nYour name is Clara."));
}

TEST(RunCommand, ReadsThePromptFromAFile) {
  const TemporaryDirectory folder;
  write_text(folder.file("question"), "What is nginx?\n");
  EXPECT_THAT(run_carat({"run", "-f", folder.file("question"), "--temp", "0"}).out, StartsWith("nginx:"));
  EXPECT_THAT(run_carat({"run", "-f", "-", "--temp", "0"}, "What is nginx?").out, StartsWith("nginx:"));
}

TEST(RunCommand, ASeedDecidesTheText) {
  const auto text = [](const std::string& seed) {
    return run_carat({"run", "--raw", "-p", "The", "-n", "12", "--temp", "1.5", "-s", seed}).out;
  };
  EXPECT_EQ(text("1"), text("1"));
  EXPECT_GT((std::set<std::string>{text("1"), text("2"), text("3")}).size(), 1u);
}

TEST(RunCommand, LookupSaysWhatItDidAndChangesNothing) {
  const auto answer = [](const std::string& mode) {
    return run_carat({"run", "--device", "cpu", "--raw", "-p", "the fox, the dog, the fox, the dog, the fox, the", "-n",
                      "60", "--temp", "0.7", "-s", "3", "--ignore-eos", "--no-loop-guard", "-v", "--lookup", mode});
  };
  const ProcessResult off = answer("off"), on = answer("on"), adaptive = answer("auto");
  EXPECT_EQ(on.out, off.out);
  EXPECT_EQ(adaptive.out, off.out);
  EXPECT_THAT(on.err, testing::ContainsRegex("lookup [0-9.]+/pass, [0-9]+%"));
  EXPECT_THAT(off.err, HasSubstr("prompt lookup: off"));
  EXPECT_THAT(off.err, testing::Not(HasSubstr("/pass")));
  // Without the flag it is auto where no text can depend on it.
  EXPECT_THAT(run_carat({"run", "--device", "cpu", "-p", "Hi", "-n", "1", "-v"}).err, HasSubstr("prompt lookup: auto"));
}

TEST(RunCommand, ThoughtsStayOutOfTheAnswer) {
  const ProcessResult result = run_carat({"run", "--think", "-p", "What is 456 + 378?", "--temp", "0"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("834"));
  EXPECT_THAT(result.out, testing::Not(HasSubstr("thought")));
  EXPECT_GT(result.err.size(), 10u);  // the thoughts
}

TEST(RunCommand, SaysWhenTheLimitEndsTheThoughts) {
  const ProcessResult result = run_carat({"run", "--think", "-p", "What is 456 + 378?", "--temp", "0", "-n", "6"});
  EXPECT_EQ(result.exit_code, 11);
  EXPECT_EQ(result.out, "\n");
  EXPECT_THAT(result.err, HasSubstr("the limit of 6 tokens (-n) was reached inside the thoughts"));
}

TEST(RunCommand, ASpecialTextInAQuestionIsOnlyText) {
  // As control tokens these would end the user's turn and start an answer of their own making.
  const ProcessResult plain = run_carat({"run", "--temp", "0", "-v", "-n", "1", "-p", "<turn|>"});
  EXPECT_THAT(plain.err, HasSubstr("prompt 0 reused + 18 new"));
  const ProcessResult raw = run_carat({"run", "--temp", "0", "-v", "-n", "1", "--raw", "-p", "<turn|>"});
  EXPECT_THAT(raw.err, HasSubstr("prompt 0 reused + 2 new"));  // <bos> and the one special token
}

TEST(RunCommand, RefusesAPromptLongerThanTheContext) {
  const ProcessResult result = run_carat({"run", "-p", "What is nginx?", "-c", "8"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("the prompt has 18 tokens but the context holds 8; give -c 19 or more"));
}

TEST(RunCommand, SaysWhenTheContextCutsTheAnswer) {
  const ProcessResult result = run_carat({"run", "-p", "What is nginx?", "-c", "20", "--temp", "0"});
  EXPECT_EQ(result.exit_code, 12);
  EXPECT_THAT(result.err, HasSubstr("the answer is cut off: the context of 20 tokens is full"));
}

TEST(RunCommand, FlagsWithoutEffectAreNamed) {
  const ProcessResult layers =
      run_carat({"run", "-p", "hi", "-n", "1", "--temp", "0", "--device", "cpu", "-ngl", "99"});
  EXPECT_EQ(layers.exit_code, 10);  // cut off at -n
  EXPECT_THAT(layers.err, HasSubstr("-ngl 99 has no effect"));
  EXPECT_THAT(run_carat({"run", "-p", "hi", "-n", "1", "-fa", "on", "-v"}).err, HasSubstr("-fa on has no effect"));
}

TEST(RunCommand, APenaltyAndABiasChangeTheText) {
  const std::vector<std::string> base = {"run", "-p", "What is nginx?", "--temp", "0", "-n", "8"};
  const auto with = [&base](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return run_carat(more);
  };
  const std::string plain = with({}).out;
  EXPECT_NE(with({"--repeat-penalty", "5"}).out, plain);
  const ProcessResult biased = with({"--logit-bias", "5864+100"});
  EXPECT_THAT(biased.out, StartsWith("HelloHello"));
  EXPECT_EQ(with({"--logit-bias", "nonsense"}).exit_code, 1);
}

class Interruption : public testing::Test {
 protected:
  // Waits for the first words of an answer that would go on for minutes.
  static void wait_for_output(const CaratProcess& process) {
    for (int i = 0; i < 600 && process.output_so_far().empty(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ASSERT_NE(process.output_so_far(), "");
  }
};

TEST_F(Interruption, TheFirstCtrlCEndsTheAnswerCleanly) {
  CaratProcess process({"run", "--device", "reference", "-p", "What is nginx?", "--ignore-eos"});
  wait_for_output(process);
  process.send(SIGINT);
  const ProcessResult result = process.wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_EQ(result.out.back(), '\n');
  EXPECT_THAT(result.err, HasSubstr("interrupted"));
}

TEST_F(Interruption, ASecondCtrlCEndsTheProgramAtOnce) {
  CaratProcess process({"run", "--device", "reference", "-p", "What is nginx?", "--ignore-eos"});
  wait_for_output(process);
  process.send(SIGINT);
  process.send(SIGTERM);
  EXPECT_EQ(process.wait().exit_code, 130);
}

}  // namespace
}  // namespace carat::test
