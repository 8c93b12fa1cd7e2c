#pragma once

#include "exec/cuda/device/gpu_fixture.h"
#include "exec/cuda/kernels/gemm/hopper/wgmma_gemm.h"

namespace carat::cuda {

// Tests of what only Hopper has.
class WarpgroupTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && !wgmma_available()) GTEST_SKIP() << "skipped: no sm_90 or no code for sm_90a";
  }
};

}  // namespace carat::cuda
