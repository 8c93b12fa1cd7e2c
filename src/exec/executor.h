#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "exec/kept_prefixes.h"
#include "exec/kernel_choice.h"
#include "model/model.h"
#include "quant/format.h"

namespace carat {
class Error;
}

namespace carat::exec {

// One token to run. Rows of a pass may belong to any mix of sequences; the rows of one sequence stand in order and
// continue at its current length. A prompt chunk and a decode step are the same call.
struct Row {
  int32_t token;
  uint32_t position;
  uint32_t sequence;
  bool wants_logits;
};

struct Candidate {
  int32_t token;
  float logit;
};

// Rows of a forward pass where neither the user nor a plan has a reason for another number.
inline constexpr uint32_t kDefaultChunk = 512;

// Layers on the GPU where all must be: more than any model has.
inline constexpr uint32_t kAllLayers = UINT32_MAX;

struct ExecutorOptions {
  uint32_t context = 4096;  // positions a sequence may hold
  uint32_t sequences = 1;
  // Positions that the caches of executors with pages (kept_prefixes.h) hold in global layers, of all sequences and
  // kept prefixes together; 0: as many as all sequences may hold. At least one sequence's context.
  uint64_t cache_positions = 0;
  uint32_t chunk = kDefaultChunk;  // most rows in one forward pass; 0 for the CUDA executor: as its plan chooses
  uint32_t outputs = 64;           // most rows that want logits in one forward pass
  unsigned threads = 0;            // CPU workers; 0: all
  // Layers on the GPU, the last of the model; the CUDA executor runs the others on the CPU. None: as many as fit.
  std::optional<uint32_t> gpu_layers;
  bool kv_share_shortcut = true;  // stop rows that want no logits after the last layer that owns keys and values
  quant::Format kv_format = quant::Format::kF16;
  KernelChoices kernels;
  // Where what was measured on this machine is kept from one run to the next; empty: nowhere, and nothing is measured.
  std::filesystem::path cache_folder;
  const std::atomic<bool>* cancelled = nullptr;  // checked between layers; a set flag ends forward() with kInterrupted
  Logger log;
};

// Runs a model. Owns the cache of its sequences. Not thread-safe: one caller at a time.
class Executor {
 public:
  virtual ~Executor() = default;

  virtual std::string_view name() const = 0;
  virtual const model::Model& model() const = 0;
  virtual const ExecutorOptions& options() const = 0;
  // Whether the logits of a row are the same bits whatever other rows are in its pass and however the rows before it
  // were divided among passes.
  virtual bool rows_are_independent() const { return false; }

  // Runs the rows and appends their keys and values to the caches. Throws kBadArgument on rows that do not continue
  // their sequence, exceed the context or the limits above; then nothing was changed. An error or interruption later
  // leaves the touched sequences at their old length.
  virtual void forward(std::span<const Row> rows) = 0;

  // The same in two parts, for callers that have something else to do meanwhile: finish() waits for the pass and throws
  // what went wrong after start() had returned. In between nothing that is about sequences or results may be asked.
  // Only an executor whose passes run in the background, on a device of its own, returns from start() before the end.
  virtual bool runs_in_background() const { return false; }
  virtual void start(std::span<const Row> rows) { forward(rows); }
  virtual void finish() {}

  // Results of the last forward(): one output per row with wants_logits, in row order. Logits are after the soft-cap.
  virtual uint32_t outputs() const = 0;
  // Whether the logits of an output are all finite. A row with NaN or infinite logits spoils nothing but itself: the
  // logits of other sequences are what they would be without it. Its own sequence holds keys and values that are not
  // finite either, and should be emptied (truncate).
  virtual bool is_finite(uint32_t output) const = 0;
  virtual std::span<const float> logits(uint32_t output) = 0;  // [V], valid until the next forward()
  // The k largest logits, largest first, equal logits by lower token id. k is clipped to V.
  virtual void best(uint32_t output, uint32_t k, std::vector<Candidate>& out) = 0;
  // The logits of the given tokens, in their order.
  virtual void logits_of(uint32_t output, std::span<const int32_t> tokens, std::vector<float>& out) = 0;
  // The logarithm of the sum of exp(logit) over the vocabulary, so that a token's log-probability is its logit minus
  // this; of logits up to 1000 in magnitude within 1e-6 of exact arithmetic.
  virtual double log_sum_exp(uint32_t output) = 0;

  virtual uint32_t length(uint32_t sequence) const = 0;
  // Forgets everything from position n on, so that the next row may be at n. When the sliding window of n is gone the
  // sequence is emptied instead. Returns the new length: n or 0. It is n whenever n is not below the length before the
  // last pass with rows of the sequence: rows that were only tried can always be taken back.
  virtual uint32_t truncate(uint32_t sequence, uint32_t n) = 0;
  // What truncate would return, without doing it.
  virtual uint32_t resumable(uint32_t sequence, uint32_t n) const = 0;
  // What can be kept of sequences for others; null where caches are of one sequence each.
  virtual KeptPrefixes* prefixes() { return nullptr; }
  const KeptPrefixes* prefixes() const { return const_cast<Executor*>(this)->prefixes(); }
};

// The error of an output that is not finite; names the model's file.
Error non_finite_error(const Executor& executor);
// Throws it when any output of the last forward() is not finite, for callers to whom all of them matter.
void require_finite(const Executor& executor);

// Selection on host logits, for executors that have them there.
void select_best(std::span<const float> logits, uint32_t k, std::vector<Candidate>& out);
// log(sum(exp(logit))), in double. Logits of minus infinity count as impossible; minus infinity when all of them are.
double log_sum_exp(std::span<const float> logits);

}  // namespace carat::exec
