#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "base/byte_size.h"
#include "base/utf8.h"
#include "cli/reports/info_report.h"
#include "gguf/printable.h"
#include "gguf/tensor_type.h"

namespace carat::cli {

namespace {

std::string describe_number(const gguf::Array& array, uint64_t i) {
  switch (array.element) {
    case gguf::ValueType::kF32:
    case gguf::ValueType::kF64:
      return fmt::format("{:g}", array.number(i));
    case gguf::ValueType::kBool:
      return array.integer(i) != 0 ? "true" : "false";
    default:
      return std::to_string(array.integer(i));
  }
}

std::string describe_array(const gguf::Array& array) {
  constexpr uint64_t kShown = 8;
  std::string text = fmt::format("{} {}: ", grouped(array.count), gguf::value_type_name(array.element));
  for (uint64_t i = 0; i < std::min(array.count, kShown); ++i) {
    if (i > 0) text += ", ";
    text += array.element == gguf::ValueType::kString ? gguf::printable(array.strings[i]) : describe_number(array, i);
  }
  if (array.count > kShown) text += ", ...";
  return text;
}

std::string shape_text(const gguf::TensorInfo& info) {
  return fmt::format("[{}]", fmt::join(info.ne.begin(), info.ne.begin() + info.dimensions, ", "));
}

// What layers have in common; runs of layers with the same line are shown as one.
std::string layer_line(const model::Config& config, const model::Layer& layer) {
  std::string cache = "its own";
  if (config.is_drafter()) {
    cache = "the target's";
  } else if (!layer.owns_kv) {
    cache = fmt::format("of layer {}", layer.kv_source);
  } else if (layer.v_from_k) {
    cache = "its own, V from K";
  }
  std::string feed_forward = std::to_string(layer.F);
  if (layer.moe) feed_forward += fmt::format(" + {} of {} x {}", config.experts_used, config.experts, config.F_expert);
  return fmt::format("{:<15} {:>5} {:>8} {:>8}  {:<24} {}",
                     layer.sliding ? fmt::format("sliding {}", config.W) : "global", layer.H, layer.Hkv, layer.hd,
                     feed_forward, cache);
}

std::string layers_section(const model::Config& config) {
  std::string text = fmt::format("Layers\n  {:<8} {:<15} {:>5} {:>8} {:>8}  {:<24} {}\n", "", "attention", "heads",
                                 "kv heads", "head dim", "feed-forward", "keys and values");
  for (size_t first = 0; first < config.layers.size();) {
    const std::string line = layer_line(config, config.layers[first]);
    size_t end = first + 1;
    while (end < config.layers.size() && layer_line(config, config.layers[end]) == line) ++end;
    const std::string range = end - first == 1 ? std::to_string(first) : fmt::format("{}-{}", first, end - 1);
    text += fmt::format("  {:<8} {}\n", range, line);
    first = end;
  }
  return text;
}

// What `run` and `chat` use where no flag says otherwise; neutral steps are left out.
std::string sampling_line(const model::RecommendedSampling& sampling) {
  std::string text = fmt::format("  sampling: temperature {}, top-k {}, top-p {}", sampling.temperature, sampling.top_k,
                                 sampling.top_p);
  if (sampling.min_p > 0.0f) text += fmt::format(", min-p {}", sampling.min_p);
  if (sampling.repeat_penalty != 1.0f) {
    const bool all = sampling.repeat_last_n == std::numeric_limits<uint32_t>::max();
    text += fmt::format(", repeat penalty {} over {} tokens", sampling.repeat_penalty,
                        all ? "all" : fmt::format("the last {}", sampling.repeat_last_n));
  }
  text += sampling.given.empty() ? " (Gemma 4's; the file recommends nothing)\n" : " (as the file recommends)\n";
  if (!sampling.unsupported.empty()) {
    text += fmt::format("  not supported: {}\n", fmt::join(sampling.unsupported, ", "));
  }
  return text;
}

std::string model_section(const model::Model& model) {
  const model::Config& config = model.config();
  std::string text =
      fmt::format("Model\n  {}: {} layers, hidden {}, vocabulary {}, window {}, trained for {} positions\n",
                  config.is_drafter() ? "drafter" : "text model", config.L, config.d, grouped(config.V), config.W,
                  grouped(config.context_length));
  if (config.P > 0) text += fmt::format("  per-layer embeddings of {}\n", config.P);
  if (config.is_drafter()) {
    return text + fmt::format("  drafts for a model with hidden {}\n", config.d_target);
  }
  text += sampling_line(config.sampling);
  if (config.n_kv < config.L) {
    text += fmt::format("  layers {} to {} keep no keys and values: a prompt token that needs no logits skips them\n",
                        config.n_kv, config.L - 1);
  }
  return text;
}

std::string sizes_section(const model::Census& census) {
  std::string text = "Sizes\n";
  const auto add = [&](std::string_view name, const model::Count& count) {
    if (count.elements > 0) {
      text += fmt::format("  {:<42} {:>15} {:>10}\n", name, grouped(count.elements), byte_size(count.bytes));
    }
  };
  add("matrices of the layers", census.block_matrices);
  if (census.active_matrices.elements != census.block_matrices.elements) {
    add("  of these one token passes through", census.active_matrices);
  }
  add("projections of the input", census.input_projections);
  add("norms and scales", census.vectors);
  add("token embedding", census.embedding);
  add("output head", census.head);
  add("per-layer embedding table", census.per_layer_table);
  add("unused keys and values of sharing layers", census.unused_kv);
  add("other tensors", census.other);
  add("all", census.total());
  add("read for each generated token, batch 1", census.read_per_token());
  return text;
}

std::string memory_section(const InfoReport& report) {
  if (report.memory.empty()) return {};
  std::string text = fmt::format(
      "Memory for one sequence (keys and values in F16, passes of up to {} rows), without working space\n"
      "  {:>9} {:>12} {:>12} {:>12} {:>12}\n",
      report.chunk, "context", "sliding kv", "global kv", "weights", "together");
  for (const InfoReport::Memory& row : report.memory) {
    text += fmt::format("  {:>9} {:>12} {:>12} {:>12} {:>12}\n", row.context, byte_size(row.sliding_bytes),
                        byte_size(row.global_bytes), byte_size(row.weight_bytes), byte_size(row.total()));
  }
  return text;
}

std::string tensors_section(const InfoReport& report, bool all) {
  std::string text = fmt::format("Tensors\n  {:<8} {:>7} {:>15} {:>10}\n", "type", "tensors", "elements", "bytes");
  for (const InfoReport::TypeUse& use : report.types) {
    text += fmt::format("  {:<8} {:>7} {:>15} {:>10}\n", use.type, use.tensors, grouped(use.count.elements),
                        byte_size(use.count.bytes));
  }
  if (!all) return text;
  for (const gguf::TensorView& tensor : report.file->tensors()) {
    text += fmt::format("  {:<40} {:<8} {:<24} {:>10}\n", utf8_sanitise(tensor.info.name),
                        gguf::find_tensor_type(tensor.info.type)->name, shape_text(tensor.info),
                        byte_size(tensor.info.bytes));
  }
  return text;
}

}  // namespace

std::string describe_value(const gguf::Value& value) {
  using gguf::ValueType;
  switch (value.type) {
    case ValueType::kString:
      return gguf::printable(std::get<std::string_view>(value.data));
    case ValueType::kArray:
      return describe_array(std::get<gguf::Array>(value.data));
    case ValueType::kBool:
      return std::get<bool>(value.data) ? "true" : "false";
    case ValueType::kF32:
    case ValueType::kF64:
      return fmt::format("{:g}", std::get<double>(value.data));
    case ValueType::kI8:
    case ValueType::kI16:
    case ValueType::kI32:
    case ValueType::kI64:
      return std::to_string(std::get<int64_t>(value.data));
    default:
      return std::to_string(std::get<uint64_t>(value.data));
  }
}

std::string info_text(const InfoReport& report, bool all_tensors) {
  const gguf::ModelFile& file = *report.file;
  std::string text =
      fmt::format("{}\n  {}{}, GGUF version {}, {} keys, {} tensors\n\nMetadata\n", file.path(),
                  byte_size(file.file_bytes()), file.parts() > 1 ? fmt::format(" in {} files", file.parts()) : "",
                  file.first_header().version, file.metadata().entries().size(), file.tensors().size());
  size_t width = 0;
  for (const auto& entry : file.metadata().entries()) width = std::max(width, std::min<size_t>(entry.key.size(), 48));
  for (const auto& [key, value] : file.metadata().entries()) {
    text += fmt::format("  {:<{}} {}\n", utf8_sanitise(key), width, describe_value(value));
  }
  text += "\n" + tensors_section(report, all_tensors);
  if (report.model != nullptr) {
    text += "\n" + model_section(*report.model);
    text += "\n" + layers_section(report.model->config());
    text += "\n" + sizes_section(report.census);
    if (!report.memory.empty()) text += "\n" + memory_section(report);
  }
  return text;
}

}  // namespace carat::cli
