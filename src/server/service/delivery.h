#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "server/service/generation.h"

namespace carat::server {

// The thread on which the tokens of all requests become text and bytes. After each pass of the engine it is woken once,
// takes all that the pass brought, and hands every connection what is for it in one piece. Several times a second it
// looks after requests to which nothing happens: keep-alives, and those that have waited too long.
class Delivery {
 public:
  static double seconds();  // a steady clock

  // Called on the delivery thread when a request is over; the generation is let go afterwards.
  using Ended = std::function<void(const Generation& generation)>;

  Delivery(Ended ended, uint32_t context);
  ~Delivery();  // stop()
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  // Any thread.
  void add(std::shared_ptr<Generation> generation);
  void has_news(std::shared_ptr<Generation> generation) noexcept;
  void wake();
  std::shared_ptr<Generation> find(const std::string& id) const;  // null: there is none, or it is over
  size_t count() const;
  // What ran when it was looked last, which is several times a second.
  std::vector<SlotFigures> slots() const;
  // Every request that has not ended ends with this error.
  void fail_all(const Problem& problem);
  void stop();

 private:
  void run();
  bool run_once(std::chrono::steady_clock::time_point& next_tick);  // false: it was stopped
  void take(const std::vector<std::shared_ptr<Generation>>& news, double now);
  void look_after_all(const std::vector<Problem>& failures);
  void remove_ended(const std::vector<std::shared_ptr<Generation>>& generations);

  const Ended ended_;
  const uint32_t context_;
  mutable std::mutex mutex_;
  std::condition_variable has_work_;
  std::vector<std::shared_ptr<Generation>> news_;
  std::unordered_map<std::string, std::shared_ptr<Generation>> active_;
  std::vector<Problem> failures_;  // to be told to all
  std::vector<SlotFigures> slots_;
  bool is_awake_ = false;    // somebody has woken the thread
  bool has_missed_ = false;  // there was no memory to say whose news there is: anybody may have some
  bool is_stopped_ = false;
  std::thread thread_;
};

}  // namespace carat::server
