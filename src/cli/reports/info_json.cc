#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "base/utf8.h"
#include "cli/reports/info_report.h"
#include "gguf/tensor_type.h"

namespace carat::cli {

namespace {

using Json = nlohmann::ordered_json;

Json element_json(const gguf::Array& array, uint64_t i) {
  switch (array.element) {
    case gguf::ValueType::kString:
      return utf8_sanitise(array.strings[i]);
    case gguf::ValueType::kF32:
    case gguf::ValueType::kF64:
      return array.number(i);
    case gguf::ValueType::kBool:
      return array.integer(i) != 0;
    default:
      return array.integer(i);
  }
}

// An array of up to this many elements is given in full, a longer one as its type, length and first elements.
constexpr uint64_t kFullArray = 128;
constexpr uint64_t kFirstElements = 8;

Json value_json(const gguf::Value& value) {
  if (const auto* array = std::get_if<gguf::Array>(&value.data)) {
    Json elements = Json::array();
    const uint64_t shown = array->count <= kFullArray ? array->count : kFirstElements;
    for (uint64_t i = 0; i < shown; ++i) elements.push_back(element_json(*array, i));
    if (shown == array->count) return elements;
    return {{"type", gguf::value_type_name(array->element)}, {"count", array->count}, {"first", std::move(elements)}};
  }
  if (const auto* text = std::get_if<std::string_view>(&value.data)) return utf8_sanitise(*text);
  if (const auto* number = std::get_if<double>(&value.data)) return *number;
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag;
  if (const auto* integer = std::get_if<int64_t>(&value.data)) return *integer;
  return std::get<uint64_t>(value.data);
}

Json count_json(const model::Count& count) { return {{"elements", count.elements}, {"bytes", count.bytes}}; }

Json census_json(const model::Census& census) {
  return {{"block_matrices", count_json(census.block_matrices)},
          {"active_matrices", count_json(census.active_matrices)},
          {"input_projections", count_json(census.input_projections)},
          {"vectors", count_json(census.vectors)},
          {"embedding", count_json(census.embedding)},
          {"head", count_json(census.head)},
          {"per_layer_table", count_json(census.per_layer_table)},
          {"unused_kv", count_json(census.unused_kv)},
          {"other", count_json(census.other)},
          {"total", count_json(census.total())},
          {"read_per_token", count_json(census.read_per_token())}};
}

Json model_json(const model::Config& config) {
  Json json = {{"kind", config.is_drafter() ? "drafter" : "text"},
               {"layers", config.L},
               {"hidden", config.d},
               {"vocabulary", config.V},
               {"window", config.W},
               {"context_length", config.context_length},
               {"per_layer_embedding", config.P},
               {"layers_with_own_kv", config.n_kv},
               {"experts", config.experts},
               {"experts_used", config.experts_used},
               {"expert_feed_forward", config.F_expert}};
  if (config.is_drafter()) json["target_hidden"] = config.d_target;
  return json;
}

// The shortest decimal number that is this float, so that 0.2 is not 0.20000000298.
double shortest(float value) { return std::stod(fmt::format("{}", value)); }

// What `run` and `chat` use where no flag says otherwise. `given` are the keys that the file has.
Json sampling_json(const model::RecommendedSampling& sampling) {
  const bool all = sampling.repeat_last_n == std::numeric_limits<uint32_t>::max();
  return {{"temperature", shortest(sampling.temperature)},
          {"top_k", sampling.top_k},
          {"top_p", shortest(sampling.top_p)},
          {"min_p", shortest(sampling.min_p)},
          {"repeat_penalty", shortest(sampling.repeat_penalty)},
          {"repeat_last_n", all ? int64_t{-1} : int64_t{sampling.repeat_last_n}},
          {"given", sampling.given},
          {"unsupported", sampling.unsupported}};
}

Json layers_json(const model::Config& config) {
  Json layers = Json::array();
  for (const model::Layer& layer : config.layers) {
    Json json = {{"layer", layer.index},     {"attention", layer.sliding ? "sliding" : "global"},
                 {"heads", layer.H},         {"kv_heads", layer.Hkv},
                 {"head_dim", layer.hd},     {"feed_forward", layer.F},
                 {"owns_kv", layer.owns_kv}, {"v_from_k", layer.v_from_k},
                 {"moe", layer.moe}};
    if (!config.is_drafter()) json["kv_source"] = layer.kv_source;
    layers.push_back(std::move(json));
  }
  return layers;
}

Json memory_json(const InfoReport& report) {
  Json memory = Json::array();
  for (const InfoReport::Memory& row : report.memory) {
    memory.push_back({{"context", row.context},
                      {"sliding_kv_bytes", row.sliding_bytes},
                      {"global_kv_bytes", row.global_bytes},
                      {"weight_bytes", row.weight_bytes},
                      {"total_bytes", row.total()}});
  }
  return memory;
}

}  // namespace

nlohmann::ordered_json info_json(const InfoReport& report, bool all_tensors) {
  const gguf::ModelFile& file = *report.file;
  Json json = {{"file", file.path()},
               {"bytes", file.file_bytes()},
               {"parts", file.parts()},
               {"version", file.first_header().version},
               {"alignment", file.first_header().alignment}};
  Json metadata = Json::object();
  for (const auto& [key, value] : file.metadata().entries()) metadata[utf8_sanitise(key)] = value_json(value);
  json["metadata"] = std::move(metadata);
  Json types = Json::object();
  for (const InfoReport::TypeUse& use : report.types) {
    types[std::string(use.type)] = {
        {"tensors", use.tensors}, {"elements", use.count.elements}, {"bytes", use.count.bytes}};
  }
  json["types"] = std::move(types);
  if (all_tensors) {
    Json tensors = Json::array();
    for (const gguf::TensorView& tensor : file.tensors()) {
      const auto& info = tensor.info;
      tensors.push_back({{"name", utf8_sanitise(info.name)},
                         {"type", gguf::find_tensor_type(info.type)->name},
                         {"shape", std::vector<uint64_t>(info.ne.begin(), info.ne.begin() + info.dimensions)},
                         {"bytes", info.bytes}});
    }
    json["tensors"] = std::move(tensors);
  }
  if (report.model != nullptr) {
    json["model"] = model_json(report.model->config());
    if (!report.model->config().is_drafter()) json["sampling"] = sampling_json(report.model->config().sampling);
    json["layers"] = layers_json(report.model->config());
    json["sizes"] = census_json(report.census);
    json["chunk"] = report.chunk;
    json["memory"] = memory_json(report);
  }
  return json;
}

}  // namespace carat::cli
