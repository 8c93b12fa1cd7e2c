#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace carat::serve_bench {

// Finds the "data:" lines of server-sent events in bytes that come in any pieces. A line that is in one piece is not
// copied.
class EventLines {
 public:
  template <typename OnData>
  void take(std::string_view bytes, const OnData& on_data) {
    for (size_t end = bytes.find('\n'); end != std::string_view::npos; end = bytes.find('\n')) {
      if (rest_.empty()) {
        give(bytes.substr(0, end), on_data);
      } else {
        rest_.append(bytes.substr(0, end));
        give(rest_, on_data);
        rest_.clear();
      }
      bytes.remove_prefix(end + 1);
    }
    rest_.append(bytes);
  }
  void reset() { rest_.clear(); }

 private:
  template <typename OnData>
  static void give(std::string_view line, const OnData& on_data) {
    if (!line.starts_with("data:")) return;  // a comment, the name of an event, or the empty line after it
    line.remove_prefix(5);
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    on_data(line);
  }

  std::string rest_;
};

// What a chunk of a streamed answer says. Found by looking for names instead of reading all of the JSON: quotes within
// texts are escaped, so that a name with its quotes and its colon is never part of a text.
struct ChunkFacts {
  bool is_of_answer = false;     // it has choices
  bool has_text = false;         // of the answer, of thoughts or of a call
  bool is_last = false;          // it has a reason why the answer ended
  bool has_usage = false;        // see UsageFacts
  bool has_error = false;        // the stream failed
  std::string_view answer = {};  // its text, as the inside of a JSON string
};
ChunkFacts read_chunk(std::string_view json);

struct UsageFacts {
  uint32_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
};
// Of a chunk or a whole answer; nothing where it has none.
std::optional<UsageFacts> read_usage(std::string_view json);

// The message of an error object, or the text itself, shortened.
std::string error_message(std::string_view body);

}  // namespace carat::serve_bench
