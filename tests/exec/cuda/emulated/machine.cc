#include "exec/cuda/emulated/machine.h"

#include <cuda_fp16.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "exec/cuda/emulated/stack_switch.h"
#include "support/random.h"

namespace carat::cuda::emulated {
namespace {

constexpr uint32_t kWarpgroup = 128;
constexpr size_t kStackBytes = 64 * 1024;
constexpr uint64_t kLongestPause = 1024;  // turns a thread is held back
constexpr uint32_t kRankShift = 24;       // address_in_block() puts the rank plus one above the address
constexpr size_t kPiece = 16;             // bytes of memory that are stored and loaded at once

[[noreturn]] void refuse(const std::string& what) { throw std::runtime_error("emulated GPU: " + what); }

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
  uint32_t cluster_round = 0;
};

struct Copy {
  uint32_t destination, barrier, rank;
  BoxedRows rows;
  uint32_t x, y;
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
  std::vector<bool> slow;  // warps that go on only where no other can
  uint64_t turns = 0;
  uint64_t last_progress = 0;  // the turn in which something happened that others may wait for
  size_t running = 0;          // threads that have not ended
  std::unordered_map<uintptr_t, std::array<uint8_t, kPiece>> before;  // what a store to that piece has replaced
  void* scheduler = nullptr;                                          // its stack, while a thread runs
  std::exception_ptr failure;
};

Machine* machine = nullptr;

void PhaseBarrier::settle() {
  if (pending > 0 || bytes != 0) return;
  pending = arrivals;
  ++phase;
  note_progress();
}

void Meeting::arrive(uint32_t threads) {
  if (++arrived < threads) return;
  arrived = 0;
  ++round;
  note_progress();
}

Block& block_of(uint32_t rank) { return machine->blocks[rank]; }
Block& my_block() { return block_of(machine->current->rank); }

uint8_t* shared_of(uint32_t rank, uint32_t address, size_t bytes) {
  const uint32_t size = machine->grid.shared_bytes;
  if (address < kFirstShared || address - kFirstShared + bytes > size) {
    refuse(fmt::format("{} bytes at shared address {} are outside the block's {}", bytes, address, size));
  }
  return block_of(rank).shared.get() + (address - kFirstShared);
}

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

uint32_t swizzled(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

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

// Of an operand with 128-byte swizzle. by_rows: rows are k, otherwise columns (or rows of A) are.
float element(uint32_t rank, uint64_t descriptor, bool by_rows, uint32_t k, uint32_t column) {
  const auto field = [&](int shift) { return static_cast<uint32_t>(descriptor >> shift & 0x3fff) << 4; };
  const uint32_t start = field(0), leading = field(16), stride = field(32);
  if (descriptor >> 62 != 1) refuse("only operands with 128-byte swizzle are known");
  const uint32_t at = by_rows ? start + column / 64 * leading + k / 8 * stride + k % 8 * 128 + column % 64 * 2
                              : start + column / 8 * stride + column % 8 * 128 + k * 2;
  __half value;
  std::memcpy(&value, shared_of(rank, swizzled(at), sizeof value), sizeof value);
  return __half2float(value);
}

// Row and k of a warp's 16 x 16 part of A, of which lane l holds pairs of rows g and g + 8 (g = l / 4).
float register_element(const StartedProduct& product, uint32_t row, uint32_t k) {
  const uint32_t lane = row % 8 * 4 + k % 8 / 2;
  const uint32_t word = product.a_registers[lane][row / 8 + k / 8 * 2];
  __half_raw raw;
  raw.x = static_cast<unsigned short>(k % 2 == 0 ? word & 0xffff : word >> 16);
  return __half2float(__half(raw));
}

void carry_out(uint32_t rank, uint32_t warp, const StartedProduct& product) {
  constexpr uint32_t kDepth = 16, kRows = 16;
  const uint32_t n = product.what.n, first_row = warp % (kWarpgroup / kWarp) * kRows;
  const bool in_registers = product.a_registers[0] != nullptr;
  std::vector<float> a(kRows * kDepth), b(size_t{n} * kDepth);
  for (uint32_t k = 0; k < kDepth; ++k) {
    for (uint32_t r = 0; r < kRows; ++r) {
      a[r * kDepth + k] =
          in_registers ? register_element(product, r, k) : element(rank, product.what.a, false, k, first_row + r);
    }
    for (uint32_t c = 0; c < n; ++c) b[c * kDepth + k] = element(rank, product.what.b, product.what.b_by_rows, k, c);
  }
  for (uint32_t lane = 0; lane < kWarp; ++lane) {
    for (uint32_t i = 0; i < n / 2; ++i) {
      const uint32_t row = i / 2 % 2 * 8 + lane / 4, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      float sum = product.what.add ? product.d[lane][i] : 0.0f;
      for (uint32_t k = 0; k < kDepth; ++k) sum += a[row * kDepth + k] * b[column * kDepth + k];
      product.d[lane][i] = sum;
    }
  }
}

Warp& my_warp() { return my_block().warps[machine->current->index.x / kWarp]; }

void carry_out_until(Warp& warp, size_t count) {
  const Thread& thread = *machine->current;
  for (; warp.done < count; ++warp.done) {
    const StartedProduct& product = warp.products[warp.done];
    // All warps of a warpgroup start the same products in the same order.
    const uint32_t number = thread.index.x / kWarp, first = number / 4 * 4;
    for (uint32_t other = first; other < first + 4; ++other) {
      const std::vector<StartedProduct>& products = my_block().warps[other].products;
      if (warp.done < products.size() && products[warp.done].what != product.what) {
        refuse("the warps of a warpgroup start different products");
      }
    }
    carry_out(thread.rank, number, product);
  }
}

void enter() {
  Thread& thread = *machine->current;
  try {
    machine->kernel();
  } catch (...) {
    machine->failure = std::current_exception();
  }
  thread.ended = true;
  --machine->running;
  note_progress();
  switch_stack(&thread.stopped_at, machine->scheduler);
}

std::vector<Stack>& unused_stacks() {
  static std::vector<Stack> stacks;
  return stacks;
}

void start(Thread& thread) {
  // A stack that was used before is better than a new one, whose pages the system has to find.
  std::vector<Stack>& unused = unused_stacks();
  if (unused.empty()) {
    thread.stack = std::make_unique_for_overwrite<uint8_t[]>(kStackBytes);
  } else {
    thread.stack = std::move(unused.back());
    unused.pop_back();
  }
  thread.stopped_at = fresh_stack(thread.stack.get(), kStackBytes, enter);
}

bool ready(const Thread& thread) {
  if (thread.ended || thread.goes_on_at > machine->turns) return false;
  return thread.changes == nullptr || (*thread.changes & thread.bits) != thread.others_than;
}

// Lets the lanes of a warp that can go on do so until they wait again, a few times.
bool run_warp(size_t warp) {
  const uint64_t most = uint64_t{1} << machine->random.below(8);
  bool any = false;
  for (uint64_t round = 0; round < most && !machine->failure; ++round) {
    const size_t first = machine->random.below(kWarp);
    bool some = false;
    for (size_t i = 0; i < kWarp && !machine->failure; ++i) {
      Thread& thread = machine->threads[warp * kWarp + (first + i) % kWarp];
      if (!ready(thread)) continue;
      thread.changes = nullptr;
      machine->current = &thread;
      some = any = true;
      switch_stack(&machine->scheduler, thread.stopped_at);
    }
    if (!some) break;
  }
  return any;
}

bool run_one(bool slow_ones) {
  const size_t count = machine->slow.size(), first = machine->random.below(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t chosen = (first + i) % count;
    if (machine->slow[chosen] == slow_ones && run_warp(chosen)) return true;
  }
  return false;
}

// Some warps, or a warpgroup, or a block fall behind for a while.
void choose_slow_warps() {
  const size_t warps = machine->threads.size() / kWarp, together = size_t{1} << machine->random.below(6);
  machine->slow.assign(warps, false);
  for (size_t i = 0; i < warps; i += together) {
    if (machine->random.below(2) == 0) continue;
    for (size_t w = i; w < std::min(warps, i + together); ++w) machine->slow[w] = true;
  }
}

void wait_for_change(const char* what, const uint32_t& word, uint32_t others_than, uint32_t bits = 0xffffffffu) {
  if ((word & bits) != others_than) return;
  Thread& thread = *machine->current;
  thread.waits_for = what;
  thread.changes = &word, thread.bits = bits, thread.others_than = others_than;
  switch_stack(&thread.stopped_at, machine->scheduler);
}

void hold_back(const char* what, uint64_t turns) {
  Thread& thread = *machine->current;
  thread.waits_for = what;
  thread.goes_on_at = machine->turns + turns;
  switch_stack(&thread.stopped_at, machine->scheduler);
}

// Now and then others go on, for a short while or a long one.
void let_others_go_first() {
  if (machine->random.below(4) != 0) return;
  hold_back("its turn", machine->random.below(kLongestPause >> machine->random.below(10)));
}

bool deliver_one() {
  std::vector<std::function<void()>>& deliveries = machine->deliveries;
  if (deliveries.empty()) return false;
  std::swap(deliveries[machine->random.below(deliveries.size())], deliveries.back());
  const std::function<void()> deliver = std::move(deliveries.back());
  deliveries.pop_back();
  deliver();
  note_progress();
  return true;
}

[[noreturn]] void refuse_to_wait() {
  std::map<std::string, std::pair<uint32_t, std::string>> kinds;
  for (const Thread& thread : machine->threads) {
    if (thread.ended) continue;
    auto& kind = kinds[thread.waits_for];
    if (kind.first++ == 0) kind.second = fmt::format("thread {} of block {}", thread.index.x, thread.block_index.x);
  }
  std::string text = "threads wait for ever:";
  for (const auto& [what, who] : kinds) text += fmt::format(" {} for {}, {} first;", who.first, what, who.second);
  text.pop_back();
  refuse(text);
}

// Begins to run the next block of the grid.
void add_block() {
  const Grid& grid = machine->grid;
  const auto rank = static_cast<uint32_t>(machine->blocks.size());
  const uint32_t number = machine->next_block++;
  const dim3& shape = machine->shape;
  Block& block = machine->blocks.emplace_back();
  const size_t bytes = (size_t{grid.shared_bytes} + 1023) / 1024 * 1024;
  block.shared.reset(static_cast<uint8_t*>(std::aligned_alloc(1024, bytes)));
  std::memset(block.shared.get(), 0xff, bytes);  // NaN
  block.warps.resize(grid.threads / kWarp);
  for (uint32_t i = 0; i < grid.threads; ++i) {
    Thread& thread = machine->threads.emplace_back();
    thread.rank = rank;
    thread.index = dim3(i);
    thread.block_index = dim3(number % shape.x, number / shape.x % shape.y, number / shape.x / shape.y);
    start(thread);
  }
  machine->running += grid.threads;
  choose_slow_warps();
}

// The next blocks of the grid, as many as run together. Where they wait for others, and the grid is one whose blocks
// are all on the chip, those begin to run, too.
void run_cluster(bool others_follow) {
  machine->blocks.clear();
  machine->threads.clear();
  for (uint32_t i = 0; i < machine->grid.cluster; ++i) add_block();
  constexpr uint64_t kTurnsPerCopy = 8, kTurnsPerChoice = 500, kPatience = 64;
  machine->last_progress = machine->turns;
  while (machine->running > 0 || !machine->deliveries.empty()) {
    // Threads that ask again and again can always go on: where nothing happens, others get their turn.
    const uint64_t idle = machine->turns - machine->last_progress;
    if (machine->random.below(kTurnsPerChoice) == 0 || idle % kPatience == kPatience - 1) choose_slow_warps();
    if (machine->random.below(kTurnsPerCopy) == 0 || idle % kPatience == kPatience - 1) deliver_one();
    ++machine->turns;
    if (!run_one(false) && !deliver_one()) run_one(true);
    if (machine->failure) std::rethrow_exception(machine->failure);
    if (idle > kLongestPause && others_follow && machine->next_block < machine->grid.blocks) {
      add_block();
      note_progress();
    }
    if (idle > 4 * kLongestPause * std::max<uint64_t>(8, machine->slow.size())) refuse_to_wait();
  }
  for (Thread& thread : machine->threads) unused_stacks().push_back(std::move(thread.stack));
}

}  // namespace

CUtensorMap describe(const BoxedRows& rows) {
  CUtensorMap map{};
  static_assert(sizeof rows <= sizeof map);
  std::memcpy(&map, &rows, sizeof rows);
  return map;
}

namespace {
// The machine is there for as long as this is.
struct Running {
  Machine here;
  Running(uint64_t seed, const std::function<void()>& kernel) {
    here.random = test::Random(seed);
    here.kernel = kernel;
    machine = &here;
  }
  ~Running() { machine = nullptr; }
};
}  // namespace

void run(const Grid& grid, uint64_t seed, const std::function<void()>& kernel) {
  Running running(seed, kernel);
  running.here.grid = grid;
  running.here.shape = dim3(grid.blocks);
  while (running.here.next_block < grid.blocks) run_cluster(false);
}

void launch(const dim3& grid, const dim3& block, size_t shared_bytes, const std::function<void()>& kernel) {
  static uint64_t seed = 0;
  if (block.x % kWarp != 0 || block.y != 1 || block.z != 1) refuse("blocks that are no row of whole warps");
  Running running(++seed, kernel);
  running.here.grid = {grid.x * grid.y * grid.z, block.x, 1, static_cast<uint32_t>(shared_bytes)};
  running.here.shape = grid;
  while (running.here.next_block < running.here.grid.blocks) run_cluster(true);
}

const dim3& thread_index() { return machine->current->index; }
const dim3& block_index() { return machine->current->block_index; }
dim3 grid_size() { return machine->shape; }
dim3 block_size() { return dim3(machine->grid.threads); }
uint64_t clock() { return machine->turns; }

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

void pause(const char* what) { hold_back(what, 1 + machine->random.below(16)); }
void note_progress() { machine->last_progress = machine->turns; }

const std::array<LaneWords, kWarp>& meet(const LaneWords& mine) {
  const uint32_t thread = machine->current->index.x;
  Warp& warp = my_block().warps[thread / kWarp];
  const uint32_t round = warp.meeting.round;
  warp.brought[round % 2][thread % kWarp] = mine;
  warp.meeting.arrive(kWarp);
  wait_for_change("the lanes of its warp", warp.meeting.round, round);
  return warp.brought[round % 2];
}

void block_barrier_arrive(uint32_t id, uint32_t threads) {
  if (id >= my_block().meetings.size()) refuse("there are 16 barriers");
  my_block().meetings[id].arrive(threads == 0 ? machine->grid.threads : threads);
}
void block_barrier(uint32_t id, uint32_t threads) {
  if (id >= my_block().meetings.size()) refuse("there are 16 barriers");
  Meeting& meeting = my_block().meetings[id];
  const uint32_t round = meeting.round;
  meeting.arrive(threads == 0 ? machine->grid.threads : threads);
  wait_for_change("a barrier of the block", meeting.round, round);
}

namespace {
uintptr_t piece_of(const void* at, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  if (address % bytes != 0 || bytes > kPiece) refuse("an access to memory that is not aligned");
  return address / kPiece * kPiece;
}
}  // namespace

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

void cluster_barrier_arrive() {
  machine->current->cluster_round = machine->cluster.round;
  machine->cluster.arrive(machine->grid.cluster * machine->grid.threads);
}
void cluster_barrier_wait() {
  wait_for_change("the cluster's barrier", machine->cluster.round, machine->current->cluster_round);
}

uint32_t address_in_block(uint32_t address, uint32_t rank) { return address | (rank + 1) << kRankShift; }

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

void start_product(const WarpgroupProduct& product, float* d, const uint32_t* a_registers) {
  Thread& thread = *machine->current;
  Warp& warp = my_warp();
  const size_t index = thread.products++;
  if (index == warp.products.size()) warp.products.push_back({product, machine->random.below(2) == 0, 0, {}, {}});
  StartedProduct& started = warp.products[index];
  if (started.what != product) refuse("the lanes of a warp start different products");
  started.d[thread.index.x % kWarp] = d;
  started.a_registers[thread.index.x % kWarp] = a_registers;
  if (++started.threads == kWarp && started.at_once && warp.done == index) carry_out_until(warp, index + 1);
}

void commit_products() { machine->current->committed.push_back(machine->current->products); }

void wait_for_products(uint32_t pending) {
  const std::vector<size_t>& committed = machine->current->committed;
  if (committed.size() <= pending) return;
  const size_t until = committed[committed.size() - 1 - pending];
  meet({});  // lanes wait together; with it all of them have started what comes before
  carry_out_until(my_warp(), until);
}

}  // namespace carat::cuda::emulated
