// What prompt attention by warpgroups is built of, each block alone: a failure here says which of them is wrong.
#include "exec/cuda/kernels/attention/warpgroup_fixture.h"
#include "exec/cuda/kernels/gemm/hopper/wgmma_gemm.h"
#include "exec/cuda/kernels/ptx/architecture.cuh"
#include "exec/cuda/kernels/ptx/cluster.cuh"
#include "exec/cuda/kernels/ptx/fence_proxy.cuh"
#include "exec/cuda/kernels/ptx/mbarrier.cuh"
#include "exec/cuda/kernels/ptx/mma.cuh"
#include "exec/cuda/kernels/ptx/wgmma.cuh"

namespace carat::cuda {
namespace {

// Rows of 64 halves, `pitch` apart, swizzled into shared memory by hand.
[[maybe_unused]] __device__ void load_block(const __half* from, uint32_t pitch, uint32_t rows, unsigned char* to) {
  for (uint32_t i = threadIdx.x; i < rows * 8; i += blockDim.x) {
    const uint32_t row = i / 8, piece = i % 8;
    *reinterpret_cast<uint4*>(to + row * 128 + (piece ^ (row % 8)) * 16) =
        *reinterpret_cast<const uint4*>(from + row * pitch + piece * 8);
  }
}

template <int N>
[[maybe_unused]] __device__ void store_sums(const float (&sums)[N / 2], float* out) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int j = 0; j < N / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) out[(warp * 16 + g + i / 2 * 8) * N + j * 8 + 2 * t + i % 2] = sums[4 * j + i];
  }
}

// out[64][64] = a[64][64] b[64][64]^T: scores.
__global__ void __launch_bounds__(128) scores_kernel(const __half* a, const __half* b, float* out) {
#if defined(CARAT_SM90A)
  __shared__ alignas(1024) unsigned char shared[2][64 * 128];
  load_block(a, 64, 64, shared[0]);
  load_block(b, 64, 64, shared[1]);
  fence_proxy_async();
  __syncthreads();
  float sums[32];
#pragma unroll
  for (float& sum : sums) sum = 1e30f;  // the first product does not add
  const uint64_t rows = wgmma_descriptor_k_major(shared_address(shared[0])),
                 columns = wgmma_descriptor_k_major(shared_address(shared[1]));
  wgmma_fence();
  wgmma_m64n64_f16<false>(sums, rows, columns);
#pragma unroll
  for (uint32_t k = 1; k < 4; ++k)
    wgmma_m64n64_f16<true>(sums, advance_descriptor(rows, k * 32), advance_descriptor(columns, k * 32));
  wgmma_commit_group();
  wgmma_wait_group<0>();
  store_sums<64>(sums, out);
#else
  __trap();
#endif
}

// out[64][256] = p[64][kKeys] v[kKeys][256]: probabilities times values, p in registers.
template <uint32_t kKeys>
__global__ void __launch_bounds__(128) values_kernel(const __half* p, const __half* v, float* out) {
#if defined(CARAT_SM90A)
  __shared__ alignas(1024) unsigned char values[4][kKeys * 128];
  for (uint32_t block = 0; block < 4; ++block) load_block(v + block * 64, 256, kKeys, values[block]);
  fence_proxy_async();
  __syncthreads();
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float sums[128] = {};
  uint32_t a[kKeys / 16][4];
#pragma unroll
  for (uint32_t k = 0; k < kKeys / 16; ++k) {
#pragma unroll
    for (uint32_t r = 0; r < 4; ++r) {
      const uint32_t row = warp * 16 + lane / 4 + r % 2 * 8, column = k * 16 + lane % 4 * 2 + r / 2 * 8;
      a[k][r] = *reinterpret_cast<const uint32_t*>(p + row * 64 + column);
    }
  }
  const uint64_t second = wgmma_descriptor_n_major(shared_address(values[0]), kKeys * 128);
  wgmma_fence();
#pragma unroll
  for (uint32_t k = 0; k < kKeys / 16; ++k)
    wgmma_m64n256_f16_b_n_major(sums, a[k], advance_descriptor(second, k * 2048));
  wgmma_commit_group();
  wgmma_wait_group<0>();
  store_sums<256>(sums, out);
#else
  __trap();
#endif
}

// Every thread of two blocks sends a number and a piece of 16 bytes to its twin, kRounds times, the next ones once it
// has the twin's. out[block][round][thread] is what came.
constexpr uint32_t kRounds = 3;
struct Sent {
  uint32_t number, piece[4];
};
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__cluster_dims__(2, 1, 1)
#endif
    __global__ void __launch_bounds__(128) send_kernel(Sent* out) {
#if defined(CARAT_SM90A)
  __shared__ alignas(16) uint32_t pieces[kRounds][128][4], numbers[kRounds][128];
  __shared__ alignas(8) uint64_t barriers[1];
  const uint32_t rank = blockIdx.x % 2, barrier = shared_address(&barriers[0]);
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  cluster_arrive();
  cluster_wait();
  for (uint32_t round = 0; round < kRounds; ++round) {
    // They may come before they are announced.
    const uint32_t first = (rank * kRounds + round) * 1000 + threadIdx.x, there = mapa(barrier, rank ^ 1);
    const uint32_t piece[4] = {first + 1, first + 2, first + 3, first + 4};
    st_async(mapa(shared_address(&numbers[round][threadIdx.x]), rank ^ 1), there, first);
    st_async(mapa(shared_address(&pieces[round][threadIdx.x][0]), rank ^ 1), there, piece);
    if (threadIdx.x == 0) mbarrier_arrive_expect_tx(barrier, 128 * 20);
    mbarrier_wait_cluster(barrier, round % 2);
    Sent& came = out[(rank * kRounds + round) * 128 + threadIdx.x];
    came.number = numbers[round][threadIdx.x];
    for (uint32_t i = 0; i < 4; ++i) came.piece[i] = pieces[round][threadIdx.x][i];
    __syncthreads();
  }
#else
  __trap();
#endif
}

class AttentionBlocksTest : public WarpgroupTest {
 protected:
  struct Halves {
    std::vector<float> floats;
    DeviceArray<__half> device;
    Halves(size_t count, uint64_t seed) {
      floats = test::Random(seed).normals(count, 1.0f);
      std::vector<__half> typed(count);
      for (size_t i = 0; i < count; ++i) {
        typed[i] = __float2half(floats[i]);
        floats[i] = __half2float(typed[i]);
      }
      device = upload(typed);
    }
  };

  // wanted(row, column) of 64 rows.
  template <typename Wanted>
  static void expect_product(const std::vector<float>& found, uint32_t columns, const Wanted& wanted) {
    int wrong = 0;
    for (uint32_t row = 0; row < 64; ++row) {
      for (uint32_t column = 0; column < columns; ++column) {
        const float value = found[row * columns + column];
        if (!(std::abs(value - wanted(row, column)) <= 1e-3) && ++wrong <= 3) {
          ADD_FAILURE() << row << ", " << column << ": " << value << " for " << wanted(row, column);
        }
      }
    }
    EXPECT_EQ(wrong, 0);
  }

  template <uint32_t kKeys>
  void check_values() {
    SCOPED_TRACE(testing::Message() << kKeys << " keys");
    const Halves p(64 * 64, kKeys), v(kKeys * 256, kKeys + 1);
    const DeviceArray<float> out(64 * 256, "test output");
    const auto found = run_twice<float>(out, [&] {
      values_kernel<kKeys><<<1, 128, 0, stream_->get()>>>(p.device.data(), v.device.data(), out.data());
      check_launch("values_kernel");
    });
    expect_product(found, 256, [&](uint32_t row, uint32_t column) {
      double sum = 0.0;
      for (uint32_t k = 0; k < kKeys; ++k) sum += double{p.floats[row * 64 + k]} * double{v.floats[k * 256 + column]};
      return sum;
    });
  }
};

TEST_F(AttentionBlocksTest, SmallScores) {
  const Halves a(64 * 64, 1), b(64 * 64, 2);
  const DeviceArray<float> out(64 * 64, "test output");
  const auto found = run_twice<float>(out, [&] {
    scores_kernel<<<1, 128, 0, stream_->get()>>>(a.device.data(), b.device.data(), out.data());
    check_launch("scores_kernel");
  });
  expect_product(found, 64, [&](uint32_t row, uint32_t column) {
    double sum = 0.0;
    for (uint32_t k = 0; k < 64; ++k) sum += double{a.floats[row * 64 + k]} * double{b.floats[column * 64 + k]};
    return sum;
  });
}

TEST_F(AttentionBlocksTest, SmallValues) {
  check_values<16>();
  check_values<32>();
  check_values<64>();
}

TEST_F(AttentionBlocksTest, SmallSends) {
  const auto out = poisoned<Sent>(2 * kRounds * 128);
  send_kernel<<<2, 128, 0, stream_->get()>>>(out.data());
  check_launch("send_kernel");
  synchronise();
  const auto found = download(out);
  for (uint32_t i = 0; i < found.size(); ++i) {
    const uint32_t block = i / 128 / kRounds, round = i / 128 % kRounds;
    const uint32_t sent = ((block ^ 1) * kRounds + round) * 1000 + i % 128;
    ASSERT_EQ(found[i].number, sent) << i;
    for (uint32_t j = 0; j < 4; ++j) ASSERT_EQ(found[i].piece[j], sent + 1 + j) << i;
  }
}

}  // namespace
}  // namespace carat::cuda
