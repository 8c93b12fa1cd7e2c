#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "carat/carat.h"
#include "server/http/exchange.h"

namespace carat::capi {

// Takes the place of a connection: what an exchange wants to send becomes events, the data of server-sent events or the
// one body of an answer without a stream. Thread-safe.
class RequestEvents : public std::enable_shared_from_this<RequestEvents> {
 public:
  // on_event null: events are kept until somebody asks for them.
  RequestEvents(carat_event_fn on_event, void* user) : on_event_(on_event), user_(user) {}

  // Once, before anything else: an exchange for the request whose output comes here.
  std::shared_ptr<server::Exchange> open(server::HttpRequest request);

  // A copy that belongs to the caller, made with malloc(). Null: no event came in time, or there are no more. Seconds;
  // negative: as long as it takes. Throws std::bad_alloc, and the event is still the next one.
  char* next(double seconds);
  bool wait(double seconds);
  bool is_done() const;
  void cancel();

 private:
  // Of events that nobody has asked for; more are left to the exchange, which makes the engine wait.
  static constexpr size_t kMostEvents = 4096;

  void pump() noexcept;
  void pump_once();
  void give_up() noexcept;
  void leave() noexcept;
  void take(std::string_view bytes);
  void hand_out(std::string event);
  void end() noexcept;

  const carat_event_fn on_event_;
  void* const user_;
  std::shared_ptr<server::Exchange> exchange_;

  std::atomic<unsigned> pumps_{0};  // asked for and not done: one thread at a time takes output and calls on_event
  std::string partial_;             // the beginning of an event

  mutable std::mutex mutex_;
  std::condition_variable has_news_;
  std::deque<std::string> events_;
  bool is_done_ = false;
  bool is_cancelled_ = false;
  bool has_broken_off_ = false;  // kBrokenOff is the last event
};

}  // namespace carat::capi
