#include "server/service/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <new>
#include <random>
#include <utility>

#include "base/error.h"
#include "text/chat/marks.h"
#include "text/tokenizer/detokenizer.h"

namespace carat::server {

namespace {

constexpr double kProgressSeconds = 0.1;  // between two reports of how much of a prompt was read

LostReason reason_of(engine::PrefixLoss loss) {
  return loss == engine::PrefixLoss::kEvicted ? LostReason::kEvicted : LostReason::kWindow;
}

AnswerOutcome outcome_of(engine::TurnEnding ending, unsigned status) {
  if (status == 499) return AnswerOutcome::kCancelled;
  if (status != 200) return AnswerOutcome::kFailed;
  switch (ending) {
    case engine::TurnEnding::kToolCalls:
      return AnswerOutcome::kToolCalls;
    case engine::TurnEnding::kLength:
    case engine::TurnEnding::kThoughtsOnly:
      return AnswerOutcome::kLength;
    case engine::TurnEnding::kContextFull:
      return AnswerOutcome::kContextFull;
    case engine::TurnEnding::kLoop:
      return AnswerOutcome::kLoop;
    case engine::TurnEnding::kInterrupted:
    case engine::TurnEnding::kFailed:
      return AnswerOutcome::kFailed;
    case engine::TurnEnding::kComplete:
    case engine::TurnEnding::kThoughtBudget:
    case engine::TurnEnding::kStopString:
    case engine::TurnEnding::kStopToken:
      break;
  }
  return AnswerOutcome::kStop;
}

// What the model wrote in ordinary characters: clients show it, and send it back as text.
std::string without_marks(std::string text) {
  for (const auto& [mark, spelling] : text::kMarkTexts) {
    const std::string_view shown = mark == text::Mark::kQuote ? "\"" : "";
    for (size_t at = 0; (at = text.find(spelling, at)) != std::string::npos; at += shown.size()) {
      text.replace(at, spelling.size(), shown);
    }
  }
  return text;
}

Problem problem_of(const engine::RequestEnd& end) {
  if (end.ending == engine::Ending::kInterrupted) {
    return {.refusal = Refusal::kDraining, .message = "the server is shutting down", .retry_after = 1.0};
  }
  Problem problem{.refusal = Refusal::kFailed, .message = "the request could not be finished"};
  if (!end.failure) return problem;
  // What the log has is more than clients should know: files of this machine, mistakes of the program.
  if (end.failure->code == ErrorCode::kNonFinite) {
    problem.message = "the model produced NaN or infinite logits";
    problem.is_repeatable = true;
  } else {
    problem.message = end.failure->code ? end.failure->text : "internal error while the answer was generated";
  }
  return problem;
}

// Whose share of the engine a request takes: everybody's with the same key, otherwise everybody's at the same address.
// Keys are hashed, because the engine has no business with them.
std::string client_of(const HttpRequest& request) {
  for (const std::string_view header : {"authorization", "x-api-key"}) {
    if (const std::string_view key = request.header(header); !key.empty()) {
      return fmt::format("key {:x}", std::hash<std::string_view>()(key));
    }
  }
  return request.client;
}

}  // namespace

// Takes updates on the runner's thread and leaves them in the inbox. Owned by the runner until the request has ended.
class Generation::Sink : public engine::RequestSink {
 public:
  Sink(std::shared_ptr<Generation> generation, uint32_t choice) : generation_(std::move(generation)), choice_(choice) {}

  void update(const engine::RequestUpdate& update) override {
    {
      const std::lock_guard lock(generation_->inbox_mutex_);
      Inbox& inbox = generation_->inboxes_[choice_];
      inbox.has_news = true;
      try {
        put(update, inbox);
      } catch (const std::bad_alloc&) {
        // The runner ends a request whose sink throws. The end itself is told whatever else is lost.
        if (update.end == nullptr) throw;
        inbox.end = engine::RequestEnd{.ending = engine::Ending::kFailed};
      }
    }
    generation_->host_.has_news(generation_);
  }

 private:
  static void put(const engine::RequestUpdate& update, Inbox& inbox) {
    inbox.tokens.insert(inbox.tokens.end(), update.tokens.begin(), update.tokens.end());
    inbox.logprobs.insert(inbox.logprobs.end(), update.logprobs.begin(), update.logprobs.end());
    inbox.has_started = update.has_started;
    inbox.queue_seconds = update.queue_seconds;
    inbox.processed = update.prompt_processed;
    inbox.shared = update.prompt_shared;
    inbox.reused = update.prompt_reused;
    inbox.loss = update.prompt_loss;
    inbox.prompt_seconds = update.prompt_seconds;
    if (update.end != nullptr) inbox.end = *update.end;
  }

  std::shared_ptr<Generation> generation_;
  uint32_t choice_;
};

Generation::Generation(GenerationHost& host, Setup setup)
    : host_(host),
      exchange_(std::move(setup.exchange)),
      route_(setup.route),
      request_(std::move(setup.request)),
      reply_(std::move(setup.reply)),
      id_(std::move(setup.id)),
      call_id_prefix_(setup.call_id_prefix),
      notes_(std::move(setup.turns.notes)),
      arrived_(setup.arrived),
      ping_seconds_(setup.ping_seconds),
      queue_seconds_(setup.queue_seconds),
      number_(setup.number),
      can_end_thoughts_(setup.turns.options.can_end_thoughts),
      last_sent_(setup.arrived) {
  const bool shows_prompts = request_.return_tokens || request_.echo;
  const auto prompts = static_cast<uint32_t>(setup.turns.prompts.size());
  std::vector<std::string> tools;
  if (request_.conversation) {
    for (const text::Tool& tool : request_.conversation->tools) tools.push_back(tool.name);
  }
  choices_.resize(size_t{prompts} * request_.choices);
  for (Choice& choice : choices_) {
    choice.index = static_cast<uint32_t>(&choice - choices_.data());
    choice.prompt = choice.index / request_.choices;
    engine::TurnOptions options = setup.turns.options;
    options.tools = tools;
    options.sampling.seed = seed_of(setup.turns, choice.index);
    choice.turn = std::make_unique<engine::ChatTurn>(
        host_.tokenizer(), host_.runner().shared_vocab(), setup.turns.prompts[choice.prompt], std::move(options),
        [this, &choice](text::OutputEvent event) { on_output(choice, std::move(event)); });
    choice.request = choice.turn->take_request();
    choice.request->cache_prompt = request_.cache_prompt;
    choice.request->cache_salt = request_.cache_salt;
    choice.request->priority = request_.priority;
    choice.request->client = client_of(exchange_->request());
  }
  for (auto& prompt : setup.turns.prompts) {
    prompt_sizes_.push_back(static_cast<uint32_t>(prompt.size()));
    if (shows_prompts) shown_prompts_.push_back(std::move(prompt));
  }
  prompt_has_started_.resize(prompts);
  running_ = static_cast<uint32_t>(choices_.size());
  inboxes_.resize(choices_.size());
}

uint32_t Generation::prompt_tokens() const {
  uint32_t sum = 0;
  for (const uint32_t size : prompt_sizes_) sum += size;
  return sum;
}

// --- any thread
// -------------------------------------------------------------------------------------------------------

void Generation::submit() {
  const std::lock_guard lock(ids_mutex_);
  for (Choice& choice : choices_) {
    engine::RequestEnd refused{.ending = engine::Ending::kCancelled};
    try {
      if (!is_cancelled_) {
        ids_.push_back(host_.runner().submit(*std::exchange(choice.request, std::nullopt),
                                             std::make_shared<Sink>(shared_from_this(), choice.index)));
        continue;
      }
    } catch (const Error& error) {
      refused.failure = engine::Failure::of(error);
      refused.ending = error.code() == ErrorCode::kInterrupted ? engine::Ending::kInterrupted : engine::Ending::kFailed;
    } catch (...) {
      refused.ending = engine::Ending::kFailed;
    }
    {
      const std::lock_guard inbox_lock(inbox_mutex_);
      inboxes_[choice.index].has_news = true;
      inboxes_[choice.index].end = std::move(refused);
    }
    host_.has_news(shared_from_this());
  }
  try {
    for (size_t i = 0; is_paused_ && i < ids_.size(); ++i) host_.runner().pause(ids_[i]);
  } catch (...) {
    // It runs, and what nobody reads yet is kept.
  }
  host_.wake_delivery();
}

void Generation::cancel() {
  const std::lock_guard lock(ids_mutex_);
  is_cancelled_ = true;
  for (const engine::RequestId id : ids_) host_.runner().cancel(id);
}

bool Generation::end_thoughts() {
  if (!can_end_thoughts_) return false;
  for (Choice& choice : choices_) choice.turn->end_thoughts();
  return true;
}

void Generation::pause() {
  const std::lock_guard lock(ids_mutex_);
  if (std::exchange(is_paused_, true)) return;
  host_.metrics().enter(ServiceStage::kPaused);
  for (const engine::RequestId id : ids_) host_.runner().pause(id);
}

void Generation::resume() {
  const std::lock_guard lock(ids_mutex_);
  if (!std::exchange(is_paused_, false)) return;
  host_.metrics().leave(ServiceStage::kPaused);
  for (const engine::RequestId id : ids_) host_.runner().resume(id);
}

// --- the delivery thread
// ----------------------------------------------------------------------------------------------

void Generation::deliver(double now) {
  std::vector<std::pair<uint32_t, Inbox>> news;
  news.reserve(choices_.size());
  {
    const std::lock_guard lock(inbox_mutex_);
    for (uint32_t i = 0; i < inboxes_.size(); ++i) {
      if (inboxes_[i].has_news) news.emplace_back(i, std::exchange(inboxes_[i], {}));
    }
  }
  try {
    for (auto& [index, inbox] : news) take(choices_[index], std::move(inbox), now);
  } catch (...) {
    // What the engine has let go of is not waited for.
    for (auto& [index, inbox] : news) {
      if (!inbox.end || choices_[index].end) continue;
      --running_;
      choices_[index].end = std::move(inbox.end);
    }
    throw;
  }
  write_events();
  const bool has_ended =
      std::all_of(choices_.begin(), choices_.end(), [](const Choice& c) { return c.end || c.is_cut; });
  if (has_ended && !is_closed_) {
    add_event(Ended{usage()});
    write_events();
    close(now);
  }
  if (!bytes_.empty()) last_sent_ = now;
}

void Generation::take(Choice& choice, Inbox&& inbox, double now) {
  if (inbox.has_started) {
    choice.queue_seconds = inbox.queue_seconds;
    choice.processed = inbox.processed;
    choice.shared = inbox.shared;
    choice.reused = inbox.reused;
    choice.loss = inbox.loss;
    choice.prompt_seconds = inbox.prompt_seconds;
    if (!std::exchange(choice.has_started, true)) take_start(choice);
  }
  if (!is_closed_) {
    if (inbox.tokens.empty() && !inbox.end && inbox.has_started) take_progress(choice, now);
    take_tokens(choice, inbox, now);
  }
  if (inbox.end) take_end(choice, *std::move(inbox.end), now);
}

void Generation::take_start(Choice& choice) {
  leave_queue();
  if (is_closed_ || prompt_has_started_[choice.prompt]) return;
  prompt_has_started_[choice.prompt] = true;
  Started started{.prompt_tokens = prompt_sizes_[choice.prompt],
                  .cached_tokens = choice.reused,
                  .index = choice.prompt,
                  .notes = choice.prompt == 0 ? std::move(notes_) : std::vector<std::string>()};
  if (request_.return_tokens) started.prompt = shown_prompts_[choice.prompt];
  if (request_.echo && choice.prompt < request_.prompts.size() &&
      std::holds_alternative<std::vector<text::TokenId>>(request_.prompts[choice.prompt])) {
    started.text = text::decode(host_.runner().shared_vocab(), shown_prompts_[choice.prompt], true);
  }
  add_event(std::move(started));
}

void Generation::take_progress(const Choice& choice, double now) {
  if (!request_.return_progress || now < last_progress_ + kProgressSeconds) return;
  last_progress_ = now;
  add_event(Progress{.total = prompt_sizes_[choice.prompt],
                     .cached = choice.reused,
                     .processed = choice.processed,
                     .milliseconds = 1e3 * choice.prompt_seconds});
}

void Generation::take_tokens(Choice& choice, const Inbox& inbox, double now) {
  if (inbox.tokens.empty() || choice.is_cut) return;
  if (!std::exchange(has_first_token_, true)) {
    first_token_ = now;
    host_.metrics().observe_first_token(now - arrived_);
  }
  if (choice.last_token > 0.0) host_.metrics().observe_gap(now - choice.last_token);
  choice.last_token = now;
  const text::Vocab& vocab = host_.runner().vocab();
  for (size_t i = 0; i < inbox.tokens.size(); ++i) {
    const text::TokenId token = inbox.tokens[i];
    ++choice.generated;
    choice.tokens.push_back(token);
    if (i < inbox.logprobs.size() && !vocab.is_special(token)) {
      choice.logprobs.push_back(chosen_logprob(token, inbox.logprobs[i]));
    }
    const bool was_in_thought = choice.turn->in_thought();
    const bool goes_on = choice.turn->append(token);
    if (was_in_thought || choice.turn->in_thought()) choice.logprobs.clear();
    if (goes_on) continue;
    // What was run beyond the end is not part of the answer.
    choice.is_cut = true;
    {
      const std::lock_guard lock(ids_mutex_);
      if (choice.index < ids_.size()) host_.runner().cancel(ids_[choice.index]);
    }
    choice.result = choice.turn->finish(engine::Ending::kCancelled);
    add_event(choice_ended(choice));
    return;
  }
}

void Generation::take_end(Choice& choice, engine::RequestEnd end, double now) {
  --running_;
  choice.end = std::move(end);
  leave_queue();
  if (is_closed_) return;
  if (!choice.is_cut) {
    const engine::Ending ending = choice.end->ending;
    if (ending == engine::Ending::kFailed || ending == engine::Ending::kInterrupted) {
      if (choice.end->failure) failure_ = choice.end->failure->text;
      return fail(problem_of(*choice.end), now);
    }
    if (ending == engine::Ending::kCancelled) {
      // Only a client that left ends a request like this; there is nobody to tell.
      if (!cancelled_in_) {
        cancelled_in_ = !choice.has_started     ? RequestPhase::kQueued
                        : choice.generated == 0 ? RequestPhase::kPrefill
                                                : RequestPhase::kDecode;
      }
      status_ = 499;
      return close(now);
    }
    choice.result = choice.turn->finish(ending, choice.end->stop_token);
    add_event(choice_ended(choice));
  }
}

void Generation::on_output(Choice& choice, text::OutputEvent event) {
  switch (event.kind) {
    case text::OutputEvent::Kind::kThought:
      return add_thought(choice, std::move(event.text));
    case text::OutputEvent::Kind::kAnswer:
      return add_answer(choice, std::move(event.text));
    case text::OutputEvent::Kind::kToolCall:
      choice.logprobs.clear();
      return add_event(CallMade{.choice = choice.index,
                                .id = random_id(call_id_prefix_),
                                .name = std::move(event.name),
                                .arguments = std::move(event.arguments),
                                .tokens = std::exchange(choice.tokens, {})});
    case text::OutputEvent::Kind::kBadToolCall:
      choice.logprobs.clear();
      host_.metrics().count_bad_tool_call();
      return add_event(BadCall{.choice = choice.index,
                               .text = without_marks(std::move(event.text)),
                               .problem = without_marks(std::move(event.problem)),
                               .tokens = std::exchange(choice.tokens, {})});
  }
}

void Generation::add_thought(Choice& choice, std::string text) {
  if (request_.thoughts_in_answer) {
    if (!std::exchange(choice.shows_thought, true)) text.insert(0, "<|channel>thought\n");
    return add_event(
        AnswerText{.choice = choice.index, .text = std::move(text), .tokens = std::exchange(choice.tokens, {})});
  }
  if (!events_.empty()) {
    if (auto* last = std::get_if<ThoughtText>(&events_.back()); last != nullptr && last->choice == choice.index) {
      last->text += text;
      last->tokens.insert(last->tokens.end(), choice.tokens.begin(), choice.tokens.end());
      choice.tokens.clear();
      return;
    }
  }
  add_event(ThoughtText{.choice = choice.index, .text = std::move(text), .tokens = std::exchange(choice.tokens, {})});
}

void Generation::add_answer(Choice& choice, std::string text) {
  if (std::exchange(choice.shows_thought, false)) text.insert(0, "<channel|>");
  if (!events_.empty()) {
    if (auto* last = std::get_if<AnswerText>(&events_.back()); last != nullptr && last->choice == choice.index) {
      last->text += text;
      last->tokens.insert(last->tokens.end(), choice.tokens.begin(), choice.tokens.end());
      std::move(choice.logprobs.begin(), choice.logprobs.end(), std::back_inserter(last->logprobs));
      choice.tokens.clear();
      choice.logprobs.clear();
      return;
    }
  }
  add_event(AnswerText{.choice = choice.index,
                       .text = std::move(text),
                       .logprobs = std::exchange(choice.logprobs, {}),
                       .tokens = std::exchange(choice.tokens, {})});
}

void Generation::add_event(Event event) { events_.push_back(std::move(event)); }

ChosenLogprob Generation::chosen_logprob(text::TokenId token, const engine::ChoiceLogprobs& logprobs) const {
  const text::Vocab& vocab = host_.runner().vocab();
  ChosenLogprob chosen;
  chosen.token = token;
  chosen.logprob = logprobs.chosen;
  text::append_spelling(vocab, token, chosen.bytes);
  for (const engine::TokenLogprob& other : logprobs.top) {
    TokenLogprob& top = chosen.top.emplace_back();
    top.token = other.token;
    top.logprob = other.logprob;
    text::append_spelling(vocab, other.token, top.bytes);
  }
  return chosen;
}

ChoiceEnded Generation::choice_ended(const Choice& choice) const {
  ChoiceEnded ended{.choice = choice.index, .tokens = choice.tokens, .completion_tokens = choice.generated};
  switch (choice.result.ending) {
    case engine::TurnEnding::kToolCalls:
      ended.finish = Finish::kToolCalls;
      break;
    case engine::TurnEnding::kLength:
    case engine::TurnEnding::kThoughtsOnly:
      ended.finish = Finish::kLength;
      break;
    case engine::TurnEnding::kContextFull:
      ended.finish = Finish::kContextFull;
      break;
    case engine::TurnEnding::kLoop:
      ended.finish = Finish::kLoop;
      break;
    case engine::TurnEnding::kStopString:
      ended.finish = Finish::kStopString;
      ended.stopped_by = choice.result.stopped_by;
      break;
    case engine::TurnEnding::kStopToken:
      ended.finish = Finish::kStopToken;
      ended.stop_token = choice.result.stop_token;
      break;
    case engine::TurnEnding::kComplete:
    case engine::TurnEnding::kThoughtBudget:
    case engine::TurnEnding::kInterrupted:
    case engine::TurnEnding::kFailed:
      break;
  }
  return ended;
}

Usage Generation::usage() const {
  Usage usage{.prompt_tokens = prompt_tokens()};
  std::vector<bool> counted(prompt_sizes_.size());
  for (const Choice& choice : choices_) {
    if (choice.has_started && !counted[choice.prompt]) {
      counted[choice.prompt] = true;
      usage.cached_tokens += choice.reused;
      usage.prompt_seconds += choice.prompt_seconds;
      // The last token of a prompt is always run: its logits are wanted.
      const uint32_t known = std::min(choice.shared, prompt_sizes_[choice.prompt] - 1);
      usage.lost_tokens += known - std::min(choice.reused, known);
      if (known > choice.reused) usage.lost_reason = lost_reason_name(reason_of(choice.loss));
    }
    usage.completion_tokens += choice.generated;
    usage.thought_tokens += choice.turn->thought_tokens();
    usage.queue_seconds = std::max(usage.queue_seconds, choice.queue_seconds);
    if (choice.last_token > 0.0)
      usage.decode_seconds = std::max(usage.decode_seconds, choice.last_token - first_token_);
    if (!choice.end) continue;
    usage.drafted += choice.end->figures.drafts.drafted;
    usage.accepted += choice.end->figures.drafts.accepted;
  }
  return usage;
}

// Makes bytes of what has happened. A stream that its client reads too slowly pauses the engine's work on it.
void Generation::write_events() {
  if (events_.empty()) return;
  if (request_.timings_per_token) {
    const Usage so_far = usage();
    for (Event& event : events_) {
      if (auto* thought = std::get_if<ThoughtText>(&event)) thought->so_far = so_far;
      if (auto* answer = std::get_if<AnswerText>(&event)) answer->so_far = so_far;
    }
  }
  for (const Event& event : events_) {
    waits_for_more_ = waits_for_more_ && std::holds_alternative<Started>(event);
    const size_t before = bytes_.size();
    try {
      reply_->on(event, bytes_);
    } catch (...) {
      bytes_.resize(before);  // no half events
      events_.clear();
      throw;
    }
  }
  events_.clear();
}

// A stream's head goes out with the first token, or to keep the connection alive. What fails or dies before that has
// sent nothing, so that a balancer or the client's library can ask another server.
void Generation::begin_stream() {
  if (has_stream_) return;
  for (auto& [name, value] : reply_->headers()) exchange_->add_header(name, value);
  exchange_->begin_stream(reply_->stream_type());
  has_stream_ = true;
}

void Generation::flush() {
  if (bytes_.empty() || waits_for_more_) return;
  begin_stream();
  const bool keeps_up = exchange_->append(bytes_);
  bytes_.clear();
  exchange_->flush();
  if (!keeps_up && !is_closed_) pause();
}

void Generation::tick(double now) {
  if (is_closed_) return;
  if (is_queued_ && queue_seconds_ > 0.0 && now - arrived_ > queue_seconds_) {
    return fail({.refusal = Refusal::kQueueTimeout,
                 .message = "the request waited too long for its turn",
                 .retry_after = queue_seconds_},
                now);
  }
  if (!request_.stream || ping_seconds_ <= 0.0 || now - last_sent_ < ping_seconds_) return;
  last_sent_ = now;
  waits_for_more_ = false;
  reply_->keep_alive(bytes_);
}

void Generation::fail(Problem problem, double now) {
  if (is_closed_) return;
  write_events();  // what came before is the client's
  cancel();
  status_ = status_of(problem.refusal);
  if (reply_->is_streamed() && (has_stream_ || reply_->streams_failure(problem))) begin_stream();
  reply_->on(Failed{std::move(problem)}, bytes_);
  close(now);
}

void Generation::give_up(double now) noexcept {
  host_.has_news(shared_from_this());  // what is still in the inbox may be the end
  const bool was_closed = is_closed_;
  try {
    fail({.refusal = Refusal::kFailed, .message = "out of memory while the answer was delivered"}, now);
    if (!was_closed) return;
  } catch (...) {
    // Not even that: the client sees that its answer breaks off.
  }
  is_closed_ = true;
  status_ = status_of(Refusal::kFailed);
  ended_ = now;
  try {
    leave_queue();
    exchange_->abandon();
    resume();
    cancel();
  } catch (...) {
    // The engine ends it when it is complete.
  }
}

// The client gets the end of its answer. The engine may still have to let go of some of it.
void Generation::close(double now) {
  is_closed_ = true;
  ended_ = now;
  leave_queue();
  resume();
  if (reply_->is_streamed() && status_ == 200) begin_stream();
  if (has_stream_) {
    exchange_->append(bytes_);
    exchange_->finish();
  } else if (status_ != 499) {
    exchange_->respond(reply_->response());
  }
  bytes_.clear();
}

void Generation::leave_queue() {
  if (std::exchange(is_queued_, false)) host_.left_queue(prompt_tokens());
}

GenerationSummary Generation::summary() const {
  const Usage total = usage();
  return {.status = status_,
          .prompt_tokens = total.prompt_tokens,
          .cached_tokens = total.cached_tokens,
          .generated_tokens = total.completion_tokens,
          .failure = failure_,
          .first_token_seconds = has_first_token_ ? first_token_ - arrived_ : 0.0,
          .total_seconds = ended_ - arrived_};
}

void Generation::add_slots(std::vector<SlotFigures>& slots, uint32_t context) const {
  for (const Choice& choice : choices_) {
    if (!choice.has_started || choice.end) continue;
    slots.push_back({.id = static_cast<uint32_t>(slots.size()),
                     .task = number_,
                     .context = context,
                     .is_running = true,
                     .prompt_tokens = prompt_sizes_[choice.prompt],
                     .cached_tokens = choice.reused,
                     .read_tokens = choice.processed,
                     .generated_tokens = choice.generated});
  }
}

GenerationRecord Generation::record() const {
  GenerationRecord record{
      .cancelled_in = cancelled_in_, .choices = request_.choices, .max_tokens = request_.max_tokens};
  for (const Choice& choice : choices_) {
    AnswerRecord& answer = record.answers.emplace_back();
    answer.outcome = outcome_of(choice.result.ending, status_);
    answer.generated_tokens = choice.generated;
    answer.thought_tokens = choice.turn->thought_tokens();
    if (choice.end) answer.decode_seconds = choice.end->figures.decode_seconds;
    record.known_tokens += choice.index % request_.choices == 0 ? choice.shared : 0;
  }
  const Usage total = usage();
  record.prompt_tokens = total.prompt_tokens;
  record.cached_tokens = total.cached_tokens;
  record.queue_seconds = total.queue_seconds;
  record.prefill_seconds = total.prompt_seconds;
  record.total_seconds = ended_ - arrived_;
  if (total.lost_tokens > 0) {
    const auto lost = std::find_if(choices_.begin(), choices_.end(),
                                   [](const Choice& choice) { return choice.loss != engine::PrefixLoss::kNone; });
    record.lost_reason = reason_of(lost == choices_.end() ? engine::PrefixLoss::kWindow : lost->loss);
    record.lost_tokens = total.lost_tokens;
  }
  return record;
}

std::string random_id(std::string_view prefix) {
  static constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  std::uniform_int_distribution<size_t> letter(0, kLetters.size() - 1);
  std::string id(prefix);
  for (int i = 0; i < 24; ++i) id += kLetters[letter(random)];
  return id;
}

}  // namespace carat::server
