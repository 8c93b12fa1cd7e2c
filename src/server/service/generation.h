#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/chat_turn.h"
#include "engine/runner/runner.h"
#include "server/api/event.h"
#include "server/api/llama/info.h"
#include "server/api/reply.h"
#include "server/http/exchange.h"
#include "server/metrics/server_metrics.h"
#include "server/service/generation_route.h"
#include "server/service/turn_maker.h"

namespace carat::server {

class Generation;

// What a generation needs of the service that carries it out.
class GenerationHost {
 public:
  virtual ~GenerationHost() = default;
  virtual engine::Runner& runner() = 0;
  virtual const text::Tokenizer& tokenizer() const = 0;
  virtual ServerMetrics& metrics() = 0;
  // There is something for deliver(). Any thread; the delivery thread looks when it is woken, which the runner does
  // once for each pass.
  virtual void has_news(std::shared_ptr<Generation> generation) = 0;
  virtual void wake_delivery() = 0;
  // The request has its place in the executor, or ended without one: it does not count as waiting any more.
  virtual void left_queue(uint32_t prompt_tokens) = 0;
};

// How a request for text ended, for the log.
struct GenerationSummary {
  unsigned status = 200;  // 499: its client left
  uint64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  std::string failure = {};          // of the engine, in its words
  double first_token_seconds = 0.0;  // 0: there was none
  double total_seconds = 0.0;
};

// One request for text on its way: its prompts and choices run in the engine, what they bring becomes events, and the
// dialect's reply makes bytes of them for the exchange. Seconds are those of Delivery's clock.
//
// Three threads meet here. One of the pool makes it and calls submit(). The runner's thread leaves what a pass brought
// in the inbox. The delivery thread does everything else, so all state but the inbox and the ids of the runner's
// requests belongs to it alone.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  struct Setup {
    std::shared_ptr<Exchange> exchange;
    const GenerationRoute* route = nullptr;
    GenerationRequest request = {};
    std::unique_ptr<Reply> reply = {};
    PreparedTurns turns = {};
    std::string id = {};                   // of the answer
    std::string_view call_id_prefix = {};  // of the ids of calls
    uint64_t number = 0;                   // of the request among those of the server
    double arrived = 0.0;                  // when the request came
    double ping_seconds = 15.0;            // of keep-alives of an idle stream; 0 or less: none
    double queue_seconds = 0.0;            // most time to wait for a place in the executor; 0: any
  };
  Generation(GenerationHost& host, Setup setup);

  const std::string& id() const { return id_; }
  uint32_t prompt_tokens() const;  // of all prompts

  // Hands the turns to the engine. Once; on any thread but the runner's. What goes wrong is told to the client.
  void submit();
  // Nobody wants the answer any more. Any thread.
  void cancel();
  // The thoughts that are being written end now. Any thread. False: there are none to end.
  bool end_thoughts();
  // The client reads slowly, or has caught up. Any thread.
  void pause();
  void resume();

  // --- the delivery thread
  // Makes bytes of what has come; the exchange is told of them by flush().
  void deliver(double now);
  void flush();
  void tick(double now);  // several times a second
  // Ends the request with an error, unless it has ended.
  void fail(Problem problem, double now);
  // The same where something was thrown in the middle of the functions above, as far as there is memory for it.
  void give_up(double now) noexcept;
  // Everything is over: the client has the end, and the engine has let go of it.
  bool is_over() const { return is_closed_ && running_ == 0; }
  GenerationSummary summary() const;
  GenerationRecord record() const;
  // Of the choices that run.
  void add_slots(std::vector<SlotFigures>& slots, uint32_t context) const;
  const GenerationRoute& route() const { return *route_; }
  const Exchange& exchange() const { return *exchange_; }

 private:
  // What the runner brought to one choice since the last delivery.
  struct Inbox {
    bool has_news = false;
    std::vector<text::TokenId> tokens;
    std::vector<engine::ChoiceLogprobs> logprobs;
    bool has_started = false;
    double queue_seconds = 0.0;
    uint32_t processed = 0, shared = 0, reused = 0;
    engine::PrefixLoss loss = engine::PrefixLoss::kNone;
    double prompt_seconds = 0.0;
    std::optional<engine::RequestEnd> end;
  };
  struct Choice {
    uint32_t index = 0, prompt = 0;
    std::unique_ptr<engine::ChatTurn> turn;
    std::optional<engine::Request> request;  // until submit()
    std::vector<text::TokenId> tokens;       // that are part of no event yet
    std::vector<ChosenLogprob> logprobs;     // of these, as far as they are of the answer
    bool has_started = false;
    bool is_cut = false;         // ended by us: a stop text, or the model repeats itself
    bool shows_thought = false;  // a thought is open in the answer (thoughts_in_answer)
    double queue_seconds = 0.0;
    uint32_t processed = 0, shared = 0, reused = 0;
    engine::PrefixLoss loss = engine::PrefixLoss::kNone;
    double prompt_seconds = 0.0;
    uint32_t generated = 0;
    double last_token = 0.0;  // when
    std::optional<engine::RequestEnd> end;
    engine::TurnResult result;
  };
  class Sink;

  void take(Choice& choice, Inbox&& inbox, double now);
  void take_start(Choice& choice);
  void take_progress(const Choice& choice, double now);
  void take_tokens(Choice& choice, const Inbox& inbox, double now);
  void take_end(Choice& choice, engine::RequestEnd end, double now);
  void on_output(Choice& choice, text::OutputEvent event);
  void add_thought(Choice& choice, std::string text);
  void add_answer(Choice& choice, std::string text);
  void add_event(Event event);
  ChosenLogprob chosen_logprob(text::TokenId token, const engine::ChoiceLogprobs& logprobs) const;
  ChoiceEnded choice_ended(const Choice& choice) const;
  Usage usage() const;
  void write_events();
  void begin_stream();
  void close(double now);
  void leave_queue();

  GenerationHost& host_;
  std::shared_ptr<Exchange> exchange_;
  const GenerationRoute* route_;
  GenerationRequest request_;
  std::unique_ptr<Reply> reply_;
  std::string id_;
  std::string_view call_id_prefix_;
  std::vector<std::string> notes_;
  double arrived_, ping_seconds_, queue_seconds_;
  const uint64_t number_;
  const bool can_end_thoughts_;
  std::vector<uint32_t> prompt_sizes_;
  std::vector<std::vector<text::TokenId>> shown_prompts_;  // where the client wants their tokens or text
  std::vector<bool> prompt_has_started_;

  std::vector<Choice> choices_;
  std::vector<Event> events_;  // of the delivery in progress
  std::string bytes_;
  uint32_t running_ = 0;  // choices that the engine has not ended
  bool is_closed_ = false;
  bool is_queued_ = true;
  bool has_stream_ = false;     // its head is on its way
  bool waits_for_more_ = true;  // what there is says no more than that the request was accepted
  bool has_first_token_ = false;
  double first_token_ = 0.0, last_sent_ = 0.0, last_progress_ = 0.0, ended_ = 0.0;
  unsigned status_ = 200;
  std::string failure_;
  std::optional<RequestPhase> cancelled_in_;

  std::mutex inbox_mutex_;
  std::vector<Inbox> inboxes_;

  std::mutex ids_mutex_;
  std::vector<engine::RequestId> ids_;
  bool is_cancelled_ = false;
  bool is_paused_ = false;
};

// "call_" and the like, with random letters and digits that do not occur twice in a conversation.
std::string random_id(std::string_view prefix);

}  // namespace carat::server
