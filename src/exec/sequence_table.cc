#include "exec/sequence_table.h"

#include <algorithm>

namespace carat::exec {

SequenceTable::SequenceTable(const model::Config& config, const ExecutorOptions& options)
    : rules_(config, options),
      geometry_(config, options.context, options.chunk),
      lengths_(options.sequences),
      written_(options.sequences) {}

uint32_t SequenceTable::length(uint32_t sequence) const { return lengths_[rules_.existing(sequence)]; }

void SequenceTable::begin(std::span<const Row> rows) {
  for (const Row& row : rows) written_[row.sequence] = std::max(written_[row.sequence], row.position + 1);
}

void SequenceTable::commit(std::span<const Row> rows) {
  for (const Row& row : rows) lengths_[row.sequence] = row.position + 1;
}

uint32_t SequenceTable::resumable(uint32_t sequence, uint32_t n) const {
  SequenceRules::check_cut(sequence, n, length(sequence));
  return geometry_.can_resume(n, written_[sequence]) ? n : 0;
}

uint32_t SequenceTable::truncate(uint32_t sequence, uint32_t n) {
  const uint32_t kept = resumable(sequence, n);
  lengths_[sequence] = kept;
  if (kept == 0) written_[sequence] = 0;
  return kept;
}

}  // namespace carat::exec
