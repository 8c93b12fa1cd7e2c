#include "engine/runner/update_queue.h"

#include <utility>

namespace carat::engine {

void UpdateQueue::update(const RequestUpdate& update) {
  {
    const std::lock_guard lock(mutex_);
    is_new_ = true;
    news_.tokens.insert(news_.tokens.end(), update.tokens.begin(), update.tokens.end());
    news_.logprobs.insert(news_.logprobs.end(), update.logprobs.begin(), update.logprobs.end());
    news_.prompt_processed = update.prompt_processed;
    news_.prompt_reused = update.prompt_reused;
    news_.prompt_seconds = update.prompt_seconds;
    if (update.end != nullptr) news_.end = *update.end;
  }
  has_news_.notify_one();
}

UpdateQueue::Update UpdateQueue::wait() {
  std::unique_lock lock(mutex_);
  has_news_.wait(lock, [this] { return is_new_; });
  is_new_ = false;
  return std::exchange(news_, {});
}

}  // namespace carat::engine
