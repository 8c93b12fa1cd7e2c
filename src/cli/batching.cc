#include "cli/batching.h"

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>

#include "base/error.h"
#include "batch/batch_run.h"
#include "cli/exit_codes.h"
#include "cli/flags/chat_flags.h"
#include "cli/flags/engine_flags.h"
#include "cli/interrupts.h"
#include "cli/reports/batch_report.h"
#include "cli/terminal.h"
#include "runtime/model_loader.h"
#include "server/server_log.h"
#include "server/service/model_facts.h"

namespace carat::cli {

namespace {

namespace fs = std::filesystem;

// So many lines more than places are prepared, so that a place that is free gets its next one at once.
size_t lines_at_a_time(const BatchFlags& flags) { return 2 * size_t{flags.answers.parallel} + 16; }

void check_names(const BatchFlags& flags, const std::string& errors) {
  for (const std::string& written : {flags.output, errors}) {
    if (fs::exists(written) && (!fs::is_regular_file(written) || fs::equivalent(written, flags.input))) {
      fail(ErrorCode::kBadArgument, "{} cannot be written to: give the name of a file of its own", written);
    }
  }
  if (flags.output == errors) fail(ErrorCode::kBadArgument, "--errors {}: that is the output's name", errors);
}

class Batching {
 public:
  explicit Batching(const BatchFlags& flags) : flags_(flags), log_(make_logger(flags.model.verbose)) {}

  // Asks what is not done of the input.
  void run(const batch::BatchInput& input, batch::BatchOutput& output, const std::string& model) {
    const runtime::LoadedModel loaded = runtime::load_model(model);
    server::ServiceOptions options;
    options.cancelled = &cancelled_;
    options.turns = flags_.answers.turn_defaults(flags_.sampling, loaded.model->config());
    options = batch::options_for_batch(options, lines_at_a_time(flags_));
    auto chat = text::ChatTemplate::from_vocab(*loaded.vocab, loaded.model->config().is_large(),
                                               parse_template_choice(flags_.answers.chat_template));
    if (!chat.warning().empty()) log_->warn(chat.warning());
    engine::Engine engine = make_engine(loaded);
    const bool thinks = flags_.answers.think || flags_.answers.think_budget.has_value();
    server::ServerFacts facts =
        server::facts_of(engine, chat, options.turns, {.version = CARAT_VERSION, .aliases = {}, .thinks = thinks});
    server::Service service(std::move(engine), std::move(chat), std::move(facts), options, metrics_, service_log_);
    BatchReport report(output.done());
    batch::run_batch(service, input, output, {.at_a_time = lines_at_a_time(flags_), .interrupted = &interrupted()},
                     [&](const batch::BatchProgress& progress) { report.show(progress); });
  }

 private:
  engine::Engine make_engine(const runtime::LoadedModel& loaded) {
    exec::ExecutorOptions executor;
    executor.log = log_;
    executor.cancelled = &interrupted();
    executor.sequences = flags_.answers.parallel;
    executor.cache_positions = flags_.answers.cache_tokens;
    engine::EngineOptions options;
    options.itl_target = 0.0;  // nobody watches a single answer: prompts get as much of a pass as they can use
    return EngineFlags{flags_.size, flags_.device, flags_.drafts}.make(loaded, executor, options,
                                                                       loading_progress(line_), log_);
  }

  const BatchFlags& flags_;
  const Logger log_;
  std::atomic<bool> cancelled_{false};
  ProgressLine line_;
  server::ServerMetrics metrics_;
  const server::ServerLog service_log_{log_, false, false};
};

}  // namespace

void run_batch(const BatchFlags& flags) {
  const Stoppable stoppable;
  const batch::Shard shard = batch::parse_shard(flags.shard);
  const std::string errors =
      flags.errors.empty() ? batch::BatchOutput::default_errors_path(flags.output) : flags.errors;
  // Wrong names are found before anything takes time.
  const std::string model = flags.model.resolved_path();
  check_names(flags, errors);
  const batch::BatchInput input(flags.input, shard);
  batch::BatchOutput output(flags.output, errors, input, fs::path(model).filename().string());
  const bool was_finished = output.is_finished();
  try {
    if (!was_finished && output.done() < input.lines().size()) {
      Batching(flags).run(input, output, model);
    } else if (!was_finished) {
      output.finish();
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInterrupted) {
      write_message(fmt::format("carat: stopped after {} of {} lines; the same command goes on from there",
                                output.done(), input.lines().size()));
    }
    throw;
  }
  const std::string failed = output.failed() > 0 ? fmt::format(", {} failed: {}", output.failed(), errors) : "";
  write_message(fmt::format("carat: {}{} lines: {} answered: {}{}", was_finished ? "nothing to do; " : "",
                            output.done(), output.done() - output.failed(), flags.output, failed));
  if (output.failed() > 0) throw CLI::RuntimeError(kLinesFailed);
}

}  // namespace carat::cli
