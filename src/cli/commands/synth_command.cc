#include <chrono>
#include <memory>
#include <string>

#include "base/byte_size.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "cli/commands/commands.h"
#include "cli/interrupts.h"
#include "cli/terminal.h"
#include "model/census.h"
#include "model/writing/synth.h"

namespace carat::cli {

namespace {

struct SynthFlags {
  model::SynthOptions options;
  std::string path;
  unsigned threads = 0;
  bool dry_run = false;
};

std::string describe(const model::SynthModel& model) {
  std::vector<model::CensusTensor> tensors;
  for (const model::SynthTensor& tensor : model.tensors) {
    tensors.push_back({tensor.shape.name, {tensor.shape.elements(), tensor.bytes()}});
  }
  const auto& preset = model.preset;
  const model::Census census = model::take_census(tensors, preset.n_kv, preset.experts, preset.experts_used);
  return fmt::format(
      "{} {}: {} layers ({} with keys and values of their own), {} tokens, {} tensors, {} parameters, {}; "
      "a generated token reads {}\n",
      preset.name, model.recipe.name(), preset.L, preset.n_kv, preset.V, census.tensors,
      grouped(census.total().elements), byte_size(census.total().bytes), byte_size(census.read_per_token().bytes));
}

void synthesise(const SynthFlags& flags) {
  const model::SynthModel model = model::plan_synth(flags.options);
  write_stdout(describe(model));
  if (flags.dry_run) return;
  if (flags.path.empty()) fail(ErrorCode::kBadArgument, "name the file to write, or give --dry-run");

  const uint64_t total = model.tensor_bytes();
  ThreadPool pool(flags.threads);
  const auto start = std::chrono::steady_clock::now();
  {
    const Stoppable stoppable;
    ProgressLine line;
    const auto show = [&](uint64_t done) {
      line.show(fmt::format("writing {}: {} %", flags.path, done * 100 / total));
    };
    model::write_synth(model, flags.path, pool, {.progress = show, .cancelled = &interrupted()});
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  write_stdout(fmt::format("wrote {} in {:.2f} s, {}/s\n", flags.path, seconds,
                           byte_size(static_cast<uint64_t>(static_cast<double>(total) / seconds))));
}

}  // namespace

void add_synth_command(CLI::App& app) {
  auto flags = std::make_shared<SynthFlags>();
  CLI::App* command = app.add_subcommand(
      "synth", "Write a model of an exact Gemma 4 shape with random weights, for benchmarks and tests");
  command->add_option("preset", flags->options.preset, "shape of the model")
      ->type_name(fmt::format("{}", fmt::join(model::preset_names(), "|")))
      ->required();
  command->add_option("format", flags->options.recipe, "types of the tensors")
      ->type_name(fmt::format("{}", fmt::join(model::Recipe::names(), "|")))
      ->required();
  command->add_option("out", flags->path, "the GGUF file to write")->type_name("FILE");
  command->add_option("--layers", flags->options.layers, "fewer layers than the preset, in the same proportions");
  command->add_option("--vocab", flags->options.vocabulary, "fewer tokens than the preset (768 to 262144)");
  command->add_option("--context", flags->options.context, "the context length the file claims");
  command->add_option("-s,--seed", flags->options.seed, "other random weights")->capture_default_str();
  command->add_option("-t,--threads", flags->threads, "threads to use (0: all)")->capture_default_str();
  command->add_flag("--hollow", flags->options.hollow,
                    "weights in blocks are zeros that take no room on the disk, which is enough for `carat plan`");
  command->add_flag("--dry-run", flags->dry_run, "only say how large the file would be");
  command->callback([flags] { synthesise(*flags); });
}

}  // namespace carat::cli
