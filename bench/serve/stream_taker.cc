#include "serve/stream_taker.h"

#include <fmt/format.h>

namespace carat::serve_bench {

namespace {
constexpr size_t kMaxRefusal = size_t{64} << 10;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}
}  // namespace

void StreamTaker::begin(Clock::time_point now) {
  begin_ = last_text_ = now;
  lines_.reset();
  refusal_.clear();
}

void StreamTaker::take(std::string_view bytes, unsigned status, Clock::time_point now) {
  if (status == 200) {
    lines_.take(bytes, [&](std::string_view json) { take_data(json, now); });
  } else if (refusal_.size() < kMaxRefusal) {
    refusal_.append(bytes);
  }
}

void StreamTaker::take_data(std::string_view json, Clock::time_point now) {
  if (json == "[DONE]") {
    is_over_ = true;
    return;
  }
  const ChunkFacts facts = read_chunk(json);
  if (facts.has_error) stream_error_ = error_message(json);
  if (facts.has_text) note_text(now);
  if (facts.has_text || facts.is_last) result_.latency = seconds_between(begin_, now);
  if (facts.is_last) is_over_ = true;
  if (keeps_answer_) result_.answer += facts.answer;
  if (!facts.has_usage) return;
  if (const auto usage = read_usage(json)) {
    result_.has_usage = true;
    result_.prompt_tokens = usage->prompt_tokens;
    result_.cached_tokens = usage->cached_tokens;
    result_.output_tokens = usage->completion_tokens;
  }
}

void StreamTaker::note_text(Clock::time_point now) {
  if (chunks_++ == 0) {
    result_.first_token = seconds_between(begin_, now);
  } else {
    result_.gaps.push_back(seconds_between(last_text_, now));
  }
  last_text_ = now;
}

void StreamTaker::end(unsigned status) {
  if (!result_.has_usage) result_.output_tokens = chunks_;
  if (chunks_ == 0) result_.first_token = result_.latency;  // nothing of it could be shown
  const auto fail_with = [&](std::string kind, std::string message) {
    result_.error_kind = std::move(kind);
    result_.error = std::move(message);
  };
  if (status != 200) return fail_with(fmt::format("HTTP {}", status), error_message(refusal_));
  if (!stream_error_.empty()) return fail_with("error in the stream", stream_error_);
  if (!is_over_) return fail_with("cut off", "the stream ended before the answer did");
  if (result_.output_tokens == 0) return fail_with("empty", "an answer without a token");
  result_.is_complete = true;
}

}  // namespace carat::serve_bench
