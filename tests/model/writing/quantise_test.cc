#include "model/writing/quantise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "gguf/writer.h"
#include "model/model.h"
#include "model/writing/synth.h"
#include "support/files.h"

namespace carat::model {
namespace {

using ::testing::HasSubstr;

class QuantiseFile : public ::testing::Test {
 protected:
  std::shared_ptr<const gguf::ModelFile> make(const std::string& preset, const std::string& recipe) {
    const std::string path = folder_.file(preset + "-" + recipe + ".gguf");
    write_synth(plan_synth({.preset = preset, .recipe = recipe}), path, pool_);
    return gguf::ModelFile::open(path);
  }

  std::shared_ptr<const gguf::ModelFile> convert(const gguf::ModelFile& file, const std::string& recipe,
                                                 bool allow_requantise = false) {
    const std::string path = folder_.file("out-" + recipe + ".gguf");
    quantise(file, plan_quantise(file, Recipe::parse(recipe), allow_requantise), path, pool_);
    return gguf::ModelFile::open(path);
  }

  test::TemporaryDirectory folder_;
  ThreadPool pool_{2};
};

std::vector<float> values_of(const gguf::TensorView& tensor) {
  const quant::FormatInfo& format = *quant::find_format(tensor.info.type);
  const uint64_t count = tensor.info.bytes / format.bytes * format.block;
  std::vector<float> values(count);
  format.dequantise(tensor.data.data(), values.data(), count);
  return values;
}

double relative_error(const gguf::TensorView& a, const gguf::TensorView& b) {
  const std::vector<float> x = values_of(a), y = values_of(b);
  EXPECT_EQ(x.size(), y.size());
  double error = 0.0, size = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += (double{x[i]} - y[i]) * (double{x[i]} - y[i]);
    size += double{x[i]} * x[i];
  }
  return std::sqrt(error / size);
}

TEST_F(QuantiseFile, EveryTensorGetsTheRecipesTypeAndKeepsItsValues) {
  const auto source = make("tiny-26b-a4b", "f32");
  // Quantisation steps relative to normally distributed values, with room for the search to do better or worse.
  for (const auto& [recipe, bound] : {std::pair{"q8_0", 0.008}, std::pair{"q4_0", 0.12}, std::pair{"q4_k_m", 0.10}}) {
    SCOPED_TRACE(recipe);
    const auto result = convert(*source, recipe);
    std::vector<TensorShape> shapes;
    for (const SynthTensor& tensor : plan_synth({.preset = "tiny-26b-a4b", .recipe = recipe}).tensors) {
      const gguf::TensorView* made = result->find(tensor.shape.name);
      ASSERT_NE(made, nullptr);
      EXPECT_EQ(made->info.type, static_cast<uint32_t>(tensor.format)) << tensor.shape.name;
      const double error = relative_error(*source->find(tensor.shape.name), *made);
      if (tensor.format == quant::Format::kF32) {
        EXPECT_EQ(error, 0.0) << tensor.shape.name;
      } else {
        EXPECT_GT(error, 0.0) << tensor.shape.name;
        EXPECT_LT(error, bound) << tensor.shape.name;
      }
    }
    EXPECT_EQ(Model::load(result)->config().L, 6u);
  }
}

TEST_F(QuantiseFile, MetadataIsCopiedWithTheNewFileType) {
  const auto source = make("tiny-12b", "bf16");
  const auto result = convert(*source, "q4_k_m");
  EXPECT_EQ(source->metadata().unsigned_integer("general.file_type"), 32u);
  EXPECT_EQ(result->metadata().unsigned_integer("general.file_type"), 15u);
  EXPECT_EQ(result->metadata().unsigned_integer("general.quantization_version"), 2u);
  ASSERT_EQ(result->metadata().entries().size(), source->metadata().entries().size());
  for (size_t i = 0; i < source->metadata().entries().size(); ++i) {
    const auto& before = source->metadata().entries()[i];
    const auto& after = result->metadata().entries()[i];
    EXPECT_EQ(before.key, after.key);
    EXPECT_EQ(before.value.type, after.value.type);
    if (const auto* array = std::get_if<gguf::Array>(&before.value.data)) {
      const auto& copy = std::get<gguf::Array>(after.value.data);
      EXPECT_EQ(array->strings, copy.strings);
      EXPECT_TRUE(std::ranges::equal(array->bytes, copy.bytes));
    }
  }
}

TEST_F(QuantiseFile, ResultDoesNotDependOnTheNumberOfWorkers) {
  const auto source = make("tiny-e2b", "f16");
  const QuantisePlan plan = plan_quantise(*source, Recipe::parse("q4_0"), false);
  ThreadPool one(1), three(3);
  quantise(*source, plan, folder_.file("one.gguf"), one);
  uint64_t last = 0;
  quantise(*source, plan, folder_.file("three.gguf"), three,
           {.progress = [&](uint64_t done) { last = std::max(last, done); }, .cancelled = nullptr});
  EXPECT_EQ(test::read_bytes(folder_.file("one.gguf")), test::read_bytes(folder_.file("three.gguf")));
  EXPECT_EQ(last, plan.from_bytes());
}

TEST_F(QuantiseFile, ProjectionKeepsItsFloatTypeInShippedMixturesOnly) {
  const auto source = make("tiny-e2b", "f16");
  EXPECT_EQ(convert(*source, "q4_0")->find("per_layer_model_proj.weight")->info.type, 1u);
  EXPECT_EQ(convert(*source, "q4_0-pure")->find("per_layer_model_proj.weight")->info.type, 2u);
}

TEST_F(QuantiseFile, RefusesAQuantisedSourceUnlessToldOtherwise) {
  const auto source = make("tiny-12b", "q8_0");
  try {
    plan_quantise(*source, Recipe::parse("q4_0"), false);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
    EXPECT_THAT(error.what(), HasSubstr("--allow-requantize"));
    EXPECT_THAT(error.what(), HasSubstr("token_embd.weight"));
  }
  const auto result = convert(*source, "q4_0", true);
  EXPECT_EQ(result->find("blk.0.ffn_up.weight")->info.type, 2u);
  EXPECT_LT(relative_error(*source->find("blk.0.ffn_up.weight"), *result->find("blk.0.ffn_up.weight")), 0.12);
  // The same type is a copy and needs no permission.
  const auto copy = convert(*source, "q8_0");
  EXPECT_TRUE(std::ranges::equal(copy->find("blk.0.ffn_up.weight")->data, source->find("blk.0.ffn_up.weight")->data));
}

TEST_F(QuantiseFile, RefusesAFormatCaratCannotWrite) {
  const auto source = make("tiny-12b", "f16");
  for (const quant::FormatInfo& format : quant::formats()) {
    if (format.quantise != nullptr) continue;
    try {
      plan_quantise(*source, Recipe::parse(std::string(format.name) + "-pure"), false);
      FAIL() << "accepted " << format.name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_THAT(error.what(), HasSubstr(std::string(format.name)));
    }
  }
}

TEST_F(QuantiseFile, RefusesValuesThatAreNotFinite) {
  std::vector<float> values(64 * 64, 0.5f);
  values[777] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<uint64_t> ne = {64, 64};
  {
    gguf::Writer writer(folder_.file("nan.gguf"));
    writer.add_string("general.architecture", "gemma4");
    writer.declare_tensor("blk.0.attn_q.weight", 0, ne);
    writer.begin_data();
    writer.write(std::as_bytes(std::span(values)));
    writer.finish();
  }
  const auto file = gguf::ModelFile::open(folder_.file("nan.gguf"));
  try {
    convert(*file, "q8_0");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadFile);
    EXPECT_THAT(error.what(), HasSubstr("blk.0.attn_q.weight"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder_.file("out-q8_0.gguf")));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("out-q8_0.gguf.partial")));
}

TEST_F(QuantiseFile, TensorsOfOtherTypesAreCopied) {
  std::vector<int32_t> order(96);
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i * i);
  const std::vector<uint64_t> ne = {32, 3};
  {
    gguf::Writer writer(folder_.file("integers.gguf"), 64);
    writer.add_string("general.architecture", "gemma4-assistant");
    writer.declare_tensor("masked_embd_ordering.weight", 26, ne);
    writer.begin_data();
    writer.write(std::as_bytes(std::span(order)));
    writer.finish();
  }
  const auto file = gguf::ModelFile::open(folder_.file("integers.gguf"));
  const auto result = convert(*file, "q4_0");
  EXPECT_EQ(result->first_header().alignment, 64u);
  const gguf::TensorView* tensor = result->find("masked_embd_ordering.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->info.type, 26u);
  EXPECT_TRUE(std::ranges::equal(tensor->data, std::as_bytes(std::span(order))));
}

TEST_F(QuantiseFile, ACopyKeepsEveryByteOfEveryTensor) {
  const auto source = make("tiny-26b-a4b", "q4_k_m");
  QuantisePlan plan = plan_quantise(*source, std::nullopt, false);
  for (const char* edit :
       {"general.sampling.temp=float:9", "general.sampling.temp=float:0.25", "general.new=str:here"}) {
    plan.edits.push_back(MetadataEdit::parse(edit));
  }
  EXPECT_EQ(plan.to_bytes(), plan.from_bytes());
  quantise(*source, plan, folder_.file("copy.gguf"), pool_);
  const auto copy = gguf::ModelFile::open(folder_.file("copy.gguf"));
  ASSERT_EQ(copy->tensors().size(), source->tensors().size());
  for (size_t i = 0; i < source->tensors().size(); ++i) {
    const gguf::TensorView &before = source->tensors()[i], &after = copy->tensors()[i];
    EXPECT_EQ(after.info.name, before.info.name);
    EXPECT_EQ(after.info.type, before.info.type);
    EXPECT_TRUE(std::ranges::equal(after.data, before.data)) << before.info.name;
  }
  // The last edit of a key wins; new keys come last; the type of the file is that of its source.
  EXPECT_EQ(copy->metadata().number("general.sampling.temp"), 0.25);
  EXPECT_EQ(copy->metadata().entries().size(), source->metadata().entries().size() + 1);
  EXPECT_EQ(copy->metadata().entries().back().key, "general.new");
  EXPECT_EQ(copy->metadata().string("general.new"), "here");
  EXPECT_EQ(copy->metadata().unsigned_integer("general.file_type"), 15u);
  EXPECT_EQ(Model::load(copy)->config().sampling.temperature, 0.25f);
}

TEST_F(QuantiseFile, EditsWinOverTheRecipe) {
  const auto source = make("tiny-12b", "f16");
  QuantisePlan plan = plan_quantise(*source, Recipe::parse("q8_0"), false);
  plan.edits.push_back(MetadataEdit::parse("general.file_type=int:1024"));
  quantise(*source, plan, folder_.file("edited.gguf"), pool_);
  EXPECT_EQ(gguf::ModelFile::open(folder_.file("edited.gguf"))->metadata().unsigned_integer("general.file_type"),
            1024u);
}

}  // namespace
}  // namespace carat::model
