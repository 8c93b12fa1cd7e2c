#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/byte_size.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "cli/commands/commands.h"
#include "cli/interrupts.h"
#include "cli/terminal.h"
#include "gguf/reader.h"
#include "gguf/tensor_type.h"
#include "model/writing/quantise.h"

namespace carat::cli {

namespace {

struct QuantizeFlags {
  std::string source;
  std::string result;
  std::string recipe;
  std::string importance;
  std::vector<std::string> edits;
  unsigned threads = 0;
  bool allow_requantise = false;
  bool dry_run = false;
};

constexpr std::string_view kCopy = "copy";

// Without a recipe tensors stay as they are.
std::optional<model::Recipe> parse_recipe(const std::string& name) {
  if (name == kCopy || name == "COPY") return std::nullopt;
  return model::Recipe::parse(name);
}

std::string known_formats() {
  std::vector<std::string> names = model::Recipe::names();
  names.emplace_back(kCopy);
  return fmt::format("{}", fmt::join(names, "|"));
}

// One line per pair of types: how many tensors go from one to the other, and their bytes before and after.
std::string describe(const model::QuantisePlan& plan) {
  struct Group {
    size_t tensors = 0;
    uint64_t before = 0, after = 0;
  };
  std::map<std::pair<uint32_t, uint32_t>, Group> groups;
  for (const model::QuantiseStep& step : plan.steps) {
    Group& group = groups[{step.source->info.type, step.to_type}];
    ++group.tensors;
    group.before += step.source->info.bytes;
    group.after += step.to_bytes;
  }
  std::string text = fmt::format("{:<8} {:<8} {:>7} {:>10} {:>10}\n", "from", "to", "tensors", "before", "after");
  for (const auto& [types, group] : groups) {
    text += fmt::format("{:<8} {:<8} {:>7} {:>10} {:>10}\n", gguf::find_tensor_type(types.first)->name,
                        types.first == types.second ? "(copied)" : gguf::find_tensor_type(types.second)->name,
                        group.tensors, byte_size(group.before), byte_size(group.after));
  }
  return text + fmt::format("{:<17} {:>7} {:>10} {:>10}\n", "all", plan.steps.size(), byte_size(plan.from_bytes()),
                            byte_size(plan.to_bytes()));
}

// Types of so few bits that it matters much which errors are made.
bool needs_importance(const model::QuantisePlan& plan) {
  return std::any_of(plan.steps.begin(), plan.steps.end(), [](const model::QuantiseStep& step) {
    const std::string_view type = gguf::find_tensor_type(step.to_type)->name;
    return !step.copies() && (type.starts_with("IQ2") || type.starts_with("IQ3"));
  });
}

void quantize(const QuantizeFlags& flags) {
  const auto file = gguf::ModelFile::open(flags.source);
  model::QuantisePlan plan = model::plan_quantise(*file, parse_recipe(flags.recipe), flags.allow_requantise);
  for (const std::string& edit : flags.edits) {
    try {
      plan.edits.push_back(model::MetadataEdit::parse(edit));
    } catch (const Error& error) {
      fail(error.code(), "--override-kv {}", error.what());
    }
  }
  if (!flags.importance.empty()) {
    plan.importance = std::make_shared<model::ImportanceMatrix>(model::ImportanceMatrix::load(flags.importance));
    model::check_importance(*file, plan);
  } else if (needs_importance(plan)) {
    write_message("carat: IQ2 and IQ3 types without an importance matrix (--imatrix) lose much of a model");
  }
  write_stdout(describe(plan));
  if (flags.dry_run) return;
  std::error_code ignored;
  if (std::filesystem::equivalent(flags.source, flags.result, ignored)) {
    fail(ErrorCode::kBadArgument, "{} is both the source and the result; name another file for the result",
         flags.source);
  }

  const uint64_t total = plan.from_bytes();
  ThreadPool pool(flags.threads);
  const auto start = std::chrono::steady_clock::now();
  {
    const Stoppable stoppable;
    ProgressLine line;
    const auto show = [&](uint64_t done) {
      line.show(fmt::format("writing {}: {} %", flags.result, done * 100 / total));
    };
    model::quantise(*file, plan, flags.result, pool, {.progress = show, .cancelled = &interrupted()});
  }
  file->check_unchanged();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  write_stdout(fmt::format("wrote {} ({}) in {:.1f} s\n", flags.result,
                           byte_size(std::filesystem::file_size(flags.result)), seconds));
}

}  // namespace

void add_quantize_command(CLI::App& app) {
  auto flags = std::make_shared<QuantizeFlags>();
  CLI::App* command =
      app.add_subcommand("quantize", "Convert a model file to other tensor types, or change its metadata");
  command->add_option("in", flags->source, "the GGUF file to read")->type_name("FILE")->required();
  command->add_option("out", flags->result, "the GGUF file to write")->type_name("FILE")->required();
  command->add_option("format", flags->recipe, "types of the tensors; copy: as they are")
      ->type_name(known_formats())
      ->required();
  command->add_flag("--allow-requantize", flags->allow_requantise,
                    "also convert tensors that are quantised already, which adds one error to another");
  command
      ->add_option("--override-kv", flags->edits,
                   "a key of the metadata and what it holds in the result, such as general.sampling.temp=float:0.2; "
                   "types are int, float, bool and str; repeatable")
      ->type_name("KEY=TYPE:VALUE")
      ->allow_extra_args(false);
  command
      ->add_option("--imatrix", flags->importance,
                   "weigh errors with this importance matrix, made by `carat imatrix` or llama-imatrix")
      ->type_name("FILE");
  command->add_option("-t,--threads", flags->threads, "threads to use (0: all)")->capture_default_str();
  command->add_flag("--dry-run", flags->dry_run, "only say what would be done");
  command->callback([flags] { quantize(*flags); });
}

}  // namespace carat::cli
