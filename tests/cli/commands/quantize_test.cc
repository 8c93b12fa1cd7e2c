#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/carat_process.h"
#include "gguf/reader.h"

namespace carat::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class QuantizeCommand : public ::testing::Test {
 protected:
  QuantizeCommand() { EXPECT_EQ(run_carat({"synth", "tiny-e4b", "bf16", source_, "--layers", "4"}).exit_code, 0); }

  TemporaryDirectory folder_;
  std::string source_ = folder_.file("source.gguf");
};

TEST_F(QuantizeCommand, ConvertsAndPrintsATable) {
  const std::string path = folder_.file("result.gguf");
  const ProcessResult result = run_carat({"quantize", source_, path, "q4_k_m"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("BF16     Q4_K"), HasSubstr("BF16     Q6_K"), HasSubstr("F32      (copied)"),
                                HasSubstr("wrote " + path)));
  const json info = json::parse(run_carat({"info", path, "--json", "--tensors"}).out);
  EXPECT_EQ(info["metadata"]["general.file_type"], 15);
  EXPECT_EQ(info["model"]["layers"], 4);
  for (const json& tensor : info["tensors"]) {
    if (tensor["name"] == "token_embd.weight") {
      EXPECT_EQ(tensor["type"], "Q6_K");
    }
    if (tensor["name"] == "blk.1.ffn_up.weight") {
      EXPECT_EQ(tensor["type"], "Q4_K");
    }
  }
}

TEST_F(QuantizeCommand, DryRunWritesNothing) {
  const ProcessResult result = run_carat({"quantize", source_, folder_.file("result.gguf"), "q8_0", "--dry-run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("BF16     Q8_0"));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("result.gguf")));
}

TEST_F(QuantizeCommand, AsksBeforeRequantising) {
  const std::string once = folder_.file("once.gguf"), twice = folder_.file("twice.gguf");
  ASSERT_EQ(run_carat({"quantize", source_, once, "q8_0"}).exit_code, 0);
  const ProcessResult refused = run_carat({"quantize", once, twice, "q4_0"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("--allow-requantize"));
  EXPECT_FALSE(std::filesystem::exists(twice));
  EXPECT_EQ(run_carat({"quantize", once, twice, "q4_0", "--allow-requantize"}).exit_code, 0);
  EXPECT_LT(std::filesystem::file_size(twice), std::filesystem::file_size(once));
}

TEST_F(QuantizeCommand, RefusesToOverwriteItsSource) {
  const auto before = read_bytes(source_);
  const ProcessResult result = run_carat({"quantize", source_, folder_.path() / "." / "source.gguf", "q8_0"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("both the source and the result"));
  EXPECT_EQ(read_bytes(source_), before);
}

TEST_F(QuantizeCommand, ChangesMetadataOfACopy) {
  const std::string path = folder_.file("copy.gguf");
  const ProcessResult result = run_carat({"quantize", source_, path, "copy", "--override-kv",
                                          "general.sampling.temp=float:0.25", "--override-kv", "general.new=str:a b"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("BF16     (copied)"), HasSubstr("F32      (copied)")));
  const json info = json::parse(run_carat({"info", path, "--json"}).out);
  EXPECT_EQ(info["sampling"]["temperature"], 0.25);
  EXPECT_EQ(info["metadata"]["general.new"], "a b");
  const ProcessResult refused = run_carat({"quantize", source_, path, "copy", "--override-kv", "general.name=int:5"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("general.name holds a value of type string"));
  const ProcessResult unclear = run_carat({"quantize", source_, path, "copy", "--override-kv", "general.name"});
  EXPECT_EQ(unclear.exit_code, 1);
  EXPECT_THAT(unclear.err, HasSubstr("--override-kv general.name: write KEY=TYPE:VALUE"));
}

TEST_F(QuantizeCommand, FailsOnFilesThatAreNoModels) {
  write_text(folder_.file("text"), "not a model");
  EXPECT_EQ(run_carat({"quantize", folder_.file("text"), folder_.file("out"), "q8_0"}).exit_code, 3);
  EXPECT_EQ(run_carat({"quantize", folder_.file("missing"), folder_.file("out"), "q8_0"}).exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(folder_.file("out")));
}

// The same rows go into queries, keys and values, so what was summed up for them is the same; and quantize takes it.
TEST_F(QuantizeCommand, UsesAnImportanceMatrixThatImatrixMade) {
  const std::string text = folder_.file("text"), matrix = folder_.file("imatrix.gguf"), out = folder_.file("out.gguf");
  std::ofstream(text) << "the quick brown fox jumps over the lazy dog and runs away through the old grey woods";
  const ProcessResult made = run_carat({"imatrix", source_, "-f", text, "-o", matrix, "-c", "8", "--chunks", "2"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("2 windows of 8 tokens"));
  const auto file = gguf::ModelFile::open(matrix);
  const auto bytes_of = [&](const std::string& name) {
    const gguf::TensorView* tensor = file->find(name);
    EXPECT_NE(tensor, nullptr) << name;
    return tensor == nullptr ? std::vector<std::byte>() : std::vector(tensor->data.begin(), tensor->data.end());
  };
  EXPECT_EQ(bytes_of("blk.0.attn_q.weight.in_sum2"), bytes_of("blk.0.attn_k.weight.in_sum2"));
  EXPECT_NE(bytes_of("blk.0.attn_q.weight.in_sum2"), bytes_of("blk.1.attn_q.weight.in_sum2"));
  float rows = 0.0f;
  std::memcpy(&rows, bytes_of("blk.3.ffn_down.weight.counts").data(), sizeof rows);
  EXPECT_EQ(rows, 16.0f);

  ASSERT_EQ(run_carat({"quantize", source_, out, "q4_0", "--imatrix", matrix}).exit_code, 0);
  const ProcessResult refused = run_carat({"quantize", source_, out, "q4_0", "--imatrix", text});
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err, HasSubstr("importance matrix"));
}

}  // namespace
}  // namespace carat::test
