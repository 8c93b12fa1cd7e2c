#include "exec/cuda/emulated/machine.h"

#include <cuda_fp16.h>
#include <fmt/format.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <stdexcept>
#include <vector>

#include "support/random.h"

namespace carat::cuda::emulated {
namespace {

constexpr uint32_t kWarp = 32, kWarpgroup = 128;
constexpr size_t kStackBytes = 64 * 1024;
constexpr uint64_t kLongestPause = 1024;  // turns a thread is held back
constexpr uint32_t kRankShift = 24;       // address_in_block() puts the rank plus one above the address

[[noreturn]] void refuse(const std::string& what) { throw std::runtime_error("emulated GPU: " + what); }

// A barrier that counts arrivals and bytes.
struct PhaseBarrier {
  uint32_t arrivals = 0, pending = 0, phase = 0;
  int64_t bytes = 0;

  void settle() {
    if (pending > 0 || bytes != 0) return;
    pending = arrivals;
    ++phase;
  }
};

// Threads that meet: the last one lets all go on.
struct Meeting {
  uint32_t arrived = 0, round = 0;

  void arrive(uint32_t threads) {
    if (++arrived < threads) return;
    arrived = 0;
    ++round;
  }
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
  std::array<std::array<uint32_t, kWarp>, 2> values{};  // of this round and the one before
  std::vector<StartedProduct> products;
  size_t done = 0;
};

struct Block {
  std::vector<uint8_t> shared;
  std::map<uint32_t, PhaseBarrier> barriers;
  std::map<uint32_t, Meeting> meetings;
  std::vector<Warp> warps;
};

struct Thread {
  ucontext_t context{};
  std::unique_ptr<uint8_t[]> stack;
  dim3 index, block_index;
  uint32_t rank = 0;
  bool ended = false;
  std::string waits_for;
  std::function<bool()> condition;
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
  test::Random random{0};
  std::function<void()> kernel;
  std::vector<Block> blocks;
  std::vector<Thread> threads;
  std::vector<std::function<void()>> deliveries;  // that have not happened yet
  Meeting cluster;
  Thread* current = nullptr;
  std::vector<bool> slow;  // warps that go on only where no other can
  uint64_t turns = 0;
  ucontext_t scheduler{};
  std::exception_ptr failure;
};

Machine* machine = nullptr;

Block& block_of(uint32_t rank) { return machine->blocks[rank]; }
Block& my_block() { return block_of(machine->current->rank); }

uint8_t* shared_of(uint32_t rank, uint32_t address, size_t bytes) {
  std::vector<uint8_t>& shared = block_of(rank).shared;
  if (address < kFirstShared || address - kFirstShared + bytes > shared.size()) {
    refuse(fmt::format("{} bytes at shared address {} are outside the block's {}", bytes, address, shared.size()));
  }
  return shared.data() + (address - kFirstShared);
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
  swapcontext(&thread.context, &machine->scheduler);
}

void start(Thread& thread) {
  thread.stack = std::make_unique<uint8_t[]>(kStackBytes);
  getcontext(&thread.context);
  thread.context.uc_stack.ss_sp = thread.stack.get();
  thread.context.uc_stack.ss_size = kStackBytes;
  thread.context.uc_link = &machine->scheduler;
  makecontext(&thread.context, enter, 0);
}

bool ready(const Thread& thread) {
  if (thread.ended) return false;
  machine->current = const_cast<Thread*>(&thread);
  return !thread.condition || thread.condition();
}

// Lets one thread that can go on do so, until it waits again.
bool run_one(bool slow_ones) {
  const size_t count = machine->threads.size(), first = machine->random.below(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t chosen = (first + i) % count;
    Thread& thread = machine->threads[chosen];
    if (machine->slow[chosen / kWarp] != slow_ones || !ready(thread)) continue;
    thread.condition = nullptr;
    machine->current = &thread;
    swapcontext(&machine->scheduler, &thread.context);
    return true;
  }
  return false;
}

// Some warps, or a warpgroup, or a block fall behind for a while.
void choose_slow_warps() {
  const size_t warps = machine->threads.size() / kWarp, together = size_t{1} << machine->random.below(4);
  machine->slow.assign(warps, false);
  for (size_t i = 0; i < warps; i += together) {
    if (machine->random.below(2) == 0) continue;
    for (size_t w = i; w < std::min(warps, i + together); ++w) machine->slow[w] = true;
  }
}

// Now and then others go on, for a short while or a long one.
void let_others_go_first() {
  if (machine->random.below(4) != 0) return;
  const uint64_t until = machine->turns + machine->random.below(kLongestPause >> machine->random.below(10));
  wait_until("its turn", [until] { return machine->turns >= until; });
}

bool deliver_one() {
  std::vector<std::function<void()>>& deliveries = machine->deliveries;
  if (deliveries.empty()) return false;
  std::swap(deliveries[machine->random.below(deliveries.size())], deliveries.back());
  const std::function<void()> deliver = std::move(deliveries.back());
  deliveries.pop_back();
  deliver();
  return true;
}

void run_cluster(uint32_t first_block) {
  machine->blocks.assign(machine->grid.cluster, {});
  machine->threads.clear();
  machine->threads.resize(size_t{machine->grid.cluster} * machine->grid.threads);
  for (Block& block : machine->blocks) {
    block.shared.assign(machine->grid.shared_bytes, 0xff);  // NaN
    block.warps.resize(machine->grid.threads / kWarp);
  }
  for (size_t i = 0; i < machine->threads.size(); ++i) {
    Thread& thread = machine->threads[i];
    thread.rank = static_cast<uint32_t>(i / machine->grid.threads);
    thread.index = dim3(static_cast<uint32_t>(i % machine->grid.threads));
    thread.block_index = dim3(first_block + thread.rank);
    start(thread);
  }
  constexpr uint64_t kTurnsPerCopy = 64, kTurnsPerChoice = 2000;
  choose_slow_warps();
  uint64_t idle = 0;
  for (;;) {
    if (machine->random.below(kTurnsPerChoice) == 0) choose_slow_warps();
    if (machine->random.below(kTurnsPerCopy) == 0) deliver_one();
    ++machine->turns;
    if (run_one(false) || deliver_one() || run_one(true)) {
      idle = 0;
    } else if (++idle > kLongestPause) {
      break;
    }
    if (machine->failure) std::rethrow_exception(machine->failure);
  }
  for (const Thread& thread : machine->threads) {
    if (thread.ended) continue;
    refuse(fmt::format("thread {} of block {} waits for ever for {}", thread.index.x, thread.block_index.x,
                       thread.waits_for));
  }
}

}  // namespace

CUtensorMap describe(const BoxedRows& rows) {
  CUtensorMap map{};
  static_assert(sizeof rows <= sizeof map);
  std::memcpy(&map, &rows, sizeof rows);
  return map;
}

void run(const Grid& grid, uint64_t seed, const std::function<void()>& kernel) {
  Machine here;
  here.grid = grid;
  here.random = test::Random(seed);
  here.kernel = kernel;
  machine = &here;
  for (uint32_t block = 0; block < grid.blocks; block += grid.cluster) run_cluster(block);
  machine = nullptr;
}

const dim3& thread_index() { return machine->current->index; }
const dim3& block_index() { return machine->current->block_index; }

uint8_t* shared_at(uint32_t address, size_t bytes) {
  if (address % bytes != 0) refuse(fmt::format("shared address {} is not aligned to {}", address, bytes));
  return shared_of(machine->current->rank, address, bytes);
}

void wait_until(const std::string& what, const std::function<bool()>& condition) {
  if (condition()) return;
  Thread& thread = *machine->current;
  thread.waits_for = what;
  thread.condition = condition;
  swapcontext(&thread.context, &machine->scheduler);
}

uint32_t shuffle(uint32_t value, uint32_t from_lane) {
  const uint32_t thread = machine->current->index.x;
  Warp& warp = my_block().warps[thread / kWarp];
  const uint32_t round = warp.meeting.round;
  warp.values[round % 2][thread % kWarp] = value;
  warp.meeting.arrive(kWarp);
  wait_until("a shuffle", [&warp, round] { return warp.meeting.round != round; });
  return warp.values[round % 2][from_lane];
}

void warp_barrier() { shuffle(0, 0); }

void block_barrier(uint32_t id, uint32_t threads) {
  if (id >= 16) refuse("there are 16 barriers");
  Meeting& meeting = my_block().meetings[id];
  const uint32_t round = meeting.round;
  meeting.arrive(threads == 0 ? machine->grid.threads : threads);
  wait_until(fmt::format("barrier {}", id), [&meeting, round] { return meeting.round != round; });
}

void cluster_barrier_arrive() {
  machine->current->cluster_round = machine->cluster.round;
  machine->cluster.arrive(machine->grid.cluster * machine->grid.threads);
}
void cluster_barrier_wait() {
  const uint32_t round = machine->current->cluster_round;
  wait_until("the cluster's barrier", [round] { return machine->cluster.round != round; });
}

uint32_t address_in_block(uint32_t address, uint32_t rank) { return address | (rank + 1) << kRankShift; }

void barrier_initialise(uint32_t barrier, uint32_t arrivals) {
  my_block().barriers[barrier] = {.arrivals = arrivals, .pending = arrivals};
}

void barrier_count_arrival(uint32_t barrier, uint32_t announced_bytes) {
  PhaseBarrier& state = barrier_of(machine->current->rank, barrier);
  if (state.pending == 0) refuse("more arrivals at a barrier than it was initialised for");
  --state.pending;
  state.bytes += announced_bytes;
  state.settle();
  let_others_go_first();
}

bool barrier_phase_over(uint32_t barrier, uint32_t parity) {
  return barrier_of(machine->current->rank, barrier).phase % 2 != parity;
}

void start_copy(uint32_t destination, const CUtensorMap* map, uint32_t barrier, uint32_t x, uint32_t y) {
  BoxedRows rows;
  std::memcpy(&rows, map, sizeof rows);
  const Copy copy{destination, barrier, machine->current->rank, rows, x, y};
  machine->deliveries.emplace_back([copy] { deliver(copy); });
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
  warp_barrier();  // lanes wait together; with it all of them have started what comes before
  carry_out_until(my_warp(), until);
}

}  // namespace carat::cuda::emulated
