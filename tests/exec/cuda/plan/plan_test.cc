#include "exec/cuda/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "exec/cuda/kernels/attention/attention_shape.h"
#include "exec/cuda/plan/metadata_models.h"
#include "exec/cuda/plan/plans.h"
#include "exec/cuda/plan/synthetic_gpus.h"
#include "exec/executor.h"
#include "model/kv_geometry.h"

namespace carat::cuda {
namespace {

using test::decision;
using test::made_up_gpu;
using test::made_up_gpus;
using test::model_of;
using test::request_of;
using testing::HasSubstr;
constexpr uint64_t kGiB = uint64_t{1} << 30;

// Models are on the GPU as a whole here; plan_split_test.cc has the cards that are too small for that.

struct Shape {
  std::string preset, recipe;
};
std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.preset << " " << shape.recipe; }

class EveryShape : public testing::TestWithParam<Shape> {
 protected:
  const model::Model& model() const { return model_of(GetParam().preset, GetParam().recipe); }
};
INSTANTIATE_TEST_SUITE_P(Plan, EveryShape,
                         testing::Values(Shape{"e2b", "q8_0"}, Shape{"e4b", "q8_0"}, Shape{"e4b", "q4_k_m"},
                                         Shape{"12b", "q4_0"}, Shape{"26b-a4b", "q4_0"}, Shape{"31b", "q4_0"},
                                         Shape{"31b", "bf16"}),
                         [](const auto& shape) {
                           std::string name = shape.param.preset + "_" + shape.param.recipe;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(EveryShape, PartsAddUpToTheTotal) {
  for (const GpuFacts& gpu : made_up_gpus()) {
    for (const uint32_t context : {1u, 4096u, 100'000u}) {
      const Plan plan = make_plan(model(), gpu, request_of(context));
      const uint64_t copies = plan.weights.copies(plan.placement);
      const uint64_t table = plan.placement.ple_on_device ? plan.weights.ple_table : 0;
      EXPECT_EQ(plan.total_bytes, plan.weights.packed + plan.weights.vectors + copies + table + plan.kv_bytes +
                                      plan.scratch_bytes + plan.workspace_bytes + plan.reserve_bytes);
      EXPECT_EQ(plan.fits, plan.total_bytes <= gpu.free_bytes);
      EXPECT_EQ(plan.context, context);
      const bool unpacks = !plan.placement.resident_bf16 && plan.gemm.kind == GemmKind::kLibrary && !plan.dequantise;
      EXPECT_TRUE(plan.unpack_bytes > 0 || !unpacks);
      EXPECT_TRUE(plan.unpack_bytes == 0 || !plan.placement.resident_bf16);
      EXPECT_LT(plan.unpack_bytes, plan.scratch_bytes);
    }
  }
}

TEST_P(EveryShape, WeightsAreTheSizeOfTheFile) {
  const WeightBytes bytes = weight_bytes(model(), 0);
  // Packed formats keep the file's bits: rows padded to 256 columns and Q5_0 kept as bytes are all that may be added.
  EXPECT_GE(bytes.packed + bytes.ple_table + bytes.vectors, model().weight_bytes());
  EXPECT_LT(static_cast<double>(bytes.packed + bytes.ple_table), 1.15 * static_cast<double>(model().weight_bytes()));
}

TEST_P(EveryShape, KeysAndValuesAreThoseOfTheGeometry) {
  for (const uint32_t context : {64u, 1000u, 40'000u}) {
    PlanRequest request = request_of(context);
    request.sequences = 3;
    const Plan plan = make_plan(model(), made_up_gpu(90, 141), request);
    const model::KvGeometry geometry(model().config(), context, plan.chunk);  // of the executors without tiles
    ASSERT_EQ(plan.kv.size(), geometry.groups().size());
    uint64_t sum = 0;
    for (size_t i = 0; i < plan.kv.size(); ++i) {
      const model::KvGeometry::Group& expected = geometry.groups()[i];
      EXPECT_EQ(plan.kv[i].sliding, expected.sliding);
      EXPECT_EQ(plan.kv[i].layers, expected.layers.size());
      const uint64_t cells = (expected.cells + 63) / 64 * 64;
      EXPECT_EQ(plan.kv[i].cells, cells);
      // fp16, and one sequence more for the padding rows of decode graphs.
      EXPECT_EQ(plan.kv[i].bytes, 2 * expected.values_per_cell() * expected.layers.size() * cells * (3 + 1));
      sum += plan.kv[i].bytes;
    }
    EXPECT_EQ(plan.kv_bytes, sum);
  }
}

TEST_P(EveryShape, LargestContextFitsAndTheNextDoesNot) {
  for (const GpuFacts& gpu : made_up_gpus()) {
    const Plan plan = make_plan(model(), gpu, request_of(4096));
    const uint32_t trained = model().config().context_length;
    EXPECT_LE(plan.largest_context_now, plan.largest_context);
    EXPECT_LE(plan.largest_context, trained);
    EXPECT_EQ(plan.fits, plan.largest_context >= 4096) << gpu.name;
    if (plan.largest_context > 0) {
      EXPECT_TRUE(make_plan(model(), gpu, request_of(plan.largest_context)).fits);
    }
    if (plan.largest_context < trained) {
      EXPECT_FALSE(make_plan(model(), gpu, request_of(plan.largest_context + 64)).fits) << gpu.name;
    }
    if (plan.largest_context_now < plan.largest_context && plan.fits) {
      // Beyond it the plan has to give something up: the copies, the table's place or the size of the chunk.
      const Plan beyond = make_plan(model(), gpu, request_of(plan.largest_context_now + 64));
      EXPECT_TRUE(beyond.fits);
      EXPECT_TRUE(beyond.placement.resident_bf16 != plan.placement.resident_bf16 ||
                  beyond.placement.ple_on_device != plan.placement.ple_on_device || beyond.chunk != plan.chunk);
    }
  }
}

TEST_P(EveryShape, MoreMemoryNeverMakesThingsWorse) {
  uint32_t largest = 0, chunk = 0;
  bool resident = false, table = false;
  for (uint32_t gib = 2; gib <= 192; gib += 2) {
    const Plan plan = make_plan(model(), made_up_gpu(90, gib), request_of(8192));
    EXPECT_GE(plan.largest_context, largest);
    largest = plan.largest_context;
    if (!plan.fits) continue;
    // Within one placement a larger card takes larger chunks.
    if (resident == plan.placement.resident_bf16 && table == plan.placement.ple_on_device) {
      EXPECT_GE(plan.chunk, chunk);
    }
    EXPECT_GE(plan.placement.resident_bf16, resident);
    EXPECT_GE(plan.placement.ple_on_device, table);
    resident = plan.placement.resident_bf16;
    table = plan.placement.ple_on_device;
    chunk = plan.chunk;
  }
  EXPECT_TRUE(resident);
  EXPECT_EQ(largest, model().config().context_length);
}

TEST_P(EveryShape, CopiesGoBeforeTheContextDoes) {
  // On the card that just holds the copies with a small context, a long context costs the copies and nothing else.
  // Copies of experts are most of a mixture's, and only mma.sync products read them.
  const char* kernels = "experts=mma";
  const Plan small = make_plan(model(), made_up_gpu(90, 400), request_of(4096, kernels));
  GpuFacts gpu = made_up_gpu(90, 400);
  gpu.free_bytes = small.total_bytes;
  const Plan kept = make_plan(model(), gpu, request_of(4096, kernels));
  EXPECT_TRUE(kept.fits);
  EXPECT_TRUE(kept.placement.resident_bf16);
  const Plan longer = make_plan(model(), gpu, request_of(model().config().context_length, kernels));
  EXPECT_TRUE(longer.fits);
  EXPECT_FALSE(longer.placement.resident_bf16);
  EXPECT_TRUE(longer.placement.ple_on_device);
  EXPECT_EQ(longer.context, model().config().context_length);
}

TEST_P(EveryShape, EveryDecisionIsRegisteredAndExplained) {
  std::set<std::string_view> slots;
  for (const exec::KernelOption& option : exec::kernel_registry()) {
    if (option.executor == "cuda") slots.insert(option.slot);
  }
  if (model().config().P == 0) {  // there is no table, and nothing made of it
    slots.erase("ple.table");
    slots.erase("batch.ple");
  }
  if (model().config().experts == 0) slots.erase("experts");  // nor expert
  for (const GpuFacts& gpu : made_up_gpus()) {
    const Plan plan = make_plan(model(), gpu, request_of(4096));
    std::set<std::string_view> decided;
    for (const KernelDecision& made : plan.kernels) {
      EXPECT_TRUE(decided.insert(made.slot).second) << made.slot;
      EXPECT_FALSE(made.reason.empty()) << made.slot;
      const auto registered = exec::kernel_registry();
      EXPECT_TRUE(std::any_of(registered.begin(), registered.end(),
                              [&](const exec::KernelOption& option) {
                                return option.executor == "cuda" && option.slot == made.slot &&
                                       option.name == made.name;
                              }))
          << made.slot << "=" << made.name;
    }
    std::set<std::string_view> wanted = slots;
    if (plan.gemm.kind != GemmKind::kMmq) wanted.erase("activations");  // bf16 is all the library has
    EXPECT_EQ(decided, wanted);
    EXPECT_FALSE(plan.chunk_reason.empty());
    EXPECT_EQ(plan.table_reason.empty(), model().config().P == 0);
  }
}

TEST_P(EveryShape, ScratchHoldsTheAttentionOfEveryNumberOfRows) {
  const model::Config& config = model().config();
  for (const GpuFacts& gpu : made_up_gpus()) {
    const Plan plan = make_plan(model(), gpu, request_of(20'000));
    const uint64_t elements = attention_partial_elements(config, plan, gpu.sm_count);
    for (const model::Layer& layer : config.layers) {
      const AttentionShape shape{layer.H, layer.Hkv, layer.hd, layer.sliding ? config.W : 0};
      for (uint32_t rows = 1; rows <= plan.outputs; ++rows) {
        const uint32_t splits = attention_decode_splits(shape, rows, plan.context, gpu.sm_count);
        ASSERT_LE(attention_decode_scratch(shape, rows, splits), elements) << rows;
        ASSERT_LE(rows * layer.Hkv, attention_counters(config, plan));
      }
    }
  }
}

// What each card is expected to hold with a context of 4096: worked out by hand from the file sizes.
TEST(Plan, PlacesRealModelsOnRealSizes) {
  struct Case {
    std::string preset, recipe;
    uint32_t gib;
    bool fits, table_on_device, resident;
  };
  for (const Case& c : {
           Case{"e2b", "q8_0", 8, true, true, false},   // 5.1 GB in the file, half of it the table
           Case{"e4b", "q8_0", 8, true, false, false},  // 8.0 GB, of which the table is 3.0
           Case{"e4b", "q8_0", 12, true, true, false},
           Case{"e4b", "q8_0", 24, true, true, true},  // and 9 GB of copies
           Case{"12b", "q4_0", 8, false, true, false},
           Case{"12b", "q4_0", 12, true, true, false},
           Case{"12b", "q4_0", 24, true, true, false},
           Case{"12b", "q4_0", 80, true, true, true},
           Case{"26b-a4b", "q4_0", 12, false, true, false},
           Case{"26b-a4b", "q4_0", 24, true, true, true},  // experts need no copies
           Case{"26b-a4b", "q4_0", 80, true, true, true},
           Case{"31b", "q4_0", 16, false, true, false},
           Case{"31b", "q4_0", 24, true, true, false},
           Case{"31b", "q4_0", 72, true, true, false},  // 17 GB and 61 GB of copies are too much together
           Case{"31b", "q4_0", 141, true, true, true},
       }) {
    for (const uint32_t capability : {89u, 90u}) {
      const Plan plan = make_plan(model_of(c.preset, c.recipe), made_up_gpu(capability, c.gib), request_of(4096));
      const std::string name = c.preset + " " + c.recipe + " on " + std::to_string(c.gib) + " GB";
      EXPECT_EQ(plan.fits, c.fits) << name << ": " << plan.total_bytes << " of " << plan.free_bytes;
      if (!plan.fits) continue;
      EXPECT_EQ(plan.placement.ple_on_device, c.table_on_device) << name;
      // Where products read the quantised weights there are no copies, however much room there is.
      EXPECT_EQ(plan.placement.resident_bf16, c.resident && capability == 90) << name;
    }
  }
}

TEST(Plan, ChunkShrinksWithTheMemory) {
  const model::Model& model = model_of("12b", "q4_0");
  GpuFacts gpu = made_up_gpu(89, 24);
  const auto chunk_with = [&](uint64_t free_bytes) {
    gpu.free_bytes = free_bytes;
    const Plan plan = make_plan(model, gpu, request_of(8192));
    EXPECT_TRUE(plan.fits);
    EXPECT_FALSE(plan.placement.resident_bf16);
    return plan.chunk;
  };
  const Plan roomy = make_plan(model, gpu, request_of(8192));
  EXPECT_EQ(roomy.chunk, 2048u);
  PlanRequest request = request_of(8192);
  request.chunk = 512;
  const uint64_t middle = make_plan(model, gpu, request).total_bytes;
  request.chunk = 128;
  const uint64_t small = make_plan(model, gpu, request).total_bytes;
  EXPECT_EQ(chunk_with(roomy.total_bytes), 2048u);
  EXPECT_EQ(chunk_with(roomy.total_bytes - 1), 512u);
  EXPECT_EQ(chunk_with(middle), 512u);
  EXPECT_EQ(chunk_with(middle - 1), 128u);
  EXPECT_EQ(chunk_with(small), 128u);
  gpu.free_bytes = small - 1;
  EXPECT_FALSE(make_plan(model, gpu, request_of(8192)).fits);
}

TEST(Plan, ChunkAsAskedFor) {
  const model::Model& model = model_of("e4b", "q8_0");
  PlanRequest request = request_of(4096);
  request.chunk = 300;
  const Plan plan = make_plan(model, made_up_gpu(90, 141), request);
  EXPECT_EQ(plan.chunk, 300u);
  EXPECT_THAT(plan.chunk_reason, HasSubstr("-ub"));
  EXPECT_EQ(make_plan(model, made_up_gpu(90, 141), request_of(100)).chunk, 128u);  // whole tiles of 64 positions
  EXPECT_EQ(make_plan(model, made_up_gpu(90, 141), request_of(50'000)).chunk, 4096u);
}

TEST(Plan, EverySequenceHasARowAndAnOutput) {
  PlanRequest request = request_of(256);
  request.sequences = 700;
  const Plan plan = make_plan(model_of("e4b", "q8_0"), made_up_gpu(90, 141), request);
  EXPECT_EQ(plan.chunk, 700u);
  EXPECT_EQ(plan.outputs, 704u);  // a whole bucket of decode rows
  EXPECT_THAT(plan.chunk_reason, HasSubstr("sequence"));
}

TEST(Plan, KernelWishesAreGranted) {
  const model::Model& model = model_of("e4b", "q8_0");
  const Plan plan =
      make_plan(model, made_up_gpu(90, 141),
                request_of(4096,
                           "gemm.weights=unpacked,gemm.search=off,ple.table=host,decode=gemm,launch=single,"
                           "launch.prompt=single,overlap=off,attention=small,attention.long=dense,"
                           "batch.ple=products,batch.heads=separate"));
  EXPECT_FALSE(plan.placement.resident_bf16);
  EXPECT_FALSE(plan.placement.ple_on_device);
  EXPECT_FALSE(plan.use_gemv);
  EXPECT_FALSE(plan.use_graphs);
  EXPECT_FALSE(plan.prompt_graphs);
  EXPECT_FALSE(plan.overlap);
  EXPECT_EQ(plan.attention_shared_memory, kSmallSharedMemory);
  for (const KernelDecision& made : plan.kernels) EXPECT_THAT(made.reason, HasSubstr("asked for")) << made.slot;

  const Plan free_choice = make_plan(model, made_up_gpu(90, 141), request_of(4096));
  EXPECT_TRUE(free_choice.use_gemv && free_choice.use_graphs && free_choice.prompt_graphs && free_choice.overlap);
  EXPECT_EQ(free_choice.attention_shared_memory, 227u * 1024);
}

TEST(Plan, CopiesThatWereAskedForAreNotDropped) {
  const model::Model& model = model_of("e4b", "q8_0");
  EXPECT_TRUE(make_plan(model, made_up_gpu(89, 12), request_of(4096)).fits);
  const Plan plan = make_plan(model, made_up_gpu(89, 12), request_of(4096, "gemm.weights=resident"));
  EXPECT_FALSE(plan.fits);
  EXPECT_TRUE(plan.placement.resident_bf16);
  EXPECT_EQ(decision(plan, "gemm.weights"), "resident");
}

TEST(Plan, TheTableGoesWhereItWasAskedFor) {
  const model::Model& model = model_of("e4b", "q8_0");
  const Plan host = make_plan(model, made_up_gpu(90, 141), request_of(4096, "ple.table=host"));
  EXPECT_FALSE(host.placement.ple_on_device);
  EXPECT_TRUE(host.placement.resident_bf16);
  const Plan device = make_plan(model, made_up_gpu(90, 141), request_of(4096));
  // A few of its rows are kept on the GPU all the same.
  EXPECT_EQ(host.ple_cache_rows, 2 * host.chunk);
  EXPECT_EQ(device.ple_cache_rows, 0u);
  const uint64_t cached = device.weights.ple_table / model.config().V * host.ple_cache_rows;
  EXPECT_EQ(device.total_bytes - host.total_bytes, device.weights.ple_table - cached);
  EXPECT_EQ(decision(device, "ple.table"), "device");
  EXPECT_EQ(decision(make_plan(model_of("12b", "q8_0"), made_up_gpu(90, 141), request_of(4096)), "ple.table"), "");
}

TEST(Plan, TilesFollowTheSharedMemory) {
  const model::Model& model = model_of("e4b", "q8_0");
  const Plan asked = make_plan(model, made_up_gpu(90, 80), request_of(4096, "attention=large"));
  EXPECT_EQ(asked.attention_shared_memory, 227u * 1024);
  EXPECT_EQ(decision(make_plan(model, made_up_gpu(80, 80), request_of(4096)), "attention"), "large");
  for (const uint32_t capability : {86u, 89u, 120u}) {
    const Plan plan = make_plan(model, made_up_gpu(capability, 24), request_of(4096));
    EXPECT_EQ(decision(plan, "attention"), "small");
    EXPECT_EQ(plan.attention_shared_memory, kSmallSharedMemory);
  }
}

TEST(Plan, OverlapNeedsHopper) {
  const model::Model& model = model_of("e4b", "q8_0");
  for (const uint32_t capability : {80u, 86u, 89u}) {
    EXPECT_FALSE(make_plan(model, made_up_gpu(capability, 80), request_of(4096)).overlap);
  }
  for (const uint32_t capability : {90u, 120u}) {
    EXPECT_TRUE(make_plan(model, made_up_gpu(capability, 80), request_of(4096)).overlap);
  }
}

TEST(Plan, TheTokenKernelRunsSingleRowsWhereItWasMeasured) {
  const model::Model& model = model_of("e4b", "q8_0");
  EXPECT_TRUE(make_plan(model, made_up_gpu(90, 80), request_of(4096)).use_megakernel);
  EXPECT_FALSE(make_plan(model, made_up_gpu(90, 80), request_of(4096, "decode=matvec")).use_megakernel);
  // No figures of other chips, and too little shared memory on most of them.
  for (const uint32_t capability : {80u, 86u, 89u, 120u}) {
    EXPECT_FALSE(make_plan(model, made_up_gpu(capability, 80), request_of(4096)).use_megakernel) << capability;
  }
  PlanRequest short_cache = request_of(4096);
  short_cache.kv_format = quant::Format::kQ8_0;
  EXPECT_FALSE(make_plan(model, made_up_gpu(90, 80), short_cache).use_megakernel) << "it reads keys and values as F16";
  PlanRequest split = request_of(4096);
  split.gpu_layers = 30;
  EXPECT_FALSE(make_plan(model, made_up_gpu(90, 80), split).use_megakernel) << "the first layers run on the CPU";
  for (const char* preset : {"e2b", "12b", "26b-a4b", "31b"}) {
    EXPECT_TRUE(make_plan(model_of(preset, "q4_0"), made_up_gpu(90, 141), request_of(4096)).use_megakernel) << preset;
  }
  EXPECT_FALSE(make_plan(model_of("26b-a4b", "q4_0"), made_up_gpu(90, 141, 63), request_of(4096)).use_megakernel)
      << "a block has at most two rows of the router";
}

std::string refusal(const GpuFacts& gpu, std::string_view kernels, ErrorCode code) {
  try {
    make_plan(model_of("e4b", "q8_0"), gpu, request_of(4096, kernels));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  ADD_FAILURE() << "a plan was made";
  return "";
}

TEST(Plan, RefusesWhatTheGpuCannotDo) {
  EXPECT_THAT(refusal(made_up_gpu(89, 24), "decode=token", ErrorCode::kBadArgument),
              HasSubstr("compute capability 9.0"));
  EXPECT_THAT(refusal(made_up_gpu(89, 24), "overlap=on", ErrorCode::kBadArgument), HasSubstr("9.0"));
  EXPECT_THAT(refusal(made_up_gpu(89, 24), "attention=large", ErrorCode::kBadArgument), HasSubstr("99 KB"));
  EXPECT_THAT(refusal(made_up_gpu(89, 24), "dot=avx2", ErrorCode::kBadArgument), HasSubstr("dot=avx2"));
  EXPECT_THAT(refusal(made_up_gpu(75, 24), "", ErrorCode::kUnsupported), HasSubstr("7.5"));
  GpuFacts small = made_up_gpu(90, 24);
  small.shared_memory = 64 * 1024;
  EXPECT_THAT(refusal(small, "", ErrorCode::kUnsupported), HasSubstr("shared memory"));
}

TEST(Plan, NoRoomAtAll) {
  const Plan plan = make_plan(model_of("31b", "q4_0"), made_up_gpu(86, 8), request_of(4096));
  EXPECT_FALSE(plan.fits);
  EXPECT_EQ(plan.largest_context, 0u);
  EXPECT_EQ(plan.largest_context_now, 0u);
  EXPECT_GT(plan.total_bytes, 16 * kGiB);
}

}  // namespace
}  // namespace carat::cuda
