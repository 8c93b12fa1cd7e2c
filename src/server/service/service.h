#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/runner/runner.h"
#include "server/api/facts.h"
#include "server/metrics/server_metrics.h"
#include "server/server_log.h"
#include "server/service/delivery.h"
#include "server/service/generation.h"
#include "server/service/turn_maker.h"
#include "server/service/work_pool.h"

namespace carat::server {

struct ServiceOptions {
  size_t max_queue = 512;                         // requests that wait for a place in the executor
  uint64_t max_queue_tokens = uint64_t{8} << 20;  // tokens of their prompts
  double queue_timeout = 0.0;                     // seconds a request may wait; 0: any time
  double ping_seconds = 15.0;                     // between keep-alives of a stream to which nothing happens
  unsigned pool_threads = 2;
  bool strict_model = false;  // only requests that name this model, or none, are answered
  TurnDefaults turns;
  // The flag given to the executor as `cancelled` (RunnerOptions).
  std::atomic<bool>* cancelled = nullptr;
};

// Carries out requests for text: reads and prepares them on a pool of threads, runs them on the engine's thread, hands
// what they bring to their connections on another. Owns all of these. Functions may be called by any thread.
class Service : private GenerationHost {
 public:
  Service(engine::Engine engine, text::ChatTemplate chat_template, ServerFacts facts, ServiceOptions options,
          ServerMetrics& metrics, const ServerLog& log);
  ~Service() override;  // ends everything at once

  const ServerFacts& facts() const { return facts_; }
  const PromptMaker& prompts() const { return *prompts_; }
  const engine::Runner& engine_runner() const { return *runner_; }
  engine::RunnerSnapshot snapshot() const { return runner_->snapshot(); }
  // Requests that wait: for their preparation, or for a place in the executor.
  size_t waiting() const { return waiting_; }
  std::vector<SlotFigures> slots() const;
  size_t active() const { return delivery_.count(); }

  // Answers the exchange, now or later; never blocks.
  void generate(std::shared_ptr<Exchange> exchange, const GenerationRoute& route);
  // Answers with what `make` returns, on a thread of the pool. What it throws becomes a refusal of the route's dialect.
  void answer(std::shared_ptr<Exchange> exchange, const GenerationRoute& route, std::function<Response()> make);
  // False: no such answer is being written, or it is not a thought.
  bool end_thoughts(const std::string& id);

  // New requests are refused with this from now on.
  void refuse_new(Problem problem);
  // After refuse_new(): waits until all requests have ended; after `most_seconds` those that are left end with an
  // error.
  void finish(double most_seconds);
  void fail_all(const Problem& problem) { delivery_.fail_all(problem); }

 private:
  // --- GenerationHost
  engine::Runner& runner() override { return *runner_; }
  const text::Tokenizer& tokenizer() const override { return prompts_->tokenizer(); }
  ServerMetrics& metrics() override { return metrics_; }
  void has_news(std::shared_ptr<Generation> generation) override { delivery_.has_news(std::move(generation)); }
  void wake_delivery() override { delivery_.wake(); }
  void left_queue(uint32_t prompt_tokens) override;

  void prepare(const std::shared_ptr<Exchange>& exchange, const GenerationRoute& route, double arrived);
  void start(const std::shared_ptr<Exchange>& exchange, const GenerationRoute& route, ParsedRequest request,
             double arrived);
  void enter_queue(uint32_t prompt_tokens);
  void refuse(Exchange& exchange, const GenerationRoute& route, const Problem& problem, double arrived);
  void refuse_for_exception(Exchange& exchange, const GenerationRoute& route, double arrived);
  void say(const Exchange& exchange, const GenerationRoute& route, unsigned status, double seconds);
  std::optional<Problem> refusal() const;
  double retry_seconds() const;
  void ended(const Generation& generation);

  const ServerFacts facts_;
  const ServiceOptions options_;
  ServerMetrics& metrics_;
  const ServerLog& log_;
  std::shared_ptr<const PromptMaker> prompts_;
  TurnMaker turns_;
  std::atomic<uint64_t> requests_{0};
  std::atomic<size_t> waiting_{0};
  std::atomic<uint64_t> waiting_tokens_{0};
  std::atomic<double> usual_seconds_{0.5};  // that a request takes, the latest counting most
  mutable std::mutex mutex_;
  std::optional<Problem> refusal_;
  Delivery delivery_;
  std::unique_ptr<engine::Runner> runner_;
  WorkPool pool_;
};

}  // namespace carat::server
