#pragma once

// What the emulated machine is while a kernel runs; for its own source files.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "exec/cuda/emulated/machine.h"
#include "support/random.h"

namespace carat::cuda::emulated {

inline constexpr size_t kPiece = 16;  // bytes of memory that are stored and loaded at once

[[noreturn]] void refuse(const std::string& what);

// A barrier that counts arrivals and bytes.
struct PhaseBarrier {
  uint32_t arrivals = 0, pending = 0, phase = 0;
  int64_t bytes = 0;

  void settle();
};

// Threads that meet: the last one lets all go on.
struct Meeting {
  uint32_t arrived = 0, round = 0;

  void arrive(uint32_t threads);
};

// A warp's 16 rows of a product of its warpgroup: on the card, too, warps need not be at the same place.
struct StartedProduct {
  WarpgroupProduct what;
  bool at_once;  // as early as it can, or as late
  uint32_t threads = 0;
  std::array<float*, kWarp> d{};
  std::array<const uint32_t*, kWarp> a_registers{};
};

struct Warp {
  Meeting meeting;
  std::array<std::array<LaneWords, kWarp>, 2> brought{};  // in this round and the one before
  std::vector<StartedProduct> products;
  size_t done = 0;
};

struct FreeMemory {
  void operator()(uint8_t* memory) const { std::free(memory); }
};

struct Block {
  std::unique_ptr<uint8_t[], FreeMemory> shared;  // aligned as the largest swizzle wants it
  std::map<uint32_t, PhaseBarrier> barriers;
  std::map<int, std::vector<uint64_t>> arrays;  // by the line that asks for them
  std::array<Meeting, 16> meetings;
  std::vector<Warp> warps;
};

// A thread's copy to shared memory that has not come yet.
struct OwnCopy {
  uint32_t group;
  uint8_t* to;
  const void* from;  // null: zeros
  size_t bytes;

  void come() const;
};

using Stack = std::unique_ptr<uint8_t[]>;

struct Thread {
  void* stopped_at = nullptr;  // its stack, while others run
  Stack stack;
  dim3 index, block_index;
  uint32_t rank = 0;
  bool ended = false;
  const char* waits_for = "";
  uint64_t goes_on_at = 0;            // the turn from which on it may
  const uint32_t* changes = nullptr;  // it waits until these bits of the word are others
  uint32_t bits = 0, others_than = 0;
  size_t products = 0;
  std::vector<size_t> committed;  // products at each commit
  std::vector<OwnCopy> copies;
  uint32_t copy_groups = 0;                      // that are complete
  std::vector<std::function<void()>> to_blocks;  // stores to others of the cluster that have not arrived
  uint32_t cluster_round = 0;
};

struct Machine {
  Grid grid{};
  dim3 shape;  // of the grid
  test::Random random{0};
  std::function<void()> kernel;
  std::deque<Block> blocks;  // that run together
  std::deque<Thread> threads;
  uint32_t next_block = 0;                        // of the grid
  std::vector<std::function<void()>> deliveries;  // that have not happened yet
  Meeting cluster;
  Thread* current = nullptr;
  std::vector<bool> slow;   // warps that go on only where no other can
  uint64_t slow_until = 0;  // the turn in which others are chosen
  uint64_t turns = 0;
  uint64_t last_progress = 0;  // the turn in which something happened that others may wait for
  size_t running = 0;          // threads that have not ended
  std::unordered_map<uintptr_t, std::array<uint8_t, kPiece>> before;  // what a store to that piece has replaced
  void* scheduler = nullptr;                                          // its stack, while a thread runs
  std::exception_ptr failure;
};

extern Machine* machine;  // the one that runs; null: none does

inline Block& block_of(uint32_t rank) { return machine->blocks[rank]; }
inline Block& my_block() { return block_of(machine->current->rank); }

// --- machine.cc
// Until these bits of the word are others.
void wait_for_change(const char* what, const uint32_t& word, uint32_t others_than, uint32_t bits = 0xffffffffu);
// Now and then others go on, for a short while or a long one.
void let_others_go_first();

// --- memory.cc
// Bytes of the shared memory of a block.
uint8_t* shared_of(uint32_t rank, uint32_t address, size_t bytes);
inline uint32_t swizzled(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

}  // namespace carat::cuda::emulated
