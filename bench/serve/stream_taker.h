#pragma once

#include <string>
#include <string_view>

#include "serve/client.h"
#include "serve/request_result.h"
#include "serve/stream_events.h"

namespace carat::serve_bench {

// Takes the body of one answer as it comes and notes what it says and when.
class StreamTaker {
 public:
  StreamTaker(RequestResult& result, bool keeps_answer) : result_(result), keeps_answer_(keeps_answer) {}

  void begin(Clock::time_point now);
  void take(std::string_view bytes, unsigned status, Clock::time_point now);
  // After the last byte: says whether the answer was whole, and why not.
  void end(unsigned status);

  uint32_t tokens() const { return chunks_; }

 private:
  void take_data(std::string_view json, Clock::time_point now);
  void note_text(Clock::time_point now);

  RequestResult& result_;
  const bool keeps_answer_;
  Clock::time_point begin_ = {}, last_text_ = {};
  EventLines lines_;
  std::string refusal_;  // the body of an answer that is no stream
  std::string stream_error_;
  uint32_t chunks_ = 0;  // with text
  bool is_over_ = false;
};

}  // namespace carat::serve_bench
