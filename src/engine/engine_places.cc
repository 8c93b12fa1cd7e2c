// The places of an engine's sequences in the executor: who gets one next, what it begins with, what is kept when it is
// left, and what gives way when memory runs out.
#include <algorithm>

#include "base/error.h"
#include "engine/engine.h"

namespace carat::engine {

namespace {

// Tokens of a long prompt after which it can be gone on from.
constexpr uint32_t kMarkInterval = 8192;
// Known tokens that have to be run again, from which on the place where prompts part is marked.
constexpr uint32_t kWorthAMark = 64;
// A prompt waits for another one that is reading so many tokens more of the same beginning than are kept.
constexpr uint32_t kWorthWaiting = 512;
// Tokens of an answer that a request is sure to have room for when it begins.
constexpr uint32_t kExpectedAnswer = 1024;
// Of all pages, so many are left free when another request begins: one in fifty.
constexpr uint32_t kReserve = 50;

uint32_t common_prefix(std::span<const text::TokenId> a, std::span<const text::TokenId> b) {
  return static_cast<uint32_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

void add_mark(std::vector<ResumePoint>& marks, ResumePoint mark) {
  const auto at = std::find_if(marks.begin(), marks.end(), [&](const auto& m) { return m.position >= mark.position; });
  if (at != marks.end() && at->position == mark.position) {
    at->kind = std::max(at->kind, mark.kind);
  } else {
    marks.insert(at, mark);
  }
}

}  // namespace

bool Engine::is_running(const Slot& slot) const { return slot.job.sequence && !slot.job.sequence->is_paused_; }

// What ended sequences have left in their places becomes a prefix that others can go on from.
void Engine::park_ended() {
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].job.sequence) park(i);
  }
}

void Engine::park(uint32_t index) {
  Slot& slot = slots_[index];
  if (executor_->length(index) == 0) return;
  if (executor_->length(index) == slot.cached.size()) {
    prefixes_->keep(index, slot.salt, slot.cached, MarkKind::kEnd);
  }
  executor_->truncate(index, 0);
  slot.cached.clear();
  slot.marks.clear();
}

PrefixTree::Match Engine::find_prefix(const Sequence& sequence) const {
  const Request& request = sequence.request();
  if (!request.cache_prompt && !sequence.has_started()) return {};
  // The last token is always run: its logits choose the next one.
  return prefixes_->find(request.cache_salt, sequence.tokens(), static_cast<uint32_t>(sequence.tokens().size()) - 1);
}

// Whether another sequence is reading more of the same beginning than the `known` tokens that are kept. It will leave a
// mark where the two part; if it is past that already, the mark is made now where it can be.
bool Engine::is_being_read(const Sequence& sequence, uint32_t known) {
  const auto tokens = sequence.tokens();
  const auto most = static_cast<uint32_t>(tokens.size()) - 1;
  if (!sequence.request().cache_prompt || most < known + kWorthWaiting) return false;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (!is_running(slot) || slot.salt != sequence.request().cache_salt) continue;
    const Sequence& other = *slot.job.sequence;
    const uint32_t least = known + kWorthWaiting;
    if (other.tokens().size() < least || other.tokens()[least - 1] != tokens[least - 1]) continue;
    const uint32_t shared = std::min(common_prefix(other.tokens(), tokens), most);
    if (shared < least) continue;
    if (other.processed() < shared) {
      add_mark(slot.marks, {shared, MarkKind::kJunction});
      return true;
    }
    prefixes_->keep(i, slot.salt, other.tokens().first(shared), MarkKind::kJunction);
  }
  return false;
}

// Whether the pages that sequences do not hold suffice for the rest of the tokens and some of an answer.
bool Engine::has_room_to_begin(const Sequence& sequence, const PrefixTree::Match& match) const {
  const exec::KeptPrefixes& pages = prefixes_->pages();
  const uint32_t size = pages.page_positions();
  const uint64_t left = sequence.request().max_tokens - sequence.generated().size();
  const uint64_t end = std::min<uint64_t>(sequence.tokens().size() + std::min<uint64_t>(left, kExpectedAnswer),
                                          executor_->options().context);
  const uint32_t total = pages.total().global;
  const uint64_t needed = (end + size - 1) / size - match.length / size +
                          (match.prefix ? pages.unheld(*match.prefix).global : 0) + total / kReserve;
  return pages.held().global + needed <= total;
}

// The request that gets the next free place; none while all have to wait.
std::optional<size_t> Engine::next_waiting() {
  const double now = options_.clock();
  std::vector<size_t> candidates(waiting_.size());
  std::vector<QueuedRequest> queue;
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const Sequence& sequence = *waiting_[i].sequence;
    candidates[i] = i;
    queue.push_back({.has_started = sequence.has_started(),
                     .priority = sequence.request().priority,
                     .client_work = fair_share_.work(sequence.request().client),
                     .tokens_to_run = static_cast<uint32_t>(sequence.tokens().size()),
                     .waited = now - waiting_[i].submitted});
  }
  while (!candidates.empty()) {
    const size_t at = next_in_queue(queue);
    const size_t index = candidates[at];
    if (!prefixes_) return index;
    const Sequence& sequence = *waiting_[index].sequence;
    if (!is_being_read(sequence, find_prefix(sequence).length)) {
      const bool is_alone = std::none_of(slots_.begin(), slots_.end(), [this](const Slot& s) { return is_running(s); });
      // Whoever is next waits for room: a shorter request behind it would keep it waiting.
      if (is_alone || has_room_to_begin(sequence, find_prefix(sequence))) return index;
      return std::nullopt;
    }
    candidates.erase(candidates.begin() + static_cast<std::ptrdiff_t>(at));
    queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return std::nullopt;
}

// Where the sequence will be marked while it runs.
void Engine::plan_marks(Slot& slot, const Sequence& sequence, const PrefixTree::Match& match) const {
  slot.marks.clear();
  const auto prompt = static_cast<uint32_t>(sequence.prompt().size());
  const auto add = [&](uint32_t position, MarkKind kind) {
    if (position > match.length && position <= prompt) add_mark(slot.marks, {position, kind});
  };
  for (const ResumePoint& point : sequence.request().resume_points) add(point.position, point.kind);
  for (uint64_t n = kMarkInterval; n < prompt; n += kMarkInterval) {
    add(static_cast<uint32_t>(n), MarkKind::kInterval);
  }
  const uint32_t junction = std::min(match.shared, prompt - 1);
  if (junction >= match.length + kWorthAMark) add(junction, MarkKind::kJunction);
}

// Lets a sequence begin in an empty place, with as much as is kept of it.
void Engine::begin_sequence(uint32_t index, Sequence& sequence) {
  Slot& slot = slots_[index];
  const PrefixTree::Match match = find_prefix(sequence);
  if (match.prefix) {
    prefixes_->resume(index, sequence.request().cache_salt, sequence.tokens(), match);
    CARAT_CHECK(executor_->truncate(index, match.length) == match.length);
  }
  if (!sequence.has_started()) {
    sequence.prefix_shared_ = std::min(match.shared, static_cast<uint32_t>(sequence.prompt().size()));
    sequence.prefix_reused_ = match.length;
    sequence.prefix_loss_ = match.loss;
  }
  sequence.processed_ = match.length;
  slot.cached.assign(sequence.tokens().begin(), sequence.tokens().begin() + match.length);
  plan_marks(slot, sequence, match);
}

void Engine::make_marks(uint32_t index) {
  if (!prefixes_) return;
  Slot& slot = slots_[index];
  const auto reached = std::find_if(slot.marks.begin(), slot.marks.end(),
                                    [&](const auto& mark) { return mark.position > slot.cached.size(); });
  for (auto mark = slot.marks.begin(); mark != reached; ++mark) {
    prefixes_->keep(index, slot.salt, std::span(slot.cached).first(mark->position), mark->kind);
  }
  slot.marks.erase(slot.marks.begin(), reached);
}

// Whose memory a sequence may have: the one of a paused sequence, or of the one that got its place last, among those of
// the lowest priority. Who is in the pass being built keeps it, and so does who was there before.
std::optional<uint32_t> Engine::victim_for(uint32_t index) const {
  std::optional<uint32_t> victim;
  const auto rank = [this](uint32_t slot) {
    const Sequence& sequence = *slots_[slot].job.sequence;
    return std::tuple(sequence.is_paused_, sequence.request().priority, slots_[slot].admitted);
  };
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (i == index || !slots_[i].job.sequence) continue;
    const bool is_in_pass = std::any_of(shares_.begin(), shares_.end(), [i](const Share& s) { return s.slot == i; });
    if (is_in_pass || rank(i) < rank(index)) continue;
    if (!victim || rank(*victim) < rank(i)) victim = i;
  }
  return victim;
}

// Takes the sequence's place away. What it has run is kept as long as there is memory for it, and its tokens, its guide
// and its random numbers are where they were, so its text goes on as if nothing had happened.
void Engine::preempt(uint32_t index) {
  Job job = std::exchange(slots_[index].job, {});
  park(index);
  job.sequence->processed_ = 0;
  waiting_.push_front(std::move(job));
  ++preempted_;
}

// Sees to it that there are pages for so many further rows of the sequence besides what the pass has already.
bool Engine::reserve(uint32_t index, uint32_t rows) {
  if (!prefixes_) return true;
  exec::KeptPrefixes& pages = prefixes_->pages();
  const auto needed = [&] {
    model::PageCount sum = pages.needed(index, rows);
    for (const Share& share : shares_) {
      const model::PageCount more = pages.needed(share.slot, share.rows + share.drafted);
      sum.global += more.global;
      sum.sliding += more.sliding;
    }
    return sum;
  };
  const auto fits = [&] {
    const model::PageCount sum = needed(), free = pages.free();
    return sum.global <= free.global && sum.sliding <= free.sliding;
  };
  if (fits()) return true;
  pages.trim();
  while (!fits() && !prefixes_->make_room(needed())) {
    const auto victim = victim_for(index);
    if (!victim) return false;
    preempt(*victim);
  }
  return true;
}

}  // namespace carat::engine
