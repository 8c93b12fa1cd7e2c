#include "model/writing/synth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>

#include "base/error.h"
#include "exec/reference/reference_executor.h"
#include "model/census.h"
#include "model/model.h"
#include "model/writing/synth_vocabulary.h"
#include "support/files.h"

namespace carat::model {
namespace {

using ::testing::HasSubstr;

Census census_of(const SynthModel& model) {
  std::vector<CensusTensor> tensors;
  for (const SynthTensor& tensor : model.tensors) {
    tensors.push_back({tensor.shape.name, {tensor.shape.elements(), tensor.bytes()}});
  }
  return take_census(tensors, model.preset.n_kv, model.preset.experts, model.preset.experts_used);
}

// The columns of docs/gemma4.md 9.
struct Published {
  const char* preset;
  uint64_t tensors, block_matrices, active_matrices, input_projections, vectors, embedding, per_layer_table, unused_kv,
      total, read_per_token;
  double q8_0_shipped, q4_0_shipped;  // GB read per token
};

constexpr Published kPublished[] = {
    {"e2b", 601, 1863057408, 1863057408, 13762560, 286243, 402653184, 2348810240, 18880512, 4647450147, 2279473152,
     2.435, 1.406},
    {"e4b", 720, 3945267200, 3945267200, 27525120, 560426, 671088640, 2818572288, 55055616, 7518069290, 4643880960,
     4.960, 2.825},
    {"12b", 667, 10899947520, 10899947520, 0, 770096, 1006632960, 0, 0, 11907350576, 11906580480, 12.651, 6.957},
    {"26b-a4b", 658, 24494243840, 3083632640, 0, 700702, 738197504, 0, 0, 25233142046, 3821830144, 4.093, 2.377},
    {"31b", 833, 29286727680, 29286727680, 0, 1331772, 1409286144, 0, 0, 30697345596, 30696013824, 32.615, 17.630},
};

TEST(Synth, PresetsHavePublishedSizes) {
  for (const Published& published : kPublished) {
    SCOPED_TRACE(published.preset);
    const SynthModel model = plan_synth({.preset = published.preset, .recipe = "q8_0"});
    const Census census = census_of(model);
    EXPECT_EQ(census.tensors, published.tensors);
    EXPECT_EQ(census.block_matrices.elements, published.block_matrices);
    EXPECT_EQ(census.active_matrices.elements, published.active_matrices);
    EXPECT_EQ(census.input_projections.elements, published.input_projections);
    EXPECT_EQ(census.vectors.elements, published.vectors);
    EXPECT_EQ(census.embedding.elements, published.embedding);
    EXPECT_EQ(census.per_layer_table.elements, published.per_layer_table);
    EXPECT_EQ(census.unused_kv.elements, published.unused_kv);
    EXPECT_EQ(census.other.elements, 0u);
    EXPECT_EQ(census.total().elements, published.total);
    EXPECT_EQ(census.total().elements, model.parameters());
    EXPECT_EQ(census.total().bytes, model.tensor_bytes());
    EXPECT_EQ(census.read_per_token().elements, published.read_per_token);
  }
}

TEST(Synth, PresetsReadPublishedBytesPerToken) {
  const auto gigabytes = [](const Published& published, const char* recipe) {
    return static_cast<double>(
               census_of(plan_synth({.preset = published.preset, .recipe = recipe})).read_per_token().bytes) *
           1e-9;
  };
  for (const Published& published : kPublished) {
    SCOPED_TRACE(published.preset);
    EXPECT_NEAR(gigabytes(published, "q8_0"), published.q8_0_shipped, 0.0006);
    EXPECT_NEAR(gigabytes(published, "q4_0"), published.q4_0_shipped, 0.0006);
    // A pure file keeps its router in F32, everything else at the type's bits.
    const SynthModel pure = plan_synth({.preset = published.preset, .recipe = "q4_0-pure"});
    uint64_t router = 0;
    for (const SynthTensor& tensor : pure.tensors) {
      if (tensor.shape.name.ends_with("ffn_gate_inp.weight")) router += tensor.shape.elements();
    }
    EXPECT_EQ(census_of(pure).read_per_token().bytes, (published.read_per_token - router) * 9 / 16 + router * 4);
  }
}

std::vector<uint32_t> global_layers(const Preset& preset) {
  std::vector<uint32_t> layers;
  for (uint32_t layer = 0; layer < preset.L; ++layer) {
    if (!preset.is_sliding(layer)) layers.push_back(layer);
  }
  return layers;
}

TEST(Synth, PresetsHavePublishedPatterns) {
  EXPECT_EQ(global_layers(find_preset("e2b")), (std::vector<uint32_t>{4, 9, 14, 19, 24, 29, 34}));
  EXPECT_EQ(global_layers(find_preset("e4b")), (std::vector<uint32_t>{5, 11, 17, 23, 29, 35, 41}));
  EXPECT_EQ(global_layers(find_preset("12b")), (std::vector<uint32_t>{5, 11, 17, 23, 29, 35, 41, 47}));
  EXPECT_EQ(global_layers(find_preset("26b-a4b")), (std::vector<uint32_t>{5, 11, 17, 23, 29}));
  EXPECT_EQ(global_layers(find_preset("31b")), (std::vector<uint32_t>{5, 11, 17, 23, 29, 35, 41, 47, 53, 59}));
}

TEST(Synth, AnyNumberOfLayersKeepsAValidPattern) {
  for (const std::string& name : preset_names()) {
    const Preset full = find_preset(name);
    for (uint32_t layers = 2; layers <= full.L; ++layers) {
      SCOPED_TRACE(name + " " + std::to_string(layers));
      Preset preset = full;
      preset.shorten(layers);
      EXPECT_EQ(preset.L, layers);
      EXPECT_FALSE(preset.is_sliding(layers - 1));
      ASSERT_GE(preset.n_kv, 2u);
      EXPECT_FALSE(preset.is_sliding(preset.n_kv - 1));
      EXPECT_TRUE(preset.is_sliding(preset.n_kv - 2));
      EXPECT_EQ(preset.n_kv < layers, full.n_kv < full.L && layers > 2);
      if (layers == full.L) {
        EXPECT_EQ(preset.n_kv, full.n_kv);
      }
    }
  }
  Preset six = find_preset("e4b");
  six.shorten(6);
  EXPECT_EQ(six.n_kv, 3u);
}

void expect_refused(const SynthOptions& options, const char* part) {
  try {
    plan_synth(options);
    FAIL() << "accepted, expected: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(Synth, RefusesWhatItCannotMake) {
  expect_refused({.preset = "7b", .recipe = "q8_0"}, "tiny-26b-a4b");
  expect_refused({.preset = "e2b", .recipe = "q7"}, "q4_k_m");
  expect_refused({.preset = "e2b", .recipe = "q8_0", .layers = 1}, "2 to 35");
  expect_refused({.preset = "e2b", .recipe = "q8_0", .layers = 36}, "2 to 35");
  expect_refused({.preset = "e2b", .recipe = "q8_0", .vocabulary = 100}, "768 to 262144");
  expect_refused({.preset = "e2b", .recipe = "q8_0", .vocabulary = 300000}, "768 to 262144");
}

TEST(Synth, FileDoesNotDependOnTheNumberOfWorkers) {
  const test::TemporaryDirectory folder;
  const SynthModel model = plan_synth({.preset = "tiny-26b-a4b", .recipe = "q4_k_m"});
  ThreadPool one(1), three(3);
  write_synth(model, folder.file("one.gguf"), one);
  uint64_t last = 0;
  write_synth(model, folder.file("three.gguf"), three,
              {.progress = [&](uint64_t written) { last = std::max(last, written); }, .cancelled = nullptr});
  EXPECT_EQ(test::read_bytes(folder.file("one.gguf")), test::read_bytes(folder.file("three.gguf")));
  EXPECT_EQ(last, model.tensor_bytes());

  SynthModel other = model;
  other.seed = 2;
  write_synth(other, folder.file("other.gguf"), three);
  EXPECT_NE(test::read_bytes(folder.file("one.gguf")), test::read_bytes(folder.file("other.gguf")));
}

TEST(Synth, NothingIsLeftWhenTheFileCannotBeWritten) {
  const SynthModel model = plan_synth({.preset = "tiny-12b", .recipe = "q4_0"});
  ThreadPool pool(2);
  try {
    write_synth(model, "/nonexistent-folder/out.gguf", pool);
    FAIL() << "written";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr("/nonexistent-folder/out.gguf"));
  }
}

TEST(Synth, StopsWhenCancelledAndLeavesNothing) {
  const test::TemporaryDirectory folder;
  const SynthModel model = plan_synth({.preset = "tiny-31b", .recipe = "f32"});
  ThreadPool pool(1);  // so that the progress comes from the one who works
  std::atomic<bool> cancelled{false};
  WriteControl control{.progress = [&](uint64_t) { cancelled = true; }, .cancelled = &cancelled};
  try {
    write_synth(model, folder.file("model.gguf"), pool, control);
    FAIL() << "finished";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInterrupted);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SynthVocabulary, FollowsTheRealLayout) {
  const SynthVocabulary full = make_vocabulary(262144);
  ASSERT_EQ(full.tokens.size(), 262144u);
  EXPECT_EQ(full.tokens[106], "<turn|>");
  EXPECT_EQ(full.tokens[238 + 0x41], "<0x41>");
  EXPECT_EQ(full.tokens[109], "\n\n\n");
  EXPECT_EQ(full.tokens[236743], "\u2581");
  EXPECT_EQ(full.tokens[255999], "<|image>");
  EXPECT_EQ(full.tokens[258883], "<audio|>");
  EXPECT_EQ(full.media_ends, (std::vector<int32_t>{258882, 258883}));
  EXPECT_EQ(std::ranges::count_if(full.types, [](int32_t type) { return type == 3 || type == 4; }), 24);
  for (const uint32_t size : {768u, 1024u, 262144u}) {
    const SynthVocabulary vocabulary = make_vocabulary(size);
    const std::set<std::string> texts(vocabulary.tokens.begin(), vocabulary.tokens.end());
    EXPECT_EQ(texts.size(), size) << "every token is there and none twice";
    EXPECT_FALSE(texts.contains(""));
    for (const std::string& merge : vocabulary.merges) {
      const size_t space = merge.find(' ', 1);
      EXPECT_TRUE(texts.contains(merge.substr(0, space)) && texts.contains(merge.substr(space + 1)) &&
                  texts.contains(merge.substr(0, space) + merge.substr(space + 1)))
          << merge;
    }
  }
}

// A tiny model of each kind is a working model: it loads, stays finite over several windows, and what it predicts
// depends on what it read without collapsing onto one token.
class TinyModel : public ::testing::TestWithParam<std::string> {};

double entropy(std::span<const float> logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0.0, weighted = 0.0;
  for (const float logit : logits) {
    const double p = std::exp(logit - largest);
    sum += p;
    weighted += p * (logit - largest);
  }
  return std::log(sum) - weighted / sum;
}

TEST_P(TinyModel, RunsOnTheReferenceExecutor) {
  const test::TemporaryDirectory folder;
  ThreadPool pool;
  for (const char* recipe : {"bf16", "q4_0", "q4_k_m"}) {
    SCOPED_TRACE(recipe);
    const SynthModel synth = plan_synth({.preset = GetParam(), .recipe = recipe});
    write_synth(synth, folder.file("model.gguf"), pool);
    const auto model = Model::load(gguf::ModelFile::open(folder.file("model.gguf")));
    EXPECT_EQ(model->config().n_kv, synth.preset.n_kv);
    EXPECT_EQ(model->config().V, synth.preset.V);
    EXPECT_EQ(model->parameters(), synth.parameters() - census_of(synth).unused_kv.elements);

    constexpr uint32_t kTokens = 3 * 16 + 4;  // three windows and a bit
    exec::ExecutorOptions options;
    options.context = 64;
    options.chunk = options.outputs = kTokens;
    const auto executor = exec::make_reference_executor(model, options);
    std::vector<exec::Row> rows;
    for (uint32_t i = 0; i < kTokens; ++i) {
      rows.push_back({static_cast<int32_t>((i * 389 + 5) % synth.preset.V), i, 0, true});
    }
    executor->forward(rows);  // throws when a logit is not finite
    std::set<int32_t> predictions;
    std::vector<exec::Candidate> best;
    double total_entropy = 0.0;
    uint32_t echoes = 0;
    for (uint32_t i = 0; i < kTokens; ++i) {
      executor->best(i, 1, best);
      predictions.insert(best[0].token);
      echoes += best[0].token == rows[i].token;
      total_entropy += entropy(executor->logits(i));
    }
    EXPECT_GT(predictions.size(), kTokens / 3);
    EXPECT_LT(echoes, kTokens / 4);
    EXPECT_GT(total_entropy / kTokens, 1.0);
    EXPECT_LT(total_entropy / kTokens, std::log(synth.preset.V) - 1.0);
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, TinyModel,
                         ::testing::Values("tiny-e2b", "tiny-e4b", "tiny-12b", "tiny-26b-a4b", "tiny-31b"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(Synth, ShortenedRealShapesLoad) {
  const test::TemporaryDirectory folder;
  ThreadPool pool;
  for (const char* preset : {"e2b", "e4b", "12b", "26b-a4b", "31b"}) {
    SCOPED_TRACE(preset);
    const SynthModel synth = plan_synth({.preset = preset, .recipe = "q4_0", .layers = 3, .vocabulary = 1024});
    write_synth(synth, folder.file("model.gguf"), pool);
    const auto model = Model::load(gguf::ModelFile::open(folder.file("model.gguf")));
    EXPECT_EQ(model->config().L, 3u);
    EXPECT_EQ(model->config().V, 1024u);
    std::filesystem::remove(folder.file("model.gguf"));
  }
}

}  // namespace
}  // namespace carat::model
