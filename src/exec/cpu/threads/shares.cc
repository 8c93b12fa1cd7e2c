#include "exec/cpu/threads/shares.h"

namespace carat::exec::cpu {
namespace {

constexpr uint64_t pack(uint32_t begin, uint32_t end) { return uint64_t{begin} << 32 | end; }
constexpr uint32_t begin_of(uint64_t left) { return static_cast<uint32_t>(left >> 32); }
constexpr uint32_t end_of(uint64_t left) { return static_cast<uint32_t>(left); }

}  // namespace

// What items do to memory is ordered by the pool's own beginning and end of a loop, so the counts need no order.
void Shares::divide(uint32_t count) {
  const uint64_t workers = shares_.size();
  for (uint64_t worker = 0; worker < workers; ++worker) {
    const auto edge = [&](uint64_t w) { return static_cast<uint32_t>(count * w / workers); };
    shares_[worker].left.store(pack(edge(worker), edge(worker + 1)), std::memory_order_relaxed);
  }
}

bool Shares::take(unsigned worker, uint32_t& item) {
  Share& own = shares_[worker];
  if (take_first(own, item)) return true;
  for (size_t step = 1; step < shares_.size(); ++step) {
    // Another may take from the new share before its owner does.
    if (take_half(shares_[(worker + step) % shares_.size()], own) && take_first(own, item)) return true;
  }
  return false;
}

bool Shares::take_first(Share& share, uint32_t& item) {
  uint64_t left = share.left.load(std::memory_order_relaxed);
  do {
    item = begin_of(left);
    if (item >= end_of(left)) return false;
  } while (!share.left.compare_exchange_weak(left, pack(item + 1, end_of(left)), std::memory_order_relaxed));
  return true;
}

bool Shares::take_half(Share& from, Share& to) {
  uint64_t left = from.left.load(std::memory_order_relaxed);
  uint32_t middle = 0;
  do {
    const uint32_t begin = begin_of(left), end = end_of(left);
    if (begin >= end) return false;
    middle = begin + (end - begin) / 2;
  } while (!from.left.compare_exchange_weak(left, pack(begin_of(left), middle), std::memory_order_relaxed));
  to.left.store(pack(middle, end_of(left)), std::memory_order_relaxed);
  return true;
}

}  // namespace carat::exec::cpu
