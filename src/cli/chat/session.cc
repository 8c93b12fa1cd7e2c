#include "cli/chat/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "cli/interrupts.h"

namespace carat::cli {

namespace {

bool is_instruction(const text::Message& message) {
  return message.role == text::Role::kSystem || message.role == text::Role::kDeveloper;
}

// The index after the instructions that begin a conversation.
size_t first_turn(const text::Conversation& conversation) {
  const auto& messages = conversation.messages;
  return static_cast<size_t>(std::find_if_not(messages.begin(), messages.end(), is_instruction) - messages.begin());
}

size_t last_question(const text::Conversation& conversation) {
  size_t at = conversation.messages.size();
  while (at > 0 && conversation.messages[at - 1].role != text::Role::kUser) --at;
  if (at == 0) fail(ErrorCode::kBadArgument, "there is no question yet that could be answered again");
  return at - 1;
}

std::vector<std::string> tool_names(const std::vector<text::Tool>& tools) {
  std::vector<std::string> names;
  for (const text::Tool& tool : tools) names.push_back(tool.name);
  return names;
}

}  // namespace

Overflow parse_overflow(std::string_view text) {
  if (text == "error") return Overflow::kError;
  if (text == "shift") return Overflow::kShift;
  fail(ErrorCode::kBadArgument,
       "--overflow {}: known are error (refuse the turn) and shift (leave out the oldest turns)", text);
}

ChatSession::ChatSession(engine::Engine engine, text::ChatTemplate chat_template, Options options)
    : engine_(std::move(engine)),
      template_(std::move(chat_template)),
      tokenizer_(engine_.shared_vocab()),
      options_(std::move(options)),
      context_(engine_.executor().options().context) {}

std::string ChatSession::system() const {
  const auto& messages = conversation_.messages;
  return !messages.empty() && is_instruction(messages.front()) ? messages.front().content.joined() : std::string();
}

void ChatSession::set_system(std::string text) {
  auto& messages = conversation_.messages;
  messages.erase(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(first_turn(conversation_)));
  if (!text.empty()) messages.insert(messages.begin(), {text::Role::kSystem, std::move(text)});
  change_ = "the system instructions were changed";
}

void ChatSession::set_tools(std::vector<text::Tool> tools) {
  conversation_.tools = std::move(tools);
  change_ = "the tools were changed";
}

void ChatSession::set_thinking(bool on) {
  if (options_.thinking == on) return;
  options_.thinking = on;
  change_ = "thinking was switched, which changes the system turn";
}

void ChatSession::replace(text::Conversation conversation) {
  text::check_conversation(conversation);
  conversation_ = std::move(conversation);
  abandoned_.clear();
  change_ = "another conversation was loaded";
}

void ChatSession::clear() {
  conversation_.messages.resize(first_turn(conversation_), {text::Role::kUser});
  abandoned_.clear();
  change_ = "the conversation was cleared";
}

TurnReport ChatSession::ask(std::string text, TurnWatcher& watcher) {
  conversation_.messages.push_back({text::Role::kUser, text});
  try {
    TurnReport report = answer(watcher);
    const text::Message& said = report.result.message;
    abandoned_.clear();
    if (report.result.ending == engine::TurnEnding::kInterrupted && said.content.empty() && said.tool_calls.empty()) {
      forget_question();
      abandoned_ = std::move(text);
    }
    return report;
  } catch (...) {
    forget_question();
    throw;
  }
}

void ChatSession::forget_question() {
  conversation_.messages.resize(last_question(conversation_), {text::Role::kUser});
}

TurnReport ChatSession::go_on(std::vector<text::Message> results, TurnWatcher& watcher) {
  for (text::Message& result : results) conversation_.messages.push_back(std::move(result));
  return answer(watcher);
}

TurnReport ChatSession::regenerate(TurnWatcher& watcher) {
  if (!abandoned_.empty()) return ask(std::exchange(abandoned_, {}), watcher);
  conversation_.messages.resize(last_question(conversation_) + 1, {text::Role::kUser});
  change_ = "the last answer is being replaced";
  return answer(watcher);
}

TurnReport ChatSession::answer(TurnWatcher& watcher) {
  std::vector<text::TokenId> prompt = fitted_prompt(watcher);
  engine::TurnOptions options = options_.turn;
  options.tools = tool_names(conversation_.tools);
  TurnReport report = run(std::move(prompt), std::move(options), watcher);
  const text::Message& said = report.result.message;
  if (!said.content.empty() || !said.tool_calls.empty() || !said.reasoning.empty()) {
    conversation_.messages.push_back(said);
  }
  return report;
}

TurnReport ChatSession::complete(std::string_view text, TurnWatcher& watcher) {
  std::vector<text::TokenId> tokens = tokenizer_.encode(text, text::Tokenizer::Specials::kParse);
  const text::TokenId bos = engine_.vocab().bos();
  if (tokens.empty() || tokens.front() != bos) tokens.insert(tokens.begin(), bos);
  check_fits(tokens.size());
  engine::TurnOptions options = options_.turn;
  options.is_raw = true;
  return run(std::move(tokens), std::move(options), watcher);
}

TurnReport ChatSession::run(std::vector<text::TokenId> prompt, engine::TurnOptions options, TurnWatcher& watcher) {
  const Stoppable stoppable;
  engine::ChatTurn* running = nullptr;
  engine::ChatTurn turn(
      engine_, tokenizer_, std::move(prompt), options,
      [&](const text::OutputEvent& event) { watcher.event(event, *running); }, next_call_);
  running = &turn;
  const engine::Sequence& sequence = turn.sequence();
  while (engine_.step()) {
    if (sequence.generated().empty()) {
      watcher.reading(sequence.processed() - sequence.prefix_reused(),
                      static_cast<uint32_t>(sequence.prompt().size()) - sequence.prefix_reused(),
                      sequence.prompt_seconds());
    } else if (turn.in_thought()) {
      watcher.thinking(turn);
    }
  }
  TurnReport report;
  report.prompt_reused = sequence.prefix_reused();
  report.prompt_new = static_cast<uint32_t>(sequence.prompt().size()) - sequence.prefix_reused();
  report.prompt_seconds = sequence.prompt_seconds();
  report.generated = static_cast<uint32_t>(sequence.generated().size());
  report.decode_passes = sequence.decode_passes();
  report.decode_tokens = sequence.decode_tokens();
  report.lookup = sequence.lookup();
  report.decode_seconds = sequence.decode_seconds();
  report.context_used = static_cast<uint32_t>(sequence.tokens().size());
  report.cache_note = explain_cache(sequence);
  report.result = turn.finish();
  report.ending_note = engine::ending_note(report.result, options, context_);
  next_call_ += report.result.message.tool_calls.size();
  known_prompt_ = sequence.prompt().size();
  known_.assign(sequence.tokens().begin(), sequence.tokens().begin() + sequence.processed());
  change_.clear();
  return report;
}

std::vector<text::TokenId> ChatSession::render() const {
  text::RenderOptions options;
  options.thinking = options_.thinking;
  return text::encode_prompt(tokenizer_, template_.render(conversation_, options));
}

void ChatSession::check_fits(size_t tokens) const {
  if (tokens <= context_) return;
  const uint32_t trained = engine_.executor().model().config().context_length;
  fail(ErrorCode::kBadArgument, "the prompt has {} tokens but the context holds {}; {}", tokens, context_,
       tokens <= trained ? fmt::format("give -c {} or more (the model allows {})", tokens + 1, trained)
                         : fmt::format("the model allows {}, so shorten the text", trained));
}

// Leaves out the oldest user message and everything up to the next one. Returns how many messages these were: 0 when
// only the last question is left.
size_t ChatSession::drop_oldest_turn() {
  auto& messages = conversation_.messages;
  const auto begin = messages.begin() + static_cast<std::ptrdiff_t>(first_turn(conversation_));
  if (begin == messages.end()) return 0;
  const auto next = std::find_if(begin + 1, messages.end(),
                                 [](const text::Message& message) { return message.role == text::Role::kUser; });
  if (next == messages.end()) return 0;
  const auto dropped = static_cast<size_t>(next - begin);
  messages.erase(begin, next);
  return dropped;
}

std::vector<text::TokenId> ChatSession::fitted_prompt(TurnWatcher& watcher) {
  std::vector<text::TokenId> prompt = render();
  if (options_.overflow == Overflow::kShift) {
    // Begun only when an answer of an eighth of the context would not fit; then a quarter is made free, so that the
    // next turns need not drop again, each at the price of reading everything anew.
    const size_t before = prompt.size();
    size_t dropped = 0;
    if (prompt.size() + std::min(options_.turn.max_tokens, context_ / 8) > context_) {
      while (prompt.size() + std::min(options_.turn.max_tokens, context_ / 4) > context_) {
        const size_t messages = drop_oldest_turn();
        if (messages == 0) break;
        dropped += messages;
        prompt = render();
      }
    }
    if (dropped > 0) {
      change_ = "the oldest turns were left out";
      watcher.note(fmt::format("the conversation had {} tokens of {}: its {} oldest messages are left out from now on",
                               before, context_, dropped));
    }
  } else if (prompt.size() > context_ && conversation_.messages.size() > first_turn(conversation_) + 1) {
    fail(ErrorCode::kBadArgument,
         "the conversation has {} tokens but the context holds {}: start anew (/clear), give a larger -c, or "
         "--overflow shift to leave out the oldest turns",
         prompt.size(), context_);
  }
  check_fits(prompt.size());
  return prompt;
}

// Why part of what the cache held was read again: everything before the place where the new prompt parts from what is
// known can be reused, unless the sliding window has moved past that place.
std::string ChatSession::explain_cache(const engine::Sequence& sequence) const {
  const uint32_t shared = sequence.prefix_shared();
  const size_t most = std::min<size_t>(known_.size(), sequence.prompt().size() - 1);
  if (known_.empty() || sequence.prefix_reused() >= most) return {};
  const text::TokenId thought = engine_.vocab().find("<|channel>").value_or(-1);
  std::string why;
  if (!change_.empty()) {
    why = change_;
  } else if (shared < known_.size() && known_[shared] == thought) {
    why = shared < known_prompt_ ? "the last prompt ended with an empty thought, which the history leaves out"
                                 : "the thoughts of the last answer are not part of the history";
  } else {
    why = "the last answer is cut into other tokens when it is read back";
  }
  if (sequence.prefix_reused() < std::min<size_t>(shared, most)) {
    return fmt::format(
        "everything was read again: {} ({} tokens were the same, but the sliding window had moved past them)", why,
        shared);
  }
  return fmt::format("read again from token {} on: {}", shared, why);
}

}  // namespace carat::cli
