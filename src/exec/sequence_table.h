#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exec/executor.h"
#include "model/kv_geometry.h"

namespace carat::exec {

// Lengths of the sequences of one executor and the rules rows must follow; shared by all executors so that they accept
// and refuse the same things.
class SequenceTable {
 public:
  // Throws kBadArgument for options that make no sense, and for a drafter, which cannot run by itself.
  SequenceTable(const model::Config& config, const ExecutorOptions& options);

  const model::KvGeometry& geometry() const { return geometry_; }
  uint32_t length(uint32_t sequence) const;
  // Throws kBadArgument when the rows break a rule; changes nothing.
  void check(std::span<const Row> rows) const;
  // Call before the first cache write of a pass: remembers how far rings will have been overwritten.
  void begin(std::span<const Row> rows);
  // Call when the pass succeeded.
  void commit(std::span<const Row> rows);
  // The rule of Executor::truncate; throws kBadArgument when n is beyond the sequence.
  uint32_t truncate(uint32_t sequence, uint32_t n);
  uint32_t resumable(uint32_t sequence, uint32_t n) const;  // what truncate would return

 private:
  struct State {
    uint32_t length = 0;
    uint32_t written = 0;  // one past the highest position ever written since the sequence was empty
  };
  uint32_t existing(uint32_t sequence) const;  // `sequence`, or kBadArgument when there is none of that number

  uint32_t vocabulary_;
  uint32_t max_rows_;
  uint32_t max_outputs_;
  model::KvGeometry geometry_;
  std::vector<State> states_;
};

}  // namespace carat::exec
