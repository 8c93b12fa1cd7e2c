#pragma once

#include <cstdint>
#include <span>

#include "exec/executor.h"
#include "model/config.h"

namespace carat::exec {

// What rows may be run, so that all executors accept and refuse the same.
class SequenceRules {
 public:
  // The options. Throws kBadArgument for options that make no sense, and for a drafter, which cannot run by itself.
  static const ExecutorOptions& checked(const model::Config& config, const ExecutorOptions& options);
  SequenceRules(const model::Config& config, const ExecutorOptions& options);

  // Throws kBadArgument when the rows break a rule, given the lengths of all sequences.
  void check(std::span<const Row> rows, std::span<const uint32_t> lengths) const;
  // `sequence`, or kBadArgument when there is none of that number.
  uint32_t existing(uint32_t sequence) const;
  // kBadArgument where a sequence of `length` positions cannot be cut to n.
  static void check_cut(uint32_t sequence, uint32_t n, uint32_t length);

 private:
  uint32_t vocabulary_;
  uint32_t context_;
  uint32_t sequences_;
  uint32_t max_rows_;
  uint32_t max_outputs_;
};

}  // namespace carat::exec
