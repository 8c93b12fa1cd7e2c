#include "cli/serving.h"

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>

#include "base/error.h"
#include "cli/flags/chat_flags.h"
#include "cli/flags/engine_flags.h"
#include "cli/interrupts.h"
#include "cli/terminal.h"
#include "runtime/model_loader.h"
#include "server/service/model_facts.h"

namespace carat::cli {

namespace {

using namespace std::chrono_literals;

// What to paste into a client.
std::string invitation(const std::string& url, bool has_key) {
  const std::string key = has_key ? "YOUR-KEY" : "none";
  return fmt::format(
      "listening on {0} · OPENAI_BASE_URL={0}/v1 OPENAI_API_KEY={1} · ANTHROPIC_BASE_URL={0} "
      "ANTHROPIC_AUTH_TOKEN={1} · OLLAMA_HOST={0}",
      url, key);
}

std::string live_text(const server::Service& service) {
  const engine::RunnerSnapshot now = service.snapshot();
  const double cache = now.cache_capacity == 0
                           ? 0.0
                           : 100.0 * static_cast<double>(now.cached_tokens) / static_cast<double>(now.cache_capacity);
  return fmt::format("{} running · {} waiting · prompts {:.0f} t/s · answers {:.0f} t/s · cache {:.0f} %", now.running,
                     service.waiting(), now.prompt_tokens_per_second, now.generated_tokens_per_second, cache);
}

class Serving {
 public:
  Serving(const ServeFlags& flags, const runtime::ExecutorMaker& make_executor)
      : flags_(flags),
        make_executor_(make_executor),
        is_live_(stderr_is_terminal() && flags.log_format == "text"),
        logger_(make_serve_logger(flags)) {
    server::ServerOptions options = flags.options();
    if (flags.answers.parallel > flags.max_queue + flags.answers.parallel)
      fail(ErrorCode::kBadArgument, "--max-queue is too large");
    options.service.cancelled = &cancelled_;
    options_ = options;
  }

  void run() {
    const Stoppable stoppable;
    // The model's file is looked for before anything else is said: a wrong name is the most likely mistake.
    const std::string path = flags_.model.resolved_path();
    const runtime::LoadedModel loaded = runtime::load_model(path);
    options_.service.turns = flags_.answers.turn_defaults(flags_.sampling, loaded.model->config());
    server::Server server(options_, logger_, flags_.log_format == "json", logs_requests());
    write_stdout(invitation(server.url(), !options_.router.access.keys.empty()) + "\n");
    open(server, loaded);
    wait(server);
    line_.clear();
    // A person at the keyboard waits for no balancer.
    const bool is_person = interrupting_signal() == SIGINT;
    server.log().info(is_person ? "stopping: running answers are finished; Ctrl-C again ends them"
                                : "draining: running answers are finished; a second signal ends them");
    server.drain(is_person ? 0.0 : flags_.drain_grace, flags_.drain_timeout);
  }

 private:
  static Logger make_serve_logger(const ServeFlags& flags) {
    Logger logger = make_logger(true);
    logger->set_pattern(flags.log_format == "json" ? "%v" : "carat: %v");
    return logger;
  }
  bool logs_requests() const {
    if (flags_.log_requests != "auto") return flags_.log_requests == "on";
    return !is_live_ || flags_.model.verbose;
  }

  void open(server::Server& server, const runtime::LoadedModel& loaded) {
    const Logger quiet = make_logger(flags_.model.verbose);
    exec::ExecutorOptions executor;
    executor.log = quiet;
    executor.cancelled = &cancelled_;
    executor.sequences = flags_.answers.parallel;
    executor.cache_positions = flags_.answers.cache_tokens;
    engine::EngineOptions options;
    options.itl_target = flags_.itl_target * 1e-3;
    auto chat = text::ChatTemplate::from_vocab(*loaded.vocab, loaded.model->config().is_large(),
                                               parse_template_choice(flags_.answers.chat_template));
    if (!chat.warning().empty()) server.log().warn(chat.warning());
    const runtime::LoadProgress shown = loading_progress(line_);
    const auto began = std::chrono::steady_clock::now();
    engine::Engine engine = EngineFlags{flags_.size, flags_.device, flags_.drafts, make_executor_}.make(
        loaded, executor, options,
        [&](uint64_t done, uint64_t total) {
          server.set_progress(done, total);
          if (is_live_) shown(done, total);
        },
        quiet);
    line_.clear();
    if (flags_.answers.cache_tokens > 0 && engine.executor().prefixes() == nullptr) {
      server.log().warn(fmt::format("--cache-tokens has no effect: caches of the {} executor are of one request each",
                                    engine.executor().name()));
    }
    server::ServerFacts facts = server::facts_of(engine, chat, options_.service.turns,
                                                 {.version = CARAT_VERSION,
                                                  .aliases = flags_.aliases,
                                                  .thinks = flags_.answers.think || flags_.answers.think_budget});
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    const std::string ready =
        fmt::format("ready after {:.1f} s: {} on {}, {} at a time with a context of {} each", took.count(),
                    facts.model_id, engine.executor().name(), facts.sequences, facts.context);
    server.open(std::move(engine), std::move(chat), std::move(facts));
    server.log().info(ready);
  }

  // Until a signal comes, or the engine is lost.
  void wait(server::Server& server) {
    std::string shown;
    for (int ticks = 0; !interrupted(); ++ticks) {
      std::this_thread::sleep_for(50ms);
      const auto service = server.service();
      if (service->snapshot().state == engine::RunnerState::kLost) {
        const auto lost = service->snapshot().lost;
        fail(ErrorCode::kDevice, "the engine is lost: {}", lost ? lost->text : "");
      }
      if (!is_live_ || ticks % 10 != 0) continue;
      if (std::string text = live_text(*service); text != shown) line_.show(shown = std::move(text));
    }
  }

  const ServeFlags& flags_;
  const runtime::ExecutorMaker& make_executor_;
  const bool is_live_;
  Logger logger_;
  server::ServerOptions options_;
  std::atomic<bool> cancelled_{false};
  ProgressLine line_;
};

}  // namespace

void serve(const ServeFlags& flags, const runtime::ExecutorMaker& make_executor) {
  Serving(flags, make_executor).run();
}

}  // namespace carat::cli
