#include "serve/response_reader.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"

namespace carat::serve_bench {

namespace {

constexpr size_t kMaxHead = size_t{64} << 10;

[[noreturn]] void refuse(std::string_view what) { fail(ErrorCode::kIo, "not an HTTP answer: {}", what); }

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

uint64_t number_in(std::string_view text, int base, std::string_view what) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) refuse(what);
  return value;
}

}  // namespace

size_t ResponseReader::take(std::string_view bytes, const Sink& body) {
  size_t taken = 0;
  while (taken < bytes.size() && state_ != State::kDone) taken += take_some(bytes.substr(taken), body);
  return taken;
}

size_t ResponseReader::take_some(std::string_view bytes, const Sink& body) {
  switch (state_) {
    case State::kLength:
    case State::kChunk:
      return take_counted(bytes, body);
    case State::kUntilClose:
      body(bytes);
      return bytes.size();
    default:
      return take_line(bytes);
  }
}

size_t ResponseReader::take_counted(std::string_view bytes, const Sink& body) {
  const size_t count = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size()));
  body(bytes.substr(0, count));
  left_ -= count;
  if (left_ == 0) state_ = state_ == State::kLength ? State::kDone : State::kChunkEnd;
  return count;
}

size_t ResponseReader::take_line(std::string_view bytes) {
  const size_t newline = bytes.find('\n');
  const size_t count = newline == std::string_view::npos ? bytes.size() : newline + 1;
  line_.append(bytes.substr(0, count));
  if (line_.size() > kMaxHead) refuse("a head or a line that does not end");
  if (newline != std::string_view::npos) line_is_whole();
  return count;
}

void ResponseReader::line_is_whole() {
  if (state_ == State::kHead) {
    if (line_.ends_with("\r\n\r\n") || line_.ends_with("\n\n")) read_head();
    return;  // the head is kept until it is whole
  }
  const std::string_view line = trimmed(std::string_view(line_).substr(0, line_.size() - 1));
  if (state_ == State::kChunkSize) {
    left_ = number_in(trimmed(line.substr(0, line.find(';'))), 16, "the size of a chunk");
    state_ = left_ > 0 ? State::kChunk : State::kTrailer;
  } else if (state_ == State::kChunkEnd) {
    if (!line.empty()) refuse("a chunk that is longer than its size");
    state_ = State::kChunkSize;
  } else if (line.empty()) {
    state_ = State::kDone;  // of the trailer
  }
  line_.clear();
}

void ResponseReader::read_head() {
  const std::string head = std::move(line_);
  line_.clear();
  std::string_view rest = head;
  const std::string_view first = trimmed(rest.substr(0, rest.find('\n')));
  if (!first.starts_with("HTTP/1.") || first.size() < 12) refuse("no status line");
  status_ = static_cast<unsigned>(number_in(first.substr(9, 3), 10, "its status"));
  keeps_alive_ = first[7] == '1';
  is_chunked_ = has_length_ = false;
  while (rest.find('\n') != std::string_view::npos) {
    rest.remove_prefix(rest.find('\n') + 1);
    const std::string_view line = rest.substr(0, rest.find('\n'));
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos) read_header(line.substr(0, colon), trimmed(line.substr(colon + 1)));
  }
  if (status_ / 100 == 1) return;  // an interim answer; the real one follows
  if (is_chunked_) {
    state_ = State::kChunkSize;
  } else if (status_ == 204 || status_ == 304 || (has_length_ && left_ == 0)) {
    state_ = State::kDone;
  } else {
    state_ = has_length_ ? State::kLength : State::kUntilClose;
    keeps_alive_ = keeps_alive_ && has_length_;
  }
}

void ResponseReader::read_header(std::string_view name, std::string_view value) {
  const std::string lower = lower_case(name);
  if (lower == "content-length") {
    left_ = number_in(value, 10, "its Content-Length");
    has_length_ = true;
  } else if (lower == "transfer-encoding") {
    is_chunked_ = lower_case(value).ends_with("chunked");
  } else if (lower == "connection") {
    const std::string word = lower_case(value);
    if (word == "close") keeps_alive_ = false;
    if (word == "keep-alive") keeps_alive_ = true;
  }
}

bool ResponseReader::end() {
  if (state_ == State::kUntilClose) state_ = State::kDone;
  return state_ == State::kDone;
}

}  // namespace carat::serve_bench
