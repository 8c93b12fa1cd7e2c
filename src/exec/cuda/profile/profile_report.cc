// The arithmetic of a profile's figures; needs no GPU.
#include <algorithm>

#include "exec/cuda/profile/profile.h"

namespace carat::exec {

namespace {
double quotient(double amount, double rate) { return rate > 0.0 ? amount / rate : 0.0; }
}  // namespace

double ProfileCeilings::least_seconds(const ProfileFamily& family) const {
  return std::max(quotient(family.bytes, bytes_per_second), quotient(family.flops, flops_per_second));
}

bool ProfileCeilings::memory_bound(const ProfileFamily& family) const {
  return quotient(family.bytes, bytes_per_second) >= quotient(family.flops, flops_per_second);
}

double ProfileCeilings::share(const ProfileFamily& family) const {
  return quotient(least_seconds(family), family.seconds);
}

ProfileFamily ProfilePhase::total() const {
  ProfileFamily sum;
  sum.name = "all families";
  for (const ProfileFamily& family : families) {
    sum.steps += family.steps;
    sum.seconds += family.seconds;
    sum.bytes += family.bytes;
    sum.flops += family.flops;
  }
  return sum;
}

double ProfilePhase::kernel_seconds() const { return total().seconds; }

}  // namespace carat::exec
