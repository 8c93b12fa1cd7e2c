#include <algorithm>

#include "exec/executor.h"

namespace carat::exec {
namespace {

// The order of candidates: larger logits first, equal logits by lower token id.
bool better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

}  // namespace

void select_best(std::span<const float> logits, uint32_t k, std::vector<Candidate>& out) {
  const size_t wanted = std::min<size_t>(k, logits.size());
  out.clear();
  if (wanted == 0) return;
  // A heap whose root is the worst candidate kept: one comparison settles almost every token, because few of a large
  // vocabulary beat the k best seen so far.
  for (size_t i = 0; i < logits.size(); ++i) {
    const Candidate candidate{static_cast<int32_t>(i), logits[i]};
    if (out.size() < wanted) {
      out.push_back(candidate);
      std::push_heap(out.begin(), out.end(), better);
    } else if (better(candidate, out.front())) {
      std::pop_heap(out.begin(), out.end(), better);
      out.back() = candidate;
      std::push_heap(out.begin(), out.end(), better);
    }
  }
  std::sort_heap(out.begin(), out.end(), better);
}

}  // namespace carat::exec
