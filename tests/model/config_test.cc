#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "support/files.h"
#include "support/gguf_draft.h"
#include "support/tiny_model.h"

namespace carat::model {
namespace {

using test::GgufDraft;
using test::tiny_draft;
using test::tiny_shape;
using test::TinyKind;

Config read(const GgufDraft& draft) {
  const test::TemporaryDirectory folder;
  draft.write(folder.file("model.gguf"));
  return read_config(*gguf::ModelFile::open(folder.file("model.gguf")));
}

// The error of reading the draft; fails the test when there is none.
Error error_of(const GgufDraft& draft) {
  try {
    read(draft);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "the file was accepted";
  return Error(ErrorCode::kIo, "");
}

TEST(Config, ReadsTheE2BShape) {
  const Config config = read(tiny_draft(tiny_shape(TinyKind::kE2B)));
  EXPECT_EQ(config.architecture, "gemma4");
  EXPECT_EQ(config.name, "tiny-e2b");
  EXPECT_EQ(config.L, 10u);
  EXPECT_EQ(config.d, 64u);
  EXPECT_EQ(config.P, 16u);
  EXPECT_EQ(config.W, 8u);
  EXPECT_EQ(config.n_kv, 5u);
  EXPECT_EQ(config.experts, 0u);
  EXPECT_EQ(config.eps, 1e-6f);
  EXPECT_EQ(config.softcap, 30.0f);
  EXPECT_EQ(config.rope_base_global, 1e6f);
  EXPECT_EQ(config.rope_base_sliding, 1e4f);
  EXPECT_EQ(config.embedding_scale(), 8.0f);
  EXPECT_FALSE(config.is_drafter());
  EXPECT_TRUE(config.has_per_layer_embeddings());
  EXPECT_FALSE(config.is_large());
  ASSERT_EQ(config.layers.size(), 10u);
  for (const Layer& layer : config.layers) {
    EXPECT_EQ(layer.sliding, layer.index % 5 != 4) << layer.index;
    EXPECT_EQ(layer.hd, layer.sliding ? 16u : 32u) << layer.index;
    EXPECT_EQ(layer.F, layer.index < 5 ? 96u : 192u) << layer.index;
    EXPECT_EQ(layer.owns_kv, layer.index < 5) << layer.index;
    const uint32_t shared_source = layer.sliding ? 3 : 4;
    EXPECT_EQ(layer.kv_source, layer.owns_kv ? layer.index : shared_source) << layer.index;
    EXPECT_FALSE(layer.v_from_k) << layer.index;
    EXPECT_FALSE(layer.moe) << layer.index;
  }
}

TEST(Config, ReadsTheMixtureOfExpertsShape) {
  const Config config = read(tiny_draft(tiny_shape(TinyKind::k26B)));
  EXPECT_EQ(config.experts, 8u);
  EXPECT_EQ(config.experts_used, 2u);
  EXPECT_EQ(config.F_expert, 32u);
  EXPECT_EQ(config.n_kv, config.L);
  EXPECT_FALSE(config.has_per_layer_embeddings());
  EXPECT_TRUE(config.is_large());
  for (const Layer& layer : config.layers) {
    EXPECT_TRUE(layer.moe);
    EXPECT_TRUE(layer.owns_kv);
    EXPECT_EQ(layer.v_from_k, !layer.sliding);
    EXPECT_EQ(layer.Hkv, layer.sliding ? 2u : 1u);
  }
}

TEST(Config, SharedLayersReadTheLastLayerOfTheirKindWhereverItStands) {
  GgufDraft draft = tiny_draft(tiny_shape(TinyKind::kE2B));
  // Owners 0-4 are S G S S S, so the last global one is far from the end.
  draft.keys["gemma4.attention.sliding_window_pattern"] =
      std::vector<bool>{true, false, true, true, true, true, true, true, true, false};
  const Config config = read(draft);
  EXPECT_EQ(config.layers[8].kv_source, 4u);
  EXPECT_EQ(config.layers[9].kv_source, 1u);
}

TEST(Config, MissingKeysMeanTheirDefaults) {
  GgufDraft draft = tiny_draft(tiny_shape(TinyKind::k31B));
  for (const char* key : {"final_logit_softcapping", "rope.freq_base", "rope.freq_base_swa", "rope.dimension_count",
                          "attention.shared_kv_layers"}) {
    ASSERT_EQ(draft.keys.erase(std::string("gemma4.") + key), 1u) << key;
  }
  const Config config = read(draft);
  EXPECT_EQ(config.softcap, 30.0f);
  EXPECT_EQ(config.rope_base_global, 1e4f);
  EXPECT_EQ(config.rope_base_sliding, 1e4f);
  EXPECT_EQ(config.n_kv, config.L);
  EXPECT_EQ(config.sampling.temperature, 1.0f);
  EXPECT_TRUE(config.sampling.given.empty());
}

TEST(Config, AcceptsSingleNumbersAndArrays) {
  GgufDraft draft = tiny_draft(tiny_shape(TinyKind::kE4B));
  draft.keys["gemma4.feed_forward_length"] = uint32_t{96};
  draft.keys["gemma4.attention.head_count_kv"] = uint32_t{2};
  draft.keys["gemma4.attention.head_count"] = std::vector<uint32_t>(9, 4);
  const Config config = read(draft);
  for (const Layer& layer : config.layers) {
    EXPECT_EQ(layer.F, 96u);
    EXPECT_EQ(layer.Hkv, 2u);
    EXPECT_EQ(layer.H, 4u);
  }
}

TEST(Config, KeyValueHeadsDefaultToHeads) {
  GgufDraft draft = tiny_draft(tiny_shape(TinyKind::kE4B));
  draft.keys.erase("gemma4.attention.head_count_kv");
  EXPECT_EQ(read(draft).layers[0].Hkv, 4u);
}

TEST(Config, ZeroDisablesTheSoftcap) {
  GgufDraft draft = tiny_draft(tiny_shape(TinyKind::k12B));
  draft.keys["gemma4.final_logit_softcapping"] = 0.0f;
  EXPECT_EQ(read(draft).softcap, 0.0f);
}

TEST(Config, ReadsRecommendedSampling) {
  GgufDraft draft = tiny_draft(tiny_shape(TinyKind::k12B));
  draft.keys["general.sampling.temp"] = 0.5f;
  EXPECT_EQ(read(draft).sampling.temperature, 0.5f);
}

TEST(Config, ReadsADrafter) {
  const Config config = read(test::tiny_drafter_draft(tiny_shape(TinyKind::kE2B)));
  EXPECT_TRUE(config.is_drafter());
  EXPECT_EQ(config.d, 32u);
  EXPECT_EQ(config.d_target, 64u);
  EXPECT_EQ(config.n_kv, 0u);
  EXPECT_EQ(config.softcap, 0.0f);
  for (const Layer& layer : config.layers) EXPECT_FALSE(layer.owns_kv);
}

TEST(Config, ReadsTheDemoModels) {
  const Config e = read_config(*gguf::ModelFile::open(test::model_path("demo-e-q8_0.gguf")));
  EXPECT_EQ(e.V, 8192u);
  EXPECT_EQ(e.n_kv, 4u);
  EXPECT_EQ(e.layers[6].kv_source, 2u);
  EXPECT_EQ(e.layers[7].kv_source, 3u);
  // What they know they say at a low temperature; at 1 they make things up now and then.
  EXPECT_EQ(e.sampling.temperature, 0.2f);
  const Config moe = read_config(*gguf::ModelFile::open(test::model_path("demo-moe-q8_0.gguf")));
  EXPECT_TRUE(moe.layers[2].v_from_k);
  EXPECT_FALSE(moe.layers[1].v_from_k);
  EXPECT_EQ(moe.sampling.temperature, 0.2f);
  EXPECT_TRUE(read_config(*gguf::ModelFile::open(test::model_path("demo-e-assistant-q8_0.gguf"))).is_drafter());
}

TEST(Config, AnotherArchitectureIsUnsupported) {
  GgufDraft draft = tiny_draft(tiny_shape(TinyKind::kE4B));
  draft.keys["general.architecture"] = std::string("llama");
  const Error error = error_of(draft);
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error.what(), testing::HasSubstr("\"llama\""));
}

TEST(Config, ErrorsNameTheFile) {
  GgufDraft draft = tiny_draft(tiny_shape(TinyKind::kE4B));
  draft.keys.erase("general.architecture");
  EXPECT_THAT(error_of(draft).what(), testing::HasSubstr("model.gguf: general.architecture is missing"));
}

// One way to spoil a good file, and what the error must name.
struct Spoiled {
  std::string name;
  TinyKind kind;
  std::function<void(GgufDraft&)> spoil;
  std::string named;
};

void PrintTo(const Spoiled& spoiled, std::ostream* out) { *out << spoiled.name; }

Spoiled with_value(std::string name, TinyKind kind, const std::string& key, test::GgufValue value) {
  return {std::move(name), kind, [=](GgufDraft& draft) { draft.keys[key] = value; }, key};
}

Spoiled without(std::string name, const std::string& key) {
  return {std::move(name), TinyKind::kE4B, [=](GgufDraft& draft) { ASSERT_EQ(draft.keys.erase(key), 1u); }, key};
}

std::vector<Spoiled> spoiled_files() {
  const auto e = TinyKind::kE4B;    // 9 layers, 3 of them shared, PLE
  const auto moe = TinyKind::k26B;  // 6 layers, 8 experts
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::string p = "gemma4.", a = "gemma4.attention.";
  return {
      with_value("LayersZero", e, p + "block_count", uint32_t{0}),
      with_value("Layers513", e, p + "block_count", uint32_t{513}),
      with_value("LayersHuge", e, p + "block_count", uint32_t{0xffffffff}),
      with_value("LayersHuge64", e, p + "block_count", uint64_t{1} << 63),
      with_value("LayersNegative", e, p + "block_count", int32_t{-1}),
      with_value("LayersText", e, p + "block_count", std::string("nine")),
      without("LayersMissing", p + "block_count"),
      with_value("HiddenZero", e, p + "embedding_length", uint32_t{0}),
      with_value("HiddenHuge", e, p + "embedding_length", uint32_t{0xffffffff}),
      without("HiddenMissing", p + "embedding_length"),
      with_value("ContextZero", e, p + "context_length", uint32_t{0}),
      without("ContextMissing", p + "context_length"),
      with_value("SharedAll", e, a + "shared_kv_layers", uint32_t{9}),
      with_value("SharedMore", e, a + "shared_kv_layers", uint32_t{0xffffffff}),
      with_value("SharedLeavesNoGlobal", e, a + "shared_kv_layers", uint32_t{7}),
      with_value("HeadsZero", e, a + "head_count", uint32_t{0}),
      with_value("HeadsHuge", e, a + "head_count", uint32_t{1} << 24),
      with_value("HeadsNegative", e, a + "head_count", std::vector<int32_t>(9, -4)),
      without("HeadsMissing", a + "head_count"),
      with_value("KvHeadsZero", e, a + "head_count_kv", uint32_t{0}),
      with_value("KvHeadsDoNotDivide", e, a + "head_count_kv", uint32_t{3}),
      with_value("KvHeadsShort", e, a + "head_count_kv", std::vector<int32_t>(8, 2)),
      with_value("KvHeadsLong", e, a + "head_count_kv", std::vector<int32_t>(10, 2)),
      with_value("KvHeadsFloats", e, a + "head_count_kv", std::vector<float>(9, 2.0f)),
      with_value("KvHeadsUnlikeTheSource", e, a + "head_count_kv", std::vector<int32_t>{2, 2, 2, 2, 2, 2, 2, 1, 2}),
      with_value("WidthsShort", e, p + "feed_forward_length", std::vector<int32_t>(8, 96)),
      with_value("WidthZero", e, p + "feed_forward_length", uint32_t{0}),
      without("WidthMissing", p + "feed_forward_length"),
      with_value("KeyLengthOdd", e, a + "key_length", uint32_t{33}),
      with_value("KeyLengthZero", e, a + "key_length", uint32_t{0}),
      with_value("ValueLengthDiffers", e, a + "value_length", uint32_t{16}),
      with_value("SlidingKeyLengthDiffers", e, a + "key_length_swa", uint32_t{32}),
      without("SlidingKeyLengthMissing", a + "key_length_swa"),
      without("SlidingValueLengthMissing", a + "value_length_swa"),
      with_value("EpsilonZero", e, a + "layer_norm_rms_epsilon", 0.0f),
      with_value("EpsilonNegative", e, a + "layer_norm_rms_epsilon", -1e-6f),
      with_value("EpsilonNan", e, a + "layer_norm_rms_epsilon", nan),
      without("EpsilonMissing", a + "layer_norm_rms_epsilon"),
      with_value("RopeBaseZero", e, p + "rope.freq_base", 0.0f),
      with_value("RopeBaseNan", e, p + "rope.freq_base", nan),
      with_value("SlidingRopeBaseInfinite", e, p + "rope.freq_base_swa", infinity),
      with_value("SlidingRopeBaseNegative", e, p + "rope.freq_base_swa", -1.0f),
      with_value("RopeSpanDiffers", e, p + "rope.dimension_count", uint32_t{16}),
      with_value("SlidingRopeSpanDiffers", e, p + "rope.dimension_count_swa", uint32_t{32}),
      without("SlidingRopeSpanMissing", p + "rope.dimension_count_swa"),
      with_value("RopeScaled", e, p + "rope.scaling.type", std::string("yarn")),
      with_value("RopeScaledLinearly", e, p + "rope.scaling.factor", 8.0f),
      with_value("NotCausal", e, a + "causal", false),
      with_value("WindowZero", e, a + "sliding_window", uint32_t{0}),
      without("WindowMissing", a + "sliding_window"),
      with_value("PatternShort", e, a + "sliding_window_pattern", std::vector<bool>(8, false)),
      with_value("PatternNoArray", e, a + "sliding_window_pattern", uint32_t{6}),
      with_value("PatternInts", e, a + "sliding_window_pattern", std::vector<int32_t>(9, 0)),
      with_value("PatternEndsSliding", e, a + "sliding_window_pattern", std::vector<bool>(9, true)),
      with_value("PatternAllGlobal", e, a + "sliding_window_pattern", std::vector<bool>(9, false)),
      without("PatternMissing", a + "sliding_window_pattern"),
      with_value("SoftcapNegative", e, p + "final_logit_softcapping", -30.0f),
      with_value("SoftcapNan", e, p + "final_logit_softcapping", nan),
      with_value("PleHuge", e, p + "embedding_length_per_layer_input", uint32_t{1} << 24),
      with_value("PleZeroDespiteTable", e, p + "embedding_length_per_layer_input", uint32_t{0}),
      without("PleMissing", p + "embedding_length_per_layer_input"),
      with_value("VocabularyDiffers", e, p + "vocab_size", uint32_t{7}),
      with_value("ExpertsWithoutTensors", e, p + "expert_count", uint32_t{8}),
      with_value("ExpertsHuge", moe, p + "expert_count", uint32_t{0xffffffff}),
      with_value("ExpertsZeroDespiteUse", moe, p + "expert_count", uint32_t{0}),
      with_value("ExpertsUsedZero", moe, p + "expert_used_count", uint32_t{0}),
      with_value("ExpertsUsedTooMany", moe, p + "expert_used_count", uint32_t{9}),
      with_value("ExpertWidthZero", moe, p + "expert_feed_forward_length", uint32_t{0}),
      with_value("RecommendedTemperatureNan", e, "general.sampling.temp", nan),
      {"RouterMissing", moe, [](GgufDraft& draft) { draft.remove_tensor("blk.3.ffn_gate_inp.weight"); },
       "blk.3.ffn_gate_inp.weight"},
      {"OneGlobalLayerWithoutV", e, [](GgufDraft& draft) { draft.remove_tensor("blk.5.attn_v.weight"); },
       "blk.5.attn_v.weight"},
      {"FirstGlobalLayerWithoutV", e, [](GgufDraft& draft) { draft.remove_tensor("blk.2.attn_v.weight"); },
       "blk.2.attn_v.weight"},
      {"EmbeddingMissing", e, [](GgufDraft& draft) { draft.remove_tensor("token_embd.weight"); }, "token_embd.weight"},
      {"EmbeddingNarrow", e,
       [](GgufDraft& draft) {
         auto& tensor = draft.tensor("token_embd.weight");
         tensor.ne[0] = 32;
         tensor.values.clear();
       },
       "token_embd.weight"},
  };
}

class SpoiledConfig : public testing::TestWithParam<Spoiled> {};

TEST_P(SpoiledConfig, IsRefusedByName) {
  GgufDraft draft = tiny_draft(tiny_shape(GetParam().kind));
  GetParam().spoil(draft);
  const Error error = error_of(draft);
  EXPECT_TRUE(error.code() == ErrorCode::kBadFile || error.code() == ErrorCode::kUnsupported);
  EXPECT_THAT(error.what(), testing::HasSubstr(GetParam().named));
}

INSTANTIATE_TEST_SUITE_P(All, SpoiledConfig, testing::ValuesIn(spoiled_files()),
                         [](const auto& parameter) { return parameter.param.name; });

TEST(Config, SpoiledDraftersAreRefused) {
  const std::string p = "gemma4-assistant.";
  const GgufDraft good = test::tiny_drafter_draft(tiny_shape(TinyKind::kE2B));
  for (const auto& [key, value] : std::vector<std::pair<std::string, uint32_t>>{{"embedding_length_out", 0},
                                                                                {"embedding_length_out", 32},
                                                                                {"nextn_predict_layers", 3},
                                                                                {"attention.shared_kv_layers", 0}}) {
    GgufDraft draft = good;
    draft.keys[p + key] = value;
    EXPECT_THAT(error_of(draft).what(), testing::HasSubstr(p + key)) << value;
  }
}

}  // namespace
}  // namespace carat::model
