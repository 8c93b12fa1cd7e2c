#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/carat_process.h"
#include "exec/kernel_choice.h"

namespace carat::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(TokenizeCommand, GivesJson) {
  const ProcessResult result = run_carat({"tokenize", "--json", "Hello", "world"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json tokens = json::parse(result.out);
  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  std::string text;
  for (const json& token : tokens["tokens"]) text += token["piece"].get<std::string>();
  EXPECT_EQ(text, "Hello▁world");
}

TEST(TokenizeCommand, TakesTextFromEveryPlace) {
  const TemporaryDirectory folder;
  write_text(folder.file("text"), "Hello world");
  const std::string ids = run_carat({"tokenize", "--ids", "Hello world"}).out;
  EXPECT_EQ(run_carat({"tokenize", "--ids"}, "Hello world").out, ids);
  EXPECT_EQ(run_carat({"tokenize", "--ids", "-f", folder.file("text")}).out, ids);
  EXPECT_EQ(run_carat({"tokenize", "--count", "-f", "-"}, "Hello world").out, "2\n");
}

TEST(TokenizeCommand, SpecialTextsAreTokensOnlyWhenAsked) {
  const json plain = json::parse(run_carat({"tokenize", "--json", "<turn|>"}).out);
  const json parsed = json::parse(run_carat({"tokenize", "--json", "--specials", "--bos", "<turn|>"}).out);
  EXPECT_GT(plain["count"], 1);
  ASSERT_EQ(parsed["count"], 2);
  EXPECT_EQ(parsed["tokens"][0]["piece"], "<bos>");
  EXPECT_EQ(parsed["tokens"][1]["piece"], "<turn|>");
}

TEST(TokenizeCommand, AnyBytesGiveValidJson) {
  const ProcessResult result = run_carat({"tokenize", "--json"}, std::string("\xff\xfe\0 \xf0\x9f", 6));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NO_THROW(json::parse(result.out));
}

TEST(BenchCommand, GivesTheFieldsOfLlamaBench) {
  const ProcessResult result =
      run_carat({"bench", "-p", "16", "-n", "4", "-pg", "8,2", "-d", "0,24", "-r", "2", "-t", "1", "-o", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json rows = json::parse(result.out);
  ASSERT_EQ(rows.size(), 6u);
  for (const json& row : rows) {
    EXPECT_EQ(row["samples_ns"].size(), 2u);
    EXPECT_EQ(row["samples_ts"].size(), 2u);
    EXPECT_GT(row["avg_ns"], 0);
    EXPECT_GT(row["avg_ts"], 0.0);
    EXPECT_GE(row["stddev_ts"], 0.0);
    EXPECT_EQ(row["n_threads"], 1);
    EXPECT_GT(row["model_n_params"], 14'000'000);
    EXPECT_GT(row["model_size"], 15'000'000);
    const double tokens = row["n_prompt"].get<double>() + row["n_gen"].get<double>();
    EXPECT_NEAR(row["samples_ts"][0].get<double>(), 1e9 * tokens / row["samples_ns"][0].get<double>(), 1e-3);
  }
  EXPECT_EQ(rows[0]["n_prompt"], 16);
  EXPECT_EQ(rows[1]["n_gen"], 4);
  EXPECT_EQ(rows[5]["n_depth"], 24);
  // Generation alone is compared with what the machine can read; a share is above nothing.
  EXPECT_TRUE(rows[0]["limit_share"].is_null());
  EXPECT_GT(rows[1]["limit_share"], 0.0);
  EXPECT_GT(rows[1]["bytes_per_token"], 5e6);
  EXPECT_GT(rows[4]["bytes_per_token"], rows[1]["bytes_per_token"]);  // deeper: more keys and values
  // What was used, though it was not asked for: the whole context of 40 is less than the 512 rows of a pass.
  for (const json& row : rows) EXPECT_EQ(row["n_ubatch"], 40);
}

TEST(BenchCommand, GivesMarkdownCsvAndLines) {
  const auto bench = [](const std::string& format) {
    return run_carat({"bench", "-p", "4", "-n", "0", "-d", "8", "-r", "1", "-t", "1", "-o", format}).out;
  };
  EXPECT_THAT(bench("md"), HasSubstr(" pp4 @ d8 | "));
  EXPECT_THAT(bench("csv"), HasSubstr("n_prompt,n_gen,n_depth"));
  EXPECT_EQ(json::parse(bench("jsonl"))["n_depth"], 8);
}

TEST(BenchCommand, ComparesAnswersWithAndWithoutDrafts) {
  TemporaryDirectory folder;
  std::string text = "Repeat this: ";
  for (int i = 0; i < 8; ++i) text += "the quick brown fox jumps over the lazy dog, ";
  write_text(folder.file("text"), text);
  const ProcessResult result = run_carat({"bench", "--device", "cpu", "--lookup-text", folder.file("text"), "-n", "60",
                                          "-r", "1", "-t", "1", "-o", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, testing::Not(HasSubstr("parts from")));  // the texts are the same
  const json rows = json::parse(result.out);
  ASSERT_EQ(rows.size(), 3u);
  const char* modes[] = {"off", "auto", "on"};
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["lookup"], modes[i]);
    EXPECT_EQ(rows[i]["n_gen"], 60);
    EXPECT_GT(rows[i]["n_depth"], 50);
    EXPECT_GT(rows[i]["avg_ts"], 0.0);
  }
  EXPECT_EQ(rows[0]["tokens_per_pass"], 1.0);
  EXPECT_TRUE(rows[0]["drafts_accepted"].is_null());
  EXPECT_GT(rows[2]["tokens_per_pass"], 1.2);
  EXPECT_GT(rows[2]["drafts_accepted"], 0.05);
}

TEST(PlotCommand, DrawsWhatBenchWrites) {
  TemporaryDirectory folder;
  const ProcessResult bench =
      run_carat({"bench", "-p", "8", "-n", "2", "-d", "0,15,16,17", "-r", "1", "-t", "1", "-o", "json"});
  ASSERT_EQ(bench.exit_code, 0) << bench.err;
  write_text(folder.file("own.json"), bench.out);
  write_text(folder.file("peer.csv"), "model_type,n_gen,n_depth,avg_ts\nx,128,0,20\nx,128,16,10\n");
  const ProcessResult plot = run_carat({"plot", folder.file("own.json"), "peer:carat-demo=" + folder.file("peer.csv"),
                                        "--title", "A & B", "-o", folder.file("plot.svg")});
  ASSERT_EQ(plot.exit_code, 0) << plot.err;
  const std::string svg = read_text(folder.file("plot.svg"));
  EXPECT_THAT(svg, testing::StartsWith("<svg "));
  EXPECT_THAT(svg, HasSubstr("A &amp; B"));
  EXPECT_THAT(svg, HasSubstr("peer, carat-demo: 10.0 ± 0.0 t/s at depth 16"));
  EXPECT_THAT(svg, HasSubstr("t/s at depth 17<"));

  const ProcessResult missing = run_carat({"plot", "peer=" + folder.file("none.json")});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("none.json"));
}

class PerplexityCommand : public testing::Test {
 protected:
  PerplexityCommand() {
    std::string text;
    for (int i = 0; i < 40; ++i) text += "nginx is a small, powerful web server. Debian packages it. ";
    write_text(folder.file("text"), text);
  }
  TemporaryDirectory folder;
};

TEST_F(PerplexityCommand, ComparedWithItselfIsEqual) {
  const std::string base = folder.file("base");
  const ProcessResult first =
      run_carat({"perplexity", "-f", folder.file("text"), "-c", "64", "--chunks", "2", "--kl-base", base, "--json"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("wrote"));
  EXPECT_FALSE(std::filesystem::exists(base + ".partial"));
  const json alone = json::parse(first.out);
  EXPECT_EQ(alone["scored"], 62);
  EXPECT_GT(alone["perplexity"], 1.0);

  const ProcessResult second = run_carat({"perplexity", "--kl-base", base, "--json"});
  ASSERT_EQ(second.exit_code, 0) << second.err;
  const json compared = json::parse(second.out);
  EXPECT_EQ(compared["perplexity"], alone["perplexity"]);
  EXPECT_LT(compared["kl_max"], 1e-7);  // 16-bit codes in the file
  EXPECT_EQ(compared["top1_agreement"], 1.0);
  EXPECT_NEAR(compared["base_perplexity"].get<double>(), alone["perplexity"].get<double>(), 1e-2);
}

TEST_F(PerplexityCommand, SeesAnotherModel) {
  const std::string base = folder.file("base");
  run_carat({"perplexity", "-f", folder.file("text"), "-c", "64", "--chunks", "1", "--kl-base", base});
  const ProcessResult other = run_carat({"perplexity", model_path("demo-moe-q8_0.gguf"), "--kl-base", base, "--json"});
  ASSERT_EQ(other.exit_code, 0) << other.err;
  EXPECT_GT(json::parse(other.out)["kl_mean"], 1e-2);
}

TEST_F(PerplexityCommand, RefusesShortTextsAndForeignBases) {
  const ProcessResult short_text = run_carat({"perplexity", "-f", folder.file("text"), "-c", "4000"});
  EXPECT_EQ(short_text.exit_code, 1);
  EXPECT_THAT(short_text.err, HasSubstr("less than one window of 4000"));

  const std::string base = folder.file("base");
  run_carat({"perplexity", "-f", folder.file("text"), "-c", "32", "--chunks", "1", "--kl-base", base});
  write_text(folder.file("other"), read_text(folder.file("text")).substr(7));
  const ProcessResult foreign = run_carat({"perplexity", "-f", folder.file("other"), "--kl-base", base});
  EXPECT_EQ(foreign.exit_code, 1);
  EXPECT_THAT(foreign.err, HasSubstr("made from another text"));

  write_text(base, read_text(base).substr(0, 1000));
  const ProcessResult damaged = run_carat({"perplexity", "--kl-base", base});
  EXPECT_EQ(damaged.exit_code, 3);
  EXPECT_THAT(damaged.err, HasSubstr("its size does not fit its header"));
}

TEST(KernelsCommand, ListsTheWholeRegistry) {
  const ProcessResult result = run_carat({"kernels"});
  EXPECT_EQ(result.exit_code, 0);
  for (const exec::KernelOption& option : exec::kernel_registry()) {
    EXPECT_THAT(result.out, HasSubstr(std::string(option.slot) + "=" + std::string(option.name)));
  }
}

TEST(KernelsCommand, ShowsWhatAGpuWouldUse) {
  EXPECT_THAT(run_carat({"kernels"}).out, HasSubstr("-m FILE"));
  const ProcessResult result =
      run_carat({"kernels", "-m", model_path("demo-e-q8_0.gguf"), "--gpu", "H200,9.0,132,141"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("H200 would use for"));
  EXPECT_THAT(result.out, HasSubstr("overlap=on "));
}

TEST(PlanCommand, PlansForAGpuThatIsNotHere) {
  const ProcessResult result = run_carat({"plan", "--gpu", "RTX 4070 Ti,8.9,60,12", "-c", "1000", "-ub", "256",
                                          "--sequences", "2", "--kernels", "launch=single", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json plan = json::parse(result.out);
  EXPECT_EQ(plan["gpu"]["name"], "RTX 4070 Ti");
  EXPECT_EQ(plan["context"], 1000);
  EXPECT_EQ(plan["chunk"], 256);
  EXPECT_EQ(plan["sequences"], 2);
  EXPECT_EQ(plan["fits"], true);
  const bool single = std::any_of(plan["kernels"].begin(), plan["kernels"].end(), [](const json& made) {
    return made["slot"] == "launch" && made["name"] == "single";
  });
  EXPECT_TRUE(single);
}

TEST(PlanCommand, ExplainsMistakes) {
  const ProcessResult drafter =
      run_carat({"plan", model_path("demo-e-assistant-q8_0.gguf"), "--gpu", "RTX 4070 Ti,8.9,60,12"});
  EXPECT_EQ(drafter.exit_code, 4);
  EXPECT_THAT(drafter.err, HasSubstr("drafter"));
  const ProcessResult gpu = run_carat({"plan", "--gpu", "RTX 4070 Ti"});
  EXPECT_EQ(gpu.exit_code, 1);
  EXPECT_THAT(gpu.err, HasSubstr("--gpu"));
  const ProcessResult layers = run_carat({"plan", "--gpu", "RTX 4070 Ti,8.9,60,12", "-ngl", "some"});
  EXPECT_EQ(layers.exit_code, 1);
  EXPECT_THAT(layers.err, HasSubstr("-ngl some"));
}

#ifndef CARAT_HAVE_CUDA
TEST(PlanCommand, SaysThatThereIsNoGpu) {
  const ProcessResult result = run_carat({"plan"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, HasSubstr("no GPU support"));
  EXPECT_THAT(result.err, HasSubstr("--gpu"));
}

TEST(ProfileCommand, NeedsAGpu) {
  const ProcessResult result = run_carat({"profile", "-p", "16", "-n", "2"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, HasSubstr("no GPU"));
}
#endif

TEST(VersionCommand, SaysWhatItIs) {
  const ProcessResult result = run_carat({"version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, testing::StartsWith("carat " CARAT_VERSION "\n"));
  EXPECT_THAT(result.out, HasSubstr("CPU features: "));
}

}  // namespace
}  // namespace carat::test
