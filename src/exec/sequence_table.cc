#include "exec/sequence_table.h"

#include <algorithm>

#include "base/error.h"

namespace carat::exec {
namespace {

// Keeps sizes of caches within 64 bits; far more than any machine serves.
constexpr uint32_t kMaxSequences = 1u << 16;

const ExecutorOptions& checked(const model::Config& config, const ExecutorOptions& options) {
  if (config.is_drafter()) {
    fail(ErrorCode::kBadArgument,
         "the model \"{}\" is a drafter ({}): it only speeds up the model it was made for and cannot run by itself",
         config.name, config.architecture);
  }
  const auto check_at_least_one = [](uint32_t value, std::string_view what) {
    if (value == 0) fail(ErrorCode::kBadArgument, "{} is 0 but must be at least 1", what);
  };
  check_at_least_one(options.context, "the context size");
  check_at_least_one(options.sequences, "the number of sequences");
  check_at_least_one(options.chunk, "the number of rows in a pass");
  check_at_least_one(options.outputs, "the number of outputs of a pass");
  if (options.context > model::kMaxPositions) {
    fail(ErrorCode::kBadArgument, "the context size is {} but at most {} is possible", options.context,
         model::kMaxPositions);
  }
  if (options.sequences > kMaxSequences) {
    fail(ErrorCode::kBadArgument, "the number of sequences is {} but at most {} is possible", options.sequences,
         kMaxSequences);
  }
  return options;
}

}  // namespace

SequenceTable::SequenceTable(const model::Config& config, const ExecutorOptions& options)
    : vocabulary_(config.V),
      max_rows_(checked(config, options).chunk),
      max_outputs_(options.outputs),
      geometry_(config, options.context, options.chunk),
      states_(options.sequences) {}

uint32_t SequenceTable::length(uint32_t sequence) const { return states_[existing(sequence)].length; }

void SequenceTable::check(std::span<const Row> rows) const {
  if (rows.empty()) fail(ErrorCode::kBadArgument, "a pass needs at least one row");
  if (rows.size() > max_rows_) {
    fail(ErrorCode::kBadArgument, "a pass has {} rows but at most {} are possible", rows.size(), max_rows_);
  }
  size_t outputs = 0;
  std::vector<uint32_t> next(states_.size());
  std::transform(states_.begin(), states_.end(), next.begin(), [](const State& state) { return state.length; });
  for (size_t r = 0; r < rows.size(); ++r) {
    const Row& row = rows[r];
    if (row.sequence >= states_.size()) {
      fail(ErrorCode::kBadArgument, "row {} belongs to sequence {} but there are {}", r, row.sequence, states_.size());
    }
    if (row.token < 0 || static_cast<uint32_t>(row.token) >= vocabulary_) {
      fail(ErrorCode::kBadArgument, "row {} holds token {} but the vocabulary has {}", r, row.token, vocabulary_);
    }
    if (row.position != next[row.sequence]) {
      fail(ErrorCode::kBadArgument, "row {} is at position {} of sequence {}, which goes on at {}", r, row.position,
           row.sequence, next[row.sequence]);
    }
    if (row.position >= geometry_.context()) {
      fail(ErrorCode::kBadArgument, "row {} is at position {} but the context holds {} (a larger -c helps)", r,
           row.position, geometry_.context());
    }
    ++next[row.sequence];
    outputs += row.wants_logits;
  }
  if (outputs > max_outputs_) {
    fail(ErrorCode::kBadArgument, "{} rows of a pass want logits but at most {} may", outputs, max_outputs_);
  }
}

void SequenceTable::begin(std::span<const Row> rows) {
  for (const Row& row : rows) {
    State& state = states_[row.sequence];
    state.written = std::max(state.written, row.position + 1);
  }
}

void SequenceTable::commit(std::span<const Row> rows) {
  for (const Row& row : rows) states_[row.sequence].length = row.position + 1;
}

uint32_t SequenceTable::resumable(uint32_t sequence, uint32_t n) const {
  const State& state = states_[existing(sequence)];
  if (n > state.length) {
    fail(ErrorCode::kBadArgument, "sequence {} cannot be truncated to {}: it holds {} positions", sequence, n,
         state.length);
  }
  return geometry_.can_resume(n, state.written) ? n : 0;
}

uint32_t SequenceTable::truncate(uint32_t sequence, uint32_t n) {
  const uint32_t kept = resumable(sequence, n);
  State& state = states_[sequence];
  if (kept == 0) {
    state = State{};
  } else {
    state.length = kept;
  }
  return kept;
}

uint32_t SequenceTable::existing(uint32_t sequence) const {
  if (sequence >= states_.size()) {
    fail(ErrorCode::kBadArgument, "there is no sequence {}: the executor was made for {}", sequence, states_.size());
  }
  return sequence;
}

}  // namespace carat::exec
