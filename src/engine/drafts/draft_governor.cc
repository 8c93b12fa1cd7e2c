#include "engine/drafts/draft_governor.h"

#include <algorithm>
#include <cmath>

namespace carat::engine {

namespace {

// Share of a plain pass that may be lost to drafts that turn out wrong.
constexpr double kAllowance = 0.01;
// The most the account may hold, in plain passes.
constexpr double kMostSaved = 8.0;
// Of a new measurement in the estimate of a pass, where it is below the estimate and where it is above. Passes are held
// up by what else the machine does, never pushed on: low measurements tell more.
constexpr double kLowWeight = 0.5;
constexpr double kHighWeight = 0.125;
// A pass that took longer than so many times its estimate was held up: it says nothing about its rows.
constexpr double kMostDelay = 2.0;
// What was measured longer ago is measured anew: the depth grows, and the machine may do other things.
constexpr uint64_t kValidPasses = 64;
// The fewest tokens a draft must be expected to yield before the time of its pass is known.
constexpr double kWorthATry = 0.25;
// What a count of drafted tokens keeps of itself when the next draft is counted.
constexpr double kMemory = 0.9;

double weight_of(double measured, double estimate) { return measured < estimate ? kLowWeight : kHighWeight; }

}  // namespace

size_t DraftAcceptance::place(uint32_t match_length) { return std::min(match_length, DraftOptions::kLongestNgram); }

void DraftAcceptance::record(uint32_t match_length, uint32_t tested, uint32_t right) {
  Count& count = counts_[place(match_length)];
  count.tested = count.tested * kMemory + tested;
  count.right = count.right * kMemory + right;
}

double DraftAcceptance::rate(uint32_t match_length) const {
  const Count& count = counts_[place(match_length)];
  return count.right / count.tested;
}

// A token is of use only when all before it are right: the sum of rate^i.
double DraftAcceptance::expected(uint32_t match_length, uint32_t draft) const {
  const double p = rate(match_length);
  double all_right = 1.0, sum = 0.0;
  for (uint32_t i = 0; i < draft; ++i) sum += all_right *= p;
  return sum;
}

uint32_t drafted_rows(std::span<const DraftGovernor::Offer> offers, uint32_t longest) {
  uint32_t rows = 0;
  for (const DraftGovernor::Offer& offer : offers) rows += std::min(offer.tokens, longest);
  return rows;
}

const DraftGovernor::PassTime* DraftGovernor::time_of(uint32_t rows) const {
  const auto time = times_.find(rows);
  return time == times_.end() || time->second.passes < 2 ? nullptr : &time->second;
}

bool DraftGovernor::is_recent(const PassTime& time) const { return passes_ - time.measured_at < kValidPasses; }

std::optional<double> DraftGovernor::assumed_time(uint32_t rows, double plain, double expected) const {
  const PassTime* time = time_of(rows);
  if (time != nullptr && is_recent(*time)) return time->seconds;
  // Tried as if the drafted rows were free, where there is something to win and what they took the last time can be
  // afforded.
  const bool is_affordable = time == nullptr || time->seconds - plain <= account_;
  if (expected < kWorthATry || !is_affordable) return std::nullopt;
  return plain;
}

uint32_t DraftGovernor::choose(std::span<const Offer> offers, uint32_t sequences, uint32_t spare) const {
  if (mode_ == DraftMode::kOff || offers.empty()) return 0;
  if (mode_ == DraftMode::kAuto) return choose_by_measure(offers, sequences, spare);
  uint32_t longest = max_draft_;
  while (longest > 0 && drafted_rows(offers, longest) > spare) --longest;
  return longest;
}

uint32_t DraftGovernor::choose_by_measure(std::span<const Offer> offers, uint32_t sequences, uint32_t spare) const {
  const PassTime* plain = time_of(sequences);
  if (plain == nullptr || !is_recent(*plain) || account_ < 0.0) return 0;
  double best_rate = sequences / plain->seconds;
  uint32_t best = 0;
  // Lengths that make 2, 4, 8, ... rows of one sequence, and the longest: executors have kernels for these, and the
  // fewer numbers of rows there are, the sooner their times are known.
  for (uint32_t length = 1, last = 0; length != last; last = length, length = std::min(length * 2 + 1, max_draft_)) {
    const uint32_t drafted = drafted_rows(offers, length);
    if (drafted > spare) break;
    double expected = 0.0;
    for (const Offer& offer : offers) {
      expected += offer.acceptance->expected(offer.match_length, std::min(offer.tokens, length));
    }
    const std::optional<double> seconds = assumed_time(sequences + drafted, plain->seconds, expected);
    if (!seconds) continue;
    const double rate = (sequences + expected) / *seconds;
    if (rate > best_rate) {
      best_rate = rate;
      best = length;
    }
  }
  return best;
}

void DraftGovernor::record(const Pass& pass) {
  ++passes_;
  PassTime& time = times_[pass.rows];
  time.measured_at = passes_;
  if (++time.passes == 1) return;
  const double seconds = time.passes == 2 ? pass.seconds : std::min(pass.seconds, kMostDelay * time.seconds);
  time.seconds =
      time.passes == 2 ? seconds : time.seconds + weight_of(seconds, time.seconds) * (seconds - time.seconds);
  const PassTime* plain = time_of(pass.sequences);
  if (plain == nullptr) return;  // drafts that were not chosen here
  if (pass.rows == pass.sequences) {
    account_ += kAllowance * seconds;
  } else {
    account_ += plain->seconds * pass.tokens / pass.sequences - seconds;
  }
  account_ = std::min(account_, kMostSaved * plain->seconds);
}

}  // namespace carat::engine
