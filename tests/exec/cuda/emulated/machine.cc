#include "exec/cuda/emulated/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "exec/cuda/emulated/machine_state.h"
#include "exec/cuda/emulated/stack_switch.h"

// The order in which threads run, and where they meet.
namespace carat::cuda::emulated {

Machine* machine = nullptr;

void refuse(const std::string& what) { throw std::runtime_error("emulated GPU: " + what); }

namespace {

constexpr size_t kStackBytes = 64 * 1024;
constexpr uint64_t kLongestPause = 1024;  // turns a thread is held back

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

// Some warps, or a warpgroup, or a block fall behind, or a single one of them does; for a short while or a long one.
void choose_slow_warps() {
  constexpr uint32_t kLongest = 16;  // a power of two
  const size_t warps = machine->threads.size() / kWarp, together = size_t{1} << machine->random.below(6);
  const size_t groups = (warps + together - 1) / together, alone = machine->random.below(2 * groups);
  machine->slow.assign(warps, false);
  for (size_t group = 0; group < groups; ++group) {
    if (alone < groups ? group != alone : machine->random.below(2) == 0) continue;
    const size_t end = std::min(warps, (group + 1) * together);
    for (size_t w = group * together; w < end; ++w) machine->slow[w] = true;
  }
  machine->slow_until = machine->turns + (uint64_t{1} << machine->random.below(kLongest));
}

void hold_back(const char* what, uint64_t turns) {
  Thread& thread = *machine->current;
  thread.waits_for = what;
  thread.goes_on_at = machine->turns + turns;
  switch_stack(&thread.stopped_at, machine->scheduler);
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
  constexpr uint64_t kTurnsPerCopy = 8, kPatience = 64;
  machine->last_progress = machine->turns;
  while (machine->running > 0 || !machine->deliveries.empty()) {
    // Threads that ask again and again can always go on: where nothing happens, others get their turn.
    const uint64_t idle = machine->turns - machine->last_progress;
    if (machine->turns >= machine->slow_until || idle % kPatience == kPatience - 1) choose_slow_warps();
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

void launch_kernel(const dim3& grid, const dim3& block, size_t shared_bytes, const std::function<void()>& kernel,
                   uint32_t cluster) {
  static uint64_t seed = 0;
  if (block.x % kWarp != 0 || block.y != 1 || block.z != 1) refuse("blocks that are no row of whole warps");
  Running running(++seed, kernel);
  running.here.grid = {grid.x * grid.y * grid.z, block.x, cluster, static_cast<uint32_t>(shared_bytes)};
  running.here.shape = grid;
  if (grid.x % cluster != 0) refuse("a grid that is not of whole clusters");
  while (running.here.next_block < running.here.grid.blocks) run_cluster(cluster == 1);
}

const dim3& thread_index() { return machine->current->index; }
const dim3& block_index() { return machine->current->block_index; }
dim3 grid_size() { return machine->shape; }
dim3 block_size() { return dim3(machine->grid.threads); }
uint64_t clock() { return machine->turns; }

void pause(const char* what) { hold_back(what, 1 + machine->random.below(16)); }
void note_progress() { machine->last_progress = machine->turns; }

void wait_for_change(const char* what, const uint32_t& word, uint32_t others_than, uint32_t bits) {
  if ((word & bits) != others_than) return;
  Thread& thread = *machine->current;
  thread.waits_for = what;
  thread.changes = &word, thread.bits = bits, thread.others_than = others_than;
  switch_stack(&thread.stopped_at, machine->scheduler);
}

void let_others_go_first() {
  if (machine->random.below(4) != 0) return;
  hold_back("its turn", machine->random.below(kLongestPause >> machine->random.below(10)));
}

void Meeting::arrive(uint32_t threads) {
  if (++arrived < threads) return;
  arrived = 0;
  ++round;
  note_progress();
}

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

void cluster_barrier_arrive() {
  for (const auto& arrive : machine->current->to_blocks) arrive();
  machine->current->to_blocks.clear();
  machine->current->cluster_round = machine->cluster.round;
  machine->cluster.arrive(machine->grid.cluster * machine->grid.threads);
}
void cluster_barrier_wait() {
  wait_for_change("the cluster's barrier", machine->cluster.round, machine->current->cluster_round);
}

}  // namespace carat::cuda::emulated
