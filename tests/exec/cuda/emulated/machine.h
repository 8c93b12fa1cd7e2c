#pragma once

// A GPU to test kernels on where there is none: runs the blocks of one cluster, or of a grid whose blocks wait for one
// another, on the host, each thread on a stack of its own, in an order drawn from a seed. What runs asynchronously on
// the card (copies to shared memory, products of warpgroups, stores on their way to other blocks) happens at a time
// drawn likewise, anywhere between its start and the moment somebody has waited for it, and a look at memory that is
// not ordered with other blocks' stores may find what was there before. So a barrier that is missing, or a slot or
// buffer given back too early, shows as a wrong result or as threads that wait for ever. Layouts are those of the PTX
// manual; speed is not modelled, and of the order of memory only what is said here.
//
// The kernel is compiled for the host against the headers below this folder, which take the place of those with the
// instructions.
#include <cuda.h>
#include <vector_types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace carat::cuda::emulated {

// What a CUtensorMap stands for here: rows of memory, copied in boxes with rows of 128 bytes, swizzled.
struct BoxedRows {
  const uint8_t* base;
  uint64_t rows, pitch_bytes;
  uint32_t box_rows, element_bytes;
};
CUtensorMap describe(const BoxedRows& rows);

struct Grid {
  uint32_t blocks, threads;  // of the whole grid, of a block
  uint32_t cluster;          // blocks that run together
  uint32_t shared_bytes;
};

// Runs `kernel` for every thread of the grid, a cluster after the other. Throws std::runtime_error where threads wait
// for something that will not come, or instructions are used as the hardware does not allow it.
void run(const Grid& grid, uint64_t seed, const std::function<void()>& kernel);
// The same for a grid of any shape, each time in another order: a block after the other, unless they wait for those
// that follow; or a cluster after the other.
void launch_kernel(const dim3& grid, const dim3& block, size_t shared_bytes, const std::function<void()>& kernel,
                   uint32_t cluster = 1);

// --- what the instructions are made of, for the thread that runs ----------------------------------------------------
const dim3& thread_index();
const dim3& block_index();
dim3 grid_size();
dim3 block_size();
uint64_t clock();                               // turns so far
inline constexpr uint32_t kFirstShared = 1024;  // address of a block's shared memory; byte 0 is never used

uint8_t* shared_memory();                    // of the block
void* block_array(int line, size_t bytes);   // beside it: the same for all who ask in the same line
uint32_t shared_address_of(const void* at);  // of a byte of it
uint8_t* shared_at(uint32_t address, size_t bytes);
// Others go on; for threads that ask again and again for what others write. `what`: for the message where it never
// comes; lives as long as the program.
void pause(const char* what);
void note_progress();  // something was written that others may wait for in that way

// All lanes of a warp meet, and each sees what all have brought. Good until the lane meets the others again.
inline constexpr uint32_t kWarp = 32;
using LaneWords = std::array<uint32_t, 8>;
const std::array<LaneWords, kWarp>& meet(const LaneWords& mine);
void block_barrier(uint32_t id, uint32_t threads);
void block_barrier_arrive(uint32_t id, uint32_t threads);
void cluster_barrier_arrive();
void cluster_barrier_wait();
uint32_t address_in_block(uint32_t address, uint32_t rank);

// Memory that blocks share. A store arrives some time later; loads take `bytes` of up to 16 at once, which lie in one
// piece of 16. may_be_old: they may find what was there before the last store that has arrived.
void store_global(void* at, const void* from, size_t bytes);
void load_global(const void* at, void* to, size_t bytes, bool may_be_old);

void barrier_initialise(uint32_t barrier, uint32_t arrivals);
void barrier_announce_bytes(uint32_t barrier, uint32_t bytes);
void barrier_count_arrival(uint32_t barrier, uint32_t announced_bytes, uint32_t count = 1);
bool barrier_phase_over(uint32_t barrier, uint32_t parity);
void barrier_wait_for_phase(uint32_t barrier, uint32_t parity);
void start_copy(uint32_t destination, const CUtensorMap* map, uint32_t barrier, uint32_t x, uint32_t y);
void start_bulk_copy(uint32_t destination, const void* from, uint32_t bytes, uint32_t barrier);
// A thread's own copies to shared memory, zeros where `from` is null: in groups, of which all but the newest `pending`
// have come when it has waited for them.
void start_own_copy(uint32_t destination, const void* from, uint32_t bytes);
void commit_own_copies();
void wait_for_own_copies(uint32_t pending);
// To a block of the cluster (the address is from address_in_block()): there when the thread arrives at the cluster's
// barrier, at the latest.
void store_in_block(uint32_t there, const void* values, size_t bytes);
// To a block of the cluster: both addresses are from address_in_block().
void start_send(uint32_t there, uint32_t barrier, const void* values, size_t bytes);

// d (64 x n, fp32 fragments of each thread) = a b + d, or a b; operands as descriptors of fp16 in shared memory, or a
// as four registers of each thread, which are read when the product is carried out.
struct WarpgroupProduct {
  uint32_t n;
  uint64_t a, b;
  bool add, b_by_rows;
  bool operator==(const WarpgroupProduct&) const = default;
};
void start_product(const WarpgroupProduct& product, float* d, const uint32_t* a_registers = nullptr);
void commit_products();
void wait_for_products(uint32_t pending);

}  // namespace carat::cuda::emulated
