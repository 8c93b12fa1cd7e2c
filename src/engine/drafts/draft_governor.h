#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "engine/drafts/draft_options.h"

namespace carat::engine {

// How often the drafts of one sequence are right, token by token, for each length of the match they come from. Recent
// drafts count more. A pass without a draft tells something too: whether the first token of one would have been right.
class DraftAcceptance {
 public:
  // Of a draft, `tested` tokens were compared with the model's choices and the first `right` were equal.
  void record(uint32_t match_length, uint32_t tested, uint32_t right);
  double rate(uint32_t match_length) const;
  // How many tokens of a draft are right, on average.
  double expected(uint32_t match_length, uint32_t draft) const;

 private:
  struct Count {
    // Two drafted tokens, one of them right: enough to try, not enough to go on trying.
    double tested = 2.0;
    double right = 1.0;
  };
  static size_t place(uint32_t match_length);
  std::array<Count, DraftOptions::kLongestNgram + 1> counts_;
};

// Decides how many tokens are drafted for a pass, from what passes take and what drafts yield, both measured as it
// goes.
//
// A draft pays when the tokens it is expected to yield in the time of its pass are more than those of a plain pass in
// its own time. Expectations can be wrong, so there is also an account, in seconds: a plain pass pays in 1% of its
// time; a pass with a draft pays in the time its tokens would have taken without it, and draws the time it took. While
// the account is in the red nothing is drafted. So all passes together take at most 1% longer than they would without
// drafts, and the time of one lost draft. What earlier drafts have won counts only up to a few passes, so that a text
// that stops repeating itself cannot spend it.
//
// Not part of the account: the first pass of each number of rows, in which an executor may set things up, and what a
// pass takes beyond twice its usual time, when the machine did something else.
class DraftGovernor {
 public:
  struct Offer {  // what one sequence could have drafted
    const DraftAcceptance* acceptance;
    uint32_t match_length;
    uint32_t tokens;
  };
  struct Pass {
    uint32_t sequences;  // each gets one token without drafts
    uint32_t rows;       // with the drafted ones
    uint32_t tokens;     // that were chosen
    double seconds;
  };

  DraftGovernor(DraftMode mode, uint32_t max_draft) : mode_(mode), max_draft_(max_draft) {}

  // The most tokens each sequence should have drafted in a pass of `sequences` rows and at most `spare` drafted ones.
  uint32_t choose(std::span<const Offer> offers, uint32_t sequences, uint32_t spare) const;
  // Only passes without prompts are told: nothing else is compared.
  void record(const Pass& pass);

 private:
  struct PassTime {
    double seconds = 0.0;
    uint64_t measured_at = 0;  // number of the last pass with so many rows
    uint64_t passes = 0;
  };
  // Null before the second pass of so many rows.
  const PassTime* time_of(uint32_t rows) const;
  bool is_recent(const PassTime& time) const;
  // What a pass of so many rows is taken to need where that is yet to be found out; none: better not to try.
  std::optional<double> assumed_time(uint32_t rows, double plain, double expected) const;
  uint32_t choose_by_measure(std::span<const Offer> offers, uint32_t sequences, uint32_t spare) const;

  DraftMode mode_;
  uint32_t max_draft_;
  uint64_t passes_ = 0;
  double account_ = 0.0;                // seconds
  std::map<uint32_t, PassTime> times_;  // by rows
};

// How many rows `offers` add to a pass when each is cut to `longest` tokens.
uint32_t drafted_rows(std::span<const DraftGovernor::Offer> offers, uint32_t longest);

}  // namespace carat::engine
