#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/runner/runner.h"

namespace carat::engine {

// The sink of a thread that waits for one request after another.
class UpdateQueue : public RequestSink {
 public:
  // All that came since the last time.
  struct Update {
    std::vector<text::TokenId> tokens;
    std::vector<ChoiceLogprobs> logprobs;
    uint32_t prompt_processed = 0;
    uint32_t prompt_reused = 0;
    double prompt_seconds = 0.0;
    std::optional<RequestEnd> end;
  };

  void update(const RequestUpdate& update) override;
  // Waits until there is anything.
  Update wait();

 private:
  std::mutex mutex_;
  std::condition_variable has_news_;
  bool is_new_ = false;
  Update news_;
};

}  // namespace carat::engine
