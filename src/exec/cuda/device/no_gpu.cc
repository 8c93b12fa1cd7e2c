// What a build without CUDA says about GPUs.
#include "base/error.h"
#include "exec/cuda/device/facts.h"
#include "exec/cuda/profile/profile.h"

namespace carat {

namespace {
constexpr const char* kNoSupport =
    "this build of carat has no GPU support (configure with CARAT_CUDA=ON where nvcc is installed)";
}  // namespace

std::optional<cuda::GpuFacts> cuda::query_gpu(std::string* why) {
  if (why != nullptr) *why = kNoSupport;
  return std::nullopt;
}

exec::ProfileReport exec::profile_cuda(std::shared_ptr<const model::Model>, const ExecutorOptions&,
                                       const ProfileRequest&, const std::function<void(uint64_t, uint64_t)>&) {
  fail(ErrorCode::kUnsupported, "no GPU can be used: {}", kNoSupport);
}

}  // namespace carat
