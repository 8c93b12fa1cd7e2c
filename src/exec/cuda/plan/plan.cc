#include "exec/cuda/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "exec/cuda/kernels/gemm/hopper/wgmma_tiles.h"
#include "exec/cuda/passes/ple_cache.h"
#include "exec/cuda/plan/buffers.h"
#include "exec/cuda/plan/fp8_buffers.h"
#include "exec/cuda/plan/gemm_choice.h"
#include "exec/cuda/plan/megakernel_choice.h"
#include "exec/cuda/plan/mmq_buffers.h"
#include "exec/cuda/plan/ple_choice.h"
#include "exec/cuda/plan/product_choice.h"
#include "exec/cuda/plan/prompt_bucket.h"
#include "exec/cuda/weights/packing.h"

namespace carat::cuda {

namespace {

constexpr uint64_t kWorkspace = uint64_t{64} << 20;
constexpr uint64_t kSmallestReserve = uint64_t{256} << 20;
constexpr uint32_t kOldestCapability = 80;
constexpr uint32_t kOverlapCapability = 90;
constexpr uint32_t kContextUnit = 64;
// From this many rows on the tensor cores beat the matrix-vector kernels.
constexpr uint32_t kSkinnyFrom = 2;
// Beside bf16 copies of the weights, matrix products of more rows are faster (64 rows: by half).
constexpr uint32_t kSkinnyBesideCopies = 32;
// Matrix products of this many rows run at full speed; more rows only cost memory.
constexpr uint32_t kRoomyChunk = 4096;

uint32_t round_up(uint32_t value, uint32_t unit) { return (value + unit - 1) / unit * unit; }

std::string capability_text(uint32_t capability) { return fmt::format("{}.{}", capability / 10, capability % 10); }

std::vector<KvGroupPlan> kv_groups(const model::Config& config, const Plan& plan) {
  const model::KvGeometry geometry = kv_geometry(config, plan.context, plan.chunk);
  std::vector<KvGroupPlan> groups;
  for (const model::KvGeometry::Group& of : geometry.groups()) {
    KvGroupPlan group{of.sliding, 0, of.Hkv, of.hd, of.cells, 0};
    for (const uint32_t layer : of.layers) {
      if (layer < plan.placement.first_layer) continue;
      ++group.layers;
      group.bytes += 2 * geometry.rows(layer, cached_sequences(plan.sequences)) *
                     kv_row_bytes(of.hd, plan.kv_format == quant::Format::kQ8_0);
    }
    if (group.layers > 0) groups.push_back(group);
  }
  return groups;
}

// Elements of the largest group that is unpacked for its products; 0 where none is.
uint64_t largest_unpacked(const model::Model& model, const Plan& plan) {
  uint64_t largest = 0;
  for (uint32_t i = plan.placement.first_layer; i < model.config().L; ++i) {
    for_each_group(model, i, [&](const LayerGroup& group) {
      if (plan.products.of(i, group.kind()) == ProductPath::kUnpack) largest = std::max(largest, group.elements());
    });
  }
  if (plan.products.ple_input == ProductPath::kUnpack) {
    const model::Matrix& projection = model.weights().per_layer_model_proj;
    largest = std::max(largest, projection.rows * projection.cols);
  }
  return largest;
}

// Fills in every size that follows from context, chunk and placement.
void add_up(Plan& plan, const model::Model& model, const GpuFacts& gpu) {
  const model::Config& config = model.config();
  plan.kv = kv_groups(config, plan);
  plan.kv_bytes = 0;
  for (const KvGroupPlan& group : plan.kv) plan.kv_bytes += group.bytes;
  Carver carver;
  const Widths widths(config);
  PromptBuffers wide;
  wide.carve(carver, widths, plan.chunk, plan.outputs);
  const model::Matrix& table = model.weights().per_layer_token_embd;
  plan.ple_cache_rows = table.empty() || plan.placement.ple_on_device ? 0 : ple_cache_rows(plan.chunk);
  if (plan.ple_cache_rows > 0) {
    carve_ple_rows(carver, packing_of(table.format), static_cast<uint32_t>(table.cols), plan.ple_cache_rows);
  }
  MmqBuffers mmq;
  if (plan.gemm.kind == GemmKind::kMmq) mmq.carve(carver, widths, plan.chunk, plan.gemm.activations);
  Fp8Buffers fp8;
  if (plan.gemm.kind == GemmKind::kFp8) fp8.carve(carver, widths, plan.chunk);
  GemvBuffers narrow;
  narrow.carve(carver, widths);
  SparseBuffers sparse;
  if (plan.sparse) sparse.carve(carver, config, *plan.sparse, plan.context, plan.chunk);
  SkinnyBuffers batch;
  batch.carve(carver, widths, plan.skinny_rows);
  OutputBuffers outputs;
  outputs.carve(carver, widths, plan.outputs, attention_partial_elements(config, plan, gpu.sm_count),
                attention_counters(config, plan));
  MegakernelBuffers token;
  if (plan.use_megakernel) token.carve(carver, widths, config, gpu.sm_count);
  plan.unpack_bytes = largest_unpacked(model, plan) * 2;
  plan.scratch_bytes = carver.used() + plan.unpack_bytes;
  plan.workspace_bytes = kWorkspace;
  plan.total_bytes =
      plan.weights_on_device() + plan.kv_bytes + plan.scratch_bytes + plan.workspace_bytes + plan.reserve_bytes;
  plan.fits = plan.total_bytes <= plan.free_bytes;
}

// One way to lay things out.
struct Layout {
  bool bf16, table;
  uint32_t chunk;  // at most
};
constexpr Layout kLayouts[] = {{true, true, kRoomyChunk}, {true, true, 2048}, {true, true, 512},
                               {false, true, 2048},       {false, true, 512}, {false, false, 2048},
                               {false, false, 512},       {false, false, 128}};

// Products by wgmma: those of experts wherever the card has it, others where there are no bf16 copies.
void choose_warpgroup(Plan& plan, const model::Model& model, const GpuFacts& gpu, const exec::KernelChoices& wishes) {
  const bool library = plan.gemm.kind != GemmKind::kMmq;
  plan.dequantise =
      gpu.warpgroup_products && library && !plan.placement.resident_bf16 && wishes.find("gemm.weights") != "unpacked";
  const model::Config& config = model.config();
  const bool fits =
      config.experts > 0 && config.experts <= kWgmmaMaxGroups && config.F_expert % 8 == 0 && config.d % 8 == 0;
  plan.warpgroup_experts = gpu.warpgroup_products && fits && wishes.find("experts") != "mma";
  plan.placement.packed_experts = plan.warpgroup_experts;
}

// Lays the plan's layers out for `context`: the first layout that fits, otherwise the last that is allowed. Returns
// which.
size_t lay_out(Plan& plan, const model::Model& model, const GpuFacts& gpu, const PlanRequest& request,
               uint32_t context) {
  const auto wish = request.kernels.find("gemm.weights");
  const auto table_wish = request.kernels.find("ple.table");
  plan.context = context;
  size_t tried = 0;
  for (size_t i = 0; i < std::size(kLayouts); ++i) {
    const Layout& layout = kLayouts[i];
    if (wish && (*wish == "resident") != layout.bf16) continue;
    if (table_wish && !layout.table) continue;  // a wish replaces giving the table's place up
    plan.gemm = choose_gemm(model, gpu, request.kernels, plan.placement.first_layer, layout.bf16);
    if (plan.gemm.kind == GemmKind::kMmq && layout.bf16) continue;  // it would read no copies
    tried = i;
    plan.placement.resident_bf16 = layout.bf16;
    plan.placement.resident_fp8 = plan.gemm.kind == GemmKind::kFp8;
    choose_warpgroup(plan, model, gpu, request.kernels);
    plan.products = choose_product_paths(model, plan);
    plan.placement.ple_on_device = table_wish ? *table_wish == "device" : layout.table;
    plan.chunk = request.chunk != 0 ? request.chunk : std::min(layout.chunk, round_up(context, kContextUnit));
    plan.chunk = std::max(plan.chunk, request.sequences);  // a step of all sequences is one pass
    add_up(plan, model, gpu);
    if (plan.fits) break;
  }
  return tried;
}

// Chooses the layers on the GPU and lays them out. Returns the layout taken.
size_t place_layers(Plan& plan, const model::Model& model, const GpuFacts& gpu, const PlanRequest& request) {
  const model::Config& config = model.config();
  const uint32_t first = request.gpu_layers ? wished_split(config, *request.gpu_layers) : 0;
  // Nobody asks for faster prompts to have layers moved to the CPU.
  const bool all_or_none = request.gpu_layers || request.kernels.find("gemm") == "fp8";
  const uint32_t last = all_or_none ? first : last_split(config);
  size_t layout = 0;
  for (uint32_t split = first; split <= last; ++split) {
    plan.placement.first_layer = split;
    plan.weights = weight_bytes(model, split);
    layout = lay_out(plan, model, gpu, request, request.context);
    if (plan.fits) break;
  }
  const uint32_t chosen = plan.placement.first_layer;
  plan.split = measure_split(model, chosen, plan.context, plan.chunk, plan.sequences, plan.kv_format);
  plan.split.reason = explain_split(config, chosen, plan.fits, request.gpu_layers);
  return layout;
}

void check_fp8_fits(const Plan& plan) {
  if (plan.gemm.kind != GemmKind::kFp8 || plan.fits) return;
  fail(ErrorCode::kBadArgument,
       "--kernels gemm=fp8 is not possible: with e4m3 copies of the weights ({} bytes) and a context of {} the GPU "
       "needs "
       "{} bytes and {} are free; leave it out, or take a smaller context (-c) or fewer layers (-ngl)",
       plan.weights.fp8_copies(plan.placement), plan.context, plan.total_bytes, plan.free_bytes);
}

// The largest context for which fits(context) is true; memory never shrinks as the context grows.
template <typename Fits>
uint32_t largest_fitting(const model::Config& config, Fits fits) {
  uint32_t low = 0, high = config.context_length / kContextUnit + 1;  // in units: low fits, high does not
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    (fits(middle * kContextUnit) ? low : high) = middle;
  }
  return low * kContextUnit;
}

std::string explain_chunk(const Plan& plan, const PlanRequest& request, size_t layout) {
  if (request.chunk != 0) return plan.chunk == request.chunk ? "asked for (-ub)" : "one row for each sequence";
  if (plan.chunk == request.sequences) return "one row for each sequence";
  if (plan.chunk == round_up(plan.context, kContextUnit)) return "the whole context in one pass";
  if (plan.chunk == kRoomyChunk) return "matrix products of this many rows run at full speed";
  if (!plan.fits) return "the smallest, and still too much beside the rest";
  // The first of the layouts that place the weights as this one does.
  const bool first = layout == 0 || kLayouts[layout - 1].bf16 != kLayouts[layout].bf16 ||
                     kLayouts[layout - 1].table != kLayouts[layout].table;
  if (first && plan.gemm.kind == GemmKind::kMmq) return "matrix products of this many rows run at full speed";
  return first ? "unpacking the weights takes a small part of passes this large"
               : "larger ones do not fit beside the rest";
}

std::string explain_table(const Plan& plan, const PlanRequest& request) {
  if (plan.weights.ple_table == 0) return "";
  if (request.kernels.find("ple.table")) {
    return plan.placement.ple_on_device ? "on the GPU: asked for" : "in page-locked host memory: asked for";
  }
  return plan.placement.ple_on_device ? "on the GPU: it fits"
                                      : "in page-locked host memory: no room on the GPU, so the GPU gathers its rows "
                                        "over the bus";
}

constexpr std::string_view kNoBatchedExperts = "expert layers need their rows sorted, which matrix products do";

// Which decode steps run batched.
void choose_skinny_rows(Plan& plan, const model::Config& config, const PlanRequest& request) {
  const auto wish = request.kernels.find("batch");
  if (wish == "mma" && config.experts > 0) fail(ErrorCode::kBadArgument, "--kernels batch=mma: {}", kNoBatchedExperts);
  const bool all_gemm = request.kernels.find("decode") == "gemm" && wish != "mma";
  if (wish == "gemm" || all_gemm || config.experts > 0) return;
  plan.skinny_from = kSkinnyFrom;
  plan.skinny_rows = skinny_filled_bucket(std::min(plan.outputs, kSkinnyRows));
}

class Decisions {
 public:
  Decisions(Plan& plan, const GpuFacts& gpu, const PlanRequest& request) : plan_(plan), gpu_(gpu), request_(request) {}

  void decide_products() {
    const bool mmq = plan_.gemm.kind == GemmKind::kMmq, resident = plan_.placement.resident_bf16;
    const bool fp8 = plan_.gemm.kind == GemmKind::kFp8;
    add("gemm", mmq ? "mmq" : fp8 ? "fp8" : "cublas", plan_.gemm.reason);
    if (mmq) {
      const bool int8 = plan_.gemm.activations == MmqActivations::kInt8;
      add("activations", int8 ? "int8" : "int16", "two integer products for each, and more exact than bf16");
    }
    add("gemm.weights",
        resident           ? "resident"
        : plan_.dequantise ? "dequantised"
                           : "unpacked",
        resident && fp8    ? "e4m3 copies of the layers' weights, bf16 copies of the others"
        : resident         ? "a bf16 copy of the weights fits"
        : mmq              ? "products of matrices that are not quantised, and of experts, unpack theirs first"
        : plan_.dequantise ? "no room for a bf16 copy of the weights: each becomes bf16 on its way into the registers"
                           : "no room for a bf16 copy of the weights: each product unpacks its own first");
  }

  // Weights that are unpacked for each product, and kernels of our own, leave the library little to choose for.
  void decide_search() {
    const bool able = plan_.placement.resident_bf16 || plan_.placement.resident_fp8;
    if (wish("gemm.search") == "on" && !able) {
      fail(ErrorCode::kBadArgument,
           "--kernels gemm.search=on is not possible: the library's algorithms are timed on copies of the weights, and "
           "this plan has none");
    }
    plan_.search = able && wish("gemm.search") != "off";
    add("gemm.search", plan_.search ? "on" : "off",
        able ? "the library's best algorithms for each shape are timed once, and the choice is kept"
             : "no products of the library over copies of the weights");
  }

  // What wishes for warpgroup products cannot have is refused here, and the kernel of experts named.
  void decide_experts(const model::Config& config) {
    const auto refuse = [&](const char* wished) {
      fail(
          ErrorCode::kBadArgument,
          "--kernels {} is not possible: it needs compute capability 9.0, a build with code for it (90a) and widths in "
          "multiples of 8; {} has {}",
          wished, gpu_.name, capability_text(gpu_.capability));
    };
    if (wish("gemm.weights") == "dequantised" && !plan_.dequantise) refuse("gemm.weights=dequantised");
    if (wish("experts") == "wgmma" && config.experts > 0 && !plan_.warpgroup_experts) refuse("experts=wgmma");
    if (config.experts == 0) return;
    add("experts", plan_.warpgroup_experts ? "wgmma" : "mma",
        plan_.warpgroup_experts ? "reads the experts' weights as they are packed, each once for all rows routed to it"
                                : "the kernel for every card");
  }

  void decide_table() {
    if (plan_.weights.ple_table == 0) return;
    add("ple.table", plan_.placement.ple_on_device ? "device" : "host", explain_table(plan_, request_));
  }

  void decide_decode(const std::string& obstacle) {
    plan_.use_gemv = wish("decode") != "gemm";
    if (plan_.use_megakernel) {
      add("decode", "token", "one kernel for a whole token: weights keep coming while its blocks exchange results");
    } else {
      add("decode", plan_.use_gemv ? "matvec" : "gemm",
          "reads each quantised weight once and nothing else" +
              (obstacle.empty() ? "" : "; no token kernel: " + obstacle));
    }
    plan_.use_graphs = wish("launch") != "single";
    add("launch", plan_.use_graphs ? "graph" : "single", "one launch for a whole step");
    plan_.prompt_graphs = wish("launch.prompt") != "single";
    add("launch.prompt", plan_.prompt_graphs ? "graph" : "single",
        fmt::format("one launch for a prompt's chunk of up to {} rows", kLargestPromptBucket));
  }

  void decide_skinny() {
    const bool batched = plan_.skinny_rows > 0;
    add("batch", batched ? "mma" : "gemm",
        batched ? fmt::format("decode steps of {} to {} rows read each quantised weight once", plan_.skinny_from,
                              plan_.skinny_rows)
                : std::string(plan_.use_gemv ? kNoBatchedExperts : "decode=gemm was asked for"));
  }

  void decide_heads(const model::Config& config) {
    const auto able = [&](const model::Layer& layer) { return attention_step_supports(shape_of(config, layer)); };
    std::string obstacle;
    if (plan_.kv_format != quant::Format::kF16) obstacle = "it writes F16 caches only";
    if (!std::all_of(config.layers.begin(), config.layers.end(), able)) obstacle = "the model's heads";
    if (wish("batch.heads") == "attention" && !obstacle.empty()) {
      fail(ErrorCode::kBadArgument, "--kernels batch.heads=attention is not possible: {}", obstacle);
    }
    plan_.step_heads = obstacle.empty() && wish("batch.heads") != "separate";
    add("batch.heads", plan_.step_heads ? "attention" : "separate",
        obstacle.empty() ? "a launch less, and keys come while the projections are made"
                         : "no attention that makes its own heads: " + obstacle);
  }

  void decide_layer_end(const model::Model& model) {
    if (!model.config().has_per_layer_embeddings()) return;
    const std::string obstacle = ple_cluster_obstacle(model, gpu_, plan_.gemm.kind, plan_.placement.first_layer);
    if (wish("batch.ple") == "cluster" && !obstacle.empty()) {
      fail(ErrorCode::kBadArgument, "--kernels batch.ple=cluster is not possible: {}", obstacle);
    }
    plan_.cluster_ple = obstacle.empty() && wish("batch.ple") != "products";
    add("batch.ple", plan_.cluster_ple ? "cluster" : "products",
        obstacle.empty() ? "one launch instead of five" : "no kernel for all of a layer's end: " + obstacle);
  }

  void decide_overlap() {
    const bool able = gpu_.capability >= kOverlapCapability;
    if (wish("overlap") == "on" && !able) {
      fail(ErrorCode::kBadArgument, "--kernels overlap=on needs compute capability {} and {} has {}",
           capability_text(kOverlapCapability), gpu_.name, capability_text(gpu_.capability));
    }
    plan_.overlap = able && wish("overlap") != "off";
    add("overlap", plan_.overlap ? "on" : "off",
        able ? "a kernel reads its weights ahead while the one before it finishes"
             : fmt::format("needs compute capability {}", capability_text(kOverlapCapability)));
  }

  // The tiles of mma.sync are chosen by the shared memory a block may have: taking no more than a small card has is the
  // switch.
  void decide_attention(const model::Config& config) {
    const std::string no_warpgroups = why_no_warpgroups(config), no_large_tiles = why_no_large_tiles(config);
    if (wish("attention") == "warpgroups" && !no_warpgroups.empty()) {
      fail(ErrorCode::kBadArgument, "--kernels attention=warpgroups is not possible: {}", no_warpgroups);
    }
    if (wish("attention") == "large" && !no_large_tiles.empty()) {
      fail(ErrorCode::kBadArgument, "--kernels attention=large is not possible: {}", no_large_tiles);
    }
    const bool small = !no_large_tiles.empty() || wish("attention") == "small";
    plan_.attention_shared_memory = small ? kSmallSharedMemory : gpu_.shared_memory;
    plan_.warpgroup_attention = no_warpgroups.empty() && wish("attention").value_or("warpgroups") == "warpgroups";
    if (plan_.warpgroup_attention) {
      add("attention", "warpgroups", "this GPU multiplies by warpgroups, and copies keys and values without threads");
    } else if (small) {
      add("attention", "small", no_large_tiles);
    } else {
      const bool all = std::all_of(config.layers.begin(), config.layers.end(), [&](const model::Layer& layer) {
        return attention_large_tile_bytes(layer.hd) <= gpu_.shared_memory;
      });
      add("attention", "large",
          fmt::format("they fit the {} KB of shared memory{}", gpu_.shared_memory / 1024,
                      all ? "" : ", though for the smaller of the two head sizes only"));
    }
  }

  void decide_long_prompts() {
    add("attention.long", plan_.sparse ? "sparse" : "dense", "exact: every visible key counts");
  }

 private:
  // Empty: nothing is in the way.
  std::string why_no_warpgroups(const model::Config& config) const {
    if (!gpu_.warpgroup_products) return fmt::format("{} has no products of warpgroups", gpu_.name);
    if (plan_.kv_format != quant::Format::kF16) return "they read a cache in F16";
    const bool any = std::any_of(config.layers.begin(), config.layers.end(), [&](const model::Layer& layer) {
      return warpgroup_attention_supports(shape_of(config, layer), false);
    });
    return any ? "" : "they are for heads of 256, and of 512 without a window";
  }
  std::string why_no_large_tiles(const model::Config& config) const {
    uint32_t least = 0;  // over the head sizes that have large tiles
    for (const model::Layer& layer : config.layers) {
      const uint32_t bytes = attention_large_tile_bytes(layer.hd);
      if (bytes > 0 && (least == 0 || bytes < least)) least = bytes;
    }
    if (least == 0) return "there are large tiles for head sizes above 128 only";
    if (gpu_.shared_memory >= least) return "";
    return fmt::format("large tiles need {} KB of shared memory in a block and {} has {} KB", least / 1024, gpu_.name,
                       gpu_.shared_memory / 1024);
  }

  std::optional<std::string_view> wish(std::string_view slot) const { return request_.kernels.find(slot); }
  void add(std::string slot, std::string name, std::string reason) {
    if (wish(slot)) reason = "asked for (--kernels)";
    plan_.kernels.push_back({std::move(slot), std::move(name), std::move(reason)});
  }

  Plan& plan_;
  const GpuFacts& gpu_;
  const PlanRequest& request_;
};

void check_kv_format(const model::Config& config, quant::Format format) {
  if (format != quant::Format::kF16 && format != quant::Format::kQ8_0) {
    fail(ErrorCode::kUnsupported, "the GPU keeps keys and values as F16 or Q8_0; {} is not possible (-ctk, -ctv)",
         quant::info(format).name);
  }
  for (const model::Layer& layer : config.layers) {
    if (format == quant::Format::kQ8_0 && layer.hd % kKvScaleBlock != 0) {
      fail(ErrorCode::kUnsupported,
           "blk.{}: keys and values of head size {} cannot be kept as Q8_0, which needs a multiple of {}; use F16 "
           "(-ctk, -ctv)",
           layer.index, layer.hd, kKvScaleBlock);
    }
  }
}

void check_gpu(const GpuFacts& gpu) {
  if (gpu.capability < kOldestCapability) {
    fail(ErrorCode::kUnsupported, "{} has compute capability {} and carat's kernels need {} (Ampere) or newer",
         gpu.name, capability_text(gpu.capability), capability_text(kOldestCapability));
  }
  if (gpu.shared_memory < kSmallSharedMemory) {
    fail(ErrorCode::kUnsupported, "{} gives a block {} bytes of shared memory and carat's kernels need {}", gpu.name,
         gpu.shared_memory, kSmallSharedMemory);
  }
}

}  // namespace

AttentionShape shape_of(const model::Config& config, const model::Layer& layer) {
  return {layer.H, layer.Hkv, layer.hd, layer.sliding ? config.W : 0};
}

model::KvGeometry kv_geometry(const model::Config& config, uint32_t context, uint32_t chunk) {
  return {config, context, chunk, kKvTile};
}

uint64_t attention_partial_elements(const model::Config& config, const Plan& plan, uint32_t sm_count) {
  uint64_t most = 0;
  const model::Layer* previous = nullptr;
  for (const model::Layer& layer : config.layers) {
    const bool same = previous != nullptr && layer.sliding == previous->sliding && layer.H == previous->H &&
                      layer.Hkv == previous->Hkv && layer.hd == previous->hd;
    previous = &layer;
    if (same) continue;
    const AttentionShape shape = shape_of(config, layer);
    // Every number of rows: fewer rows get more splits, and their product goes up and down.
    for (uint32_t rows = 1; rows <= plan.outputs; ++rows) {
      const uint32_t splits = attention_decode_splits(shape, rows, plan.context, sm_count);
      most = std::max(most, attention_decode_scratch(shape, rows, splits));
    }
  }
  return most;
}

bool attention_by_warpgroups(const Plan& plan, const AttentionShape& shape) {
  const bool chooses_keys = plan.sparse && shape.window == 0;
  return plan.warpgroup_attention && !chooses_keys &&
         warpgroup_attention_supports(shape, plan.kv_format != quant::Format::kF16);
}

uint32_t attention_counters(const model::Config& config, const Plan& plan) {
  uint32_t heads = 0;
  for (const model::Layer& layer : config.layers) heads = std::max(heads, layer.Hkv);
  return heads * plan.outputs;
}

Plan make_plan(const model::Model& model, const GpuFacts& gpu, const PlanRequest& request) {
  check_gpu(gpu);
  check_kv_format(model.config(), request.kv_format);
  request.kernels.check_for("cuda");
  CARAT_CHECK(request.context > 0 && request.sequences > 0);
  const model::Config& config = model.config();
  Plan plan;
  plan.kv_format = request.kv_format;
  plan.sparse = choose_sparse_attention(config, gpu, request.kernels, request.context);
  plan.sequences = request.sequences;
  plan.outputs = std::max(request.outputs, decode_bucket(request.sequences));
  choose_skinny_rows(plan, config, request);
  plan.free_bytes = gpu.free_bytes;
  plan.reserve_bytes = std::max(kSmallestReserve, gpu.total_bytes / 100);
  const auto decode_wish = request.kernels.find("decode");
  const std::string obstacle = megakernel_obstacle(model, gpu, request);
  if (decode_wish == "token" && !obstacle.empty()) {
    fail(ErrorCode::kBadArgument, "--kernels decode=token is not possible: {}", obstacle);
  }
  plan.use_megakernel = obstacle.empty() && (!decode_wish || *decode_wish == "token");
  const size_t layout = place_layers(plan, model, gpu, request);
  check_fp8_fits(plan);
  // Layers on the CPU come first: a token is no single kernel then.
  if (plan.placement.first_layer > 0) plan.use_megakernel = false;
  Plan other = plan;
  plan.largest_context = largest_fitting(config, [&](uint32_t context) {
    lay_out(other, model, gpu, request, context);
    return other.fits;
  });
  other = plan;
  plan.largest_context_now = largest_fitting(config, [&](uint32_t context) {
    other.context = context;
    add_up(other, model, gpu);
    return other.fits;
  });
  if (plan.placement.resident_bf16 && !plan.placement.resident_fp8 && request.kernels.find("batch") != "mma") {
    plan.skinny_rows = std::min(plan.skinny_rows, kSkinnyBesideCopies);
  }
  plan.chunk_reason = explain_chunk(plan, request, layout);
  plan.table_reason = explain_table(plan, request);

  Decisions decisions(plan, gpu, request);
  decisions.decide_products();
  decisions.decide_search();
  decisions.decide_experts(config);
  decisions.decide_table();
  decisions.decide_decode(obstacle);
  decisions.decide_skinny();
  decisions.decide_heads(config);
  decisions.decide_layer_end(model);
  decisions.decide_overlap();
  decisions.decide_attention(config);
  decisions.decide_long_prompts();
  return plan;
}

}  // namespace carat::cuda
