#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/flags/model_flags.h"
#include "cli/interrupts.h"
#include "cli/reports/divergence.h"
#include "cli/reports/kl_base.h"
#include "cli/terminal.h"
#include "runtime/model_loader.h"
#include "text/tokenizer/tokenizer.h"

namespace carat::cli {

namespace {

struct PerplexityFlags {
  ModelFlags model;
  DeviceFlags device;
  uint32_t window = 512;
  uint32_t windows = 0;
  std::optional<uint32_t> micro_batch;
  unsigned threads = 0;
  std::string text_file;
  std::string kl_base;
  bool json = false;
};

// Rows with logits in one pass: enough to keep the LM head busy, few enough that their logits stay small in memory.
constexpr uint32_t kOutputs = 32;

// Windows do not overlap and each begins with <bos>; the second half of each is scored, so that every scored token has
// at least half a window before it. The same convention as llama-perplexity, so the figures compare.
struct Text {
  KlBaseShape shape;
  std::vector<int32_t> tokens;  // [windows * window]
};

Text cut_text(const PerplexityFlags& flags, const std::shared_ptr<const text::Vocab>& vocab) {
  if (flags.window < 4) fail(ErrorCode::kBadArgument, "-c {}: a window needs at least 4 tokens", flags.window);
  Text text;
  text.tokens.push_back(vocab->bos());
  text::Tokenizer(vocab).encode(read_text_file(flags.text_file), text::Tokenizer::Specials::kPlainText, text.tokens);
  const size_t available = text.tokens.size() / flags.window;
  if (available == 0) {
    fail(ErrorCode::kBadArgument, "{} has {} tokens, less than one window of {}; give a longer text or a smaller -c",
         flags.text_file, text.tokens.size(), flags.window);
  }
  const size_t wanted = flags.windows == 0 ? available : std::min<size_t>(available, flags.windows);
  text.tokens.resize(wanted * flags.window);
  text.shape = {static_cast<uint32_t>(vocab->size()), flags.window, static_cast<uint32_t>(wanted), flags.window / 2};
  return text;
}

// With a base to compare with, its tokens are the text; one given as well must be the same.
Text base_text(const KlBaseReader& base, const PerplexityFlags& flags,
               const std::shared_ptr<const text::Vocab>& vocab) {
  if (base.shape().vocabulary != vocab->size()) {
    fail(ErrorCode::kBadArgument, "{} is of a model with {} tokens, {} has {}", flags.kl_base, base.shape().vocabulary,
         flags.model.resolved_path(), vocab->size());
  }
  Text text{base.shape(), base.tokens()};
  if (!flags.text_file.empty()) {
    PerplexityFlags same = flags;
    same.window = base.shape().window;
    same.windows = base.shape().windows;
    if (cut_text(same, vocab).tokens != text.tokens) {
      fail(ErrorCode::kBadArgument, "{} was made from another text than {}; leave -f out to use its own", flags.kl_base,
           flags.text_file);
    }
  }
  return text;
}

// Called for every scored position in order, with the logits after it and the token that really follows.
using OnLogits = std::function<void(uint64_t index, std::span<const float> logits, int32_t next)>;

void score_window(exec::Executor& executor, const Text& text, uint32_t window, int32_t bos, const OnLogits& on_logits) {
  const KlBaseShape& shape = text.shape;
  const std::span<const int32_t> tokens = std::span(text.tokens).subspan(size_t{window} * shape.window, shape.window);
  const exec::ExecutorOptions& options = executor.options();
  uint64_t index = uint64_t{window} * (shape.window - 1 - shape.first);
  executor.truncate(0, 0);
  std::vector<exec::Row> rows;
  uint32_t position = 0;
  while (position + 1 < shape.window) {
    rows.clear();
    uint32_t outputs = 0;
    for (; position + 1 < shape.window && rows.size() < options.chunk && outputs < options.outputs; ++position) {
      const bool scored = position >= shape.first;
      rows.push_back({position == 0 ? bos : tokens[position], position, 0, scored});
      outputs += scored;
    }
    executor.forward(rows);
    exec::require_finite(executor);
    for (uint32_t output = 0; output < outputs; ++output) {
      on_logits(index++, executor.logits(output), tokens[position - outputs + output + 1]);
    }
  }
}

struct Scores {
  std::vector<double> nll;
  std::vector<double> base_nll;
  std::vector<double> divergences;
  uint64_t agreements = 0;
};

void report(const Scores& scores, const Text& text, std::string_view executor, bool json) {
  const Summary nll = summarise(scores.nll);
  const double perplexity = std::exp(nll.mean);
  const double error = perplexity * nll.standard_error;
  const Summary kl = summarise(scores.divergences);
  const bool compared = !scores.divergences.empty();
  const double agreement =
      compared ? static_cast<double>(scores.agreements) / static_cast<double>(scores.divergences.size()) : 0.0;
  const double base_perplexity = std::exp(summarise(scores.base_nll).mean);
  if (json) {
    nlohmann::ordered_json out = {{"executor", executor},        {"windows", text.shape.windows},
                                  {"window", text.shape.window}, {"scored", scores.nll.size()},
                                  {"perplexity", perplexity},    {"perplexity_error", error}};
    if (compared) {
      out["base_perplexity"] = base_perplexity;
      out["kl_mean"] = kl.mean;
      out["kl_mean_error"] = kl.standard_error;
      out["kl_median"] = kl.median;
      out["kl_p99"] = kl.p99;
      out["kl_max"] = kl.largest;
      out["top1_agreement"] = agreement;
    }
    return write_stdout(out.dump() + "\n");
  }
  std::string lines =
      fmt::format("{} tokens scored in {} windows of {}, {} executor\nperplexity       {:.4f} ± {:.4f}\n",
                  scores.nll.size(), text.shape.windows, text.shape.window, executor, perplexity, error);
  if (compared) {
    lines += fmt::format(
        "base perplexity  {:.4f}\nKL divergence    mean {:.3e} ± {:.1e}, median {:.3e}, 99% {:.3e}, max {:.3e}\n"
        "top-1 agreement  {:.4f}\n",
        base_perplexity, kl.mean, kl.standard_error, kl.median, kl.p99, kl.largest, agreement);
  }
  write_stdout(lines);
}

std::unique_ptr<exec::Executor> make_scorer(const PerplexityFlags& flags, const runtime::LoadedModel& loaded,
                                            uint32_t window, const Logger& log) {
  exec::ExecutorOptions options;
  flags.device.apply(options);
  options.context = window;
  options.chunk = chosen_chunk({}, flags.micro_batch, window);
  options.outputs = std::min(kOutputs, options.chunk == 0 ? window : options.chunk);
  options.threads = flags.threads;
  options.cancelled = &interrupted();
  options.log = log;
  ProgressLine line;
  auto executor = runtime::make_executor(flags.device.chosen_device(), loaded.model, options, loading_progress(line));
  line.clear();
  flags.device.explain_unused(*executor, log);
  return executor;
}

void perplexity(const PerplexityFlags& flags) {
  std::error_code ignored;
  const bool compare = !flags.kl_base.empty() && std::filesystem::exists(flags.kl_base, ignored);
  if (flags.text_file.empty() && !compare) fail(ErrorCode::kBadArgument, "name a text file with -f");
  const Logger log = make_logger(flags.model.verbose);
  const runtime::LoadedModel loaded = runtime::load_model(flags.model.resolved_path());
  std::optional<KlBaseReader> base;
  if (compare) base.emplace(flags.kl_base);
  const Text text = base ? base_text(*base, flags, loaded.vocab) : cut_text(flags, loaded.vocab);
  const auto executor = make_scorer(flags, loaded, text.shape.window, log);
  std::optional<KlBaseWriter> writer;
  if (!flags.kl_base.empty() && !base) writer.emplace(flags.kl_base, text.shape, text.tokens);

  Scores scores;
  std::vector<float> base_logits;
  const OnLogits on_logits = [&](uint64_t index, std::span<const float> logits, int32_t next) {
    scores.nll.push_back(negative_log_likelihood(logits, next));
    if (writer) writer->add(logits);
    if (!base) return;
    const int32_t base_best = base->read(index, base_logits);
    scores.base_nll.push_back(negative_log_likelihood(base_logits, next));
    scores.divergences.push_back(kl_divergence(base_logits, logits));
    scores.agreements += best_token(logits) == base_best;
  };
  ProgressLine progress;
  const Stoppable stoppable;
  for (uint32_t window = 0; window < text.shape.windows; ++window) {
    progress.show(fmt::format("window {} of {}", window + 1, text.shape.windows));
    score_window(*executor, text, window, loaded.vocab->bos(), on_logits);
  }
  progress.clear();
  if (writer) {
    writer->finish();
    write_message(fmt::format("carat: wrote {}; the same command with it compares from now on", flags.kl_base));
  }
  report(scores, text, executor->name(), flags.json);
}

}  // namespace

void add_perplexity_command(CLI::App& app) {
  auto flags = std::make_shared<PerplexityFlags>();
  CLI::App* command =
      app.add_subcommand("perplexity", "How well a model predicts a text, and how far it is from another run");
  flags->model.add_to(*command);
  command->add_option("FILE", flags->model.path, "the model, the same as -m")->type_name("MODEL");
  command->add_option("-f,--file", flags->text_file, "the text")->type_name("FILE");
  command->add_option("-c,--ctx-size", flags->window, "tokens of a window")->capture_default_str();
  command->add_option("--chunks", flags->windows, "use only the first windows; 0: all")->capture_default_str();
  command
      ->add_option("--kl-base", flags->kl_base,
                   "where this file is missing: write the logits to it; where it exists: compare with them")
      ->type_name("FILE");
  command->add_option("--ub,--ubatch-size", flags->micro_batch,
                      "(-ub) most tokens in one forward pass (default: what suits the device and its memory)");
  command->add_option("-t,--threads", flags->threads, "CPU threads (default: all this process may use)");
  command->add_flag("--json", flags->json, "one JSON object instead of lines");
  flags->device.add_to(*command);
  command->callback([flags] { perplexity(*flags); });
}

}  // namespace carat::cli
