#include "exec/cuda/weights/matrix_groups.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "exec/cuda/plan/metadata_models.h"
#include "exec/cuda/plan/plans.h"
#include "exec/cuda/plan/synthetic_gpus.h"
#include "exec/cuda/weights/placement.h"

namespace carat::cuda {
namespace {

using test::model_of;

std::map<GroupKind, uint32_t> sizes_of(const model::Model& model, uint32_t layer) {
  std::map<GroupKind, uint32_t> sizes;
  for_each_group(model, layer, [&](const LayerGroup& group) { sizes[group.kind()] = group.size(); });
  return sizes;
}

using Sizes = std::map<GroupKind, uint32_t>;

TEST(MatrixGroups, AreThoseTheLayerHas) {
  EXPECT_EQ(sizes_of(model_of("e4b", "q8_0"), 0), (Sizes{{GroupKind::kQkv, 3},
                                                         {GroupKind::kAttentionOutput, 1},
                                                         {GroupKind::kGateUp, 2},
                                                         {GroupKind::kDown, 1},
                                                         {GroupKind::kPleGate, 1},
                                                         {GroupKind::kPleProject, 1}}));
  const model::Model& shared = model_of("e4b", "q8_0");
  EXPECT_EQ(sizes_of(shared, shared.config().L - 1).at(GroupKind::kQkv), 1u) << "it reads another layer's keys";
  const Sizes experts = sizes_of(model_of("26b-a4b", "q4_0"), 0);
  EXPECT_EQ(experts.at(GroupKind::kRouter), 1u);
  EXPECT_EQ(experts.at(GroupKind::kExpertDown), 1u);
  EXPECT_EQ(experts.count(GroupKind::kPleGate), 0u);
}

// Values that are the keys need no matrix of their own.
TEST(MatrixGroups, FollowTheLayersOfTheModel) {
  for (const char* preset : {"e2b", "e4b", "12b", "26b-a4b", "31b"}) {
    const model::Model& model = model_of(preset, "q4_0");
    for (const model::Layer& layer : model.config().layers) {
      const Sizes sizes = sizes_of(model, layer.index);
      EXPECT_EQ(sizes.at(GroupKind::kQkv), !layer.owns_kv ? 1u : layer.v_from_k ? 2u : 3u) << preset << layer.index;
      EXPECT_EQ(sizes.count(GroupKind::kExpertGateUp), layer.moe ? 1u : 0u);
      EXPECT_EQ(sizes.count(GroupKind::kPleProject), model.config().has_per_layer_embeddings() ? 1u : 0u);
    }
  }
}

// What is listed nowhere would be neither placed nor multiplied.
TEST(MatrixGroups, HoldEveryMatrixOfALayer) {
  for (const char* preset : {"e4b", "12b", "26b-a4b"}) {
    const model::Model& model = model_of(preset, "q8_0");
    uint64_t listed = model.weights().output.data.size() + model.weights().per_layer_model_proj.data.size() +
                      model.weights().per_layer_token_embd.data.size();
    std::set<const model::Matrix*> seen;
    for (uint32_t layer = 0; layer < model.config().L; ++layer) {
      for_each_group(model, layer, [&](const LayerGroup& group) {
        for (const model::Matrix* matrix : group) {
          EXPECT_TRUE(seen.insert(matrix).second) << matrix->name;
          listed += matrix->data.size();
        }
      });
    }
    const auto all = static_cast<double>(model.weight_bytes());
    EXPECT_GT(static_cast<double>(listed), 0.999 * all) << preset << ": norms are all that is missing";
    EXPECT_LE(listed, model.weight_bytes()) << preset;
  }
}

TEST(MatrixGroups, PartsOfAGroup) {
  const model::LayerWeights& layer = model_of("12b", "q8_0").weights().layers[0];
  const LayerGroup qkv = group_of(layer, GroupKind::kQkv);
  EXPECT_EQ(qkv.elements(), layer.attn_q.rows * layer.attn_q.cols + 2 * layer.attn_k.rows * layer.attn_k.cols);
  const LayerGroup keys_and_values = qkv.part(1, 3);
  ASSERT_EQ(keys_and_values.size(), 2u);
  EXPECT_EQ(&keys_and_values[0], &layer.attn_k);
  EXPECT_EQ(&keys_and_values[1], &layer.attn_v);
  EXPECT_TRUE(qkv.part(3, UINT32_MAX).empty());
}

}  // namespace
}  // namespace carat::cuda
