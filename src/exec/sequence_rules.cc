#include "exec/sequence_rules.h"

#include <vector>

#include "base/error.h"

namespace carat::exec {
namespace {

// Keeps sizes of caches within 64 bits; far more than any machine serves.
constexpr uint32_t kMaxSequences = 1u << 16;

}  // namespace

const ExecutorOptions& SequenceRules::checked(const model::Config& config, const ExecutorOptions& options) {
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

SequenceRules::SequenceRules(const model::Config& config, const ExecutorOptions& options)
    : vocabulary_(config.V),
      context_(checked(config, options).context),
      sequences_(options.sequences),
      max_rows_(options.chunk),
      max_outputs_(options.outputs) {}

void SequenceRules::check(std::span<const Row> rows, std::span<const uint32_t> lengths) const {
  if (rows.empty()) fail(ErrorCode::kBadArgument, "a pass needs at least one row");
  if (rows.size() > max_rows_) {
    fail(ErrorCode::kBadArgument, "a pass has {} rows but at most {} are possible", rows.size(), max_rows_);
  }
  size_t outputs = 0;
  std::vector<uint32_t> next(lengths.begin(), lengths.end());
  for (size_t r = 0; r < rows.size(); ++r) {
    const Row& row = rows[r];
    if (row.sequence >= sequences_) {
      fail(ErrorCode::kBadArgument, "row {} belongs to sequence {} but there are {}", r, row.sequence, sequences_);
    }
    if (row.token < 0 || static_cast<uint32_t>(row.token) >= vocabulary_) {
      fail(ErrorCode::kBadArgument, "row {} holds token {} but the vocabulary has {}", r, row.token, vocabulary_);
    }
    if (row.position != next[row.sequence]) {
      fail(ErrorCode::kBadArgument, "row {} is at position {} of sequence {}, which goes on at {}", r, row.position,
           row.sequence, next[row.sequence]);
    }
    if (row.position >= context_) {
      fail(ErrorCode::kBadArgument, "row {} is at position {} but the context holds {} (a larger -c helps)", r,
           row.position, context_);
    }
    ++next[row.sequence];
    outputs += row.wants_logits;
  }
  if (outputs > max_outputs_) {
    fail(ErrorCode::kBadArgument, "{} rows of a pass want logits but at most {} may", outputs, max_outputs_);
  }
}

uint32_t SequenceRules::existing(uint32_t sequence) const {
  if (sequence >= sequences_) {
    fail(ErrorCode::kBadArgument, "there is no sequence {}: the executor was made for {}", sequence, sequences_);
  }
  return sequence;
}

void SequenceRules::check_cut(uint32_t sequence, uint32_t n, uint32_t length) {
  if (n > length) {
    fail(ErrorCode::kBadArgument, "sequence {} cannot be truncated to {}: it holds {} positions", sequence, n, length);
  }
}

}  // namespace carat::exec
