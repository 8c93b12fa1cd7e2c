// One sequence with NaN or infinite logits beside healthy ones, on every executor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/tiny_engine.h"
#include "runtime/executor_factory.h"
#ifdef CARAT_HAVE_CUDA
#include "exec/cuda/executor/cuda_executor.h"
#endif

namespace carat::engine {
namespace {

using runtime::Device;
using test::generated;
using test::make_request;
using test::small_options;
using test::TinyKind;
using test::Tokens;
using text::TokenId;

constexpr TokenId kPoison = 9;

// A model of which one token's embedding is damaged.
std::shared_ptr<const model::Model> poisoned_model(TinyKind kind, quant::Format format, float bad) {
  test::TinyShape shape = test::tiny_shape(kind, 32);
  shape.separate_output = true;
  test::GgufDraft draft = test::tiny_draft(shape, format);
  test::GgufDraft::Tensor& embedding = draft.tensor("token_embd.weight");
  embedding.type = static_cast<uint32_t>(quant::Format::kF32);
  embedding.values[size_t{kPoison} * shape.d + 3] = bad;
  return test::load_draft(draft);
}

bool has_device(Device device) {
  if (device != Device::kGpu) return true;
#ifdef CARAT_HAVE_CUDA
  return exec::cuda_available(nullptr);
#else
  return false;
#endif
}

class NonFiniteLogits : public testing::TestWithParam<std::tuple<Device, TinyKind, quant::Format, float>> {
 protected:
  Request request(size_t prompt, uint32_t max_tokens, uint64_t seed) const {
    Request request = make_request(*model_, prompt, max_tokens, seed);
    for (TokenId& token : request.prompt) token += token == kPoison ? 1 : 0;
    request.sampling.bias = {{kPoison, -std::numeric_limits<float>::infinity()}};
    return request;
  }
  Engine make_engine() const {
    exec::ExecutorOptions options = small_options(4);
    options.chunk = 32;  // all prompts in one pass
    return Engine(runtime::make_executor(std::get<0>(GetParam()), model_, options), test::vocab_of(*model_));
  }

  std::shared_ptr<const model::Model> model_ =
      poisoned_model(std::get<1>(GetParam()), std::get<2>(GetParam()), std::get<3>(GetParam()));
};

// Three healthy requests beside one that is not, or beside a healthy one of the same length, which leaves after its
// first token as well: an executor whose rows depend on how many there are sees the same passes.
TEST_P(NonFiniteLogits, EndTheirOwnRequestAndChangeNoOther) {
  if (!has_device(std::get<0>(GetParam()))) GTEST_SKIP() << "skipped: no GPU";
  std::array<std::array<Tokens, 3>, 2> texts;
  for (const bool is_poisoned : {false, true}) {
    Engine engine = make_engine();
    std::vector<std::shared_ptr<const Sequence>> healthy;
    for (uint64_t seed = 1; seed <= 3; ++seed) healthy.push_back(engine.submit(request(4 + seed, 12, seed)));
    Request fourth = request(6, 1, 4);
    if (is_poisoned) fourth.prompt[3] = kPoison;
    const auto sequence = engine.submit(fourth, [&](TokenId) { EXPECT_FALSE(is_poisoned) << "a token of NaN logits"; });
    engine.run();
    EXPECT_EQ(sequence->ending(), is_poisoned ? Ending::kFailed : Ending::kLength);
    if (is_poisoned) {
      ASSERT_TRUE(sequence->failure());
      EXPECT_EQ(sequence->failure()->code, ErrorCode::kNonFinite);
      EXPECT_THAT(sequence->failure()->text, testing::HasSubstr("NaN or infinite logits"));
    }
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(healthy[i]->ending(), Ending::kLength);
      texts[is_poisoned][i] = generated(*healthy[i]);
    }
    // What the bad one left in its slot is used by nobody: not as a prefix, and not as what lies beside one.
    fourth.prompt.resize(3);
    fourth.max_tokens = 8;
    std::vector<std::shared_ptr<const Sequence>> next;
    for (int i = 0; i < 4; ++i) next.push_back(engine.submit(fourth));
    engine.run();
    for (const auto& other : next) EXPECT_EQ(generated(*other), generated(*next[0]));
    EXPECT_EQ(next[0]->ending(), Ending::kLength);
  }
  EXPECT_EQ(texts[0], texts[1]);
}

INSTANTIATE_TEST_SUITE_P(Executors, NonFiniteLogits,
                         testing::Combine(testing::Values(Device::kReference, Device::kCpu, Device::kGpu),
                                          testing::Values(TinyKind::kE4B, TinyKind::k26B),
                                          testing::Values(quant::Format::kF32, quant::Format::kQ8_0),
                                          testing::Values(std::numeric_limits<float>::quiet_NaN(),
                                                          std::numeric_limits<float>::infinity())));

}  // namespace
}  // namespace carat::engine
