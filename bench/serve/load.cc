#include "serve/load.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio.hpp>
#include <deque>
#include <memory>
#include <optional>

#include "base/error.h"
#include "serve/base_url.h"
#include "serve/client.h"
#include "serve/request_writer.h"
#include "serve/stream_taker.h"

namespace carat::serve_bench {

namespace asio = boost::asio;

namespace {

constexpr std::chrono::seconds kProgressInterval{5};
constexpr std::chrono::milliseconds kWatchInterval{500};

// Of a coroutine that failed: out of run() of its context.
void rethrow(std::exception_ptr error) {
  if (error) std::rethrow_exception(error);
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return double(time.tv_sec) + double(time.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Carries a workload out. Workers take sessions from a queue; each has a connection. All of it runs on one thread, so
// that nothing is locked.
class LoadRun {
 public:
  LoadRun(const TargetOptions& target, const std::string& model, const Workload& workload, bool keeps_answers)
      : workload_(workload),
        url_(parse_base_url(target.base_url)),
        endpoints_(resolve_endpoints(context_, url_)),
        writer_(target, url_, model, workload.has_token_ids),
        timeout_(target.timeout),
        keeps_answers_(keeps_answers),
        states_(workload.sessions.size()) {
    result_.requests.reserve(workload.requests());  // workers keep references
    for (uint32_t i = 0; i < workload.sessions.size(); ++i) queue_.push_back(i);
  }

  LoadResult run(uint32_t max_concurrency, const std::function<void(const LoadProgress&)>& on_progress) {
    const auto sessions = static_cast<uint32_t>(workload_.sessions.size());
    workers_ = max_concurrency == 0 ? sessions : std::min(max_concurrency, sessions);
    for (uint32_t i = 0; i < workers_; ++i) clients_.push_back(std::make_unique<Client>(context_, endpoints_));
    const double cpu = cpu_seconds();
    begin_ = Clock::now();
    for (const auto& client : clients_) asio::co_spawn(context_, work(*client), rethrow);
    asio::co_spawn(context_, watch(), rethrow);
    if (on_progress) asio::co_spawn(context_, report(on_progress), rethrow);
    context_.run();
    result_.cpu_seconds = cpu_seconds() - cpu;
    return std::move(result_);
  }

 private:
  struct State {
    std::optional<Conversation> conversation;
    uint32_t next_turn = 0;
  };

  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  bool is_over() const { return workers_ == 0; }
  bool has_more(uint32_t session) const {
    return states_[session].next_turn < workload_.sessions[session].turns.size();
  }

  asio::awaitable<void> work(Client& client) {
    while (!queue_.empty()) {
      const uint32_t session = queue_.front();
      queue_.pop_front();
      co_await wait_for_start(session);
      do {
        co_await run_turn(client, session);
      } while (!workload_.in_rounds && has_more(session));
      if (has_more(session)) queue_.push_back(session);
    }
    if (--workers_ == 0) {
      result_.seconds = seconds();
      watch_timer_.cancel();
      report_timer_.cancel();
    }
  }

  asio::awaitable<void> wait_for_start(uint32_t session) {
    const double start = workload_.sessions[session].start_seconds;
    if (states_[session].next_turn > 0 || start <= seconds()) co_return;
    const auto from_begin = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(start));
    asio::steady_timer timer(context_, begin_ + from_begin);
    co_await timer.async_wait(asio::use_awaitable);
  }

  asio::awaitable<void> run_turn(Client& client, uint32_t index) {
    const Session& session = workload_.sessions[index];
    State& state = states_[index];
    const Turn& turn = session.turns[state.next_turn];
    if (!state.conversation) state.conversation = writer_.begin(session);
    writer_.add_turn(turn, *state.conversation);
    RequestResult& result = result_.requests.emplace_back();
    result.session = index;
    result.turn = state.next_turn++;
    result.is_intruder = session.is_intruder;
    result.planned_input = turn.input_tokens + (result.turn == 0 ? session.system_tokens : 0);
    result.prompt_tokens = result.planned_input;
    co_await exchange(client, turn, *state.conversation, result);
    ++ended_;
    if (!result.is_complete) {
      skip_rest(index);
    } else if (has_more(index)) {
      writer_.add_answer(result.answer, *state.conversation);
    } else {
      state.conversation.reset();
    }
    if (!keeps_answers_) result.answer.clear();
  }

  asio::awaitable<void> exchange(Client& client, const Turn& turn, const Conversation& conversation,
                                 RequestResult& result) {
    const std::string request = writer_.request(conversation, turn.output_tokens);
    StreamTaker taker(result, keeps_answers_ || has_more(result.session));
    result.gaps.reserve(turn.output_tokens);
    uint32_t seen = 0;
    const std::function<void()> on_sending = [&] {
      result.start = seconds();
      taker.begin(Clock::now());
    };
    const ResponseReader::Sink body = [&](std::string_view bytes) {
      taker.take(bytes, client.status(), client.last_bytes());
      tokens_ += taker.tokens() - seen;
      seen = taker.tokens();
    };
    result_.most_at_once = std::max(result_.most_at_once, ++at_once_);
    try {
      const unsigned status = co_await client.exchange(request, on_sending, body);
      taker.end(status);
    } catch (const ExchangeError& error) {
      result.error_kind = error.kind();
      result.error = error.what();
    } catch (const Error& error) {
      result.error_kind = "not HTTP";
      result.error = error.what();
    }
    --at_once_;
  }

  // What follows a turn that failed cannot be asked: it would begin with the answer.
  void skip_rest(uint32_t index) {
    for (State& state = states_[index]; has_more(index); ++state.next_turn, ++ended_) {
      RequestResult& result = result_.requests.emplace_back();
      result.session = index;
      result.turn = state.next_turn;
      result.start = seconds();
      result.error_kind = "skipped";
      result.error = "an earlier turn of the conversation failed";
    }
  }

  asio::awaitable<void> watch() {
    while (!is_over()) {
      watch_timer_.expires_after(kWatchInterval);
      boost::system::error_code ignored;
      co_await watch_timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      const auto patience = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_));
      for (const auto& client : clients_) client->give_up_if_silent_since(Clock::now() - patience);
    }
  }

  asio::awaitable<void> report(const std::function<void(const LoadProgress&)>& on_progress) {
    while (!is_over()) {
      report_timer_.expires_after(kProgressInterval);
      boost::system::error_code error;
      co_await report_timer_.async_wait(asio::redirect_error(asio::use_awaitable, error));
      if (!error) on_progress({.ended = ended_, .all = workload_.requests(), .tokens = tokens_, .seconds = seconds()});
    }
  }

  const Workload& workload_;
  asio::io_context context_{1};
  const BaseUrl url_;
  const Client::Endpoints endpoints_;
  const RequestWriter writer_;
  const double timeout_;
  const bool keeps_answers_;
  asio::steady_timer watch_timer_{context_}, report_timer_{context_};
  std::vector<std::unique_ptr<Client>> clients_;
  std::deque<uint32_t> queue_;  // of sessions that have turns left and are with no worker
  std::vector<State> states_;
  Clock::time_point begin_ = {};
  uint32_t workers_ = 0, at_once_ = 0;
  uint64_t ended_ = 0, tokens_ = 0;
  LoadResult result_;
};

}  // namespace

LoadResult run_load(const TargetOptions& target, const std::string& model, const Workload& workload,
                    uint32_t max_concurrency, bool keeps_answers,
                    const std::function<void(const LoadProgress&)>& on_progress) {
  return LoadRun(target, model, workload, keeps_answers).run(max_concurrency, on_progress);
}

void warm_up(const TargetOptions& target, const std::string& model, uint32_t requests) {
  Workload workload;
  for (uint32_t i = 0; i < requests; ++i) {
    workload.sessions.push_back({.turns = {{.content = "good morning", .input_tokens = 2, .output_tokens = 8}}});
  }
  const LoadResult result = run_load(target, model, workload, 1, false, {});
  for (const RequestResult& request : result.requests) {
    if (!request.is_complete) {
      fail(ErrorCode::kIo, "{}{}: {}: {}", target.base_url, target.path(), request.error_kind, request.error);
    }
  }
}

}  // namespace carat::serve_bench
