#include "capi/request.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace carat::capi {

namespace {

constexpr size_t kStreamBytes = size_t{256} << 10;
constexpr std::string_view kData = "data: ";

// The event a reader gets when there is not enough memory to describe what happened.
constexpr const char* kBrokenOff =
    R"({"error":{"message":"out of memory while the answer was delivered","type":"server_error","param":null,"code":null}})";

char* copied(const char* text, size_t bytes) {
  auto* copy = static_cast<char*>(std::malloc(bytes + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text, bytes);
  copy[bytes] = '\0';
  return copy;
}

// The data of one server-sent event; empty for comments and for OpenAI's mark of the end.
std::string_view data_of(std::string_view event) {
  const size_t begin = event.starts_with(kData) ? 0 : event.find("\ndata: ");
  if (begin == std::string_view::npos) return {};
  std::string_view data = event.substr(begin + (begin == 0 ? kData.size() : kData.size() + 1));
  return data == "[DONE]" ? std::string_view() : data;
}

}  // namespace

std::shared_ptr<server::Exchange> RequestEvents::open(server::HttpRequest request) {
  exchange_ = std::make_shared<server::Exchange>(std::move(request), kStreamBytes, [weak = weak_from_this()] {
    if (const auto alive = weak.lock()) alive->pump();
  });
  return exchange_;
}

// Whoever comes while another thread is at it, or from within a callback, leaves the work to the one who is.
void RequestEvents::pump() noexcept {
  if (pumps_.fetch_add(1) > 0) return;
  unsigned done = 0;
  do {
    done = pumps_.load();
    try {
      pump_once();
    } catch (...) {
      give_up();
    }
  } while (pumps_.fetch_sub(done) != done);
}

// An event could not be stored for want of memory: the reader is told that one is missing.
void RequestEvents::give_up() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (is_done_) return;
    has_broken_off_ = !is_cancelled_;
  }
  leave();
  end();
}

// Nobody wants anything more of the engine.
void RequestEvents::leave() noexcept {
  try {
    exchange_->client_gone();
  } catch (...) {
    // There was no memory to tell the engine, which ends the request when it is complete.
  }
}

void RequestEvents::pump_once() {
  {
    const std::lock_guard lock(mutex_);
    if (is_done_ || events_.size() >= kMostEvents) return;
  }
  const server::Exchange::Output output = exchange_->take_output();
  switch (output.phase) {
    case server::Exchange::Phase::kOpen:
      return;
    case server::Exchange::Phase::kWhole:
      hand_out(output.head.body);
      return end();
    case server::Exchange::Phase::kStreaming:
    case server::Exchange::Phase::kFinished:
      break;
    case server::Exchange::Phase::kAbandoned:
      take(output.bytes);
      return give_up();
  }
  take(output.bytes);
  exchange_->sent();
  if (output.phase != server::Exchange::Phase::kStreaming) end();
}

void RequestEvents::take(std::string_view bytes) {
  partial_ += bytes;
  size_t begin = 0;
  for (size_t at; (at = partial_.find("\n\n", begin)) != std::string::npos; begin = at + 2) {
    const std::string_view data = data_of(std::string_view(partial_).substr(begin, at - begin));
    if (!data.empty()) hand_out(std::string(data));
  }
  partial_.erase(0, begin);
}

void RequestEvents::hand_out(std::string event) {
  if (on_event_ != nullptr) {
    {
      const std::lock_guard lock(mutex_);
      if (is_cancelled_) return;
    }
    return on_event_(event.c_str(), user_);
  }
  {
    const std::lock_guard lock(mutex_);
    if (is_cancelled_) return;
    events_.push_back(std::move(event));
  }
  has_news_.notify_all();
}

void RequestEvents::end() noexcept {
  bool has_broken_off = false;
  {
    const std::lock_guard lock(mutex_);
    if (is_done_) return;
    has_broken_off = has_broken_off_;
  }
  if (on_event_ != nullptr) {
    if (has_broken_off) on_event_(kBrokenOff, user_);
    on_event_(nullptr, user_);
  }
  {
    const std::lock_guard lock(mutex_);
    is_done_ = true;
  }
  has_news_.notify_all();
}

char* RequestEvents::next(double seconds) {
  char* event = nullptr;
  {
    std::unique_lock lock(mutex_);
    const auto has_news = [this] { return !events_.empty() || is_done_; };
    if (seconds < 0.0) {
      has_news_.wait(lock, has_news);
    } else if (!has_news_.wait_for(lock, std::chrono::duration<double>(seconds), has_news)) {
      return nullptr;
    }
    if (events_.empty()) {
      if (!has_broken_off_) return nullptr;
      event = copied(kBrokenOff, std::strlen(kBrokenOff));
      has_broken_off_ = false;
      return event;
    }
    event = copied(events_.front().data(), events_.front().size());
    events_.pop_front();
    if (!events_.empty() || is_done_) return event;
  }
  // What had no room any more may come now.
  pump();
  return event;
}

bool RequestEvents::wait(double seconds) {
  std::unique_lock lock(mutex_);
  const auto done = [this] { return is_done_; };
  if (seconds < 0.0) {
    has_news_.wait(lock, done);
    return true;
  }
  return has_news_.wait_for(lock, std::chrono::duration<double>(seconds), done);
}

bool RequestEvents::is_done() const {
  const std::lock_guard lock(mutex_);
  return is_done_ && events_.empty() && (on_event_ != nullptr || !has_broken_off_);
}

void RequestEvents::cancel() {
  {
    const std::lock_guard lock(mutex_);
    if (is_cancelled_ || is_done_) return;
    is_cancelled_ = true;
    events_.clear();
  }
  leave();
  // A callback hears of the end from whoever pumps: this call may come from within it.
  on_event_ != nullptr ? exchange_->abandon() : end();
}

}  // namespace carat::capi
