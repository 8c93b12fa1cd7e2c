#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace carat::serve_bench {

// Takes the bytes of one HTTP/1.1 answer, in any pieces, and hands out its body. Pure, and without an allocation for
// what comes after the headers. Throws carat::Error for what is no HTTP.
class ResponseReader {
 public:
  using Sink = std::function<void(std::string_view)>;

  void reset() { *this = {}; }
  // Returns how many bytes belonged to the answer.
  size_t take(std::string_view bytes, const Sink& body);
  // The connection ended. Returns whether the answer was complete.
  bool end();

  bool has_begun() const { return state_ != State::kHead || !line_.empty(); }
  bool has_head() const { return state_ != State::kHead; }
  bool is_done() const { return state_ == State::kDone; }
  bool keeps_alive() const { return keeps_alive_; }
  unsigned status() const { return status_; }

 private:
  enum class State { kHead, kLength, kUntilClose, kChunkSize, kChunk, kChunkEnd, kTrailer, kDone };

  size_t take_some(std::string_view bytes, const Sink& body);
  size_t take_counted(std::string_view bytes, const Sink& body);
  size_t take_line(std::string_view bytes);
  void read_head();
  void read_header(std::string_view name, std::string_view value);
  void line_is_whole();

  State state_ = State::kHead;
  std::string line_;  // the head, or the line of a chunk, so far
  uint64_t left_ = 0;
  unsigned status_ = 0;
  bool keeps_alive_ = true;
  bool is_chunked_ = false, has_length_ = false;
};

}  // namespace carat::serve_bench
