#include "support/metadata_model.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "gguf/reader.h"
#include "model/writing/synth.h"
#include "support/files.h"
#include "support/gguf_sketch.h"

namespace carat::test {
namespace {

constexpr uint32_t kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7;  // GGUF's numbers of value types
constexpr uint64_t kAlignment = 32;

template <typename T>
Bytes encode_all(const std::vector<T>& values) {
  Bytes out;
  for (const T value : values) append(out, value);
  return out;
}

std::vector<Bytes> encode_keys(const model::Preset& preset) {
  std::vector<int32_t> feed_forward, heads_kv;
  std::vector<uint8_t> sliding;
  for (uint32_t layer = 0; layer < preset.L; ++layer) {
    feed_forward.push_back(static_cast<int32_t>(preset.feed_forward(layer)));
    heads_kv.push_back(static_cast<int32_t>(preset.heads_kv(layer)));
    sliding.push_back(preset.is_sliding(layer) ? 1 : 0);
  }
  std::vector<Bytes> keys = {
      encode_string_key("general.architecture", "gemma4"),
      encode_string_key("general.name", std::string("hollow ") + std::string(preset.name)),
      encode_array_key("gemma4.feed_forward_length", kI32, preset.L, encode_all(feed_forward)),
      encode_array_key("gemma4.attention.head_count_kv", kI32, preset.L, encode_all(heads_kv)),
      encode_array_key("gemma4.attention.sliding_window_pattern", kBool, preset.L, encode_all(sliding)),
      encode_key("gemma4.rope.freq_base", kF32, 1e6f),
      encode_key("gemma4.rope.freq_base_swa", kF32, 1e4f),
      encode_key("gemma4.attention.layer_norm_rms_epsilon", kF32, 1e-6f),
      encode_key("gemma4.final_logit_softcapping", kF32, 30.0f),
  };
  const auto add = [&keys](const std::string& name, uint32_t value) {
    keys.push_back(encode_key("gemma4." + name, kU32, value));
  };
  add("block_count", preset.L);
  add("context_length", preset.context);
  add("embedding_length", preset.d);
  add("embedding_length_per_layer_input", preset.P);
  add("attention.head_count", preset.H);
  add("attention.key_length", preset.hd_global);
  add("attention.value_length", preset.hd_global);
  add("attention.key_length_swa", preset.hd_sliding);
  add("attention.value_length_swa", preset.hd_sliding);
  add("attention.sliding_window", preset.W);
  add("attention.shared_kv_layers", preset.L - preset.n_kv);
  add("rope.dimension_count", preset.hd_global);
  add("rope.dimension_count_swa", preset.hd_sliding);
  if (preset.experts > 0) {
    add("expert_count", preset.experts);
    add("expert_used_count", preset.experts_used);
    add("expert_feed_forward_length", preset.F_expert);
  }
  return keys;
}

}  // namespace

void write_hollow_model(std::string_view preset, std::string_view recipe, const std::string& path) {
  const model::SynthModel synth = model::plan_synth({.preset = std::string(preset), .recipe = std::string(recipe)});
  GgufSketch sketch;
  sketch.keys = encode_keys(synth.preset);
  uint64_t end = 0, rope_at = 0, rope_values = 0;
  for (const model::SynthTensor& tensor : synth.tensors) {
    if (tensor.shape.name == "rope_freqs.weight") rope_at = end, rope_values = tensor.shape.elements();
    sketch.tensors.push_back({tensor.shape.name, tensor.shape.ne, static_cast<uint32_t>(tensor.format), end});
    end += (tensor.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  const Bytes header = sketch.encode();
  write_bytes(path, header);
  std::filesystem::resize_file(path, header.size() + end);
  // The one tensor that may not be zero.
  const std::vector<float> divisors(rope_values, 1.0f);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(header.size() + rope_at));
  file.write(reinterpret_cast<const char*>(divisors.data()), static_cast<std::streamsize>(divisors.size() * 4));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

std::shared_ptr<const model::Model> hollow_model(std::string_view preset, std::string_view recipe) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("hollow.gguf");
  write_hollow_model(preset, recipe, path);
  return model::Model::load(gguf::ModelFile::open(path));
}

}  // namespace carat::test
