#include "model/writing/importance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "gguf/writer.h"
#include "model/writing/quantise.h"
#include "model/writing/synth.h"
#include "support/files.h"
#include "support/random.h"

namespace carat::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ImportanceTest : public ::testing::Test {
 protected:
  // An error's message, or "" when there is none.
  static std::string refusal(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  std::string write_bytes(const std::string& name, const std::string& bytes) {
    const std::string path = folder_.file(name);
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  test::TemporaryDirectory folder_;
};

std::string number(int32_t value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }
std::string real(float value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }

TEST_F(ImportanceTest, WhatIsCollectedIsReadBackAsMeans) {
  ImportanceCollector collector;
  const std::vector<float> first = {1.0f, 2.0f, 3.0f}, second = {3.0f, 0.0f, 1.0f};
  collector.add("blk.0.attn_q.weight", 0, 1, first);
  collector.add("blk.0.attn_q.weight", 0, 1, second);
  collector.add("blk.0.ffn_down_exps.weight", 1, 3, first);
  EXPECT_EQ(collector.unused_slices(), 2u);
  const std::string path = folder_.file("imatrix.gguf");
  collector.save(path, "text", 4, 512);
  const ImportanceMatrix matrix = ImportanceMatrix::load(path);
  EXPECT_EQ(matrix.entries(), 2u);
  EXPECT_THAT(matrix.find("blk.0.attn_q.weight"), ElementsAre(5.0f, 2.0f, 5.0f));
  // Experts nothing is known of weigh all channels alike.
  EXPECT_THAT(matrix.find("blk.0.ffn_down_exps.weight"), ElementsAre(1, 1, 1, 1, 4, 9, 1, 1, 1));
  EXPECT_TRUE(matrix.find("blk.1.attn_q.weight").empty());
}

// As llama-imatrix wrote it before GGUF: entries of name, calls and values, then calls in all and the text's name.
TEST_F(ImportanceTest, ReadsTheBinaryFilesOfBefore) {
  const std::string entry = number(3) + "a.b" + number(4) + number(2) + real(8.0f) + real(2.0f);
  const ImportanceMatrix matrix =
      ImportanceMatrix::load(write_bytes("imatrix.dat", number(1) + entry + number(4) + number(1) + "t"));
  EXPECT_THAT(matrix.find("a.b"), ElementsAre(2.0f, 0.5f));
}

TEST_F(ImportanceTest, DamagedFilesAreRefused) {
  const std::string entry = number(3) + "a.b" + number(4) + number(2) + real(8.0f) + real(2.0f);
  const std::string whole = number(1) + entry;
  for (size_t bytes = 4; bytes < whole.size(); ++bytes) {
    EXPECT_THAT(refusal([&] { ImportanceMatrix::load(write_bytes("cut", whole.substr(0, bytes))); }), HasSubstr("cut"))
        << bytes;
  }
  for (const std::string& bad : {number(0) + entry, number(-1) + entry, number(1) + number(INT32_MAX) + "a",
                                 number(1) + number(1) + "a" + number(1) + number(INT32_MAX),
                                 number(1) + number(1) + "a" + number(1) + number(1) + real(NAN),
                                 number(1) + number(1) + "a" + number(1) + number(1) + real(-1.0f)}) {
    EXPECT_NE(refusal([&] { ImportanceMatrix::load(write_bytes("bad", bad)); }), "");
  }
  EXPECT_THAT(refusal([&] { ImportanceMatrix::load(folder_.file("none")); }), HasSubstr("none"));
  gguf::Writer writer(folder_.file("model.gguf"));
  writer.add_string("general.type", "model");
  writer.begin_data();
  writer.finish();
  EXPECT_THAT(refusal([&] { ImportanceMatrix::load(folder_.file("model.gguf")); }), HasSubstr("carat imatrix"));
}

TEST_F(ImportanceTest, WeighsTheErrorsOfAConvertedFileByExpertAndColumn) {
  ThreadPool pool(2);
  const std::string source_path = folder_.file("source.gguf");
  write_synth(plan_synth({.preset = "tiny-26b-a4b", .recipe = "f32"}), source_path, pool);
  const auto source = gguf::ModelFile::open(source_path);
  const gguf::TensorView& experts = *source->find("blk.0.ffn_gate_up_exps.weight");
  const uint64_t columns = experts.info.ne[0], slices = experts.info.ne[2];
  ImportanceCollector collector;
  test::Random random(3);
  for (uint64_t slice = 0; slice < slices; ++slice) {
    std::vector<float> row(columns);
    for (float& value : row) value = std::exp(1.5f * random.normal());
    collector.add("blk.0.ffn_gate_up_exps.weight", slice, slices, row);
  }
  collector.save(folder_.file("imatrix.gguf"), "text", 1, 1);
  const auto importance = std::make_shared<ImportanceMatrix>(ImportanceMatrix::load(folder_.file("imatrix.gguf")));

  const auto weighted_error = [&](bool weigh) {
    QuantisePlan plan = plan_quantise(*source, Recipe::parse("q4_0-pure"), false);
    if (weigh) plan.importance = importance;
    const std::string path = folder_.file("result.gguf");
    quantise(*source, plan, path, pool);
    const auto result = gguf::ModelFile::open(path);
    const gguf::TensorView& converted = *result->find("blk.0.ffn_gate_up_exps.weight");
    const uint64_t count = columns * experts.info.ne[1] * slices;
    std::vector<float> values(count);
    quant::info(quant::Format::kQ4_0).dequantise(converted.data.data(), values.data(), count);
    const auto* exact = reinterpret_cast<const float*>(experts.data.data());
    const std::span<const float> weights = importance->find("blk.0.ffn_gate_up_exps.weight");
    double sum = 0.0;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t slice = i / (columns * experts.info.ne[1]);
      sum += double{weights[slice * columns + i % columns]} * std::pow(double{values[i]} - exact[i], 2);
    }
    return sum;
  };
  EXPECT_LT(weighted_error(true), 0.9 * weighted_error(false));
}

TEST_F(ImportanceTest, OfAnotherModelIsRefused) {
  ThreadPool pool(2);
  write_synth(plan_synth({.preset = "tiny-12b", .recipe = "f32"}), folder_.file("source.gguf"), pool);
  const auto source = gguf::ModelFile::open(folder_.file("source.gguf"));
  const auto check = [&](const std::string& tensor, size_t columns) {
    ImportanceCollector collector;
    collector.add(tensor, 0, 1, std::vector<float>(columns, 1.0f));
    collector.save(folder_.file("imatrix.gguf"), "text", 1, 1);
    QuantisePlan plan = plan_quantise(*source, Recipe::parse("q4_0"), false);
    plan.importance = std::make_shared<ImportanceMatrix>(ImportanceMatrix::load(folder_.file("imatrix.gguf")));
    return refusal([&] { check_importance(*source, plan); });
  };
  EXPECT_THAT(check("blk.0.attn_q.weight", 7), HasSubstr("blk.0.attn_q.weight"));
  EXPECT_THAT(check("somewhere.else", 7), HasSubstr("another model"));
}

}  // namespace
}  // namespace carat::model
