#include "model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "base/error.h"
#include "base/float16.h"
#include "support/files.h"
#include "support/gguf_draft.h"
#include "support/tiny_model.h"

namespace carat::model {
namespace {

using test::GgufDraft;
using test::load_draft;
using test::tiny_draft;
using test::tiny_shape;
using test::TinyKind;
using test::TinyShape;

std::string error_of(const GgufDraft& draft) {
  try {
    load_draft(draft);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadFile) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "the file was accepted";
  return "";
}

TEST(Model, LoadsEveryKindInEveryWidth) {
  for (const TinyKind kind : test::kTinyKinds) {
    for (const uint32_t widths : {16u, 32u, 256u}) {
      const auto model = test::tiny_model(kind, widths);
      EXPECT_EQ(model->weights().layers.size(), model->config().L) << tiny_name(kind);
    }
  }
}

TEST(Model, BindsWhatEachLayerHas) {
  const auto model = test::tiny_model(TinyKind::kE2B);
  const LayerWeights& owner = model->weights().layers[0];
  EXPECT_EQ(owner.attn_q.name, "blk.0.attn_q.weight");
  EXPECT_EQ(owner.attn_q.cols, 64u);
  EXPECT_EQ(owner.attn_q.rows, 64u);
  EXPECT_FALSE(owner.attn_v.empty());
  EXPECT_EQ(owner.attn_k_norm.size(), 16u);
  // The file has K/V tensors for shared layers as well (dead_kv); they are left alone.
  const LayerWeights& shared = model->weights().layers[9];
  EXPECT_TRUE(shared.attn_k.empty());
  EXPECT_TRUE(shared.attn_v.empty());
  EXPECT_TRUE(shared.attn_k_norm.empty());
  EXPECT_EQ(shared.ffn_gate.rows, 192u);
  EXPECT_EQ(model->weights().output.data.data(), model->weights().token_embd.data.data());
}

TEST(Model, CountsLiveTensorsOnly) {
  TinyShape shape = tiny_shape(TinyKind::kE2B);
  shape.dead_kv = false;
  const GgufDraft lean = tiny_draft(shape);
  uint64_t elements = 0;
  for (const auto& tensor : lean.tensors) elements += tensor.values.size();
  const auto model = load_draft(lean);
  EXPECT_EQ(model->parameters(), elements);
  EXPECT_EQ(model->weight_bytes(), 4 * elements);

  shape.dead_kv = true;
  GgufDraft fat = tiny_draft(shape);
  fat.tensors.push_back({"v.patch_embd.weight", 0, {8, 8}, {}});
  const auto same = load_draft(fat);
  EXPECT_EQ(same->parameters(), elements);
  EXPECT_EQ(same->weight_bytes(), 4 * elements);
}

TEST(Model, ASeparateOutputIsBoundAndCounted) {
  TinyShape shape = tiny_shape(TinyKind::k12B);
  const uint64_t tied = load_draft(tiny_draft(shape))->parameters();
  shape.separate_output = true;
  const auto model = load_draft(tiny_draft(shape));
  EXPECT_EQ(model->weights().output.name, "output.weight");
  EXPECT_EQ(model->parameters(), tied + uint64_t{shape.d} * model->config().V);
}

TEST(Model, VectorsBecomeFp32) {
  GgufDraft draft = tiny_draft(tiny_shape(TinyKind::k12B));
  auto& norm = draft.tensor("blk.1.attn_norm.weight");
  norm.type = static_cast<uint32_t>(quant::Format::kBF16);
  const auto model = load_draft(draft);
  const Vector& loaded = model->weights().layers[1].attn_norm;
  ASSERT_EQ(loaded.size(), norm.values.size());
  for (size_t i = 0; i < loaded.size(); ++i) EXPECT_EQ(loaded[i], bfloat_to_float(float_to_bfloat(norm.values[i])));
}

TEST(Model, FusedAndSeparateExpertsAreTheSame) {
  TinyShape shape = tiny_shape(TinyKind::k26B);
  GgufDraft draft = tiny_draft(shape);
  const auto fused = load_draft(draft);
  // Split each fused tensor: rows [0, F) of a slice are the gate, the rest is up.
  for (uint32_t layer = 0; layer < shape.L; ++layer) {
    const std::string blk = "blk." + std::to_string(layer) + ".";
    const GgufDraft::Tensor both = draft.tensor(blk + "ffn_gate_up_exps.weight");
    draft.remove_tensor(both.name);
    const size_t half = size_t{shape.F_expert} * shape.d;
    GgufDraft::Tensor gate{blk + "ffn_gate_exps.weight", 0, {shape.d, shape.F_expert, shape.experts}, {}};
    GgufDraft::Tensor up{blk + "ffn_up_exps.weight", 0, {shape.d, shape.F_expert, shape.experts}, {}};
    for (uint32_t expert = 0; expert < shape.experts; ++expert) {
      const auto first = both.values.begin() + static_cast<ptrdiff_t>(2 * half * expert);
      gate.values.insert(gate.values.end(), first, first + static_cast<ptrdiff_t>(half));
      up.values.insert(up.values.end(), first + static_cast<ptrdiff_t>(half), first + static_cast<ptrdiff_t>(2 * half));
    }
    draft.tensors.push_back(gate);
    draft.tensors.push_back(up);
  }
  const auto separate = load_draft(draft);
  EXPECT_EQ(fused->parameters(), separate->parameters());
  for (uint32_t expert = 0; expert < shape.experts; ++expert) {
    const LayerWeights &a = fused->weights().layers[4], &b = separate->weights().layers[4];
    EXPECT_THAT(a.expert_gate(expert).data, testing::ElementsAreArray(b.expert_gate(expert).data));
    EXPECT_THAT(a.expert_up(expert).data, testing::ElementsAreArray(b.expert_up(expert).data));
    EXPECT_EQ(a.expert_down(expert).rows, shape.d);
    EXPECT_EQ(a.expert_down(expert).cols, shape.F_expert);
  }
}

TEST(Model, OptionalTensorsHaveDefaults) {
  GgufDraft draft = tiny_draft(tiny_shape(TinyKind::k26B));
  draft.remove_tensor("blk.2.layer_output_scale.weight");
  draft.remove_tensor("blk.2.ffn_down_exps.scale");
  const auto model = load_draft(draft);
  EXPECT_EQ(model->weights().layers[2].output_scale, 1.0f);
  EXPECT_THAT(model->weights().layers[2].ffn_down_exps_scale, testing::Each(1.0f));
}

// Tests of every tensor go through one layer only.
bool in_other_layer(std::string_view name) { return name.starts_with("blk.") && !name.starts_with("blk.1."); }

TEST(Model, EveryRequiredTensorIsMissed) {
  for (const TinyKind kind : {TinyKind::kE4B, TinyKind::k26B}) {
    const GgufDraft good = tiny_draft(tiny_shape(kind));
    for (const auto& tensor : good.tensors) {
      const bool optional = tensor.name.ends_with("layer_output_scale.weight") || tensor.name.ends_with("exps.scale");
      if (optional || in_other_layer(tensor.name)) continue;
      GgufDraft draft = good;
      draft.remove_tensor(tensor.name);
      // Without the fused expert tensor the two separate ones are asked for.
      const std::string named =
          tensor.name == "blk.1.ffn_gate_up_exps.weight" ? "blk.1.ffn_gate_exps.weight" : tensor.name;
      EXPECT_THAT(error_of(draft), testing::HasSubstr(named));
    }
  }
}

TEST(Model, EveryTensorsShapeIsChecked) {
  for (const TinyKind kind : {TinyKind::kE4B, TinyKind::k26B}) {
    const GgufDraft good = tiny_draft(tiny_shape(kind));
    for (const auto& tensor : good.tensors) {
      if (in_other_layer(tensor.name)) continue;
      for (size_t dimension = 0; dimension < tensor.ne.size(); ++dimension) {
        if (tensor.name == "token_embd.weight" && dimension == 1) continue;  // this one defines the vocabulary
        GgufDraft draft = good;
        draft.tensor(tensor.name).ne[dimension] += 1;
        draft.tensor(tensor.name).values.clear();
        EXPECT_THAT(error_of(draft), testing::HasSubstr(tensor.name)) << dimension;
      }
      GgufDraft deeper = good;
      deeper.tensor(tensor.name).ne.push_back(2);
      deeper.tensor(tensor.name).values.clear();
      EXPECT_THAT(error_of(deeper), testing::HasSubstr(tensor.name));
    }
  }
}

TEST(Model, ATransposedMatrixIsRefused) {
  GgufDraft draft = tiny_draft(tiny_shape(TinyKind::kE4B));
  std::swap(draft.tensor("blk.0.ffn_down.weight").ne[0], draft.tensor("blk.0.ffn_down.weight").ne[1]);
  EXPECT_THAT(error_of(draft), testing::HasSubstr("blk.0.ffn_down.weight has the shape [64, 96]"));
}

TEST(Model, ATypeCaratCannotComputeWithIsRefused) {
  struct Foreign {
    uint32_t id;
    const char* name;
  };
  for (const Foreign type : {Foreign{24, "I8"}, {26, "I32"}, {27, "I64"}, {28, "F64"}}) {
    GgufDraft draft = tiny_draft(tiny_shape(TinyKind::kE4B, 256));
    draft.tensor("blk.0.attn_q.weight").type = type.id;
    draft.tensor("blk.0.attn_q.weight").values.clear();
    EXPECT_THAT(error_of(draft),
                testing::AllOf(testing::HasSubstr("blk.0.attn_q.weight"), testing::HasSubstr(type.name)));
  }
}

TEST(Model, AForeignMultiplierIsNotIgnored) {
  GgufDraft draft = tiny_draft(tiny_shape(TinyKind::kE4B));
  draft.tensors.push_back({"blk.0.attn_q.scale", 0, {1}, {2.0f}});
  EXPECT_THAT(error_of(draft), testing::HasSubstr("blk.0.attn_q.scale"));
}

TEST(Model, RopeDivisorsMustDivide) {
  for (const float bad : {0.0f, std::numeric_limits<float>::quiet_NaN()}) {
    GgufDraft draft = tiny_draft(tiny_shape(TinyKind::kE4B));
    draft.tensor("rope_freqs.weight").values[3] = bad;
    EXPECT_THAT(error_of(draft), testing::HasSubstr("rope_freqs.weight"));
  }
}

TEST(Model, ErrorsNameTheFile) {
  GgufDraft draft = tiny_draft(tiny_shape(TinyKind::kE4B));
  draft.remove_tensor("output_norm.weight");
  EXPECT_THAT(error_of(draft), testing::HasSubstr("draft.gguf: tensor output_norm.weight is missing"));
}

TEST(Model, LoadsADrafter) {
  const auto model = load_draft(test::tiny_drafter_draft(tiny_shape(TinyKind::kE2B)));
  EXPECT_TRUE(model->config().is_drafter());
  EXPECT_EQ(model->weights().nextn_pre_projection.cols, 128u);
  EXPECT_EQ(model->weights().nextn_post_projection.rows, 64u);
  GgufDraft draft = test::tiny_drafter_draft(tiny_shape(TinyKind::kE2B));
  draft.remove_tensor("blk.3.layer_output_scale.weight");
  EXPECT_THAT(error_of(draft), testing::HasSubstr("blk.3.layer_output_scale.weight"));
}

TEST(Model, LoadsTheDemoModels) {
  const auto e = Model::load(gguf::ModelFile::open(test::model_path("demo-e-q8_0.gguf")));
  EXPECT_EQ(e->weights().token_embd.format, quant::Format::kQ8_0);
  EXPECT_EQ(e->weights().per_layer_model_proj.format, quant::Format::kBF16);
  const auto moe = Model::load(gguf::ModelFile::open(test::model_path("demo-moe-q8_0.gguf")));
  EXPECT_EQ(moe->weights().layers[0].expert_gate(7).rows, 128u);
}

}  // namespace
}  // namespace carat::model
