#include "server/service/model_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "gguf/tensor_type.h"

namespace carat::server {

namespace {

// The format that most bytes of the weights are in.
std::string main_format(const gguf::ModelFile& file) {
  std::map<std::string_view, uint64_t> bytes;
  for (const gguf::TensorView& tensor : file.tensors()) {
    bytes[gguf::find_tensor_type(tensor.info.type)->name] += tensor.info.bytes;
  }
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? std::string() : std::string(most->first);
}

uint64_t parameter_count(const gguf::ModelFile& file) {
  uint64_t count = 0;
  for (const gguf::TensorView& tensor : file.tensors()) {
    const auto& ne = tensor.info.ne;
    count += ne[0] * ne[1] * ne[2] * ne[3];
  }
  return count;
}

// When the file was written; 0 where that cannot be told.
double written_seconds(const std::string& path) {
  std::error_code error;
  const auto written = std::filesystem::last_write_time(path, error);
  if (error) return 0.0;
  const auto system = std::chrono::file_clock::to_sys(written);
  return std::chrono::duration<double>(system.time_since_epoch()).count();
}

// A setting as it was written: 0.2f becomes 0.2, not 0.20000000298.
double as_written(float value) { return std::stod(fmt::format("{}", value)); }

}  // namespace

ServerFacts facts_of(const engine::Engine& engine, const text::ChatTemplate& chat_template,
                     const TurnDefaults& defaults, const FactsOptions& options) {
  const exec::Executor& executor = engine.executor();
  const model::Config& config = executor.model().config();
  const gguf::ModelFile& file = executor.model().file();
  const text::Vocab& vocab = engine.vocab();
  const std::filesystem::path path(file.path());
  const std::string stem = path.stem().string();

  ServerFacts facts;
  facts.model_id = options.aliases.empty() ? stem : options.aliases.front();
  facts.aliases = {options.aliases.begin() + (options.aliases.empty() ? 0 : 1), options.aliases.end()};
  if (facts.model_id != stem) facts.aliases.push_back(stem);
  facts.version = options.version;
  facts.created = written_seconds(file.path());
  facts.context = executor.options().context;
  facts.trained_context = config.context_length;
  facts.sequences = executor.options().sequences;
  facts.max_choices = defaults.max_choices;
  facts.file_name = path.filename().string();
  facts.name = config.name;
  facts.format = main_format(file);
  facts.architecture = config.architecture;
  facts.parameters = parameter_count(file);
  facts.file_bytes = file.file_bytes();
  if (executor.name().starts_with("cuda")) facts.device_bytes = executor.model().weight_bytes();
  facts.vocabulary = config.V;
  facts.width = config.d;
  facts.layers = config.L;
  facts.chat_template = std::string(vocab.chat_template());
  facts.bos_text = std::string(vocab.text(vocab.bos()));
  facts.eos_text = std::string(vocab.text(vocab.eos()));
  facts.temperature = as_written(defaults.sampling.temperature);
  facts.top_p = as_written(defaults.sampling.top_p);
  facts.min_p = as_written(defaults.sampling.min_p);
  facts.top_k = defaults.sampling.top_k;
  facts.thinks = options.thinks;
  // Answers with a seed repeat as long as none of this changes.
  const std::string identity = options.version + facts.file_name + std::to_string(facts.file_bytes) +
                               std::string(executor.name()) + chat_template.description();
  facts.fingerprint =
      fmt::format("carat-{}-{:08x}", options.version, static_cast<uint32_t>(std::hash<std::string>{}(identity)));
  return facts;
}

}  // namespace carat::server
