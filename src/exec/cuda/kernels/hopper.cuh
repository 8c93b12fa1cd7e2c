#pragma once

// What Hopper (sm_90a) has beyond older cards: barriers in shared memory that count bytes, copies of tensor tiles
// (TMA), and matrix products by a warpgroup (wgmma). A kernel that uses any of it guards its body with CARAT_HOPPER and
// traps in the other branch; the plan chooses it on sm_90 only.
#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

#include "exec/cuda/kernels/wgmma_operand.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CARAT_HOPPER 1
#endif

namespace carat::cuda {

// --- barriers: a phase ends when all arrivals and all announced bytes are in; waiting names the phase's parity ------
__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes initialised barriers known to the copy engine.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// As often as that.
__device__ __forceinline__ void barrier_arrive(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
// Arrives and announces bytes that copies will deliver in this phase.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
#define CARAT_BARRIER_WAIT(scope)               \
  asm volatile(                                 \
      "{\n"                                     \
      ".reg .pred done;\n"                      \
      "again:\n"                                \
      "mbarrier.try_wait.parity.acquire." scope \
      ".shared::cta.b64 done, [%0], %1;\n"      \
      "@done bra finished;\n"                   \
      "bra again;\n"                            \
      "finished:\n"                             \
      "}" ::"r"(barrier),                       \
      "r"(parity)                               \
      : "memory")
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) { CARAT_BARRIER_WAIT("cta"); }
// Also for what other blocks of the cluster sent.
__device__ __forceinline__ void barrier_wait_for_blocks(uint32_t barrier, uint32_t parity) {
  CARAT_BARRIER_WAIT("cluster");
}
#undef CARAT_BARRIER_WAIT
// Whether the phase has ended, or does within what the hardware waits at most.
__device__ __forceinline__ bool barrier_passed(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred passed;\n"
      "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 passed, [%1], %2;\n"
      "selp.u32 %0, 1, 0, passed;\n"
      "}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// --- copies ----------------------------------------------------------------------------------------------------------
// The box of a tensor map at element (x, y), x along the rows; what lies outside the tensor becomes zero. Its bytes
// count towards the barrier's phase.
__device__ __forceinline__ void copy_box(uint32_t destination, const CUtensorMap* map, uint32_t barrier, uint32_t x,
                                         uint32_t y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          destination),
      "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}
// A number, or a piece of 16 bytes, to another block of the cluster: `there` and `barrier` are from in_block(). Its
// bytes count towards the barrier's phase.
__device__ __forceinline__ void send_to_block(uint32_t there, uint32_t barrier, uint32_t value) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(there), "r"(value),
               "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void send_to_block(uint32_t there, uint32_t barrier, const uint32_t (&piece)[4]) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(there),
      "r"(piece[0]), "r"(piece[1]), "r"(piece[2]), "r"(piece[3]), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
// Asks for memory to come to the L2 cache: whole 16 bytes.
__device__ __forceinline__ void prefetch_bulk(const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
// Orders this thread's ordinary writes to shared memory before reads by wgmma or the copy engine.
__device__ __forceinline__ void async_proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Four 8 x 8 matrices of 16-bit elements, transposed on their way to shared memory: lane l names memory row l % 8 of
// matrix l / 8 and holds elements (2t, g) and (2t + 1, g) of each (g = lane / 4, t = lane % 4).
__device__ __forceinline__ void store_matrices_transposed(uint32_t address, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// --- registers -------------------------------------------------------------------------------------------------------
template <int kCount>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// --- wgmma -----------------------------------------------------------------------------------------------------------
// Orders register writes before the wgmma that reads them.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most kPending of the newest groups are still under way.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// The same value, but nothing computed from it is kept ready outside a loop: dozens of operands in registers would
// drive others to memory.
__device__ __forceinline__ uint32_t opaque(uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

// d (64 x N, fp32) = a (64 x 16, bf16, this warp's 16 rows in registers as for mma.m16n8k16) b + d.
// Element 4 j + i of d is as c[i] of the 16 x 8 tile of columns 8 j ... 8 j + 7.
template <int N>
__device__ void wgmma(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b);

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
// `inputs` are the operand numbers of a and b.
#define CARAT_WGMMA(N, registers, inputs, ...)                                                                       \
  template <>                                                                                                        \
  __device__ __forceinline__ void wgmma<N>(float(&d)[N / 2], const uint32_t(&a)[4], uint64_t b) {                    \
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

// Of fp16 operands.
// d (64 x 64) = a b, plus d where kAdd: a and b as wgmma_operand() has them.
template <bool kAdd>
__device__ __forceinline__ void wgmma_64_halves(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" CARAT_R0 "," CARAT_R1
      "}, %32, %33, add, 1, 1, 0, 0;\n"
      "}"
      : CARAT_D16(0), CARAT_D16(16)
      : "l"(a), "l"(b), "n"(kAdd ? 1 : 0));
}
// d (64 x 256) += a b: a in registers as for mma.m16n8k16, b as wgmma_operand_rows() has it.
__device__ __forceinline__ void wgmma_256_halves_by_rows(float (&d)[128], const uint32_t (&a)[4], uint64_t b) {
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
