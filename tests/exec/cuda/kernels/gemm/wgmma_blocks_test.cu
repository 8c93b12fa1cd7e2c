// What the warpgroup product is built of, each block alone: a failure here says which of them is wrong.
#include "exec/cuda/device/tensor_map.h"
#include "exec/cuda/kernels/attention/warpgroup_fixture.h"
#include "exec/cuda/kernels/gemm/hopper/wgmma_gemm.h"
#include "exec/cuda/kernels/ptx/architecture.cuh"
#include "exec/cuda/kernels/ptx/fence_proxy.cuh"
#include "exec/cuda/kernels/ptx/mbarrier.cuh"
#include "exec/cuda/kernels/ptx/mma.cuh"
#include "exec/cuda/kernels/ptx/stmatrix.cuh"
#include "exec/cuda/kernels/ptx/tma.cuh"
#include "exec/cuda/kernels/ptx/wgmma.cuh"

namespace carat::cuda {
namespace {

// out[64][N] = a[64][64] b[N][64]^T by one warpgroup; b is swizzled into shared memory by hand.
template <int N>
__global__ void __launch_bounds__(128) wgmma_kernel(const __nv_bfloat16* a, const __nv_bfloat16* b, float* out) {
#if defined(CARAT_SM90A)
  __shared__ alignas(1024) unsigned char shared[N * 128];
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  for (uint32_t i = threadIdx.x; i < N * 8; i += 128) {
    const uint32_t row = i / 8, piece = i % 8;
    *reinterpret_cast<uint4*>(shared + row * 128 + (piece ^ (row % 8)) * 16) =
        *reinterpret_cast<const uint4*>(b + row * 64 + piece * 8);
  }
  fence_proxy_async();
  __syncthreads();
  float sums[N / 2] = {};
  uint32_t fragments[4][4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const uint32_t row = warp * 16 + g + r % 2 * 8, column = i * 16 + 2 * t + r / 2 * 8;
      fragments[i][r] = *reinterpret_cast<const uint32_t*>(a + row * 64 + column);
    }
  }
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4; ++i)
    wgmma_bf16<N>(sums, fragments[i], wgmma_descriptor_k_major(shared_address(shared) + i * 32));
  wgmma_commit_group();
  wgmma_wait_group<0>();
#pragma unroll
  for (int j = 0; j < N / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) out[(warp * 16 + g + i / 2 * 8) * N + j * 8 + 2 * t + i % 2] = sums[4 * j + i];
  }
#else
  __trap();
#endif
}

__global__ void copy_box_kernel(const __grid_constant__ CUtensorMap map, uint32_t x, uint32_t y, uint32_t bytes,
                                unsigned char* out) {
#if defined(CARAT_SM90A)
  __shared__ alignas(1024) unsigned char shared[64 * 128];
  __shared__ alignas(8) uint64_t barrier;
  const uint32_t at = shared_address(&barrier);
  if (threadIdx.x == 0) {
    mbarrier_init(at, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(at, bytes);
    tma_load(shared_address(shared), &map, at, x, y);
  }
  __syncthreads();
  mbarrier_wait(at, 0);
  for (uint32_t i = threadIdx.x; i < bytes; i += blockDim.x) out[i] = shared[i];
#else
  __trap();
#endif
}

__global__ void store_transposed_kernel(__nv_bfloat16* out) {
#if defined(CARAT_SM90A)
  __shared__ alignas(128) __nv_bfloat16 shared[32][8];
  const uint32_t lane = threadIdx.x;
  uint32_t r[4];
#pragma unroll
  for (int m = 0; m < 4; ++m) {  // element (row g, column c) of matrix m is 64 m + 8 g + c
    const auto value = static_cast<float>(64 * m + lane / 4 * 8 + lane % 4 * 2);
    const __nv_bfloat162 pair = __floats2bfloat162_rn(value, value + 1.0f);
    r[m] = *reinterpret_cast<const uint32_t*>(&pair);
  }
  stmatrix_x4_trans(shared_address(&shared[lane][0]), r);
  __syncwarp();
  for (int c = 0; c < 8; ++c) out[lane * 8 + c] = shared[lane][c];
#else
  __trap();
#endif
}

class WgmmaBlocksTest : public WarpgroupTest {
 protected:
  template <int N>
  void check_wgmma() {
    SCOPED_TRACE(N);
    const RandomValues<__nv_bfloat16> a(64 * 64, 1.0f, N), b(N * 64, 1.0f, N + 1);
    const DeviceArray<float> out(64 * N, "test output");
    const auto found = run_twice<float>(out, [&] {
      wgmma_kernel<N><<<1, 128, 0, stream_->get()>>>(a.device.data(), b.device.data(), out.data());
      check_launch("wgmma_kernel");
    });
    int wrong = 0;
    for (uint32_t row = 0; row < 64; ++row) {
      for (uint32_t column = 0; column < N; ++column) {
        double wanted = 0.0;
        for (uint32_t i = 0; i < 64; ++i) wanted += double{a.floats[row * 64 + i]} * double{b.floats[column * 64 + i]};
        const bool right = std::abs(found[row * N + column] - wanted) <= 1e-3;
        if (!right && ++wrong <= 3)
          ADD_FAILURE() << row << ", " << column << ": " << found[row * N + column] << " for " << wanted;
      }
    }
    EXPECT_EQ(wrong, 0);
  }
};

TEST_F(WgmmaBlocksTest, SmallEveryWidth) {
  check_wgmma<32>();
  check_wgmma<64>();
  check_wgmma<96>();
  check_wgmma<128>();
  check_wgmma<160>();
  check_wgmma<192>();
  check_wgmma<256>();
}

TEST_F(WgmmaBlocksTest, SmallSwizzledBoxes) {
  constexpr uint32_t kRows = 100, kColumns = 200;
  std::vector<uint16_t> values(kRows * kColumns);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i);
  const auto device = upload(values);
  const CUtensorMap map =
      make_tensor_map(device.data(), {CU_TENSOR_MAP_DATA_TYPE_UINT16, kColumns, kRows, kColumns * 2, 64, 64, true});
  for (const uint32_t x : {0u, 64u, 192u}) {
    for (const uint32_t y : {0u, 30u, 96u}) {
      SCOPED_TRACE(testing::Message() << x << ", " << y);
      const auto out = poisoned<unsigned char>(64 * 128);
      copy_box_kernel<<<1, 128, 0, stream_->get()>>>(map, x, y, 64 * 128, out.data());
      check_launch("copy_box_kernel");
      synchronise();
      const auto found = download(out);
      int wrong = 0;
      for (uint32_t row = 0; row < 64; ++row) {
        for (uint32_t column = 0; column < 64; ++column) {
          uint16_t value = 0;
          std::memcpy(&value, &found[row * 128 + ((column / 8) ^ (row % 8)) * 16 + column % 8 * 2], 2);
          const bool inside = y + row < kRows && x + column < kColumns;
          const uint32_t wanted = inside ? (y + row) * kColumns + x + column : 0;
          if (value != wanted && ++wrong <= 3)
            ADD_FAILURE() << row << ", " << column << ": " << value << " for " << wanted;
        }
      }
      EXPECT_EQ(wrong, 0);
    }
  }
}

TEST_F(WgmmaBlocksTest, SmallTransposedStores) {
  const auto out = poisoned<__nv_bfloat16>(256);
  store_transposed_kernel<<<1, 32, 0, stream_->get()>>>(out.data());
  check_launch("store_transposed_kernel");
  synchronise();
  const auto found = download(out);
  for (uint32_t row = 0; row < 32; ++row) {  // memory row r of matrix m holds column r of it
    for (uint32_t c = 0; c < 8; ++c) {
      EXPECT_EQ(value_of(found[row * 8 + c]), static_cast<float>(64 * (row / 8) + 8 * c + row % 8));
    }
  }
}

}  // namespace
}  // namespace carat::cuda
