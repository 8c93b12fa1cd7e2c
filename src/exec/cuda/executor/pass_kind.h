#pragma once

#include <cstdint>
#include <span>

#include "exec/cuda/plan/plan.h"
#include "exec/executor.h"

namespace carat::cuda {

// The ways rows are run. All leave keys and values in the same caches.
enum class PassKind : uint8_t {
  kPrompt,            // matrix products, any mix of rows
  kPromptBucket,      // the same for a small chunk of one prompt, padded to a bucket of rows
  kPromptGemv,        // up to eight rows of which some want no logits, by the kernels of kDecodeGemv
  kDecodeMegakernel,  // one row by one kernel
  kDecodeGemv,        // up to eight rows by matrix-vector kernels
  kDecodeSkinny,      // up to 64 rows on the tensor cores, over the packed weights
  kDecodeGemm,        // one row of each of many sequences by matrix products
};

struct PassClass {
  PassKind kind = PassKind::kPrompt;
  uint32_t rows = 0;         // of the pass: those asked for, and those that pad it to its bucket
  uint32_t outputs = 0;      // of those asked for: rows that want logits
  bool single_rows = false;  // of kDecodeSkinny and kDecodeGemm: every row is of another sequence
};

// Whether a row is the next of a sequence after the row before it.
bool continues(const exec::Row& before, const exec::Row& row);

// How a plan runs rows that SequenceTable::check() has accepted: the one place where that is decided. timed: kernels
// are to be timed one by one, which the megakernel has no place for.
PassClass classify(std::span<const exec::Row> rows, const Plan& plan, bool timed = false);

// Whether a pass of this kind is a replay of a graph, which one of the first passes of its shape recorded.
bool runs_as_graph(PassKind kind, const Plan& plan);

}  // namespace carat::cuda
