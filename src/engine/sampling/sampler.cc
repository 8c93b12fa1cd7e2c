#include "engine/sampling/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "engine/sampling/counter_random.h"
#include "engine/sampling/portable_exp.h"

namespace carat::engine {

namespace {
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
// Weight of the most probable token. Leaves 2^24 for the number of tokens in a sum.
constexpr uint64_t kUnit = uint64_t{1} << 40;
// Fetching more candidates than this costs more than one look at every logit.
constexpr uint64_t kMostFetched = 1024;
// How many of the best tokens are looked at where a guide forbids some.
constexpr uint64_t kGuidedFetch = 256;

__extension__ using uint128 = unsigned __int128;
}  // namespace

Sampler::Sampler(SamplingOptions options, uint32_t vocabulary, std::span<const text::TokenId> suppressed)
    : options_(std::move(options)), vocabulary_(vocabulary) {
  options_.check(vocabulary);
  for (const LogitBias& entry : options_.bias) fixed_.push_back({entry.token, entry.bias});
  for (const text::TokenId token : suppressed) fixed_.push_back({token, kMinusInfinity});
  std::stable_sort(fixed_.begin(), fixed_.end(), [](const auto& a, const auto& b) { return a.token < b.token; });
  // A token named twice gets the sum of its biases.
  size_t unique = 0;
  for (const Adjustment& entry : fixed_) {
    if (unique > 0 && fixed_[unique - 1].token == entry.token) {
      fixed_[unique - 1].bias += entry.bias;
    } else {
      fixed_[unique++] = entry;
    }
  }
  fixed_.resize(unique);
}

bool Sampler::penalises() const {
  return options_.repeat_last_n > 0 &&
         (options_.repeat_penalty != 1.0f || options_.presence_penalty != 0.0f || options_.frequency_penalty != 0.0f);
}

void Sampler::accept(text::TokenId token) {
  if (!penalises()) return;
  window_.push_back(token);
  ++counts_[token];
  if (window_.size() > options_.repeat_last_n) {
    const auto leaving = counts_.find(window_.front());
    if (--leaving->second == 0) counts_.erase(leaving);
    window_.pop_front();
  }
}

void Sampler::accept(std::span<const text::TokenId> tokens) {
  const size_t seen = std::min<size_t>(tokens.size(), options_.repeat_last_n);
  for (const text::TokenId token : tokens.last(seen)) accept(token);
}

void Sampler::collect_adjustments() {
  adjustments_ = fixed_;
  for (const auto& [token, count] : counts_) {
    const auto fixed = std::lower_bound(fixed_.begin(), fixed_.end(), token,
                                        [](const Adjustment& entry, text::TokenId id) { return entry.token < id; });
    if (fixed != fixed_.end() && fixed->token == token) {
      adjustments_[static_cast<size_t>(fixed - fixed_.begin())].count = count;
    } else {
      adjustments_.push_back({token, 0.0, count});
    }
  }
  std::sort(adjustments_.begin(), adjustments_.end(), [](const auto& a, const auto& b) { return a.token < b.token; });
}

double Sampler::adjusted(double logit, const Adjustment& adjustment) const {
  logit += adjustment.bias;
  if (adjustment.count > 0) {
    const double penalty = options_.repeat_penalty;
    logit = logit > 0.0 ? logit / penalty : logit * penalty;
    logit -= double{options_.presence_penalty} + adjustment.count * double{options_.frequency_penalty};
  }
  return logit;
}

void Sampler::gather(exec::Executor& executor, uint32_t output, uint64_t k) {
  const uint64_t enough = k + adjustments_.size();
  if (enough <= kMostFetched) {
    // A guide refuses some of the best, so a few more are fetched; a second look costs more than they do.
    const uint64_t fetched = allowed_.empty() ? enough : std::max(enough, std::min(kGuidedFetch, kMostFetched));
    if (gather_sparse(executor, output, k, fetched)) return;
  }
  kept_.clear();
  gather_dense(executor, output);
}

bool Sampler::gather_sparse(exec::Executor& executor, uint32_t output, uint64_t k, uint64_t fetched) {
  const auto touched = [this](text::TokenId token) {
    return std::binary_search(adjustments_.begin(), adjustments_.end(), Adjustment{token},
                              [](const Adjustment& a, const Adjustment& b) { return a.token < b.token; });
  };
  executor.best(output, static_cast<uint32_t>(fetched), best_);
  for (const exec::Candidate& candidate : best_) {
    if (!touched(candidate.token) && is_allowed(candidate.token)) kept_.push_back({candidate.token, candidate.logit});
  }
  if (!allowed_.empty() && kept_.size() < k && best_.size() < vocabulary_) return false;
  ids_.clear();
  for (const Adjustment& entry : adjustments_) ids_.push_back(entry.token);
  executor.logits_of(output, ids_, logits_);
  for (size_t i = 0; i < adjustments_.size(); ++i) {
    const double logit = adjusted(logits_[i], adjustments_[i]);
    if (logit != kMinusInfinity && is_allowed(adjustments_[i].token)) kept_.push_back({adjustments_[i].token, logit});
  }
  std::sort(kept_.begin(), kept_.end(), [](const Scored& a, const Scored& b) { return a.token < b.token; });
  return true;
}

void Sampler::gather_dense(exec::Executor& executor, uint32_t output) {
  const std::span<const float> logits = executor.logits(output);
  auto next = adjustments_.begin();
  const auto add = [&](text::TokenId token) {
    double logit = logits[static_cast<size_t>(token)];
    while (next != adjustments_.end() && next->token < token) ++next;
    if (next != adjustments_.end() && next->token == token) logit = adjusted(logit, *next++);
    if (logit != kMinusInfinity) kept_.push_back({token, logit});
  };
  if (allowed_.empty()) {
    for (uint32_t token = 0; token < vocabulary_; ++token) add(static_cast<text::TokenId>(token));
    return;
  }
  for (size_t word = 0; word < allowed_.size(); ++word) {
    for (uint64_t bits = allowed_[word]; bits != 0; bits &= bits - 1) {
      add(static_cast<text::TokenId>(word * 64 + static_cast<size_t>(std::countr_zero(bits))));
    }
  }
}

void Sampler::keep_not_smaller_than(const Scored& cut) {
  std::erase_if(kept_, [&cut](const Scored& entry) { return larger(cut, entry); });
}

void Sampler::keep_best(size_t k) {
  if (k >= kept_.size()) return;
  scratch_ = kept_;
  const auto last = scratch_.begin() + static_cast<ptrdiff_t>(k - 1);
  std::nth_element(scratch_.begin(), last, scratch_.end(), larger);
  keep_not_smaller_than(*last);
}

void Sampler::weigh() {
  const double largest = std::min_element(kept_.begin(), kept_.end(), larger)->logit;
  const double temperature = options_.temperature;
  for (Scored& entry : kept_) {
    const double share = portable_exp((entry.logit - largest) / temperature);
    entry.weight = static_cast<uint64_t>(share * static_cast<double>(kUnit));
  }
}

uint64_t Sampler::total_weight() const {
  uint64_t total = 0;
  for (const Scored& entry : kept_) total += entry.weight;
  return total;
}

// Finds the token at which the weights, added from the largest down, reach the target, by halving the range it must be
// in: expected linear time, and exact because integer sums are.
void Sampler::keep_top_p() {
  if (options_.top_p >= 1.0f) return;
  const double share = std::ceil(double{options_.top_p} * static_cast<double>(total_weight()));
  const uint64_t target = std::max<uint64_t>(1, static_cast<uint64_t>(share));
  scratch_ = kept_;
  auto begin = scratch_.begin();
  auto end = scratch_.end();
  uint64_t before = 0;  // weight of everything larger than the range
  while (end - begin > 1) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, larger);
    uint64_t weight = 0;
    for (auto entry = begin; entry != middle; ++entry) weight += entry->weight;
    if (before + weight >= target) {
      end = middle;
    } else {
      before += weight;
      begin = middle;
    }
  }
  keep_not_smaller_than(*begin);
}

void Sampler::keep_min_p() {
  const double least = double{options_.min_p} * static_cast<double>(kUnit);
  std::erase_if(kept_, [least](const Scored& entry) { return static_cast<double>(entry.weight) < least; });
}

text::TokenId Sampler::sample(exec::Executor& executor, uint32_t output, uint64_t draw,
                              std::span<const uint64_t> allowed) {
  const bool greedy = options_.temperature <= 0.0f;
  const uint64_t k = greedy ? 1 : options_.top_k == 0 ? vocabulary_ : options_.top_k;
  allowed_ = allowed;
  collect_adjustments();
  kept_.clear();
  gather(executor, output, k);
  if (kept_.empty()) {
    fail(ErrorCode::kBadArgument,
         "no token is left to choose from: every one of the {} tokens is banned by logit-bias, "
         "suppressed by the model or excluded by the grammar",
         vocabulary_);
  }
  keep_best(static_cast<size_t>(k));
  if (greedy) return kept_.front().token;
  weigh();
  keep_top_p();
  keep_min_p();

  const uint64_t total = total_weight();
  const auto point = static_cast<uint64_t>(uint128{random_bits(options_.seed, draw)} * total >> 64);  // in [0, total)
  uint64_t passed = 0;
  for (const Scored& entry : kept_) {
    passed += entry.weight;
    if (point < passed) return entry.token;
  }
  throw std::logic_error("sampler: the draw lies beyond the weights");
}

}  // namespace carat::engine
