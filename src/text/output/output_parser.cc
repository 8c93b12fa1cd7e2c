#include "text/output/output_parser.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tools/tool_call_parser.h"

namespace carat::text {

namespace {

constexpr std::string_view kThoughtName = "thought";
constexpr std::string_view kSpace = " \t\r\n";

std::string_view text_of(Mark mark) {
  for (const auto& [known, text] : kMarkTexts) {
    if (known == mark) return text;
  }
  return "";
}

}  // namespace

void OutputParser::text(std::string_view text) {
  if (text.empty()) return;
  switch (state_) {
    case State::kAnswer:
      return answer_text(text);
    case State::kChannelName:
      return channel_name_text(text);
    case State::kThought:
      return thought_text(text);
    case State::kCall:
      return call_text(text);
    case State::kTooLongCall:
      return;
    case State::kTurnHeader:
      return turn_header_text(text);
  }
}

void OutputParser::answer_text(std::string_view text) {
  if (answer_begins_) text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  if (text.empty()) return;
  answer_begins_ = false;
  emit({OutputEvent::Kind::kAnswer, std::string(text)});
}

void OutputParser::channel_name_text(std::string_view text) {
  name_ += text;
  const size_t compared = std::min(name_.size(), kThoughtName.size());
  const bool fits = std::string_view(name_).substr(0, compared) == kThoughtName.substr(0, compared);
  if (fits && name_.size() < kThoughtName.size()) return;  // so far
  const std::string rest = fits ? name_.substr(kThoughtName.size()) : std::move(name_);
  name_.clear();
  state_ = State::kThought;
  thought_text(rest);
}

void OutputParser::thought_text(std::string_view text) {
  if (thought_begins_) text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  if (text.empty()) return;
  thought_begins_ = false;
  const size_t last = text.find_last_not_of(kSpace);
  if (last == std::string_view::npos) {
    held_space_ += text;
    return;
  }
  std::string shown = std::exchange(held_space_, std::string(text.substr(last + 1)));
  shown += text.substr(0, last + 1);
  emit({OutputEvent::Kind::kThought, std::move(shown)});
}

void OutputParser::call_text(std::string_view text) {
  if (call_.size() + text.size() > kMaxCallBytes) {
    emit({OutputEvent::Kind::kBadToolCall,
          raw_call(""),
          {},
          {},
          fmt::format("the call has more than {} bytes", kMaxCallBytes)});
    call_.clear();
    state_ = State::kTooLongCall;
    return;
  }
  call_ += text;
}

void OutputParser::turn_header_text(std::string_view text) {
  const size_t newline = text.find('\n');
  if (newline == std::string_view::npos) return;
  state_ = State::kAnswer;
  this->text(text.substr(newline + 1));
}

void OutputParser::open_channel() {
  state_ = State::kChannelName;
  name_.clear();
  held_space_.clear();
  thought_begins_ = true;
}

void OutputParser::close_channel() {
  // A name that was cut short is no name: "<|channel>th<channel|>" thinks "th".
  if (state_ == State::kChannelName && !name_.empty()) {
    state_ = State::kThought;
    thought_text(std::exchange(name_, {}));
  }
  held_space_.clear();
  state_ = State::kAnswer;
}

bool OutputParser::is_known(std::string_view name) const {
  return tools_.empty() || std::find(tools_.begin(), tools_.end(), name) != tools_.end();
}

std::string OutputParser::raw_call(std::string_view closing_mark) const {
  std::string raw(text_of(Mark::kCallOpen));
  for (const char c : call_) {
    if (c == kStringDelimiter) {
      raw += text_of(Mark::kQuote);
    } else {
      raw += c;
    }
  }
  return raw.append(closing_mark);
}

void OutputParser::close_call(std::string_view closing_mark) {
  const bool was_dropped = state_ == State::kTooLongCall;
  state_ = State::kAnswer;
  if (was_dropped) return;
  ParsedCalls parsed = parse_tool_calls(call_);
  for (const ParsedCall& call : parsed.calls) {
    if (parsed.problem.empty() && !is_known(call.name)) {
      parsed.problem = fmt::format("there is no tool called {}", call.name);
    }
  }
  if (!parsed.problem.empty()) {
    emit({OutputEvent::Kind::kBadToolCall, raw_call(closing_mark), {}, {}, std::move(parsed.problem)});
  } else {
    for (ParsedCall& call : parsed.calls) {
      emit({OutputEvent::Kind::kToolCall, {}, std::move(call.name), std::move(call.arguments)});
    }
  }
  call_.clear();
}

// What is open ends where another mark stands.
void OutputParser::leave(Mark mark) {
  if (state_ == State::kCall || state_ == State::kTooLongCall) {
    close_call(mark == Mark::kCallClose ? text_of(mark) : "");
  } else if (in_thought()) {
    close_channel();
  }
}

void OutputParser::mark(Mark mark) {
  if (mark == Mark::kQuote) {
    if (state_ != State::kCall) return text("\"");  // what it means, where nothing is a call
    return call_text(std::string_view(&kStringDelimiter, 1));
  }
  leave(mark);
  switch (mark) {
    case Mark::kThoughtOpen:
      return open_channel();
    case Mark::kCallOpen:
      state_ = State::kCall;
      return;
    case Mark::kTurnOpen:
      state_ = State::kTurnHeader;
      return;
    default:
      // Closing marks that close nothing, and <|tool_response> after the calls, mean nothing more.
      return;
  }
}

void OutputParser::finish(OutputEnd end) {
  if (state_ == State::kCall && end == OutputEnd::kCut) {
    emit({OutputEvent::Kind::kBadToolCall, raw_call(""), {}, {}, "the call was cut off before its end"});
    call_.clear();
  } else {
    leave(Mark::kTurnClose);
  }
  state_ = State::kAnswer;
}

TokenOutputParser::TokenOutputParser(std::shared_ptr<const Vocab> vocab, std::span<const TokenId> prompt,
                                     std::vector<std::string> tools, OutputSink sink)
    : vocab_(std::move(vocab)), marks_(*vocab_), detokenizer_(vocab_), parser_(std::move(tools), std::move(sink)) {
  size_t begin = prompt.size();
  while (begin > 0 && !marks_.mark_of(prompt[begin - 1])) --begin;
  if (begin == 0 || marks_.mark_of(prompt[begin - 1]) != Mark::kThoughtOpen) return;
  parser_.seed([&] {
    for (const TokenId token : prompt.subspan(begin - 1)) append(token);
    parser_.text(detokenizer_.flush());
  });
}

void TokenOutputParser::append(TokenId token) {
  const auto mark = marks_.mark_of(token);
  if (!mark) return parser_.text(detokenizer_.append(token));
  parser_.text(detokenizer_.flush());
  parser_.mark(*mark);
}

void TokenOutputParser::finish(OutputEnd end) {
  parser_.text(detokenizer_.flush());
  parser_.finish(end);
}

TextOutputParser::TextOutputParser(std::string_view prompt, std::vector<std::string> tools, OutputSink sink)
    : parser_(std::move(tools), std::move(sink)) {
  size_t last = std::string_view::npos;
  Mark last_mark = Mark::kTurnClose;
  for (const auto& [mark, text] : kMarkTexts) {
    const size_t found = prompt.rfind(text);
    if (found == std::string_view::npos || (last != std::string_view::npos && found < last)) continue;
    last = found;
    last_mark = mark;
  }
  if (last == std::string_view::npos || last_mark != Mark::kThoughtOpen) return;
  parser_.seed([&] {
    append(prompt.substr(last));
    consume(true);
  });
}

void TextOutputParser::append(std::string_view text) {
  pending_ += text;
  consume(false);
}

void TextOutputParser::finish(OutputEnd end) {
  consume(true);
  parser_.finish(end);
}

void TextOutputParser::consume(bool is_end) {
  const std::string_view all = pending_;
  size_t at = 0;      // everything before is handed on
  size_t search = 0;  // no mark begins before
  while (search < all.size()) {
    search = std::min(all.find('<', search), all.size());
    if (search == all.size()) break;
    const std::string_view rest = all.substr(search);
    const auto begins = [&](const auto& known) { return rest.starts_with(known.second); };
    const auto mark = std::find_if(kMarkTexts.begin(), kMarkTexts.end(), begins);
    if (mark != kMarkTexts.end()) {
      parser_.text(utf8_sanitise(all.substr(at, search - at)));
      parser_.mark(mark->first);
      at = search += mark->second.size();
      continue;
    }
    const auto may_begin = [&](const auto& known) { return known.second.starts_with(rest); };
    if (!is_end && std::any_of(kMarkTexts.begin(), kMarkTexts.end(), may_begin)) break;
    ++search;
  }
  size_t end = search;
  if (!is_end) end -= utf8_incomplete_suffix(all.substr(at, end - at));
  parser_.text(utf8_sanitise(all.substr(at, end - at)));
  pending_.erase(0, end);
}

}  // namespace carat::text
