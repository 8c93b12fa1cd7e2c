#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/flags/model_flags.h"
#include "cli/interrupts.h"
#include "cli/terminal.h"
#include "exec/cpu/cpu_executor.h"
#include "model/writing/importance.h"
#include "runtime/model_loader.h"
#include "text/tokenizer/tokenizer.h"

namespace carat::cli {

namespace {

struct ImatrixFlags {
  ModelFlags model;
  std::string text_file;
  std::string result = "imatrix.gguf";
  uint32_t window = 512;
  uint32_t windows = 0;
  unsigned threads = 0;
};

// Which slice of which layer's tensor begins at (or, in tensors that hold several matrices of a layer, lies at) a place
// of the file.
class PlacesOfTensors {
 public:
  explicit PlacesOfTensors(const gguf::ModelFile& file) {
    for (const gguf::TensorView& tensor : file.tensors()) {
      if (tensor.info.name.starts_with("blk.") && tensor.info.dimensions >= 2) by_place_[tensor.data.data()] = &tensor;
    }
  }

  // nullptr: no tensor of a layer.
  const gguf::TensorView* find(const std::byte* place, uint64_t& slice, uint64_t& slices) const {
    auto after = by_place_.upper_bound(place);
    if (after == by_place_.begin()) return nullptr;
    const gguf::TensorView* tensor = std::prev(after)->second;
    if (place >= tensor->data.data() + tensor->data.size()) return nullptr;
    slices = tensor->info.dimensions > 2 ? tensor->info.ne[2] : 1;
    slice = static_cast<uint64_t>(place - tensor->data.data()) / (tensor->data.size() / slices);
    return tensor;
  }

 private:
  std::map<const std::byte*, const gguf::TensorView*> by_place_;
};

std::vector<int32_t> tokens_of(const ImatrixFlags& flags, const std::shared_ptr<const text::Vocab>& vocab) {
  if (flags.window < 2) fail(ErrorCode::kBadArgument, "-c {}: a window needs at least 2 tokens", flags.window);
  std::vector<int32_t> tokens = {vocab->bos()};
  text::Tokenizer(vocab).encode(read_text_file(flags.text_file), text::Tokenizer::Specials::kPlainText, tokens);
  const size_t available = tokens.size() / flags.window;
  if (available == 0) {
    fail(ErrorCode::kBadArgument, "{} has {} tokens, less than one window of {}; give a longer text or a smaller -c",
         flags.text_file, tokens.size(), flags.window);
  }
  tokens.resize((flags.windows == 0 ? available : std::min<size_t>(available, flags.windows)) * flags.window);
  return tokens;
}

void collect(const ImatrixFlags& flags) {
  const runtime::LoadedModel loaded = runtime::load_model(flags.model.resolved_path());
  const std::vector<int32_t> tokens = tokens_of(flags, loaded.vocab);
  const PlacesOfTensors places(loaded.model->file());
  model::ImportanceCollector collector;

  exec::ExecutorOptions options;
  options.context = flags.window;
  options.chunk = flags.window;
  options.threads = flags.threads;
  options.cancelled = &interrupted();
  options.kv_share_shortcut = false;  // the later layers' inputs count, too
  const auto executor =
      exec::make_cpu_executor(loaded.model, options, [&](const std::byte* place, std::span<const float> input) {
        uint64_t slice = 0, slices = 1;
        const gguf::TensorView* tensor = places.find(place, slice, slices);
        if (tensor != nullptr) collector.add(tensor->info.name, slice, slices, input);
      });

  ProgressLine progress;
  const Stoppable stoppable;
  const auto windows = static_cast<uint32_t>(tokens.size() / flags.window);
  std::vector<exec::Row> rows(flags.window);
  for (uint32_t window = 0; window < windows; ++window) {
    progress.show(fmt::format("window {} of {}", window + 1, windows));
    executor->truncate(0, 0);
    for (uint32_t i = 0; i < flags.window; ++i) {
      const int32_t token = i == 0 ? loaded.vocab->bos() : tokens[size_t{window} * flags.window + i];
      rows[i] = {token, i, 0, i + 1 == flags.window};
    }
    executor->forward(rows);
    exec::require_finite(*executor);
  }
  progress.clear();
  collector.save(flags.result, flags.text_file, windows, flags.window);
  write_stdout(fmt::format("wrote {}: {} tensors, {} windows of {} tokens\n", flags.result, collector.entries(),
                           windows, flags.window));
  if (collector.unused_slices() > 0) {
    write_message(fmt::format("carat: {} experts' matrices were never used by this text; a longer one would reach more",
                              collector.unused_slices()));
  }
}

}  // namespace

void add_imatrix_command(CLI::App& app) {
  auto flags = std::make_shared<ImatrixFlags>();
  CLI::App* command =
      app.add_subcommand("imatrix", "Find out which weights matter, for `carat quantize --imatrix` or llama-quantize");
  flags->model.add_to(*command);
  command->add_option("FILE", flags->model.path, "the model, the same as -m")->type_name("MODEL");
  command->add_option("-f,--file", flags->text_file, "the text to read")->type_name("FILE")->required();
  command->add_option("-o,--output", flags->result, "the file to write")->type_name("FILE")->capture_default_str();
  command->add_option("-c,--ctx-size", flags->window, "tokens of a window")->capture_default_str();
  command->add_option("--chunks", flags->windows, "use only the first windows; 0: all")->capture_default_str();
  command->add_option("-t,--threads", flags->threads, "CPU threads (default: all this process may use)");
  command->callback([flags] { collect(*flags); });
}

}  // namespace carat::cli
