#include "model/writing/synth.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "gguf/writer.h"
#include "model/writing/random_blocks.h"
#include "model/writing/synth_vocabulary.h"

namespace carat::model {

namespace {

constexpr std::string_view kRopeTable = "rope_freqs.weight";

// Lists tensors with the statistics their values are drawn from. Random weights must keep activations near 1 through
// any number of layers and give logits worth comparing: neither flat nor all mass on one token.
class TensorList {
 public:
  explicit TensorList(const Preset& preset) : preset_(preset) {}

  std::vector<SynthTensor> take() && { return std::move(tensors_); }

  void add_global() {
    const auto [d, L, P, V] = std::tuple{preset_.d, preset_.L, preset_.P, preset_.V};
    matrix("token_embd.weight", {d, V});
    // Logits of deviation 3: the best of 262,144 tokens then has a probability of some percent. Both signs, because the
    // head is tied to the embedding: with one sign every token would predict itself.
    tensors_.push_back({.shape = {"output_norm.weight", {d}}, .mean = 0.0f, .deviation = 3.0f});
    vector(std::string(kRopeTable), preset_.hd_global / 2, 1.0f);
    if (P > 0) {
      // The table's values are multiplied by sqrt(P), not summed over, to reach a deviation of 1.
      matrix("per_layer_token_embd.weight", {uint64_t{P} * L, V}, 1.0f / std::sqrt(static_cast<float>(P)));
      matrix("per_layer_model_proj.weight", {d, uint64_t{P} * L});
      vector("per_layer_proj_norm.weight", P, 1.0f);
    }
  }

  void add_layer(uint32_t layer) {
    block_ = fmt::format("blk.{}.", layer);
    add_attention(layer);
    add_feed_forward(layer);
    if (preset_.experts > 0) add_experts();
    if (preset_.P > 0) {
      matrix(block_ + "inp_gate.weight", {preset_.d, preset_.P});
      matrix(block_ + "proj.weight", {preset_.P, preset_.d});
      vector(block_ + "post_norm.weight", preset_.d, branch_gain());
    }
    // Over all layers the token's own embedding shrinks to 1 / e of itself.
    vector(block_ + "layer_output_scale.weight", 1, std::exp(-1.0f / static_cast<float>(preset_.L)), 0.03f);
  }

 private:
  // What a layer's branches add to the stream. All layers together then add about as much as they found, and a small
  // error in one is not blown up by those that follow, as it is in a trained model neither.
  float branch_gain() const { return 1.0f / std::sqrt(static_cast<float>(preset_.L)); }

  void add_attention(uint32_t layer) {
    const uint64_t hd = preset_.head_dim(layer), d = preset_.d;
    const uint64_t queries = preset_.H * hd, keys = preset_.heads_kv(layer) * hd;
    // Queries and keys are normalised to length sqrt(hd) before these, and scores are not scaled: this gives scores a
    // deviation of 2.
    const float unit = std::sqrt(2.0f) / std::sqrt(std::sqrt(static_cast<float>(hd)));
    vector(block_ + "attn_norm.weight", d, 1.0f);
    matrix(block_ + "attn_q.weight", {d, queries});
    vector(block_ + "attn_q_norm.weight", hd, unit);
    if (preset_.has_kv_tensors(layer)) {
      matrix(block_ + "attn_k.weight", {d, keys});
      vector(block_ + "attn_k_norm.weight", hd, unit);
      if (preset_.is_sliding(layer) || !preset_.v_from_k) matrix(block_ + "attn_v.weight", {d, keys});
    }
    matrix(block_ + "attn_output.weight", {queries, d});
    vector(block_ + "post_attention_norm.weight", d, branch_gain());
  }

  void add_feed_forward(uint32_t layer) {
    const uint64_t d = preset_.d, F = preset_.feed_forward(layer);
    vector(block_ + "ffn_norm.weight", d, 1.0f);
    matrix(block_ + "ffn_gate.weight", {d, F});
    matrix(block_ + "ffn_up.weight", {d, F});
    matrix(block_ + "ffn_down.weight", {F, d});
    vector(block_ + "post_ffw_norm.weight", d, branch_gain());
  }

  void add_experts() {
    const uint64_t d = preset_.d, F = preset_.F_expert, experts = preset_.experts;
    // The router's input has length 1, so this is the deviation of its logits.
    matrix(block_ + "ffn_gate_inp.weight", {d, experts}, 2.0f);
    vector(block_ + "ffn_gate_inp.scale", d, 1.0f);
    vector(block_ + "pre_ffw_norm_2.weight", d, 1.0f);
    vector(block_ + "post_ffw_norm_1.weight", d, 1.0f);
    vector(block_ + "post_ffw_norm_2.weight", d, 1.0f);
    matrix(block_ + "ffn_gate_up_exps.weight", {d, 2 * F, experts});
    matrix(block_ + "ffn_down_exps.weight", {F, d, experts});
    vector(block_ + "ffn_down_exps.scale", experts, 1.0f);
  }

  // A deviation of 0 stands for 1 / sqrt(inputs), which keeps the size of what passes through.
  void matrix(std::string name, std::vector<uint64_t> ne, float deviation = 0.0f) {
    if (deviation == 0.0f) deviation = 1.0f / std::sqrt(static_cast<float>(ne[0]));
    tensors_.push_back({.shape = {std::move(name), std::move(ne)}, .deviation = deviation});
  }

  void vector(std::string name, uint64_t size, float mean, float relative_deviation = 0.1f) {
    tensors_.push_back({.shape = {std::move(name), {size}}, .mean = mean, .deviation = mean * relative_deviation});
  }

  const Preset& preset_;
  std::string block_;
  std::vector<SynthTensor> tensors_;
};

void add_architecture(gguf::Writer& writer, const Preset& preset) {
  const auto key = [](std::string_view name) { return fmt::format("gemma4.{}", name); };
  std::vector<int32_t> feed_forward, heads_kv;
  std::vector<bool> sliding;
  for (uint32_t layer = 0; layer < preset.L; ++layer) {
    feed_forward.push_back(static_cast<int32_t>(preset.feed_forward(layer)));
    heads_kv.push_back(static_cast<int32_t>(preset.heads_kv(layer)));
    sliding.push_back(preset.is_sliding(layer));
  }
  writer.add_u32(key("block_count"), preset.L);
  writer.add_u32(key("context_length"), preset.context);
  writer.add_u32(key("embedding_length"), preset.d);
  // Real files write one number where all layers agree and an array where they differ.
  if (preset.F == preset.F_shared) {
    writer.add_u32(key("feed_forward_length"), preset.F);
  } else {
    writer.add_i32s(key("feed_forward_length"), feed_forward);
  }
  writer.add_u32(key("attention.head_count"), preset.H);
  if (preset.Hkv_sliding == preset.Hkv_global) {
    writer.add_u32(key("attention.head_count_kv"), preset.Hkv_global);
  } else {
    writer.add_i32s(key("attention.head_count_kv"), heads_kv);
  }
  writer.add_f32(key("rope.freq_base"), 1e6f);
  writer.add_f32(key("rope.freq_base_swa"), 1e4f);
  writer.add_f32(key("attention.layer_norm_rms_epsilon"), 1e-6f);
  writer.add_u32(key("attention.key_length"), preset.hd_global);
  writer.add_u32(key("attention.value_length"), preset.hd_global);
  writer.add_u32(key("attention.key_length_swa"), preset.hd_sliding);
  writer.add_u32(key("attention.value_length_swa"), preset.hd_sliding);
  writer.add_f32(key("final_logit_softcapping"), 30.0f);
  writer.add_u32(key("attention.sliding_window"), preset.W);
  writer.add_u32(key("attention.shared_kv_layers"), preset.L - preset.n_kv);
  writer.add_u32(key("embedding_length_per_layer_input"), preset.P);
  writer.add_bools(key("attention.sliding_window_pattern"), sliding);
  writer.add_u32(key("rope.dimension_count"), preset.hd_global);
  writer.add_u32(key("rope.dimension_count_swa"), preset.hd_sliding);
  if (preset.experts > 0) {
    writer.add_u32(key("expert_count"), preset.experts);
    writer.add_u32(key("expert_used_count"), preset.experts_used);
    writer.add_u32(key("expert_feed_forward_length"), preset.F_expert);
  }
}

void add_tokenizer(gguf::Writer& writer, const Preset& preset) {
  const SynthVocabulary vocabulary = make_vocabulary(preset.V);
  writer.add_string("tokenizer.ggml.model", "gemma4");
  writer.add_strings("tokenizer.ggml.tokens", vocabulary.tokens);
  writer.add_f32s("tokenizer.ggml.scores", std::vector<float>(preset.V, -1000.0f));
  writer.add_i32s("tokenizer.ggml.token_type", vocabulary.types);
  writer.add_strings("tokenizer.ggml.merges", vocabulary.merges);
  writer.add_u32("tokenizer.ggml.bos_token_id", 2);
  writer.add_u32("tokenizer.ggml.eos_token_id", 1);
  writer.add_u32("tokenizer.ggml.unknown_token_id", 3);
  writer.add_u32("tokenizer.ggml.padding_token_id", 0);
  writer.add_u32("tokenizer.ggml.mask_token_id", 4);
  writer.add_bool("tokenizer.ggml.add_bos_token", true);
  writer.add_bool("tokenizer.ggml.add_space_prefix", false);
  if (preset.suppresses_media_ends) writer.add_i32s("tokenizer.ggml.suppress_tokens", vocabulary.media_ends);
}

void add_metadata(gguf::Writer& writer, const SynthModel& model) {
  writer.add_string("general.architecture", "gemma4");
  writer.add_string("general.type", "model");
  writer.add_string("general.name", fmt::format("Gemma 4 {} with random weights", model.preset.name));
  writer.add_string("general.size_label", fmt::format("{:.1f}B", static_cast<double>(model.parameters()) * 1e-9));
  writer.add_i32("general.sampling.top_k", 64);
  writer.add_f32("general.sampling.top_p", 0.95f);
  writer.add_f32("general.sampling.temp", 1.0f);
  add_architecture(writer, model.preset);
  add_tokenizer(writer, model.preset);
  writer.add_u32("general.quantization_version", 2);
  writer.add_u32("general.file_type", model.recipe.file_type());
}

// The first quarter of the pairs rotates, the rest stand still (docs/gemma4.md 3.4).
std::vector<float> rope_table(uint64_t size) {
  std::vector<float> divisors(size, 1e30f);
  std::fill_n(divisors.begin(), size / 4, 1.0f);
  return divisors;
}

// A run of blocks of one tensor: what a worker makes and writes at a time.
struct Piece {
  size_t tensor;
  uint64_t first, count;
};

std::vector<Piece> cut_into_pieces(const std::vector<SynthTensor>& tensors) {
  constexpr uint64_t kPieceBytes = uint64_t{1} << 20;  // stays in a core's second-level cache until it is written
  std::vector<Piece> pieces;
  for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    const quant::FormatInfo& format = quant::info(tensors[tensor].format);
    const uint64_t blocks = tensors[tensor].shape.elements() / format.block;
    const uint64_t step = kPieceBytes / format.bytes;
    for (uint64_t first = 0; first < blocks; first += step) {
      pieces.push_back({tensor, first, std::min(step, blocks - first)});
    }
  }
  return pieces;
}

}  // namespace

uint64_t SynthTensor::bytes() const { return quant::info(format).row_bytes(shape.elements()); }

uint64_t SynthModel::parameters() const {
  uint64_t sum = 0;
  for (const SynthTensor& tensor : tensors) sum += tensor.shape.elements();
  return sum;
}

uint64_t SynthModel::tensor_bytes() const {
  uint64_t sum = 0;
  for (const SynthTensor& tensor : tensors) sum += tensor.bytes();
  return sum;
}

SynthModel plan_synth(const SynthOptions& options) {
  SynthModel model{.preset = find_preset(options.preset),
                   .recipe = Recipe::parse(options.recipe),
                   .seed = options.seed,
                   .hollow = options.hollow,
                   .tensors = {}};
  if (options.layers != 0) model.preset.shorten(options.layers);
  if (options.vocabulary != 0) {
    if (options.vocabulary < kMinVocabulary || options.vocabulary > kMaxVocabulary) {
      fail(ErrorCode::kBadArgument, "a vocabulary of {} tokens was asked for; {} to {} are possible",
           options.vocabulary, kMinVocabulary, kMaxVocabulary);
    }
    model.preset.V = options.vocabulary;
  }
  if (options.context != 0) model.preset.context = options.context;

  TensorList list(model.preset);
  list.add_global();
  for (uint32_t layer = 0; layer < model.preset.L; ++layer) list.add_layer(layer);
  model.tensors = std::move(list).take();

  std::vector<TensorShape> shapes;
  for (const SynthTensor& tensor : model.tensors) shapes.push_back(tensor.shape);
  const std::vector<quant::Format> formats = model.recipe.formats(shapes);
  for (size_t i = 0; i < formats.size(); ++i) model.tensors[i].format = formats[i];
  return model;
}

void write_synth(const SynthModel& model, const std::string& path, ThreadPool& pool, const WriteControl& control) {
  gguf::Writer writer(path);
  add_metadata(writer, model);
  std::vector<RandomBlocks> sources;
  sources.reserve(model.tensors.size());
  for (const SynthTensor& tensor : model.tensors) {
    writer.declare_tensor(tensor.shape.name, static_cast<uint32_t>(tensor.format), tensor.shape.ne);
    sources.emplace_back(tensor.format, tensor.mean, tensor.deviation, random_key(model.seed, tensor.shape.name));
  }
  writer.begin_data();

  std::vector<Piece> pieces = cut_into_pieces(model.tensors);
  if (model.hollow) {
    const auto is_hollow = [&](size_t tensor) { return quant::info(model.tensors[tensor].format).block > 1; };
    std::erase_if(pieces, [&](const Piece& piece) { return is_hollow(piece.tensor); });
    for (size_t tensor = 0; tensor < model.tensors.size(); ++tensor) {
      if (is_hollow(tensor)) writer.leave_zeros(tensor);
    }
  }
  std::vector<std::vector<std::byte>> buffers(pool.size());
  std::atomic<uint64_t> written{0};
  pool.parallel_for(pieces.size(), 1, [&](size_t begin, size_t end, unsigned worker) {
    for (size_t n = begin; n < end; ++n) {
      control.check();
      const Piece& piece = pieces[n];
      const SynthTensor& tensor = model.tensors[piece.tensor];
      const uint64_t block_bytes = quant::info(tensor.format).bytes;
      std::vector<std::byte>& buffer = buffers[worker];
      buffer.resize(piece.count * block_bytes);
      if (tensor.shape.name == kRopeTable) {
        const std::vector<float> table = rope_table(piece.count);
        std::memcpy(buffer.data(), table.data(), buffer.size());
      } else {
        sources[piece.tensor].fill(piece.first, piece.count, buffer.data());
      }
      writer.write_at(piece.tensor, piece.first * block_bytes, buffer);
      const uint64_t total = written.fetch_add(buffer.size(), std::memory_order_relaxed) + buffer.size();
      if (control.progress && worker == 0) control.progress(total);
    }
  });
  writer.finish();
  if (control.progress) control.progress(written.load());
}

}  // namespace carat::model
