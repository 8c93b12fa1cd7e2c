#include "server/service/delivery.h"

#include <chrono>
#include <new>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace carat::server {

namespace {
constexpr auto kTick = std::chrono::milliseconds(100);

// One request that cannot go on, mostly for want of memory, is no reason to end the others.
template <typename Work>
void guarded(Generation& generation, double now, Work work) noexcept {
  try {
    work();
  } catch (...) {
    generation.give_up(now);
  }
}
}  // namespace

double Delivery::seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Delivery::Delivery(Ended ended, uint32_t context) : ended_(std::move(ended)), context_(context) {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    fail(ErrorCode::kOutOfMemory, "cannot start a thread of the server: {}", error.what());
  }
}

Delivery::~Delivery() { stop(); }

void Delivery::add(std::shared_ptr<Generation> generation) {
  const std::lock_guard lock(mutex_);
  active_.emplace(generation->id(), std::move(generation));
}

void Delivery::has_news(std::shared_ptr<Generation> generation) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    news_.push_back(std::move(generation));
  } catch (const std::bad_alloc&) {
    has_missed_ = true;
  }
}

void Delivery::wake() {
  {
    const std::lock_guard lock(mutex_);
    is_awake_ = true;
  }
  has_work_.notify_one();
}

std::shared_ptr<Generation> Delivery::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = active_.find(id);
  return found == active_.end() ? nullptr : found->second;
}

size_t Delivery::count() const {
  const std::lock_guard lock(mutex_);
  return active_.size();
}

std::vector<SlotFigures> Delivery::slots() const {
  const std::lock_guard lock(mutex_);
  return active_.empty() ? std::vector<SlotFigures>() : slots_;
}

void Delivery::fail_all(const Problem& problem) {
  {
    const std::lock_guard lock(mutex_);
    failures_.push_back(problem);
    is_awake_ = true;
  }
  has_work_.notify_one();
}

void Delivery::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  has_work_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Delivery::run() {
  auto next_tick = std::chrono::steady_clock::now() + kTick;
  for (;;) {
    try {
      if (!run_once(next_tick)) return;
    } catch (const std::bad_alloc&) {
      // What was to be looked at is looked for again, when there may be memory.
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::lock_guard lock(mutex_);
      is_awake_ = has_missed_ = true;
    }
  }
}

bool Delivery::run_once(std::chrono::steady_clock::time_point& next_tick) {
  std::vector<std::shared_ptr<Generation>> news;
  std::vector<Problem> failures;
  {
    std::unique_lock lock(mutex_);
    const auto is_due = [this] { return is_awake_ || is_stopped_; };
    // Without requests there is nothing to look after.
    if (active_.empty()) {
      has_work_.wait(lock, is_due);
    } else {
      has_work_.wait_until(lock, next_tick, is_due);
    }
    if (is_stopped_) return false;
    is_awake_ = false;
    news.swap(news_);
    if (has_missed_) {
      for (const auto& [id, generation] : active_) news.push_back(generation);
      has_missed_ = false;
    }
    failures.swap(failures_);
  }
  take(news, seconds());
  if (std::chrono::steady_clock::now() >= next_tick || !failures.empty()) {
    look_after_all(failures);
    next_tick = std::chrono::steady_clock::now() + kTick;
  }
  return true;
}

void Delivery::look_after_all(const std::vector<Problem>& failures) {
  std::vector<std::shared_ptr<Generation>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, generation] : active_) all.push_back(generation);
  }
  const double now = seconds();
  for (const auto& generation : all) {
    guarded(*generation, now, [&] {
      for (const Problem& problem : failures) generation->fail(problem, now);
      generation->tick(now);
      generation->flush();
    });
  }
  remove_ended(all);
  std::vector<SlotFigures> slots;
  for (const auto& generation : all) generation->add_slots(slots, context_);
  const std::lock_guard lock(mutex_);
  slots_ = std::move(slots);
}

void Delivery::take(const std::vector<std::shared_ptr<Generation>>& news, double now) {
  for (const auto& generation : news) guarded(*generation, now, [&] { generation->deliver(now); });
  for (const auto& generation : news) guarded(*generation, now, [&] { generation->flush(); });
  remove_ended(news);
}

void Delivery::remove_ended(const std::vector<std::shared_ptr<Generation>>& generations) {
  for (const auto& generation : generations) {
    if (!generation->is_over()) continue;
    {
      const std::lock_guard lock(mutex_);
      if (active_.erase(generation->id()) == 0) continue;
    }
    try {
      ended_(*generation);
    } catch (const std::bad_alloc&) {
      // It is over all the same, and is missing in the figures.
    }
  }
}

}  // namespace carat::server
