#include "chat/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/runner/update_queue.h"

namespace carat::chat {

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

// A request of this thread. When it is left behind, as by an exception, it is cancelled, and its end waited for: the
// next request finds a cache that nobody is changing.
class OwnRequest {
 public:
  OwnRequest(engine::Runner& runner, engine::Request request)
      : runner_(runner), updates_(std::make_shared<engine::UpdateQueue>()) {
    id_ = runner_.submit(std::move(request), updates_);
  }
  ~OwnRequest() {
    cancel();
    while (!has_ended_) wait();
  }
  OwnRequest(const OwnRequest&) = delete;
  OwnRequest& operator=(const OwnRequest&) = delete;

  engine::UpdateQueue::Update wait() {
    engine::UpdateQueue::Update update = updates_->wait();
    has_ended_ = update.end.has_value();
    return update;
  }
  void cancel() {
    if (!has_ended_) runner_.cancel(id_);
  }

 private:
  engine::Runner& runner_;
  std::shared_ptr<engine::UpdateQueue> updates_;
  engine::RequestId id_ = 0;
  bool has_ended_ = false;
};

}  // namespace

Overflow parse_overflow(std::string_view text) {
  if (text == "error") return Overflow::kError;
  if (text == "shift") return Overflow::kShift;
  fail(ErrorCode::kBadArgument,
       "--overflow {}: known are error (refuse the turn) and shift (leave out the oldest turns)", text);
}

ChatSession::ChatSession(std::shared_ptr<engine::Runner> runner, text::ChatTemplate chat_template, Options options)
    : runner_(std::move(runner)),
      template_(std::move(chat_template)),
      tokenizer_(runner_->shared_vocab()),
      options_(std::move(options)),
      context_(runner_->limits().context) {}

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
  const text::TokenId bos = runner_->vocab().bos();
  if (tokens.empty() || tokens.front() != bos) tokens.insert(tokens.begin(), bos);
  check_fits(tokens.size());
  engine::TurnOptions options = options_.turn;
  options.is_raw = true;
  return run(std::move(tokens), std::move(options), watcher);
}

TurnReport ChatSession::run(std::vector<text::TokenId> prompt, engine::TurnOptions options, TurnWatcher& watcher) {
  engine::ChatTurn* running = nullptr;
  engine::ChatTurn turn(
      tokenizer_, runner_->shared_vocab(), prompt, options,
      [&](const text::OutputEvent& event) { watcher.event(event, *running); }, next_call_);
  running = &turn;
  std::vector<text::TokenId> tokens = std::move(prompt);
  const auto prompt_size = static_cast<uint32_t>(tokens.size());
  OwnRequest request(*runner_, turn.take_request());
  std::optional<engine::RequestEnd> end;
  while (!end) {
    const engine::UpdateQueue::Update update = request.wait();
    end = update.end;
    if (update.tokens.empty() && !end) {
      watcher.reading(update.prompt_processed - update.prompt_reused, prompt_size - update.prompt_reused,
                      update.prompt_seconds);
    }
    for (const text::TokenId token : update.tokens) {
      tokens.push_back(token);
      if (!turn.append(token)) request.cancel();
      if (turn.in_thought()) watcher.thinking(turn);
    }
  }
  if (end->failure) end->failure->rethrow();
  return report(turn, options, *end, std::move(tokens));
}

// What is to be said of a turn that has ended, and what is to be remembered of it: its tokens, prompt and answer.
TurnReport ChatSession::report(engine::ChatTurn& turn, const engine::TurnOptions& options,
                               const engine::RequestEnd& end, std::vector<text::TokenId> tokens) {
  const engine::SequenceFigures& figures = end.figures;
  TurnReport report;
  report.prompt_reused = figures.prefix_reused;
  report.prompt_new = figures.prompt_tokens - figures.prefix_reused;
  report.prompt_seconds = figures.prompt_seconds;
  report.generated = figures.generated;
  report.decode_passes = figures.decode_passes;
  report.decode_tokens = figures.decode_tokens;
  report.drafts = figures.drafts;
  report.decode_seconds = figures.decode_seconds;
  report.context_used = figures.prompt_tokens + figures.generated;
  report.cache_note = explain_cache(figures, std::span(tokens).first(figures.prompt_tokens));
  report.result = turn.finish(end.ending);
  report.ending_note = engine::ending_note(report.result, options, context_);
  next_call_ += report.result.message.tool_calls.size();
  known_prompt_ = figures.prompt_tokens;
  known_ = std::move(tokens);
  known_.resize(figures.processed);
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
  const uint32_t trained = runner_->model().config().context_length;
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
// known can be reused, unless nothing was kept there that can be gone on from.
std::string ChatSession::explain_cache(const engine::SequenceFigures& figures,
                                       std::span<const text::TokenId> prompt) const {
  const uint32_t shared = figures.prefix_shared;
  const size_t most = std::min<size_t>(known_.size(), prompt.size() - 1);
  if (known_.empty() || figures.prefix_reused >= most) return {};
  const text::TokenId thought = runner_->vocab().find("<|channel>").value_or(-1);
  std::string why;
  if (!change_.empty()) {
    why = change_;
  } else if (shared < known_.size() && known_[shared] == thought) {
    why = shared < known_prompt_ ? "the last prompt ended with an empty thought, which the history leaves out"
                                 : "the thoughts of the last answer are not part of the history";
  } else {
    why = "the last answer is cut into other tokens when it is read back";
  }
  if (figures.prefix_reused >= std::min<size_t>(shared, most)) {
    return fmt::format("read again from token {} on: {}", shared, why);
  }
  const std::string from = figures.prefix_reused == 0
                               ? "everything was read again"
                               : fmt::format("read again from token {} on", figures.prefix_reused);
  const std::string_view loss = figures.prefix_loss == engine::PrefixLoss::kEvicted
                                    ? "the memory of what was kept of them was needed"
                                    : "the sliding window had moved past them";
  return fmt::format("{}: {} ({} tokens were the same, but {})", from, why, shared, loss);
}

}  // namespace carat::chat
