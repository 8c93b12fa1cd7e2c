#include "cli/reports/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/byte_size.h"
#include "exec/cuda/weights/packing.h"

namespace carat::cli {

namespace {

std::string row(std::string_view what, uint64_t bytes, std::string_view why) {
  return fmt::format("  {:<40} {:>10}  {}\n", what, byte_size(bytes), why);
}

std::string_view cache_type_text(quant::Format format) {
  return format == quant::Format::kQ8_0 ? "q8_0 (int8 and an fp16 scale for 32)" : "fp16";
}

// Formats whose bits no packing keeps: what they cost is said, not hidden in the sum.
std::string inflated_rows(const cuda::Plan& plan) {
  std::string text;
  for (const cuda::InflatedFormat& inflated : plan.weights.inflated) {
    const bool in_floats = cuda::is_float_packing(cuda::packing_of(inflated.format));
    text += row(fmt::format("  of all weights, those in {}", quant::info(inflated.format).name), inflated.packed_bytes,
                fmt::format("as {}, for {} has no packing of its own: {} in the file",
                            in_floats ? "16-bit floats" : "8-bit integers", quant::info(inflated.format).name,
                            byte_size(inflated.file_bytes)));
  }
  return text;
}

std::string memory_section(const cuda::Plan& plan) {
  std::string text = fmt::format("GPU memory for a context of {}, {} sequence{}, passes of up to {} tokens\n",
                                 grouped(plan.context), plan.sequences, plan.sequences == 1 ? "" : "s", plan.chunk);
  text += row("weights", plan.weights.packed, "packed: the file's bits in the order the kernels read them");
  text += inflated_rows(plan);
  text += row("norms and scales", plan.weights.vectors, "fp32");
  if (plan.placement.resident_fp8) {
    text += row("e4m3 copies of the weights", plan.weights.fp8_copies(plan.placement),
                "with a scale for each row, for the layers' products of prompts");
  }
  if (plan.placement.resident_bf16)
    text += row("bf16 copies of the weights", plan.weights.bf16_copies(plan.placement), "for prompts");
  if (plan.weights.ple_table > 0) {
    text += row("per-layer-embedding table", plan.placement.ple_on_device ? plan.weights.ple_table : 0,
                plan.placement.ple_on_device
                    ? plan.table_reason
                    : fmt::format("its {} are {}", byte_size(plan.weights.ple_table), plan.table_reason));
  }
  for (const cuda::KvGroupPlan& group : plan.kv) {
    text += row(fmt::format("keys and values of {} {} layer{}", group.layers, group.sliding ? "sliding" : "global",
                            group.layers == 1 ? "" : "s"),
                group.bytes,
                fmt::format("{}, {} positions x {} heads x {}, {} + 1 sequences", cache_type_text(plan.kv_format),
                            group.cells, group.Hkv, group.hd, plan.sequences));
  }
  text += row("scratch", plan.scratch_bytes,
              plan.unpack_bytes > 0
                  ? fmt::format("{} of it for the unpacked weights of one product", byte_size(plan.unpack_bytes))
                  : "activations of one pass");
  text += row("workspace", plan.workspace_bytes, "for cuBLASLt");
  text += row("reserve", plan.reserve_bytes, "left to the driver and other programs");
  const uint64_t difference = plan.fits ? plan.free_bytes - plan.total_bytes : plan.total_bytes - plan.free_bytes;
  text += row("total", plan.total_bytes,
              plan.fits ? fmt::format("fits the {} that are free, with {} to spare", byte_size(plan.free_bytes),
                                      byte_size(difference))
                        : fmt::format("DOES NOT FIT the {} that are free: {} too much", byte_size(plan.free_bytes),
                                      byte_size(difference)));
  return text;
}

std::string split_section(const PlanReport& report) {
  const uint32_t on_cpu = report.layers_on_cpu();
  const cuda::SplitPlan& split = report.plan.split;
  if (on_cpu == 0) return fmt::format("All {} layers on the GPU: {}\n", report.layers, split.reason);
  return fmt::format(
      "{} of {} layers on the GPU, layers 0 to {} on the CPU: {}\n  {}\n  host memory: {} of the file and {} of keys "
      "and "
      "values\n",
      report.layers - on_cpu, report.layers, on_cpu - 1, split.reason,
      cuda::cost_text(split, report.host_bytes_per_second, report.host_measured ? "the measured" : "an assumed"),
      byte_size(split.weight_bytes), byte_size(split.kv_bytes));
}

std::string context_section(const PlanReport& report) {
  const cuda::Plan& plan = report.plan;
  std::string largest;
  if (plan.largest_context == 0) {
    largest = "none: the weights alone are too large";
  } else if (plan.largest_context + 64 > report.context_length) {
    largest = fmt::format("{}, all the model was trained for", grouped(plan.largest_context));
  } else {
    largest = fmt::format("{} of the {} the model was trained for", grouped(plan.largest_context),
                          grouped(report.context_length));
  }
  std::string text = fmt::format("Largest context that fits: {}\n", largest);
  if (plan.largest_context_now > 0 && plan.largest_context_now < plan.largest_context) {
    text += fmt::format(
        "  beyond {} something above is given up for it: larger passes, the bf16 copies, the table's place\n",
        grouped(plan.largest_context_now));
  }
  return text;
}

}  // namespace

std::string capability_text(uint32_t capability) { return fmt::format("{}.{}", capability / 10, capability % 10); }

std::string decisions_text(const cuda::Plan& plan) {
  size_t width = 0;
  for (const cuda::KernelDecision& made : plan.kernels)
    width = std::max(width, made.slot.size() + made.name.size() + 1);
  std::string text;
  for (const cuda::KernelDecision& made : plan.kernels) {
    text += fmt::format("  {:<{}}  {}\n", fmt::format("{}={}", made.slot, made.name), width, made.reason);
  }
  return text;
}

std::string plan_text(const PlanReport& report) {
  const cuda::GpuFacts& gpu = report.gpu;
  std::string text =
      fmt::format("{}\n  on {}{}: compute capability {}, {} SMs, {} of {} free\n\n", report.model, gpu.name,
                  report.described ? " (as described, not of this machine)" : "", capability_text(gpu.capability),
                  gpu.sm_count, byte_size(gpu.free_bytes), byte_size(gpu.total_bytes));
  text += memory_section(report.plan);
  text += "\n" + split_section(report) + context_section(report);
  text += fmt::format("Passes of up to {} tokens: {}\n", report.plan.chunk, report.plan.chunk_reason);
  text += "\nKernels (--kernels SLOT=NAME picks others)\n" + decisions_text(report.plan);
  return text;
}

nlohmann::ordered_json plan_json(const PlanReport& report) {
  const cuda::Plan& plan = report.plan;
  using nlohmann::ordered_json;
  ordered_json groups = ordered_json::array();
  for (const cuda::KvGroupPlan& group : plan.kv) {
    groups.push_back({{"kind", group.sliding ? "sliding" : "global"},
                      {"layers", group.layers},
                      {"kv_heads", group.Hkv},
                      {"head_dim", group.hd},
                      {"positions", group.cells},
                      {"bytes", group.bytes}});
  }
  ordered_json inflated = ordered_json::array();
  for (const cuda::InflatedFormat& format : plan.weights.inflated) {
    inflated.push_back({{"format", quant::info(format.format).name},
                        {"file_bytes", format.file_bytes},
                        {"packed_bytes", format.packed_bytes}});
  }
  ordered_json kernels = ordered_json::array();
  for (const cuda::KernelDecision& made : plan.kernels) {
    kernels.push_back({{"slot", made.slot}, {"name", made.name}, {"reason", made.reason}});
  }
  return {
      {"model", report.model},
      {"gpu",
       {{"name", report.gpu.name},
        {"described", report.described},
        {"capability", capability_text(report.gpu.capability)},
        {"sms", report.gpu.sm_count},
        {"shared_memory_bytes", report.gpu.shared_memory},
        {"total_bytes", report.gpu.total_bytes},
        {"free_bytes", report.gpu.free_bytes}}},
      {"context", plan.context},
      {"sequences", plan.sequences},
      {"chunk", plan.chunk},
      {"chunk_reason", plan.chunk_reason},
      {"fits", plan.fits},
      {"largest_context", plan.largest_context},
      {"largest_context_unchanged", plan.largest_context_now},
      {"bytes",
       {{"weights", plan.weights.packed},
        {"vectors", plan.weights.vectors},
        {"bf16_copies", plan.weights.bf16_copies(plan.placement)},
        {"e4m3_copies", plan.weights.fp8_copies(plan.placement)},
        {"per_layer_table", plan.placement.ple_on_device ? plan.weights.ple_table : 0},
        {"kv", plan.kv_bytes},
        {"scratch", plan.scratch_bytes},
        {"workspace", plan.workspace_bytes},
        {"reserve", plan.reserve_bytes},
        {"total", plan.total_bytes}}},
      {"host_bytes",
       {{"per_layer_table", plan.placement.ple_on_device ? 0 : plan.weights.ple_table},
        {"layer_weights", plan.split.weight_bytes},
        {"layer_kv", plan.split.kv_bytes}}},
      {"layers", report.layers},
      {"layers_on_cpu", report.layers_on_cpu()},
      {"layers_reason", plan.split.reason},
      {"cpu_seconds_per_token", static_cast<double>(plan.split.bytes_per_token) / report.host_bytes_per_second},
      {"kv_type", quant::info(plan.kv_format).name},
      {"kv_groups", groups},
      {"inflated", inflated},
      {"kernels", kernels},
  };
}

}  // namespace carat::cli
