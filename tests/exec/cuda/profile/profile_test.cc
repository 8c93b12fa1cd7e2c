#include "exec/cuda/profile/profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "exec/cuda/executor/cuda_executor.h"
#include "support/synth_model.h"
#include "support/tiny_model.h"

namespace carat::exec {
namespace {

using test::TinyKind;

class Profile : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!cuda_available(&why)) GTEST_SKIP() << "skipped: " << why;
  }
};

bool has(const ProfilePhase& phase, std::string_view name) {
  return std::any_of(phase.families.begin(), phase.families.end(),
                     [&](const ProfileFamily& family) { return family.name == name; });
}

ProfileReport run(TinyKind kind, const ProfileRequest& request, std::string_view kernels = "") {
  ExecutorOptions options;
  options.chunk = 40;
  options.kernels = KernelChoices::parse(kernels);
  return profile_cuda(test::tiny_model(kind, 256, quant::Format::kQ8_0), options, request);
}

TEST_F(Profile, TimesBothPhasesOfEveryShape) {
  for (const TinyKind kind : test::kTinyKinds) {
    const ProfileReport report = run(kind, {.prompt = 100, .generate = 5, .repetitions = 2});
    EXPECT_GT(report.ceilings.bytes_per_second, 1e10);
    EXPECT_GT(report.ceilings.flops_per_second, 1e12);
    ASSERT_EQ(report.phases.size(), 2u);
    for (const ProfilePhase& phase : report.phases) {
      EXPECT_GT(phase.seconds, 0.0);
      for (const ProfileFamily& family : phase.families) {
        EXPECT_GT(family.seconds, 0.0) << family.name;
        EXPECT_GT(family.bytes, 0.0) << family.name;
      }
      for (const char* name :
           {"embedding", "QKV", "attention sliding", "attention global", "feed-forward", "LM head", "selection"}) {
        EXPECT_TRUE(has(phase, name)) << phase.name << " " << name;
      }
      EXPECT_EQ(has(phase, "experts"), kind == TinyKind::k26B);
      EXPECT_EQ(has(phase, "per-layer embeddings"), kind == TinyKind::kE2B || kind == TinyKind::kE4B);
    }
    EXPECT_EQ(report.phases[0].tokens, 100u);
    EXPECT_EQ(report.phases[1].depth, 100u);
    EXPECT_GT(report.phases[1].graph_seconds, 0.0);
  }
}

TEST_F(Profile, TimesEveryWayToRun) {
  for (const char* kernels : {"gemm.weights=unpacked", "decode=gemm", "launch=single", "overlap=off"}) {
    const ProfileReport report = run(TinyKind::kE4B, {.prompt = 50, .generate = 3, .repetitions = 1}, kernels);
    ASSERT_EQ(report.phases.size(), 2u) << kernels;
    EXPECT_EQ(has(report.phases[0], "weight unpacking"), std::string_view(kernels) == "gemm.weights=unpacked");
  }
}

// The token kernel notes its own clock; the families it is cut into are those of the separate kernels. The mixture of
// types makes two stages of one step (values in Q6_K, queries and keys in Q4_K), whose work is counted once.
TEST_F(Profile, TheTokenKernelHasTheSameFamilies) {
  const auto model = test::synth_model({.preset = "tiny-e4b", .recipe = "q4_k_m"});
  std::vector<ProfilePhase> decodes;
  for (const char* kernels : {"decode=matvec", "decode=token"}) {
    ExecutorOptions options;
    options.kernels = KernelChoices::parse(kernels);
    const ProfileReport report = profile_cuda(model, options, {.prompt = 0, .generate = 8, .repetitions = 2});
    ASSERT_EQ(report.phases.size(), 1u);
    decodes.push_back(report.phases[0]);
  }
  for (const char* name : {"embedding", "per-layer embeddings", "norms and rotation", "QKV", "attention sliding",
                           "attention global", "attention output", "feed-forward", "LM head", "selection"}) {
    const auto bytes_in = [&](const ProfilePhase& phase) {
      const auto found = std::find_if(phase.families.begin(), phase.families.end(),
                                      [&](const ProfileFamily& family) { return family.name == name; });
      return found == phase.families.end() ? -1.0 : found->bytes;
    };
    EXPECT_GT(bytes_in(decodes[1]), 0.0) << name;
    // The separate kernels have more norms of their own; all else is the same work.
    if (std::string_view(name) == "norms and rotation") continue;
    EXPECT_NEAR(bytes_in(decodes[1]) / bytes_in(decodes[0]), 1.0, 0.05) << name;
  }
  // What the stages took together is what the kernel and the selection took: no more than the whole step.
  EXPECT_GT(decodes[1].kernel_seconds(), 0.5 * decodes[1].graph_seconds);
  EXPECT_LT(decodes[1].kernel_seconds(), 1.5 * decodes[1].graph_seconds);
}

TEST_F(Profile, OnePhaseOnly) {
  EXPECT_EQ(run(TinyKind::k12B, {.prompt = 20, .generate = 0, .repetitions = 1}).phases.front().name, "prefill");
  const ProfileReport decode = run(TinyKind::k12B, {.prompt = 0, .generate = 1, .repetitions = 1});
  ASSERT_EQ(decode.phases.size(), 1u);
  EXPECT_EQ(decode.phases.front().name, "decode");
  EXPECT_THROW(run(TinyKind::k12B, {.prompt = 0, .generate = 0, .repetitions = 1}), Error);
}

}  // namespace
}  // namespace carat::exec
