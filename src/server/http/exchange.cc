#include "server/http/exchange.h"

#include <utility>

namespace carat::server {

Exchange::Exchange(HttpRequest request, size_t stream_bytes, std::function<void()> wake)
    : request_(std::move(request)), stream_bytes_(stream_bytes), wake_(std::move(wake)) {}

void Exchange::add_header(std::string name, std::string value) {
  const std::lock_guard lock(mutex_);
  if (phase_ == Phase::kOpen) headers_.emplace_back(std::move(name), std::move(value));
}

void Exchange::respond(Response response) {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::kOpen) return;
    response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
    head_ = std::move(response);
    phase_ = Phase::kWhole;  // last: an answer has not begun where there was no memory for it
  }
  wake_();
}

void Exchange::begin_stream(std::string_view content_type) {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::kOpen) return;
    head_.content_type = content_type;
    head_.headers = headers_;
    phase_ = Phase::kStreaming;
  }
  wake_();
}

bool Exchange::has_begun() const {
  const std::lock_guard lock(mutex_);
  return phase_ != Phase::kOpen;
}

bool Exchange::append(std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kStreaming || is_gone_) return true;
  pending_ += bytes;
  is_behind_ = is_behind_ || pending_.size() + sending_ > stream_bytes_;
  return !is_behind_;
}

void Exchange::flush() { wake_(); }

bool Exchange::write(std::string_view bytes) {
  const bool keeps_up = append(bytes);
  flush();
  return keeps_up;
}

void Exchange::finish() {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::kStreaming) phase_ = Phase::kFinished;
  }
  wake_();
}

void Exchange::abandon() {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::kStreaming || phase_ == Phase::kOpen) phase_ = Phase::kAbandoned;
  }
  wake_();
}

void Exchange::on_gone(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_gone_) {
      gone_ = std::move(callback);
      return;
    }
  }
  callback();
}

void Exchange::on_drained(std::function<void()> callback) {
  const std::lock_guard lock(mutex_);
  drained_ = std::move(callback);
}

bool Exchange::is_gone() const {
  const std::lock_guard lock(mutex_);
  return is_gone_;
}

Exchange::Output Exchange::take_output() {
  const std::lock_guard lock(mutex_);
  Output output{phase_, head_, std::exchange(pending_, {})};
  sending_ = output.bytes.size();
  return output;
}

void Exchange::sent() {
  std::function<void()> drained;
  {
    const std::lock_guard lock(mutex_);
    sending_ = 0;
    if (!is_behind_ || pending_.size() > stream_bytes_ / 2) return;
    is_behind_ = false;
    drained = drained_;
  }
  if (drained) drained();
}

void Exchange::client_gone() {
  std::function<void()> gone;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_gone_, true)) return;
    gone = std::exchange(gone_, {});
    drained_ = {};
    pending_.clear();
  }
  if (gone) gone();
}

}  // namespace carat::server
