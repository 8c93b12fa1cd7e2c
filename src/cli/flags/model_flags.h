#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cli/terminal.h"
#include "exec/executor.h"
#include "runtime/executor_factory.h"

namespace carat::cli {

// Flags several subcommands share. Each struct adds its flags to a subcommand and later turns them into what the layers
// below take.

struct ModelFlags {
  std::string path;  // a file, a name or hf:owner/repo[:quant]; empty: the demo model
  bool verbose = false;

  void add_to(CLI::App& command);
  // The file to open; says on stderr which one was taken where several would do. Throws kIo naming the places looked at
  // when there is no such model, kBadArgument when several could be meant.
  std::string resolved_path() const;
};

// -ngl: "auto" is none, "all" exec::kAllLayers. Throws kBadArgument on anything else that is no number.
std::optional<uint32_t> parse_gpu_layers(std::string_view text);

// -ctk and -ctv
struct CacheTypeFlags {
  std::string key_type = "f16";
  std::string value_type = "f16";

  void add_to(CLI::App& command);
  // Throws kBadArgument on an unknown type, kUnsupported where the two differ.
  quant::Format chosen() const;
};

struct DeviceFlags {
  std::string device = "auto";
  std::string kernels;  // empty: the environment variable CARAT_KERNELS
  std::string gpu_layers = "auto";
  std::string flash_attention = "auto";
  CacheTypeFlags cache;

  void add_to(CLI::App& command);
  // The device to use: -ngl 0 means the CPU. Throws kBadArgument on an unknown word.
  runtime::Device chosen_device() const;
  // Sets cache type, kernels and layers on the GPU. Throws on a value that is unknown or not supported.
  void apply(exec::ExecutorOptions& options) const;
  // Warns about flags that ask for something the executor does not do, rather than accepting them in silence.
  void explain_unused(const exec::Executor& executor, const Logger& log) const;
};

// A context carat takes when none is asked for: what the model allows, but no more memory than a first try should need.
constexpr uint32_t kDefaultContext = 4096;

struct SizeFlags {
  uint32_t default_context = kDefaultContext;  // at most, where the flag is not given
  std::optional<uint32_t> context;             // 0: all the model was trained for
  std::optional<uint32_t> batch;
  std::optional<uint32_t> micro_batch;
  unsigned threads = 0;

  void add_to(CLI::App& command);
  void apply(const model::Config& config, exec::ExecutorOptions& options) const;
};

// Rows of a pass for -b and -ub as in llama.cpp, where -b limits -ub, which is 512 unless given: 0, the executor's
// choice, when neither is given.
uint32_t chosen_chunk(std::optional<uint32_t> batch, std::optional<uint32_t> micro_batch, uint32_t context);

// Shows on the line how much of the model has been brought to the GPU.
runtime::LoadProgress loading_progress(ProgressLine& line);

// The whole of a text file; "-" is standard input. Throws kIo, also for a directory.
std::string read_text_file(const std::string& path);

}  // namespace carat::cli
