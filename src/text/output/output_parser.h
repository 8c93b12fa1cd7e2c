#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat/marks.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/vocab.h"

namespace carat::text {

// What the model wrote, piece by piece.
struct OutputEvent {
  enum class Kind {
    kThought,      // text: the next of its thoughts
    kAnswer,       // text: the next of its answer
    kToolCall,     // a whole call: name and arguments, JSON text of an object
    kBadToolCall,  // text: a call as the model wrote it; problem: why it is none
  };
  Kind kind;
  std::string text = {};
  std::string name = {};
  std::string arguments = {};
  std::string problem = {};
};
using OutputSink = std::function<void(OutputEvent)>;

// How a model's output ended.
enum class OutputEnd {
  kStopped,  // by a token of the model: a call without its closing mark is whole
  kCut,      // by a limit or the user: such a call is not, and must never be carried out
};

// The state machine of docs/gemma4.md 5.6: splits marks and text into thoughts, answer and tool calls, whatever the
// pieces the text comes in. A channel is a thought whatever its name, so nothing of it can leak into the answer. Used
// through the two classes below.
class OutputParser {
 public:
  // A longer call is reported as a bad one.
  static constexpr size_t kMaxCallBytes = size_t{1} << 20;

  // tools: the names that may be called; empty: any.
  OutputParser(std::vector<std::string> tools, OutputSink sink) : tools_(std::move(tools)), sink_(std::move(sink)) {}

  void mark(Mark mark);
  void text(std::string_view text);  // well-formed UTF-8
  void finish(OutputEnd end);

  bool in_thought() const { return state_ == State::kChannelName || state_ == State::kThought; }
  bool in_call() const { return state_ == State::kCall; }

  // Goes through the end of a prompt without reporting anything, so that a thought opened there is continued.
  template <typename Replay>
  void seed(Replay replay) {
    const OutputSink sink = std::exchange(sink_, [](const OutputEvent&) {});
    replay();
    sink_ = sink;
    held_space_.clear();
  }

 private:
  enum class State {
    kAnswer,
    kChannelName,  // after <|channel>: the word "thought" is still being read
    kThought,
    kCall,
    kTooLongCall,  // its rest is dropped
    kTurnHeader,   // after <|turn>: the role, up to the end of the line
  };

  void answer_text(std::string_view text);
  void channel_name_text(std::string_view text);
  void thought_text(std::string_view text);
  void call_text(std::string_view text);
  void turn_header_text(std::string_view text);
  void open_channel();
  void close_channel();
  void close_call(std::string_view closing_mark);
  void leave(Mark mark);
  bool is_known(std::string_view name) const;
  std::string raw_call(std::string_view closing_mark) const;
  void emit(OutputEvent event) { sink_(std::move(event)); }

  std::vector<std::string> tools_;
  OutputSink sink_;
  State state_ = State::kAnswer;
  bool answer_begins_ = true;   // no answer yet: white space before it is dropped
  bool thought_begins_ = true;  // the same for the thought
  std::string held_space_;      // white space in a thought that only counts when more text follows
  std::string name_;            // what has been read of the name of a channel
  std::string call_;            // with the delimiter of strings as one byte
};

// For tokens: only a mark's own token is a mark; the same characters spelled with other tokens are text.
class TokenOutputParser {
 public:
  // prompt: the tokens the model continues.
  TokenOutputParser(std::shared_ptr<const Vocab> vocab, std::span<const TokenId> prompt, std::vector<std::string> tools,
                    OutputSink sink);

  void append(TokenId token);
  void finish(OutputEnd end);

  bool in_thought() const { return parser_.in_thought(); }
  bool in_call() const { return parser_.in_call(); }

 private:
  std::shared_ptr<const Vocab> vocab_;
  MarkTokens marks_;
  Detokenizer detokenizer_;
  OutputParser parser_;
};

// For text in which the marks are spelled out, in pieces of any size.
class TextOutputParser {
 public:
  TextOutputParser(std::string_view prompt, std::vector<std::string> tools, OutputSink sink);

  void append(std::string_view text);
  void finish(OutputEnd end);

  bool in_thought() const { return parser_.in_thought(); }

 private:
  void consume(bool is_end);

  std::string pending_;  // the start of a mark, perhaps, or of a character
  OutputParser parser_;
};

}  // namespace carat::text
