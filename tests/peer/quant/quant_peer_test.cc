// Against llama.cpp: the same bytes dequantise to the same floats, and the same values quantise with no larger error.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gguf/reader.h"
#include "gguf/tensor_type.h"
#include "peer/quant/ggml_library.h"
#include "quant/format.h"
#include "support/files.h"
#include "support/random.h"

namespace carat::test {
namespace {

using quant::Format;
using quant::FormatInfo;

constexpr size_t kColumns = 256;
constexpr size_t kCount = size_t{1} << 19;

class QuantPeerTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("CARAT_PEER_GGML");
    if (path == nullptr) GTEST_SKIP() << "skipped: CARAT_PEER_GGML does not name the peer's libggml-base.so";
    library_path_ = path;
  }

  std::string library_path_;
};

// Every id up to the newest the peer knows: the same block and bytes, and a format of ours unless it is an integer, a
// double, or a type of activations, which no weight has.
TEST_F(QuantPeerTest, EveryTypeIdOfThePeerIsKnown) {
  const GgmlLibrary peer(library_path_);
  constexpr uint32_t kNewest = 42;
  const std::set<std::string> no_weights = {"q8_1", "q8_K", "i8", "i16", "i32", "i64", "f64"};
  for (uint32_t id = 0; id <= kNewest; ++id) {
    const gguf::TensorTypeInfo* type = gguf::find_tensor_type(id);
    const uint64_t block = peer.type_block(id);
    ASSERT_EQ(type != nullptr, block != 0) << id;
    if (type == nullptr) continue;
    EXPECT_EQ(type->block, block) << type->name;
    EXPECT_EQ(type->bytes, peer.type_bytes(id)) << type->name;
    EXPECT_EQ(quant::find_format(id) == nullptr, no_weights.contains(peer.type_name(id))) << type->name;
  }
}

// Blocks with every scale pattern and every code: random bytes alone rarely have the extremes.
TEST_F(QuantPeerTest, SameValuesAtTheExtremes) {
  const GgmlLibrary peer(library_path_);
  for (const FormatInfo& format : quant::formats()) {
    if (format.block == 1) continue;
    std::vector<std::byte> blocks;
    for (unsigned byte = 0; byte < 256; ++byte) {  // all bytes alike, then a ramp from it, then alternating with zeros
      for (size_t i = 0; i < format.bytes; ++i) blocks.push_back(static_cast<std::byte>(byte));
      for (size_t i = 0; i < format.bytes; ++i) blocks.push_back(static_cast<std::byte>(byte + i));
      for (size_t i = 0; i < format.bytes; ++i) blocks.push_back(static_cast<std::byte>(i % 2 == 0 ? byte : 0));
    }
    const std::vector<float> expected = peer.dequantise(format, blocks);
    std::vector<float> found(expected.size());
    format.dequantise(blocks.data(), found.data(), found.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      if (std::isnan(expected[i]) && std::isnan(found[i])) continue;
      ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(expected[i]))
          << format.name << " element " << i << ": " << found[i] << ", the peer " << expected[i];
    }
  }
}

TEST_F(QuantPeerTest, SameBytesSameValues) {
  const GgmlLibrary peer(library_path_);
  for (const FormatInfo& format : quant::formats()) {
    if (format.format == Format::kF32) continue;  // a copy: the peer has no function for it
    const std::vector<std::byte> blocks = Random(41).bytes(400'000 / format.block * format.bytes);
    const std::vector<float> expected = peer.dequantise(format, blocks);
    std::vector<float> found(expected.size());
    format.dequantise(blocks.data(), found.data(), found.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      if (std::isnan(expected[i]) && std::isnan(found[i])) continue;
      ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(expected[i]))
          << format.name << " element " << i << ": " << found[i] << ", the peer " << expected[i];
    }
  }
}

// The float formats have no freedom: the same values must give the same bytes.
TEST_F(QuantPeerTest, FloatFormatsRoundAlike) {
  const GgmlLibrary peer(library_path_);
  Random random(42);
  std::vector<float> values(kCount);
  for (float& value : values) {
    do value = std::bit_cast<float>(static_cast<uint32_t>(random.bits()));
    while (!std::isfinite(value));
  }
  for (const Format id : {Format::kF32, Format::kF16, Format::kBF16}) {
    const FormatInfo& format = quant::info(id);
    std::vector<std::byte> found(format.row_bytes(values.size()));
    format.quantise(values.data(), found.data(), values.size(), nullptr);
    EXPECT_EQ(found, peer.quantise(format, values, kColumns, {})) << format.name;
  }
}

// Student's t with three degrees of freedom: single weights many times larger than their neighbours.
std::vector<float> heavy_tailed(uint64_t seed) {
  Random random(seed);
  std::vector<float> values(kCount);
  for (float& value : values) {
    const float a = random.normal(), b = random.normal(), c = random.normal();
    value = 0.02f * random.normal() / std::sqrt((a * a + b * b + c * c) / 3.0f);
  }
  return values;
}

// Some input channels of real models are far larger than the others.
std::vector<float> with_outlier_columns(uint64_t seed) {
  std::vector<float> values = Random(seed).normals(kCount, 0.02f);
  for (size_t i = 0; i < kCount; ++i) {
    if (i % kColumns % 59 == 11) values[i] *= 12.0f;
  }
  return values;
}

// Weights of the demo model, as its Q8_0 file has them: the first rows of every matrix.
std::vector<float> demo_weights() {
  constexpr size_t kPerTensor = size_t{1} << 15;
  const auto model = gguf::ModelFile::open(model_path("demo-e-q8_0.gguf"));
  std::vector<float> values;
  for (const gguf::TensorView& tensor : model->tensors()) {
    const FormatInfo* format = quant::find_format(tensor.info.type);
    if (format == nullptr || format->format != Format::kQ8_0 || tensor.info.ne[0] % kColumns != 0) continue;
    const size_t elements = tensor.data.size() / format->bytes * format->block;
    const size_t taken = std::min(elements, kPerTensor);
    values.resize(values.size() + taken);
    format->dequantise(tensor.data.data(), values.data() + values.size() - taken, taken);
  }
  return values;
}

// RMS error over RMS value, both weighted by the importance of the column where there is one.
double relative_error(const FormatInfo& format, const std::vector<std::byte>& blocks, const std::vector<float>& values,
                      const std::vector<float>& column_importance) {
  std::vector<float> back(values.size());
  format.dequantise(blocks.data(), back.data(), back.size());
  double error = 0, energy = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double weight = column_importance.empty() ? 1.0 : double{column_importance[i % kColumns]};
    const double difference = double{values[i]} - back[i];
    error += weight * difference * difference;
    energy += weight * double{values[i]} * values[i];
  }
  return std::sqrt(error / energy);
}

struct NamedValues {
  const char* name;
  std::vector<float> values;
};

void compare_errors(const GgmlLibrary& peer, const std::vector<float>& column_importance) {
  const std::vector<NamedValues> data = {{"normal", Random(43).normals(kCount, 0.02f)},
                                         {"heavy-tailed", heavy_tailed(44)},
                                         {"outlier columns", with_outlier_columns(45)},
                                         {"demo-e", demo_weights()}};
  fmt::print("| format | data | llama.cpp | carat | carat / llama.cpp |\n|---|---|---|---|---|\n");
  for (const FormatInfo& format : quant::formats()) {
    if (format.quantise == nullptr || format.block == 1) continue;
    // The peer writes these with an importance matrix only.
    const bool needs_importance = format.format == Format::kIQ2_XXS || format.format == Format::kIQ2_XS;
    if (needs_importance && column_importance.empty()) continue;
    for (const auto& [name, all_values] : data) {
      // Choosing among codes takes time: a part of the values is enough to tell.
      const bool slow = format.name.starts_with("IQ2") || format.name.starts_with("IQ3");
      const std::vector<float> values(all_values.begin(),
                                      all_values.begin() + static_cast<ptrdiff_t>(all_values.size() / (slow ? 8 : 1)));
      std::vector<float> importance;
      for (size_t i = 0; !column_importance.empty() && i < values.size(); ++i) {
        importance.push_back(column_importance[i % kColumns]);
      }
      std::vector<std::byte> blocks(format.row_bytes(values.size()));
      format.quantise(values.data(), blocks.data(), values.size(), importance.empty() ? nullptr : importance.data());
      const double ours = relative_error(format, blocks, values, column_importance);
      const double theirs =
          relative_error(format, peer.quantise(format, values, kColumns, column_importance), values, column_importance);
      fmt::print("| {} | {} | {:.6f} | {:.6f} | {} |\n", format.name, name, theirs, ours,
                 theirs > 0 ? fmt::format("{:.3f}", ours / theirs) : std::string("-"));
      EXPECT_LE(ours, theirs) << format.name << " on " << name;
    }
  }
}

TEST_F(QuantPeerTest, NoLargerErrorThanThePeer) { compare_errors(GgmlLibrary(library_path_), {}); }

TEST_F(QuantPeerTest, NoLargerWeightedErrorThanThePeer) {
  Random random(46);
  std::vector<float> column_importance(kColumns);
  for (float& weight : column_importance) weight = std::exp(1.5f * random.normal());
  compare_errors(GgmlLibrary(library_path_), column_importance);
}

}  // namespace
}  // namespace carat::test
