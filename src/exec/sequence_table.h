#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exec/executor.h"
#include "exec/sequence_rules.h"
#include "model/kv_geometry.h"

namespace carat::exec {

// Lengths of the sequences of an executor whose caches are rings (model::KvGeometry), and where they can be resumed.
// Executors with pages have exec/paging/paged_sequences.h instead.
class SequenceTable {
 public:
  // Throws kBadArgument for options that make no sense, and for a drafter, which cannot run by itself.
  SequenceTable(const model::Config& config, const ExecutorOptions& options);

  const model::KvGeometry& geometry() const { return geometry_; }
  uint32_t length(uint32_t sequence) const;
  // Throws kBadArgument when the rows break a rule; changes nothing.
  void check(std::span<const Row> rows) const { rules_.check(rows, lengths_); }
  // Call before the first cache write of a pass: remembers how far rings will have been overwritten.
  void begin(std::span<const Row> rows);
  // Call when the pass succeeded.
  void commit(std::span<const Row> rows);
  // The rule of Executor::truncate; throws kBadArgument when n is beyond the sequence.
  uint32_t truncate(uint32_t sequence, uint32_t n);
  uint32_t resumable(uint32_t sequence, uint32_t n) const;  // what truncate would return

 private:
  SequenceRules rules_;
  model::KvGeometry geometry_;
  std::vector<uint32_t> lengths_;
  std::vector<uint32_t> written_;  // one past the highest position ever written since the sequence was empty
};

}  // namespace carat::exec
