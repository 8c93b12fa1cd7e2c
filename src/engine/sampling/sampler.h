#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/sampling/sampling_options.h"
#include "exec/executor.h"
#include "text/tokenizer/vocab.h"

namespace carat::engine {

// Chooses the next token of one sequence. The definition, over the whole vocabulary and in this order:
//   1. suppressed tokens of the vocabulary, and those a guide does not allow, get minus infinity;
//   2. the bias of a token is added to its logit;
//   3. a token that occurs c > 0 times among the latest `repeat_last_n` tokens has its logit divided by (where
//   positive)
//      or multiplied by (where negative) the repeat penalty, and then reduced by presence + c * frequency;
//   4. temperature <= 0: the largest logit wins. Otherwise a token weighs exp((logit - largest) / temperature);
//   5. top-k keeps the k largest logits; 6. top-p keeps the fewest tokens, largest first, whose weights reach the share
//      p of what top-k kept; 7. min-p drops tokens that weigh less than min_p times the heaviest;
//   8. one of the kept tokens is drawn by weight.
// Among equal logits the lower token id counts as larger.
//
// Only steps 1 to 3 change the order of tokens, and only of the few tokens they touch. So the k best of the adjusted
// vocabulary are among those few and the k best others, which are among the k + few best of the raw logits: fetching
// that many gives exactly the result of adjusting every logit first, without ever sorting the vocabulary. A guide
// forbids many tokens, but mostly not the best ones: of a larger fetch those it allows are taken, and every logit is
// looked at only when they are too few.
//
// Weights are integers (units of 2^-40 of the heaviest; lighter tokens cannot be drawn) and the exponential is our own,
// so sums do not depend on their order, and equal logits and seeds give equal tokens on every machine.
// Not thread-safe; one object per sequence.
class Sampler {
 public:
  // Throws kBadArgument when an option is out of range. `suppressed` holds ids below `vocabulary`.
  Sampler(SamplingOptions options, uint32_t vocabulary, std::span<const text::TokenId> suppressed);

  const SamplingOptions& options() const { return options_; }

  // Tells the penalties about a token of the sequence, prompt or generated, in order.
  void accept(text::TokenId token);
  void accept(std::span<const text::TokenId> tokens);

  // Chooses from an output of the last forward pass. `draw` numbers the choices of the sequence from 0; each has its
  // own random number. `allowed`: as of Guide. Throws kBadArgument when bias, suppression and guide leave no token.
  text::TokenId sample(exec::Executor& executor, uint32_t output, uint64_t draw,
                       std::span<const uint64_t> allowed = {});

 private:
  struct Adjustment {
    text::TokenId token;
    double bias = 0.0;
    uint32_t count = 0;  // occurrences in the penalty window
  };
  struct Scored {
    text::TokenId token;
    double logit;
    uint64_t weight = 0;
  };

  static bool larger(const Scored& a, const Scored& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  }
  bool penalises() const;
  void collect_adjustments();
  double adjusted(double logit, const Adjustment& adjustment) const;
  void gather(exec::Executor& executor, uint32_t output, uint64_t k);
  // False when the guide left fewer than k of what was fetched, so that more must be looked at.
  bool gather_sparse(exec::Executor& executor, uint32_t output, uint64_t k, uint64_t fetched);
  void gather_dense(exec::Executor& executor, uint32_t output);
  bool is_allowed(text::TokenId token) const {
    const auto id = static_cast<uint32_t>(token);
    return allowed_.empty() || (allowed_[id / 64] >> id % 64 & 1) != 0;
  }
  void keep_not_smaller_than(const Scored& cut);
  void keep_best(size_t k);
  void weigh();
  void keep_top_p();
  void keep_min_p();
  uint64_t total_weight() const;

  SamplingOptions options_;
  uint32_t vocabulary_;
  std::vector<Adjustment> fixed_;  // suppressed and biased tokens, by id
  std::deque<text::TokenId> window_;
  std::unordered_map<text::TokenId, uint32_t> counts_;  // of the tokens in window_

  std::span<const uint64_t> allowed_;  // of the choice being made

  // Working storage, kept between calls.
  std::vector<Adjustment> adjustments_;  // by id
  std::vector<Scored> kept_;             // by id, always
  std::vector<Scored> scratch_;
  std::vector<exec::Candidate> best_;
  std::vector<text::TokenId> ids_;
  std::vector<float> logits_;
};

}  // namespace carat::engine
