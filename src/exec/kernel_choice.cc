#include "exec/kernel_choice.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>

#include "base/error.h"

namespace carat::exec {
namespace {

// The registry. To add an alternative: one line here, and the code of its executor that looks up the slot.
constexpr std::array kRegistry = {
    KernelOption{.executor = "reference",
                 .slot = "arithmetic",
                 .name = "double",
                 .needs = "",
                 .exactness = "values stored as fp32, sums in double: what everything else is compared with",
                 .summary = "one operation at a time, as the specification is written"},
    KernelOption{.executor = "cpu",
                 .slot = "dot",
                 .name = "portable",
                 .needs = "",
                 .exactness = "integer dots are exact; products and sums round separately",
                 .summary = "all loops without vector instructions of a particular machine"},
    KernelOption{.executor = "cpu",
                 .slot = "dot",
                 .name = "avx2",
                 .needs = "AVX2, FMA and F16C",
                 .exactness = "integer dots are exact; fp32 sums with fused multiply-adds",
                 .summary = "all loops in 256-bit vectors"},
    KernelOption{.executor = "cpu",
                 .slot = "dot",
                 .name = "avx512",
                 .needs = "AVX-512 F, BW, DQ, VL and VNNI",
                 .exactness = "integer dots are exact; fp32 sums with fused multiply-adds",
                 .summary = "all loops in 512-bit vectors, dots of four bytes in one instruction"},
    KernelOption{.executor = "cpu",
                 .slot = "activations",
                 .name = "int16",
                 .needs = "",
                 .exactness = "activations rounded to 15 bits, one fp32 scale for 32 values",
                 .summary = "products with quantised weights as exact as with fp32 activations"},
    KernelOption{.executor = "cpu",
                 .slot = "activations",
                 .name = "int8",
                 .needs = "",
                 .exactness = "activations rounded to 8 bits inside the layers, to 15 at the LM head",
                 .summary = "half the integer work: faster prompts, about as exact as other engines"},
    KernelOption{.executor = "cpu",
                 .slot = "decode",
                 .name = "direct",
                 .needs = "AVX2 or AVX-512",
                 .exactness = "none: the same bits as panel",
                 .summary = "one and two rows are multiplied while quantised weights are unpacked"},
    KernelOption{.executor = "cpu",
                 .slot = "decode",
                 .name = "panel",
                 .needs = "",
                 .exactness = "none: the same bits as direct",
                 .summary = "few rows like many: weights are unpacked into a panel first"},
    KernelOption{.executor = "cuda",
                 .slot = "gemm",
                 .name = "cublas",
                 .needs = "",
                 .exactness = "weights and activations rounded to bf16",
                 .summary = "products of prompts by the vendor's library"},
    KernelOption{.executor = "cuda",
                 .slot = "gemm",
                 .name = "mmq",
                 .needs = "quantised weights",
                 .exactness = "the file's weights exactly; activations as the slot activations has them",
                 .summary = "products of prompts by integer tensor-core kernels over the quantised weights"},
    KernelOption{
        .executor = "cuda",
        .slot = "gemm",
        .name = "fp8",
        .needs = "compute capability 9.0, cuBLAS 12.9; never chosen unless asked for",
        .exactness = "weights and activations of the layers' dense products rounded to e4m3 (3 bits of "
                     "mantissa), an fp32 scale for each row; the others as cublas",
        .summary = "products of prompts by the vendor's library in 8-bit floats: the fastest, and the coarsest"},
    KernelOption{.executor = "cuda",
                 .slot = "gemm.search",
                 .name = "on",
                 .needs = "copies of the weights; a folder to keep the results in",
                 .exactness = "none: the same products, summed in another order",
                 .summary = "the library's best algorithms for each shape are timed at load, once for a machine"},
    KernelOption{.executor = "cuda",
                 .slot = "gemm.search",
                 .name = "off",
                 .needs = "",
                 .exactness = "none",
                 .summary = "every product takes the first algorithm of the library's ranking"},
    KernelOption{.executor = "cuda",
                 .slot = "activations",
                 .name = "int16",
                 .needs = "gemm=mmq",
                 .exactness = "activations rounded to 15 bits, one fp32 scale for 32 values",
                 .summary = "two integer products for each: more exact than bf16"},
    KernelOption{.executor = "cuda",
                 .slot = "activations",
                 .name = "int8",
                 .needs = "gemm=mmq",
                 .exactness = "activations rounded to 8 bits, one fp32 scale for 32 values",
                 .summary = "one integer product for each: faster prompts, about as exact as other engines"},
    KernelOption{.executor = "cuda",
                 .slot = "gemm.weights",
                 .name = "resident",
                 .needs = "room for a bf16 copy of the weights",
                 .exactness = "weights rounded to bf16",
                 .summary = "prompt products read bf16 copies made at load"},
    KernelOption{.executor = "cuda",
                 .slot = "gemm.weights",
                 .name = "unpacked",
                 .needs = "",
                 .exactness = "weights rounded to bf16",
                 .summary = "each prompt product unpacks its weights into scratch memory first"},
    KernelOption{.executor = "cuda",
                 .slot = "gemm.weights",
                 .name = "dequantised",
                 .needs = "compute capability 9.0",
                 .exactness = "weights rounded to bf16",
                 .summary = "prompt products read the quantised weights and make bf16 of them in the registers"},
    KernelOption{.executor = "cuda",
                 .slot = "experts",
                 .name = "wgmma",
                 .needs = "compute capability 9.0",
                 .exactness = "weights rounded to bf16; gelu(gate) * up from fp32 sums",
                 .summary = "expert products of prompts by warpgroups over the weights as they are packed"},
    KernelOption{.executor = "cuda",
                 .slot = "experts",
                 .name = "mma",
                 .needs = "",
                 .exactness = "weights rounded to bf16; gate and up rounded before gelu",
                 .summary = "expert products of prompts by mma.sync over bf16 weights"},
    KernelOption{.executor = "cuda",
                 .slot = "ple.table",
                 .name = "device",
                 .needs = "room for the per-layer-embedding table",
                 .exactness = "none: the same rows",
                 .summary = "rows of the table are gathered from GPU memory"},
    KernelOption{
        .executor = "cuda",
        .slot = "ple.table",
        .name = "host",
        .needs = "",
        .exactness = "none: the same rows",
        .summary =
            "the table stays in page-locked host memory; the GPU gathers its rows over the bus and keeps recent ones"},
    KernelOption{
        .executor = "cuda",
        .slot = "decode",
        .name = "token",
        .needs = "compute capability 9.0; about 200 KB of shared memory in a block",
        .exactness = "activations rounded to 15 bits, one fp32 scale for 16 values; sums that blocks exchange to 16",
        .summary = "one kernel for a whole token of a single row; more rows as the slot batch has it, or by matvec"},
    KernelOption{.executor = "cuda",
                 .slot = "decode",
                 .name = "matvec",
                 .needs = "",
                 .exactness = "activations rounded to 15 bits, one fp32 scale for 16 values",
                 .summary = "up to eight rows by matrix-vector kernels on quantised weights"},
    KernelOption{.executor = "cuda",
                 .slot = "decode",
                 .name = "gemm",
                 .needs = "",
                 .exactness = "weights and activations rounded to bf16",
                 .summary = "every pass by matrix products"},
    KernelOption{.executor = "cuda",
                 .slot = "batch",
                 .name = "mma",
                 .needs = "a model without experts",
                 .exactness = "weights and activations rounded to fp16, a power of two as scale of a row",
                 .summary = "decode steps of several sequences on the tensor cores, over the quantised weights"},
    KernelOption{.executor = "cuda",
                 .slot = "batch",
                 .name = "gemm",
                 .needs = "",
                 .exactness = "weights and activations rounded to bf16",
                 .summary = "decode steps of more than eight rows by matrix products"},
    KernelOption{.executor = "cuda",
                 .slot = "batch.heads",
                 .name = "attention",
                 .needs = "an F16 cache; heads of 256 or 512, at most 16 of them for a key",
                 .exactness = "none: the same norms and rotations, summed in another order",
                 .summary = "in decode steps of several sequences attention norms and rotates its own heads"},
    KernelOption{.executor = "cuda",
                 .slot = "batch.heads",
                 .name = "separate",
                 .needs = "",
                 .exactness = "none",
                 .summary = "norms, rotations and cache writes of a step are a kernel of their own"},
    KernelOption{.executor = "cuda",
                 .slot = "batch.ple",
                 .name = "cluster",
                 .needs = "compute capability 9.0; quantised per-layer-embedding matrices of up to 256 x 2560",
                 .exactness = "weights and activations of these products rounded to fp16",
                 .summary = "in decode steps of several sequences a layer's end, from its feed-forward results to the "
                            "next layer's input, is one kernel"},
    KernelOption{.executor = "cuda",
                 .slot = "batch.ple",
                 .name = "products",
                 .needs = "",
                 .exactness = "that of the products",
                 .summary = "norms and products of per-layer embeddings are kernels of their own"},
    KernelOption{.executor = "cuda",
                 .slot = "launch",
                 .name = "graph",
                 .needs = "",
                 .exactness = "none",
                 .summary = "a decode step is one captured graph"},
    KernelOption{.executor = "cuda",
                 .slot = "launch",
                 .name = "single",
                 .needs = "",
                 .exactness = "none",
                 .summary = "every kernel of a decode step is launched on its own"},
    KernelOption{
        .executor = "cuda",
        .slot = "launch.prompt",
        .name = "graph",
        .needs = "",
        .exactness = "none",
        .summary = "a prompt's chunk of up to 512 rows is one captured graph, recorded when its bucket is met again"},
    KernelOption{.executor = "cuda",
                 .slot = "launch.prompt",
                 .name = "single",
                 .needs = "",
                 .exactness = "none",
                 .summary = "every kernel of a prompt's chunk is launched on its own"},
    KernelOption{.executor = "cuda",
                 .slot = "overlap",
                 .name = "on",
                 .needs = "compute capability 9.0",
                 .exactness = "none",
                 .summary = "a kernel reads its weights ahead while its predecessor finishes"},
    KernelOption{.executor = "cuda",
                 .slot = "overlap",
                 .name = "off",
                 .needs = "",
                 .exactness = "none",
                 .summary = "kernels start one after the other"},
    KernelOption{.executor = "cuda",
                 .slot = "attention",
                 .name = "warpgroups",
                 .needs = "compute capability 9.0; an F16 cache; heads of 256, or 512 in global layers",
                 .exactness = "scores and sums in fp32, probabilities rounded to fp16",
                 .summary = "prompt attention by warpgroup products and tensor copies; other heads as large"},
    KernelOption{.executor = "cuda",
                 .slot = "attention",
                 .name = "large",
                 .needs = "more than 99 KB of shared memory in a block",
                 .exactness = "scores and sums in fp32, probabilities rounded to fp16",
                 .summary = "prompt attention in the largest tiles the head size has"},
    KernelOption{.executor = "cuda",
                 .slot = "attention",
                 .name = "small",
                 .needs = "",
                 .exactness = "as large; keys are summed in another order",
                 .summary = "prompt attention in tiles that fit every card"},
    KernelOption{.executor = "cuda",
                 .slot = "attention.long",
                 .name = "dense",
                 .needs = "",
                 .exactness = "none: every visible key counts",
                 .summary = "long prompts like short ones"},
    KernelOption{.executor = "cuda",
                 .slot = "attention.long",
                 .name = "sparse",
                 .needs = "heads of more than 256 in global layers and their large tiles",
                 .exactness = "keys in blocks that an estimate thinks little of are left out",
                 .summary = "from position 16,384 on, prompts see about an eighth of the keys in global layers; beside "
                            "attention=warpgroups this pays for the longest prompts only"},
};

// "arithmetic=double, ..." for messages: all options, or those of one slot. Executors may share a slot and a name.
std::string known_options(std::string_view slot) {
  std::set<std::string> entries;
  for (const KernelOption& option : kRegistry) {
    if (slot.empty() || option.slot == slot) entries.insert(fmt::format("{}={}", option.slot, option.name));
  }
  return fmt::format("{}", fmt::join(entries, ", "));
}

}  // namespace

std::span<const KernelOption> kernel_registry() { return kRegistry; }

KernelChoices KernelChoices::parse(std::string_view text) {
  KernelChoices choices;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view entry = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos) {
      fail(ErrorCode::kBadArgument, "--kernels: \"{}\" is not of the form slot=name; known are {}", entry,
           known_options(""));
    }
    const std::string_view slot = entry.substr(0, equals);
    const std::string_view name = entry.substr(equals + 1);
    const auto in_slot = [&](const KernelOption& option) { return option.slot == slot; };
    const auto matches = [&](const KernelOption& option) { return option.slot == slot && option.name == name; };
    if (std::none_of(kRegistry.begin(), kRegistry.end(), in_slot)) {
      fail(ErrorCode::kBadArgument, "--kernels: there is no slot \"{}\"; known are {}", slot, known_options(""));
    }
    if (std::none_of(kRegistry.begin(), kRegistry.end(), matches)) {
      fail(ErrorCode::kBadArgument, "--kernels: \"{}\" has no \"{}\"; known are {}", slot, name, known_options(slot));
    }
    if (!choices.chosen_.emplace(slot, name).second) {
      fail(ErrorCode::kBadArgument, "--kernels: \"{}\" is given twice", slot);
    }
  }
  return choices;
}

std::optional<std::string_view> KernelChoices::find(std::string_view slot) const {
  const auto found = chosen_.find(slot);
  if (found == chosen_.end()) return std::nullopt;
  return found->second;
}

void KernelChoices::check_for(std::string_view executor) const {
  for (const auto& [slot, name] : chosen_) {
    const bool offered = std::any_of(kRegistry.begin(), kRegistry.end(), [&](const KernelOption& option) {
      return option.executor == executor && option.slot == slot && option.name == name;
    });
    if (!offered) fail(ErrorCode::kBadArgument, "--kernels: the {} executor has no {}={}", executor, slot, name);
  }
}

}  // namespace carat::exec
