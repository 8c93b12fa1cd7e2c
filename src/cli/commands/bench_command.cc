#include <fmt/chrono.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <ctime>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "cli/commands/commands.h"
#include "cli/flags/model_flags.h"
#include "cli/interrupts.h"
#include "cli/reports/bench_drafts.h"
#include "cli/reports/bench_report.h"
#include "cli/reports/machine_limits.h"
#include "cli/terminal.h"
#include "engine/sampling/counter_random.h"
#include "runtime/model_loader.h"

namespace carat::cli {

namespace {

struct BenchFlags {
  ModelFlags model;
  DeviceFlags device;
  std::string prompts = "512";
  std::string generations = "128";
  std::vector<std::string> pairs;
  std::string depths = "0";
  std::string sequences = "1";
  std::string batches;  // empty here and below: the executor's choice
  std::string micro_batches;
  std::string threads = "0";
  uint32_t repetitions = 5;
  std::string draft_text;  // a file; empty: random tokens
  std::string output = "md";
  bool no_warmup = false;
};

constexpr uint32_t kMostSequences = 1024;

struct BenchCase {
  uint32_t prompt;
  uint32_t gen;
  uint32_t depth;
  uint32_t sequences;
};

std::vector<uint32_t> parse_list(std::string_view flag, std::string_view text) {
  std::vector<uint32_t> values;
  for (std::string_view rest = text;;) {
    const std::string_view item = rest.substr(0, rest.find(','));
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), value);
    if (error != std::errc() || end != item.data() + item.size() || value > (1u << 30)) {
      fail(ErrorCode::kBadArgument, "{} {}: give whole numbers separated by commas", flag, text);
    }
    values.push_back(value);
    if (item.size() == rest.size()) return values;
    rest.remove_prefix(item.size() + 1);
  }
}

// Nothing given is one choice: none.
std::vector<std::optional<uint32_t>> parse_optional_list(std::string_view flag, std::string_view text) {
  if (text.empty()) return {std::nullopt};
  const std::vector<uint32_t> values = parse_list(flag, text);
  return {values.begin(), values.end()};
}

std::vector<BenchCase> make_cases(const BenchFlags& flags) {
  std::vector<BenchCase> cases;
  const std::vector<uint32_t> sequences = parse_list("-npl", flags.sequences);
  const auto add = [&](uint32_t prompt, uint32_t gen, uint32_t depth) {
    for (const uint32_t count : sequences) {
      if (count == 0 || count > kMostSequences) {
        fail(ErrorCode::kBadArgument, "-npl {}: give numbers of sequences from 1 to {}", flags.sequences,
             kMostSequences);
      }
      if (prompt + gen > 0) cases.push_back({prompt, gen, depth, count});
    }
  };
  for (const uint32_t depth : parse_list("-d", flags.depths)) {
    for (const uint32_t prompt : parse_list("-p", flags.prompts)) add(prompt, 0, depth);
    for (const uint32_t gen : parse_list("-n", flags.generations)) add(0, gen, depth);
    for (const std::string& text : flags.pairs) {
      const std::vector<uint32_t> pair = parse_list("-pg", text);
      if (pair.size() != 2)
        fail(ErrorCode::kBadArgument, "-pg {}: give prompt and generated tokens, such as 512,128", text);
      add(pair[0], pair[1], depth);
    }
  }
  if (cases.empty()) fail(ErrorCode::kBadArgument, "nothing to measure: -p, -n and -pg are all zero");
  return cases;
}

// "gemma4 NAME Q8_0": the type that most bytes of the layers have; files often keep the large tables in another.
std::string model_type(const model::Model& model) {
  std::map<uint32_t, uint64_t> bytes;
  for (const gguf::TensorView& tensor : model.file().tensors()) {
    if (tensor.info.name.starts_with("blk.")) bytes[tensor.info.type] += tensor.info.bytes;
  }
  const auto most = std::max_element(bytes.begin(), bytes.end(), [](auto& a, auto& b) { return a.second < b.second; });
  const quant::FormatInfo* format = most == bytes.end() ? nullptr : quant::find_format(most->first);
  const std::string_view name = model.config().name.empty() ? "unnamed" : std::string_view(model.config().name);
  return fmt::format("{} {} {}", model.config().architecture, name, format ? format->name : "unknown");
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  }
  return "unknown";
}

// Runs random tokens: real text would favour a cache here and there, and equal tokens would favour all of them.
class Bench {
 public:
  explicit Bench(exec::Executor& executor) : executor_(executor) {}

  void warm_up(const BenchCase& c) {
    // Twice: a device may record what it does the second time and replay it from then on.
    for (int run = 0; run < 2; ++run) {
      executor_.truncate(0, 0);
      run_prompt(0, std::max(1u, std::min(c.prompt, executor_.options().chunk)));
    }
    if (c.sequences == 1 || c.gen == 0) return;
    for (uint32_t s = 0; s < c.sequences; ++s) fill(s, c.depth);
    run_step(c.sequences);
  }

  uint64_t time(const BenchCase& c) {
    for (uint32_t s = 0; s < c.sequences; ++s) fill(s, c.depth);
    const auto start = std::chrono::steady_clock::now();
    for (uint32_t s = 0; s < c.sequences && c.prompt > 0; ++s) run_prompt(s, c.prompt);
    for (uint32_t i = 0; i < c.gen; ++i) run_step(c.sequences);
    const auto elapsed = std::chrono::steady_clock::now() - start;
    return static_cast<uint64_t>(std::max<int64_t>(1, std::chrono::nanoseconds(elapsed).count()));
  }

 private:
  void fill(uint32_t sequence, uint32_t depth) {
    // What an earlier repetition left below `depth` is used again where the sliding window allows it.
    const uint32_t kept = executor_.truncate(sequence, std::min(depth, executor_.length(sequence)));
    if (depth > kept) run_prompt(sequence, depth - kept);
  }

  int32_t random_token() {
    return static_cast<int32_t>(engine::random_bits(kSeed, drawn_++) % executor_.model().config().V);
  }

  // One token more for each of the first sequences.
  void run_step(uint32_t sequences) {
    rows_.clear();
    for (uint32_t s = 0; s < sequences; ++s) rows_.push_back({random_token(), executor_.length(s), s, true});
    executor_.forward(rows_);
    exec::require_finite(executor_);
    for (uint32_t s = 0; s < sequences; ++s) executor_.best(s, 1, best_);
  }

  void run_prompt(uint32_t sequence, uint32_t count) {
    for (uint32_t done = 0; done < count;) {
      rows_.clear();
      const uint32_t chunk = std::min(count - done, executor_.options().chunk);
      const uint32_t first = executor_.length(sequence);
      for (uint32_t i = 0; i < chunk; ++i) {
        rows_.push_back({random_token(), first + i, sequence, done + i + 1 == count});
      }
      executor_.forward(rows_);
      exec::require_finite(executor_);
      done += chunk;
    }
    // Asking for a result is what waits for a device that works in the background.
    executor_.best(0, 1, best_);
  }

  static constexpr uint64_t kSeed = 1;
  exec::Executor& executor_;
  uint64_t drawn_ = 0;
  std::vector<exec::Row> rows_;
  std::vector<exec::Candidate> best_;
};

struct Setup {
  std::optional<uint32_t> batch;
  std::optional<uint32_t> micro_batch;
  unsigned threads;
};

BenchResult describe(const model::Model& model, const exec::Executor& executor, const Setup& setup,
                     const BenchCase& c) {
  BenchResult result;
  result.model_filename = model.file().path();
  result.model_type = model_type(model);
  result.model_size = model.weight_bytes();
  result.model_n_params = model.parameters();
  result.backend = executor.name();
  result.cpu_info = cpu_name();
  // What was really used; llama-bench prints 2048 for a batch nobody asked for.
  result.n_ubatch = executor.options().chunk;
  result.n_batch = std::max(setup.batch.value_or(2048), result.n_ubatch);
  result.n_threads = setup.threads;
  result.type_k = result.type_v = quant::info(executor.options().kv_format).name;
  result.n_prompt = c.prompt;
  result.n_gen = c.gen;
  result.n_depth = c.depth;
  result.n_sequences = c.sequences;
  result.test_time = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  return result;
}

void measure(const BenchFlags& flags, const std::shared_ptr<const model::Model>& model, const Setup& setup,
             const std::vector<BenchCase>& cases, const Logger& log, BenchPrinter& printer) {
  exec::ExecutorOptions options;
  flags.device.apply(options);
  options.log = log;
  options.threads = setup.threads;
  uint64_t context = 1;
  options.sequences = 1;
  for (const BenchCase& c : cases) {
    context = std::max(context, uint64_t{c.depth} + c.prompt + c.gen);
    options.sequences = std::max(options.sequences, c.sequences);
  }
  options.outputs = options.sequences;
  if (context > std::numeric_limits<uint32_t>::max())
    fail(ErrorCode::kBadArgument, "-d, -p and -n add up to {} tokens", context);
  options.context = static_cast<uint32_t>(context);
  options.chunk = chosen_chunk(setup.batch, setup.micro_batch, options.context);
  ProgressLine progress;
  const auto executor =
      runtime::make_executor(flags.device.chosen_device(), model, options, loading_progress(progress));
  progress.clear();
  flags.device.explain_unused(*executor, log);

  Bench bench(*executor);
  for (const BenchCase& c : cases) {
    BenchResult result = describe(*model, *executor, setup, c);
    progress.show(fmt::format("{}: warm-up", result.test()));
    if (!flags.no_warmup) bench.warm_up(c);
    for (uint32_t i = 0; i < flags.repetitions; ++i) {
      progress.show(fmt::format("{}: {} of {}", result.test(), i + 1, flags.repetitions));
      result.samples_ns.push_back(bench.time(c));
    }
    if (c.prompt == 0 && c.sequences == 1 && executor->name() == "cpu") {
      result.bytes_per_token = decode_bytes(*model, c.depth + 0.5 * c.gen, executor->options().kv_format);
      result.limit_bytes_per_second = read_bandwidth(setup.threads, static_cast<uint64_t>(*result.bytes_per_token));
    }
    progress.clear();
    printer.add(result);
  }
}

// What --lookup-text asks for.
struct DraftCase {
  std::vector<text::TokenId> prompt;
  std::vector<uint32_t> lengths;  // of answers
};

DraftCase make_draft_case(const BenchFlags& flags, const runtime::LoadedModel& loaded, std::string text) {
  DraftCase c{question_tokens(*loaded.model, loaded.vocab, std::move(text)), parse_list("-n", flags.generations)};
  std::erase(c.lengths, 0u);
  if (c.lengths.empty())
    fail(ErrorCode::kBadArgument, "nothing to measure: --lookup-text times generation, but -n is 0");
  return c;
}

// Answers to a text with and without drafts.
void measure_drafts(const BenchFlags& flags, const runtime::LoadedModel& loaded, const Setup& setup, const Logger& log,
                    const DraftCase& c, BenchPrinter& printer) {
  exec::ExecutorOptions options;
  flags.device.apply(options);
  options.log = log;
  options.threads = setup.threads;
  options.cancelled = &interrupted();
  const engine::DraftOptions drafts;
  options.outputs = 1 + drafts.max_draft;
  const uint64_t context = c.prompt.size() + *std::max_element(c.lengths.begin(), c.lengths.end()) + 1;
  if (context > std::numeric_limits<uint32_t>::max()) fail(ErrorCode::kBadArgument, "-n and the text are too long");
  options.context = static_cast<uint32_t>(context);
  options.chunk = chosen_chunk(setup.batch, setup.micro_batch, options.context);
  ProgressLine progress;
  auto executor =
      runtime::make_executor(flags.device.chosen_device(), loaded.model, options, loading_progress(progress));
  progress.clear();
  flags.device.explain_unused(*executor, log);

  DraftBench bench(engine::Engine(std::move(executor), loaded.vocab, {.drafts = drafts}), c.prompt);
  const exec::Executor& runs_on = bench.engine().executor();
  const Stoppable stoppable;
  for (const uint32_t length : c.lengths) {
    for (const std::string_view mode : kDraftModes) {
      BenchResult result =
          describe(*loaded.model, runs_on, setup, {0, length, static_cast<uint32_t>(c.prompt.size()), 1});
      result.lookup = mode;
      progress.show(result.test());
      const DraftBench::Runs runs =
          bench.run(engine::parse_draft_mode(mode), length, flags.repetitions, !flags.no_warmup);
      result.samples_ns = runs.samples_ns;
      result.tokens_per_pass = runs.tokens_per_pass;
      result.drafts_accepted = runs.accepted;
      progress.clear();
      printer.add(result);
      if (runs.equal_tokens <= length) {
        log->warn(
            "{}: the text parts from the one without drafts at token {}: on {} the last bits of a row's logits "
            "depend on the rows beside it",
            result.test(), runs.equal_tokens, runs_on.name());
      }
    }
  }
}

void bench(const BenchFlags& flags) {
  if (flags.repetitions == 0) fail(ErrorCode::kBadArgument, "-r must be at least 1");
  const std::vector<BenchCase> cases = make_cases(flags);
  std::vector<Setup> setups;
  for (const auto& batch : parse_optional_list("-b", flags.batches)) {
    for (const auto& micro_batch : parse_optional_list("-ub", flags.micro_batches)) {
      for (const uint32_t threads : parse_list("-t", flags.threads)) {
        if (batch == 0u || micro_batch == 0u) fail(ErrorCode::kBadArgument, "-b and -ub must be at least 1");
        setups.push_back({batch, micro_batch, threads == 0 ? usable_threads() : threads});
      }
    }
  }
  const bool is_of_drafts = !flags.draft_text.empty();
  const auto printer = make_bench_printer(flags.output, is_of_drafts);
  const Logger log = make_logger(flags.model.verbose);
  std::string text = is_of_drafts ? read_text_file(flags.draft_text) : std::string();
  const runtime::LoadedModel loaded = runtime::load_model(flags.model.resolved_path());
  const DraftCase drafts = is_of_drafts ? make_draft_case(flags, loaded, std::move(text)) : DraftCase();
  printer->begin();
  for (const Setup& setup : setups) {
    if (is_of_drafts) {
      measure_drafts(flags, loaded, setup, log, drafts, *printer);
    } else {
      measure(flags, loaded.model, setup, cases, log, *printer);
    }
  }
  printer->end();
}

}  // namespace

void add_bench_command(CLI::App& app) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* command = app.add_subcommand("bench", "Measure the speed of prompts (pp) and generation (tg)");
  flags->model.add_to(*command);
  const auto list = [command](const char* name, std::string& target, const char* help) {
    command->add_option(name, target, help)->join(',')->capture_default_str()->type_name("N[,N...]");
  };
  list("-p,--n-prompt", flags->prompts, "prompt lengths; 0: none");
  list("-n,--n-gen", flags->generations, "numbers of tokens to generate; 0: none");
  command->add_option("--pg", flags->pairs, "(-pg) PROMPT,GENERATED measured together; repeatable")
      ->type_name("N,N")
      ->allow_extra_args(false);
  list("-d,--n-depth", flags->depths, "tokens already in the cache");
  list("--npl,--n-sequences", flags->sequences,
       "(-npl) sequences that run together, each with the tokens of -p, -n and -d; speeds are of all of them");
  list("-b,--batch-size", flags->batches, "upper limits for -ub");
  list("--ub,--ubatch-size", flags->micro_batches,
       "(-ub) most tokens in one forward pass; what suits the device and its memory when neither is given");
  list("-t,--threads", flags->threads, "CPU threads; 0: all");
  command->add_option("-r,--repetitions", flags->repetitions, "how often each test is timed")->capture_default_str();
  command
      ->add_option("--lookup-text", flags->draft_text,
                   "instead of random tokens: ask the model the text in this file and time -n tokens of its answer "
                   "without prompt lookup, with auto and with on")
      ->type_name("FILE");
  command->add_option("-o,--output", flags->output, "how results are written")
      ->type_name("md|csv|json|jsonl")
      ->capture_default_str();
  command->add_flag("--no-warmup", flags->no_warmup, "time the first run too");
  flags->device.add_to(*command);
  command->callback([flags] { bench(*flags); });
}

}  // namespace carat::cli
