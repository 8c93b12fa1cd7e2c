#pragma once

// Matrix products by a warpgroup, four warps (wgmma, sm_90a). They run asynchronously: wgmma_fence(), the products,
// wgmma_commit_group(), and wgmma_wait_group() before the results are read or the operands are overwritten.
#include <cstdint>

#include "exec/cuda/kernels/ptx/wgmma_descriptor.cuh"

namespace carat::cuda {

// Orders register writes before the wgmma that reads them.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most kPending of the newest committed groups are still in flight.
template <int kPending>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// In all products a warp holds 16 of the 64 rows of d: element 4 j + i of its d is c[i] of mma.m16n8k16 for columns
// 8 j ... 8 j + 7. An `a` in registers is this warp's 16 rows, as for mma.m16n8k16; other operands are descriptors.

// d (64 x N, fp32) += a (64 x 16, bf16) b (16 x N, bf16, K-major).
template <int N>
__device__ void wgmma_bf16(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b);

#define CARAT_D16(i)                                                                                                \
  "+f"(d[(i) + 0]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]), "+f"(d[(i) + 5]),       \
      "+f"(d[(i) + 6]), "+f"(d[(i) + 7]), "+f"(d[(i) + 8]), "+f"(d[(i) + 9]), "+f"(d[(i) + 10]), "+f"(d[(i) + 11]), \
      "+f"(d[(i) + 12]), "+f"(d[(i) + 13]), "+f"(d[(i) + 14]), "+f"(d[(i) + 15])
#define CARAT_R0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define CARAT_R1 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define CARAT_R2 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define CARAT_R3 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define CARAT_R4 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define CARAT_R5 "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define CARAT_R6 "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define CARAT_R7 "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
// One specialisation: `registers` are the operand numbers of d, `inputs` those of a and b.
#define CARAT_WGMMA(N, registers, inputs, ...)                                                                       \
  template <>                                                                                                        \
  __device__ __forceinline__ void wgmma_bf16<N>(float(&d)[N / 2], const uint32_t(&a)[4], uint64_t b) {               \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" registers "}, " inputs ", 1, 1, 1, 0;" \
                 : __VA_ARGS__                                                                                       \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                              \
  }
CARAT_WGMMA(32, CARAT_R0, "{%16,%17,%18,%19}, %20", CARAT_D16(0))
CARAT_WGMMA(64, CARAT_R0 "," CARAT_R1, "{%32,%33,%34,%35}, %36", CARAT_D16(0), CARAT_D16(16))
CARAT_WGMMA(96, CARAT_R0 "," CARAT_R1 "," CARAT_R2, "{%48,%49,%50,%51}, %52", CARAT_D16(0), CARAT_D16(16),
            CARAT_D16(32))
CARAT_WGMMA(128, CARAT_R0 "," CARAT_R1 "," CARAT_R2 "," CARAT_R3, "{%64,%65,%66,%67}, %68", CARAT_D16(0), CARAT_D16(16),
            CARAT_D16(32), CARAT_D16(48))
CARAT_WGMMA(160, CARAT_R0 "," CARAT_R1 "," CARAT_R2 "," CARAT_R3 "," CARAT_R4, "{%80,%81,%82,%83}, %84", CARAT_D16(0),
            CARAT_D16(16), CARAT_D16(32), CARAT_D16(48), CARAT_D16(64))
CARAT_WGMMA(192, CARAT_R0 "," CARAT_R1 "," CARAT_R2 "," CARAT_R3 "," CARAT_R4 "," CARAT_R5, "{%96,%97,%98,%99}, %100",
            CARAT_D16(0), CARAT_D16(16), CARAT_D16(32), CARAT_D16(48), CARAT_D16(64), CARAT_D16(80))
CARAT_WGMMA(256, CARAT_R0 "," CARAT_R1 "," CARAT_R2 "," CARAT_R3 "," CARAT_R4 "," CARAT_R5 "," CARAT_R6 "," CARAT_R7,
            "{%128,%129,%130,%131}, %132", CARAT_D16(0), CARAT_D16(16), CARAT_D16(32), CARAT_D16(48), CARAT_D16(64),
            CARAT_D16(80), CARAT_D16(96), CARAT_D16(112))
#undef CARAT_WGMMA

// d (64 x 64, fp32) = a b, plus d where kAccumulate: a and b are fp16 and K-major.
template <bool kAccumulate>
__device__ __forceinline__ void wgmma_m64n64_f16(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" CARAT_R0 "," CARAT_R1
      "}, %32, %33, add, 1, 1, 0, 0;\n"
      "}"
      : CARAT_D16(0), CARAT_D16(16)
      : "l"(a), "l"(b), "n"(kAccumulate ? 1 : 0));
}
// d (64 x 256, fp32) += a b: a and b are fp16, b is N-major.
__device__ __forceinline__ void wgmma_m64n256_f16_b_n_major(float (&d)[128], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" CARAT_R0 "," CARAT_R1 "," CARAT_R2 "," CARAT_R3
               "," CARAT_R4 "," CARAT_R5 "," CARAT_R6 "," CARAT_R7 "}, {%128, %129, %130, %131}, %132, 1, 1, 1, 1;"
               : CARAT_D16(0), CARAT_D16(16), CARAT_D16(32), CARAT_D16(48), CARAT_D16(64), CARAT_D16(80), CARAT_D16(96),
                 CARAT_D16(112)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
#undef CARAT_D16
#undef CARAT_R0
#undef CARAT_R1
#undef CARAT_R2
#undef CARAT_R3
#undef CARAT_R4
#undef CARAT_R5
#undef CARAT_R6
#undef CARAT_R7

}  // namespace carat::cuda
