// What prompt attention by warpgroups is built of, each block alone: a failure here says which of them is wrong.
#include "exec/cuda/device/tensor_map.h"
#include "exec/cuda/kernels/attention_mma.cuh"
#include "exec/cuda/kernels/cluster.cuh"
#include "exec/cuda/kernels/hopper.cuh"
#include "exec/cuda/kernels/wgmma_product.h"
#include "exec/cuda/warpgroup_fixture.h"

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
#if defined(CARAT_HOPPER)
  __shared__ alignas(1024) unsigned char shared[2][64 * 128];
  load_block(a, 64, 64, shared[0]);
  load_block(b, 64, 64, shared[1]);
  async_proxy_fence();
  __syncthreads();
  float sums[32];
#pragma unroll
  for (float& sum : sums) sum = 1e30f;  // the first product does not add
  const uint64_t rows = wgmma_operand(shared_address(shared[0])), columns = wgmma_operand(shared_address(shared[1]));
  wgmma_fence();
  wgmma_64_halves<false>(sums, rows, columns);
#pragma unroll
  for (uint32_t k = 1; k < 4; ++k) wgmma_64_halves<true>(sums, further(rows, k * 32), further(columns, k * 32));
  wgmma_commit();
  wgmma_wait<0>();
  store_sums<64>(sums, out);
#else
  __trap();
#endif
}

// out[64][256] = p[64][kKeys] v[kKeys][256]: probabilities times values, p in shared memory or in registers.
template <uint32_t kKeys, bool kRegisters>
__global__ void __launch_bounds__(128) values_kernel(const __half* p, const __half* v, float* out) {
#if defined(CARAT_HOPPER)
  __shared__ alignas(1024) unsigned char rows[64 * 128], values[4][kKeys * 128];
  load_block(p, 64, 64, rows);
  for (uint32_t block = 0; block < 4; ++block) load_block(v + block * 64, 256, kKeys, values[block]);
  async_proxy_fence();
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
  const uint64_t first = wgmma_operand(shared_address(rows)),
                 second = wgmma_operand_rows(shared_address(values[0]), kKeys * 128);
  wgmma_fence();
#pragma unroll
  for (uint32_t k = 0; k < kKeys / 16; ++k) {
    if constexpr (kRegisters) {
      wgmma_256_halves_by_rows(sums, a[k], further(second, k * 2048));
    } else {
      wgmma_256_halves_by_rows(sums, further(first, k * 32), further(second, k * 2048));
    }
  }
  wgmma_commit();
  wgmma_wait<0>();
  store_sums<256>(sums, out);
#else
  __trap();
#endif
}

// Each of two blocks copies a box of 8 rows to both, twice, the second time after both have given back the first ones.
// out[block][round][2][8 * 128]
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__cluster_dims__(2, 1, 1)
#endif
    __global__ void multicast_kernel(const __grid_constant__ CUtensorMap map, unsigned char* out) {
#if defined(CARAT_HOPPER)
  __shared__ alignas(1024) unsigned char shared[2][1024];
  __shared__ alignas(8) uint64_t barriers[2];
  const uint32_t rank = blockIdx.x % 2, full = shared_address(&barriers[0]), free = shared_address(&barriers[1]);
  if (threadIdx.x == 0) {
    barrier_init(full, 1);
    barrier_init(free, 2);
    barrier_init_fence();
  }
  __syncthreads();
  cluster_arrive();
  cluster_wait();
  for (uint32_t round = 0; round < 2; ++round) {
    if (threadIdx.x == 0) {
      barrier_wait(free, round ^ 1);
      barrier_expect(full, 2048);
      copy_box_to_blocks(shared_address(shared[rank]), &map, full, 0, round * 16 + rank * 8, 3);
    }
    barrier_wait(full, round);
    for (uint32_t i = threadIdx.x; i < 2048; i += blockDim.x) {
      out[(rank * 2 + round) * 2048 + i] = shared[i / 1024][i % 1024];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      barrier_arrive(free);
      barrier_arrive_in_block(in_block(free, rank ^ 1));
    }
  }
  cluster_arrive();
  cluster_wait();
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

  template <uint32_t kKeys, bool kRegisters>
  void check_values() {
    SCOPED_TRACE(testing::Message() << kKeys << " keys, " << (kRegisters ? "registers" : "shared memory"));
    const Halves p(64 * 64, kKeys), v(kKeys * 256, kKeys + 1);
    const DeviceArray<float> out(64 * 256, "test output");
    const auto found = run_twice<float>(out, [&] {
      values_kernel<kKeys, kRegisters><<<1, 128, 0, stream_->get()>>>(p.device.data(), v.device.data(), out.data());
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
  check_values<16, false>();
  check_values<16, true>();
  check_values<64, false>();
  check_values<64, true>();
}

TEST_F(AttentionBlocksTest, SmallMulticast) {
  std::vector<uint16_t> rows(32 * 64);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint16_t>(i);
  const auto device = upload(rows);
  const CUtensorMap map =
      make_tensor_map(device.data(), {CU_TENSOR_MAP_DATA_TYPE_UINT16, 64, uint64_t{1} << 31, 128, 64, 8, true});
  const auto out = poisoned<unsigned char>(2 * 2 * 2048);
  multicast_kernel<<<2, 128, 0, stream_->get()>>>(map, out.data());
  check_launch("multicast_kernel");
  synchronise();
  const auto found = download(out);
  for (uint32_t block = 0; block < 2; ++block) {
    for (uint32_t row = 0; row < 32; ++row) {
      for (uint32_t column = 0; column < 64; ++column) {
        uint16_t value = 0;
        std::memcpy(&value, &found[block * 4096 + row * 128 + ((column / 8) ^ (row % 8)) * 16 + column % 8 * 2], 2);
        ASSERT_EQ(value, row * 64 + column) << "block " << block << " row " << row << " column " << column;
      }
    }
  }
}

}  // namespace
}  // namespace carat::cuda
