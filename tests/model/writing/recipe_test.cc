#include "model/writing/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.h"
#include "model/writing/synth.h"

namespace carat::model {
namespace {

using quant::Format;
using ::testing::HasSubstr;

std::map<std::string, Format> formats_of(const std::string& preset, const std::string& recipe) {
  std::map<std::string, Format> formats;
  for (const SynthTensor& tensor : plan_synth({.preset = preset, .recipe = recipe}).tensors) {
    formats[tensor.shape.name] = tensor.format;
  }
  return formats;
}

TEST(Recipe, VectorsNormsScalesAndTheRouterAreFloat32InEveryRecipe) {
  for (const std::string& recipe : Recipe::names()) {
    for (const char* preset : {"tiny-e2b", "tiny-26b-a4b"}) {
      for (const auto& [name, format] : formats_of(preset, recipe)) {
        const bool small = name.find("norm") != std::string::npos || name.ends_with("scale") ||
                           name.find("_scale.") != std::string::npos ||
                           name.find("ffn_gate_inp") != std::string::npos || name == "rope_freqs.weight";
        if (small) {
          EXPECT_EQ(format, Format::kF32) << recipe << " " << name;
        }
      }
    }
  }
}

TEST(Recipe, ShippedEightBitFile) {
  const auto e4b = formats_of("e4b", "q8_0");
  EXPECT_EQ(e4b.at("token_embd.weight"), Format::kQ8_0);
  EXPECT_EQ(e4b.at("per_layer_token_embd.weight"), Format::kQ8_0);
  EXPECT_EQ(e4b.at("per_layer_model_proj.weight"), Format::kBF16);
  EXPECT_EQ(e4b.at("blk.7.inp_gate.weight"), Format::kQ8_0);
  EXPECT_EQ(e4b.at("blk.41.ffn_down.weight"), Format::kQ8_0);
}

TEST(Recipe, ShippedFourBitFileHasSixBitTables) {
  const auto e4b = formats_of("e4b", "q4_0");
  EXPECT_EQ(e4b.at("token_embd.weight"), Format::kQ6_K);
  EXPECT_EQ(e4b.at("per_layer_token_embd.weight"), Format::kQ6_K);
  EXPECT_EQ(e4b.at("per_layer_model_proj.weight"), Format::kBF16);
  EXPECT_EQ(e4b.at("blk.0.attn_v.weight"), Format::kQ4_0);
  const auto moe = formats_of("26b-a4b", "q4_0");
  EXPECT_EQ(moe.at("blk.3.ffn_down_exps.weight"), Format::kQ4_0);  // 704 is a multiple of 32
  EXPECT_EQ(moe.at("blk.3.ffn_gate_up_exps.weight"), Format::kQ4_0);
}

std::set<uint32_t> layers_with(const std::map<std::string, Format>& formats, const std::string& kind, Format format) {
  std::set<uint32_t> layers;
  for (uint32_t layer = 0; layer < 64; ++layer) {
    const auto found = formats.find("blk." + std::to_string(layer) + "." + kind);
    if (found != formats.end() && found->second == format) layers.insert(layer);
  }
  return layers;
}

TEST(Recipe, MediumGivesSomeLayersMoreBits) {
  const auto formats = formats_of("12b", "q4_k_m");
  // 48 of a kind: the first six, the last six, and every third between counted from the seventh.
  EXPECT_EQ(
      layers_with(formats, "ffn_down.weight", Format::kQ6_K),
      (std::set<uint32_t>{0, 1, 2, 3, 4, 5, 8, 11, 14, 17, 20, 23, 26, 29, 32, 35, 38, 41, 42, 43, 44, 45, 46, 47}));
  // attn_v exists in the 40 sliding layers only and is counted among those: 0-4, 35-39, and 7, 10, ..., 34.
  EXPECT_EQ(layers_with(formats, "attn_v.weight", Format::kQ6_K),
            (std::set<uint32_t>{0, 1, 2, 3, 4, 8, 12, 15, 19, 22, 26, 30, 33, 37, 40, 42, 43, 44, 45, 46}));
  EXPECT_EQ(layers_with(formats, "ffn_up.weight", Format::kQ4_K).size(), 48u);
  EXPECT_EQ(layers_with(formats, "attn_k.weight", Format::kQ4_K).size(), 48u);
  EXPECT_EQ(formats.at("token_embd.weight"), Format::kQ6_K);
}

// The types llama-quantize of November 2026 gives these tensors.
TEST(Recipe, MixturesAreThoseOfLlamaQuantize) {
  const auto xs = formats_of("26b-a4b", "iq4_xs");
  EXPECT_EQ(xs.at("blk.0.ffn_gate_up_exps.weight"), Format::kIQ4_XS);
  EXPECT_EQ(xs.at("blk.0.ffn_down_exps.weight"), Format::kIQ4_NL);  // 704 is no multiple of 256
  EXPECT_EQ(xs.at("blk.0.attn_v.weight"), Format::kIQ4_XS);         // two queries a head of keys
  EXPECT_EQ(xs.at("token_embd.weight"), Format::kQ6_K);
  EXPECT_EQ(formats_of("e2b", "iq4_xs").at("blk.0.attn_v.weight"), Format::kQ5_K);  // eight

  const auto q3 = formats_of("31b", "q3_k_m");
  EXPECT_EQ(layers_with(q3, "ffn_down.weight", Format::kQ5_K), (std::set<uint32_t>{0, 1, 2}));  // 60 / 16
  EXPECT_EQ(layers_with(q3, "ffn_down.weight", Format::kQ4_K).size(), 57u);
  EXPECT_EQ(layers_with(q3, "attn_v.weight", Format::kQ5_K), (std::set<uint32_t>{0, 1}));
  EXPECT_EQ(q3.at("blk.20.attn_output.weight"), Format::kQ4_K);
  EXPECT_EQ(q3.at("blk.20.attn_q.weight"), Format::kQ3_K);

  const auto iq2 = formats_of("26b-a4b", "iq2_m");
  EXPECT_EQ(iq2.at("token_embd.weight"), Format::kQ5_K);
  EXPECT_EQ(iq2.at("blk.0.attn_v.weight"), Format::kQ4_K);  // experts
  EXPECT_EQ(iq2.at("blk.9.attn_output.weight"), Format::kIQ3_S);
  EXPECT_EQ(iq2.at("blk.9.ffn_gate_up_exps.weight"), Format::kIQ2_S);
  EXPECT_EQ(formats_of("12b", "iq2_xxs").at("blk.0.ffn_down.weight"), Format::kQ2_K);
  EXPECT_EQ(formats_of("12b", "iq2_xxs").at("blk.6.ffn_down.weight"), Format::kIQ2_XXS);

  const auto iq3 = formats_of("12b", "iq3_xxs");
  EXPECT_EQ(iq3.at("blk.4.attn_q.weight"), Format::kIQ2_S);
  EXPECT_EQ(iq3.at("blk.4.attn_v.weight"), Format::kIQ3_XXS);
  EXPECT_EQ(iq3.at("blk.4.attn_output.weight"), Format::kIQ3_S);
  EXPECT_EQ(formats_of("12b", "iq3_xs").at("blk.5.ffn_up.weight"), Format::kIQ3_S);  // the first eighth
  EXPECT_EQ(formats_of("12b", "iq3_xs").at("blk.6.ffn_up.weight"), Format::kIQ3_XXS);
  EXPECT_EQ(formats_of("26b-a4b", "mxfp4_moe").at("blk.6.ffn_gate_up_exps.weight"), Format::kMXFP4);
  EXPECT_EQ(formats_of("26b-a4b", "mxfp4_moe").at("blk.6.attn_q.weight"), Format::kQ8_0);
}

TEST(Recipe, LayerOrderInTheFileDoesNotMatter) {
  std::vector<TensorShape> shapes;
  for (uint32_t layer = 0; layer < 16; ++layer) {
    shapes.push_back({"blk." + std::to_string(layer) + ".ffn_down.weight", {256, 256}});
  }
  const Recipe recipe = Recipe::parse("q4_k_m");
  const std::vector<Format> in_order = recipe.formats(shapes);
  std::ranges::reverse(shapes);
  std::vector<Format> reversed = recipe.formats(shapes);
  std::ranges::reverse(reversed);
  EXPECT_EQ(in_order, reversed);
}

TEST(Recipe, NarrowRowsFallBack) {
  const auto medium = formats_of("26b-a4b", "q4_k_m");
  // Widths 2112 and 704: Q4_K becomes Q5_0 and Q6_K becomes Q8_0; widths of 2816 keep K-quants.
  EXPECT_EQ(medium.at("blk.0.ffn_down.weight"), Format::kQ8_0);
  EXPECT_EQ(medium.at("blk.0.ffn_down_exps.weight"), Format::kQ8_0);
  EXPECT_EQ(medium.at("blk.4.ffn_down_exps.weight"), Format::kQ5_0);
  EXPECT_EQ(medium.at("blk.4.ffn_gate_up_exps.weight"), Format::kQ4_K);
  EXPECT_EQ(formats_of("26b-a4b", "q5_k-pure").at("blk.4.ffn_down_exps.weight"), Format::kQ5_1);
  EXPECT_EQ(formats_of("26b-a4b", "q2_k-pure").at("blk.4.ffn_down_exps.weight"), Format::kQ4_0);
  EXPECT_EQ(formats_of("26b-a4b", "q3_k-pure").at("blk.4.ffn_down_exps.weight"), Format::kQ4_0);
  EXPECT_EQ(fit_to_width(Format::kQ4_0, 48), Format::kF16);
  EXPECT_EQ(fit_to_width(Format::kQ4_K, 48), Format::kF16);
  EXPECT_EQ(fit_to_width(Format::kF32, 7), Format::kF32);
}

TEST(Recipe, PureIsPure) {
  for (const char* type : {"q4_0", "q8_0", "q4_k", "q6_k", "iq4_nl", "mxfp4", "q2_k", "iq4_xs", "iq2_xxs", "nvfp4"}) {
    const Format wanted = quant::find_format(type)->format;
    for (const auto& [name, format] : formats_of("e4b", std::string(type) + "-pure")) {
      EXPECT_TRUE(format == wanted || format == Format::kF32) << type << " " << name;
    }
    EXPECT_EQ(formats_of("e4b", std::string(type) + "-pure").at("per_layer_token_embd.weight"), wanted);
    EXPECT_EQ(formats_of("e4b", std::string(type) + "-pure").at("per_layer_model_proj.weight"), wanted);
  }
  for (const auto& [name, format] : formats_of("tiny-e4b", "BF16")) {
    EXPECT_TRUE(format == Format::kBF16 || format == Format::kF32) << name;
  }
}

TEST(Recipe, FileTypesAreLlamaCppNumbers) {
  const std::map<std::string, uint32_t> expected = {{"f32", 0},       {"f16", 1},        {"bf16", 32},
                                                    {"q8_0", 7},      {"q4_0", 2},       {"q4_k_m", 15},
                                                    {"q4_0-pure", 2}, {"q4_k-pure", 14}, {"q6_k-pure", 18}};
  for (const auto& [name, number] : expected) EXPECT_EQ(Recipe::parse(name).file_type(), number) << name;
}

TEST(Recipe, EveryListedNameParses) {
  for (const std::string& name : Recipe::names()) EXPECT_EQ(Recipe::parse(name).name(), name);
}

TEST(Recipe, UnknownNameListsTheKnownOnes) {
  try {
    Recipe::parse("q9_z");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
    EXPECT_THAT(error.what(), HasSubstr("q9_z"));
    EXPECT_THAT(error.what(), HasSubstr("q4_k_m"));
    EXPECT_THAT(error.what(), HasSubstr("mxfp4-pure"));
  }
}

}  // namespace
}  // namespace carat::model
