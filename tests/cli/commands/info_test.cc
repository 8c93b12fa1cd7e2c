#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <span>

#include "cli/carat_process.h"
#include "gguf/writer.h"

namespace carat::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(InfoCommand, DescribesTheDemoModel) {
  const ProcessResult result = run_carat({"info", model_path("demo-e-q8_0.gguf")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("general.architecture                    'gemma4'"),
                                HasSubstr("tokenizer.ggml.tokens                   8,192 string: '<pad>', '<eos>'"),
                                HasSubstr("text model: 8 layers, hidden 256, vocabulary 8,192, window 128"),
                                HasSubstr("4-6      sliding 128         2        1      256  1024"),
                                HasSubstr("of layer 2"), Not(HasSubstr("blk.0.attn_q.weight"))));
  EXPECT_EQ(run_carat({"info", "-m", model_path("demo-e-q8_0.gguf")}).out, result.out);
  EXPECT_THAT(run_carat({"info", model_path("demo-e-q8_0.gguf"), "--tensors"}).out, HasSubstr("blk.0.attn_q.weight"));
}

TEST(InfoCommand, JsonHoldsTheSameNumbers) {
  const ProcessResult result = run_carat({"info", model_path("demo-moe-q8_0.gguf"), "--json", "-c", "1024,4096"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json info = json::parse(result.out);
  EXPECT_EQ(info["model"]["experts"], 8);
  EXPECT_EQ(info["model"]["experts_used"], 2);
  EXPECT_EQ(info["layers"].size(), 6u);
  EXPECT_EQ(info["layers"][2]["v_from_k"], true);
  EXPECT_EQ(info["sizes"]["total"]["elements"], 11432502);
  // Two of eight experts are read.
  const auto all = info["sizes"]["block_matrices"]["elements"].get<uint64_t>();
  const auto active = info["sizes"]["active_matrices"]["elements"].get<uint64_t>();
  const uint64_t expert_matrices = 6 * 8 * (256 * 2 * 128 + 128 * 256);
  EXPECT_EQ(all - active, expert_matrices / 8 * 6);
  // 4 sliding layers of 2 x 256 and 2 global ones of 1 x 512, K and V, two bytes each.
  ASSERT_EQ(info["memory"].size(), 2u);
  EXPECT_EQ(info["memory"][0]["global_kv_bytes"], 2 * 512 * 2 * 2 * 1024);
  EXPECT_EQ(info["memory"][1]["global_kv_bytes"], 2 * 512 * 2 * 2 * 4096);
  EXPECT_EQ(info["memory"][0]["sliding_kv_bytes"], 4 * 2 * 256 * 2 * 2 * (128 - 1 + 512));
  EXPECT_FALSE(info.contains("tensors"));
}

TEST(InfoCommand, ShowsHowTheFileWantsItsTokensChosen) {
  const ProcessResult result = run_carat({"info", model_path("demo-e-q8_0.gguf")});
  EXPECT_THAT(result.out, HasSubstr("sampling: temperature 0.2, top-k 64, top-p 0.95 (as the file recommends)\n"));
  const json info = json::parse(run_carat({"info", model_path("demo-e-q8_0.gguf"), "--json"}).out);
  EXPECT_EQ(info["sampling"]["temperature"], 0.2);
  EXPECT_EQ(info["sampling"]["top_k"], 64);
  EXPECT_EQ(info["sampling"]["repeat_last_n"], 64);
  EXPECT_EQ(info["sampling"]["given"][0], "general.sampling.temp");
  EXPECT_EQ(info["sampling"]["unsupported"], json::array());
}

TEST(InfoCommand, SaysWhichRecommendationsItDoesNotFollow) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("model.gguf");
  const auto set = [](const char* edit) { return std::vector<std::string>{"--override-kv", edit}; };
  std::vector<std::string> command = {"quantize", model_path("demo-e-q8_0.gguf"), path, "copy"};
  for (const char* edit : {"general.sampling.mirostat=int:2", "general.sampling.penalty_repeat=float:1.5",
                           "general.sampling.penalty_last_n=int:-1", "general.sampling.min_p=float:0.05"}) {
    for (const std::string& word : set(edit)) command.push_back(word);
  }
  ASSERT_EQ(run_carat(command).exit_code, 0);
  EXPECT_THAT(run_carat({"info", path}).out, AllOf(HasSubstr("min-p 0.05, repeat penalty 1.5 over all tokens"),
                                                   HasSubstr("not supported: general.sampling.mirostat\n")));
  const json sampling = json::parse(run_carat({"info", path, "--json"}).out)["sampling"];
  EXPECT_EQ(sampling["repeat_last_n"], -1);
  EXPECT_EQ(sampling["unsupported"], json::array({"general.sampling.mirostat"}));
  const ProcessResult run = run_carat({"run", "-m", path, "-p", "What is nginx?", "-n", "1"});
  EXPECT_THAT(run.err, HasSubstr("carat: warning: the model file recommends general.sampling.mirostat"));
}

TEST(InfoCommand, DescribesADrafter) {
  const ProcessResult result = run_carat({"info", model_path("demo-e-assistant-q8_0.gguf")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("drafter: 4 layers, hidden 128"), HasSubstr("model with hidden 256"),
                                HasSubstr("the target's"), Not(HasSubstr("Memory for one sequence"))));
  const json info = json::parse(run_carat({"info", model_path("demo-e-assistant-q8_0.gguf"), "--json"}).out);
  EXPECT_EQ(info["model"]["kind"], "drafter");
  EXPECT_EQ(info["memory"].size(), 0u);
}

TEST(InfoCommand, ShowsWhatItCanOfAFileItCannotRun) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("other.gguf");
  const std::vector<uint64_t> ne = {32};
  const std::vector<float> values(32, 1.0f);
  {
    gguf::Writer writer(path);
    writer.add_string("general.architecture", "llama");
    writer.add_string("general.name", "a name with \x1b[31mcolour and \xff bytes");
    writer.declare_tensor("output_norm.weight", 0, ne);
    writer.begin_data();
    writer.write(std::as_bytes(std::span(values)));
    writer.finish();
  }
  const ProcessResult text = run_carat({"info", path, "--tensors"});
  EXPECT_EQ(text.exit_code, 4);
  EXPECT_THAT(text.out, AllOf(HasSubstr("general.architecture 'llama'"), HasSubstr("output_norm.weight"),
                              Not(HasSubstr("\x1b")), Not(HasSubstr("Layers"))));
  EXPECT_THAT(text.err, HasSubstr("general.architecture is \"llama\""));
  const ProcessResult as_json = run_carat({"info", path, "--json"});
  EXPECT_EQ(as_json.exit_code, 4);
  EXPECT_EQ(json::parse(as_json.out)["metadata"]["general.architecture"], "llama");
  EXPECT_EQ(run_carat({"info", folder.file("missing.gguf")}).exit_code, 2);
}

}  // namespace
}  // namespace carat::test
