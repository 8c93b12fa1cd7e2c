// Memory of the emulated machine: what blocks share, shared memory, its barriers, and copies to it.
#include <fmt/format.h>

#include <cstring>

#include "exec/cuda/emulated/machine_state.h"

namespace carat::cuda::emulated {
namespace {

constexpr uint32_t kRankShift = 24;  // address_in_block() puts the rank plus one above the address

struct Copy {
  uint32_t destination, barrier, rank;
  BoxedRows rows;
  uint32_t x, y;
};

PhaseBarrier& barrier_of(uint32_t rank, uint32_t address) {
  const auto found = block_of(rank).barriers.find(address);
  if (found == block_of(rank).barriers.end()) refuse("a barrier that has not been initialised");
  return found->second;
}

// An address, perhaps in another block's memory.
struct Place {
  uint32_t rank, address;
  explicit Place(uint32_t word)
      : rank(word >> kRankShift != 0 ? (word >> kRankShift) - 1 : machine->current->rank),
        address(word & ((1u << kRankShift) - 1)) {
    // A block that has ended has no shared memory any more.
    bool alive = false;
    for (const Thread& thread : machine->threads) alive = alive || (thread.rank == rank && !thread.ended);
    if (!alive) refuse("memory of a block that has ended");
  }
};

void deliver(const Copy& copy) {
  constexpr uint32_t kRowBytes = 128;
  if (copy.destination % 1024 != 0) refuse("a swizzled box must go to a multiple of 1024");
  for (uint32_t r = 0; r < copy.rows.box_rows; ++r) {
    const uint64_t row = uint64_t{copy.y} + r, at = row * copy.rows.pitch_bytes + copy.x * copy.rows.element_bytes;
    for (uint32_t piece = 0; piece < kRowBytes; piece += 16) {
      uint8_t* to = shared_of(copy.rank, swizzled(copy.destination + r * kRowBytes + piece), 16);
      if (row >= copy.rows.rows) {
        std::memset(to, 0, 16);
      } else {
        std::memcpy(to, copy.rows.base + at + piece, 16);
      }
    }
  }
  PhaseBarrier& barrier = barrier_of(copy.rank, copy.barrier);
  barrier.bytes -= copy.rows.box_rows * kRowBytes;
  barrier.settle();
}

uintptr_t piece_of(const void* at, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  if (address % bytes != 0 || bytes > kPiece) refuse("an access to memory that is not aligned");
  return address / kPiece * kPiece;
}

}  // namespace

void PhaseBarrier::settle() {
  if (pending > 0 || bytes != 0) return;
  pending = arrivals;
  ++phase;
  note_progress();
}

uint8_t* shared_of(uint32_t rank, uint32_t address, size_t bytes) {
  const uint32_t size = machine->grid.shared_bytes;
  if (address < kFirstShared || address - kFirstShared + bytes > size) {
    refuse(fmt::format("{} bytes at shared address {} are outside the block's {}", bytes, address, size));
  }
  return block_of(rank).shared.get() + (address - kFirstShared);
}

uint8_t* shared_memory() { return my_block().shared.get(); }
void* block_array(int line, size_t bytes) {
  std::vector<uint64_t>& words = my_block().arrays[line];
  if (words.empty()) words.assign((bytes + 7) / 8, ~uint64_t{0});  // NaN
  return words.data();
}
uint32_t shared_address_of(const void* at) {
  const ptrdiff_t offset = static_cast<const uint8_t*>(at) - my_block().shared.get();
  if (offset < 0 || offset >= machine->grid.shared_bytes) refuse("the address of something outside shared memory");
  return static_cast<uint32_t>(offset) + kFirstShared;
}
uint8_t* shared_at(uint32_t address, size_t bytes) {
  if (address % bytes != 0) refuse(fmt::format("shared address {} is not aligned to {}", address, bytes));
  return shared_of(machine->current->rank, address, bytes);
}

uint32_t address_in_block(uint32_t address, uint32_t rank) { return address | (rank + 1) << kRankShift; }

void store_global(void* at, const void* from, size_t bytes) {
  const uintptr_t piece = piece_of(at, bytes);
  std::array<uint8_t, kPiece> value;
  std::memcpy(value.data(), from, bytes);
  const auto arrive = [at, bytes, piece, value] {
    std::memcpy(machine->before[piece].data(), reinterpret_cast<const void*>(piece), kPiece);
    std::memcpy(at, value.data(), bytes);
    note_progress();
  };
  if (machine->random.below(2) == 0) return arrive();
  machine->deliveries.emplace_back(arrive);
}

void load_global(const void* at, void* to, size_t bytes, bool may_be_old) {
  const uintptr_t piece = piece_of(at, bytes);
  const void* from = at;
  if (may_be_old && machine->random.below(4) == 0) {
    const auto before = machine->before.find(piece);
    if (before != machine->before.end()) from = before->second.data() + (reinterpret_cast<uintptr_t>(at) - piece);
  }
  std::memcpy(to, from, bytes);
}

void barrier_initialise(uint32_t barrier, uint32_t arrivals) {
  my_block().barriers[barrier] = {.arrivals = arrivals, .pending = arrivals};
}

void barrier_announce_bytes(uint32_t barrier, uint32_t bytes) {
  barrier_of(machine->current->rank, barrier).bytes += bytes;
}

void barrier_count_arrival(uint32_t barrier, uint32_t announced_bytes, uint32_t count) {
  PhaseBarrier& state = barrier_of(machine->current->rank, barrier);
  if (state.pending < count) refuse("more arrivals at a barrier than it was initialised for");
  state.pending -= count;
  state.bytes += announced_bytes;
  state.settle();
  let_others_go_first();
}

bool barrier_phase_over(uint32_t barrier, uint32_t parity) {
  return barrier_of(machine->current->rank, barrier).phase % 2 != parity;
}

void barrier_wait_for_phase(uint32_t barrier, uint32_t parity) {
  wait_for_change("a barrier in shared memory", barrier_of(machine->current->rank, barrier).phase, parity, 1);
}

CUtensorMap describe(const BoxedRows& rows) {
  CUtensorMap map{};
  static_assert(sizeof rows <= sizeof map);
  std::memcpy(&map, &rows, sizeof rows);
  return map;
}

void start_copy(uint32_t destination, const CUtensorMap* map, uint32_t barrier, uint32_t x, uint32_t y) {
  BoxedRows rows;
  std::memcpy(&rows, map, sizeof rows);
  const Copy copy{destination, barrier, machine->current->rank, rows, x, y};
  machine->deliveries.emplace_back([copy] { deliver(copy); });
}

void start_bulk_copy(uint32_t destination, const void* from, uint32_t bytes, uint32_t barrier) {
  if (bytes == 0 || bytes % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0 || destination % 16 != 0) {
    refuse(fmt::format("a bulk copy of {} bytes to {} that is not of whole 16 bytes", bytes, destination));
  }
  const uint32_t rank = machine->current->rank;
  shared_of(rank, destination, bytes);
  machine->deliveries.emplace_back([=] {
    std::memcpy(shared_of(rank, destination, bytes), from, bytes);
    PhaseBarrier& state = barrier_of(rank, barrier);
    state.bytes -= bytes;
    state.settle();
  });
}

void OwnCopy::come() const {
  if (from != nullptr) {
    std::memcpy(to, from, bytes);
  } else {
    std::memset(to, 0, bytes);
  }
}

void start_own_copy(uint32_t destination, const void* from, uint32_t bytes) {
  Thread& thread = *machine->current;
  const OwnCopy copy{thread.copy_groups, shared_at(destination, bytes), from, bytes};
  // As early as it can, or as late.
  if (machine->random.below(2) == 0) return copy.come();
  thread.copies.push_back(copy);
}
void commit_own_copies() { ++machine->current->copy_groups; }
void wait_for_own_copies(uint32_t pending) {
  Thread& thread = *machine->current;
  std::erase_if(thread.copies, [&](const OwnCopy& copy) {
    const bool waited_for = copy.group + pending < thread.copy_groups;
    if (waited_for) copy.come();
    return waited_for;
  });
}

void store_in_block(uint32_t there, const void* values, size_t bytes) {
  const Place to(there);
  if (to.address % bytes != 0) refuse(fmt::format("shared address {} is not aligned to {}", to.address, bytes));
  uint8_t* place = shared_of(to.rank, to.address, bytes);
  if (machine->random.below(2) == 0) {
    std::memcpy(place, values, bytes);
    return;
  }
  const auto* first = static_cast<const uint8_t*>(values);
  machine->current->to_blocks.emplace_back(
      [place, sent = std::vector<uint8_t>(first, first + bytes)] { std::memcpy(place, sent.data(), sent.size()); });
}

void start_send(uint32_t there, uint32_t barrier, const void* values, size_t bytes) {
  const Place to(there), counted(barrier);
  if (to.address % bytes != 0) refuse(fmt::format("shared address {} is not aligned to {}", to.address, bytes));
  if (to.rank != counted.rank) refuse("what is sent must count at a barrier of the block that receives it");
  const auto* first = static_cast<const uint8_t*>(values);
  machine->deliveries.emplace_back([to, counted, sent = std::vector<uint8_t>(first, first + bytes)] {
    std::memcpy(shared_of(to.rank, to.address, sent.size()), sent.data(), sent.size());
    PhaseBarrier& state = barrier_of(counted.rank, counted.address);
    state.bytes -= static_cast<int64_t>(sent.size());
    state.settle();
  });
}

}  // namespace carat::cuda::emulated
