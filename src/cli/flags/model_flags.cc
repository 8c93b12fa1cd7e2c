#include "cli/flags/model_flags.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "base/error.h"
#include "base/thread_pool.h"
#include "hub/carat_cache.h"
#include "runtime/model_loader.h"

namespace carat::cli {

namespace {
constexpr unsigned kMostThreads = 4096;

quant::Format parse_cache_type(std::string_view flag, const std::string& name) {
  const quant::FormatInfo* format = quant::find_format(name);
  if (format == nullptr) {
    fail(ErrorCode::kBadArgument,
         "{} {}: unknown type; f16 is the default, q8_0 takes half the memory, f32 is the exact one", flag, name);
  }
  return format->format;
}

}  // namespace

void ModelFlags::add_to(CLI::App& command) {
  command
      .add_option("-m,--model", path,
                  "a Gemma 4 model: a GGUF file, a name in models/, or hf:owner/repo[:quant] (default: the demo model)")
      ->type_name("MODEL");
  command.add_flag("-v,--verbose", verbose, "say on stderr what was decided and why");
}

std::string ModelFlags::resolved_path() const {
  const hub::LookupPlaces places = runtime::lookup_places();
  if (path.empty()) return runtime::demo_model(places);
  const hub::FoundModel found = hub::find_model(path, places);
  if (!found.note.empty()) write_message(fmt::format("carat: {}", found.note));
  return found.path;
}

void DeviceFlags::add_to(CLI::App& command) {
  command.add_option("--device", device, "what to compute on")
      ->type_name("auto|cpu|gpu|reference")
      ->capture_default_str();
  command.add_option("--kernels", kernels, "SLOT=NAME,... picks kernels by hand; `carat kernels` lists them")
      ->type_name("SLOT=NAME,...")
      ->envname("CARAT_KERNELS");
  command
      .add_option("--ngl,--n-gpu-layers", gpu_layers,
                  "(-ngl) layers on the GPU, the others on the CPU: a number, auto (as many as fit) or all; 0 means "
                  "the CPU")
      ->type_name("N|auto|all")
      ->capture_default_str();
  command.add_option("--fa,--flash-attn", flash_attention, "(-fa) without effect, for old scripts; see docs/cli.md")
      ->type_name("on|off|auto")
      ->capture_default_str();
  cache.add_to(command);
}

void CacheTypeFlags::add_to(CLI::App& command) {
  command.add_option("--ctk,--cache-type-k", key_type, "(-ctk) type of the key cache; f32 on the CPU only")
      ->type_name("f16|q8_0|f32")
      ->capture_default_str();
  command.add_option("--ctv,--cache-type-v", value_type, "(-ctv) type of the value cache: the same")
      ->type_name("f16|q8_0|f32")
      ->capture_default_str();
}

quant::Format CacheTypeFlags::chosen() const {
  const quant::Format format = parse_cache_type("-ctk", key_type);
  if (parse_cache_type("-ctv", value_type) != format) {
    fail(ErrorCode::kUnsupported, "-ctk {} and -ctv {}: keys and values must have the same type", key_type, value_type);
  }
  return format;
}

runtime::Device DeviceFlags::chosen_device() const {
  const runtime::Device wanted = runtime::parse_device(device);
  if (parse_gpu_layers(gpu_layers) == 0u) {
    if (wanted == runtime::Device::kGpu) fail(ErrorCode::kBadArgument, "--device gpu and -ngl 0 contradict each other");
    if (wanted == runtime::Device::kAuto) return runtime::Device::kCpu;
  }
  return wanted;
}

std::optional<uint32_t> parse_gpu_layers(std::string_view text) {
  if (text == "auto") return std::nullopt;
  if (text == "all") return exec::kAllLayers;
  uint32_t layers = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), layers);
  if (error != std::errc() || end != text.data() + text.size()) {
    fail(ErrorCode::kBadArgument, "-ngl {}: give a number of layers, auto or all", text);
  }
  return layers;
}

void DeviceFlags::apply(exec::ExecutorOptions& options) const {
  if (flash_attention != "on" && flash_attention != "off" && flash_attention != "auto") {
    fail(ErrorCode::kBadArgument, "-fa {}: give on, off or auto", flash_attention);
  }
  options.kv_format = cache.chosen();
  options.kernels = exec::KernelChoices::parse(kernels);
  options.gpu_layers = parse_gpu_layers(gpu_layers);
  options.cache_folder = hub::carat_cache_folder(hub::process_environment());
}

void DeviceFlags::explain_unused(const exec::Executor& executor, const Logger& log) const {
  const bool on_gpu = executor.name().starts_with("cuda");
  if (!on_gpu && gpu_layers != "auto" && gpu_layers != "0") {
    log->warn("-ngl {} has no effect: the {} executor uses no GPU", gpu_layers, executor.name());
  }
  if (flash_attention != "auto") {
    log->info(
        "-fa {} has no effect: how attention is computed is chosen with --kernels; `carat kernels` lists the ways",
        flash_attention);
  }
}

void SizeFlags::add_to(CLI::App& command) {
  command.add_option("-c,--ctx-size", context,
                     fmt::format("context in tokens (default: the model's, at most {}; 0: the "
                                 "model's)",
                                 default_context));
  command.add_option("-b,--batch-size", batch, "upper limit for -ub");
  command.add_option("--ub,--ubatch-size", micro_batch,
                     "(-ub) most tokens in one forward pass (default: what suits the device and its memory)");
  command.add_option("-t,--threads", threads, "CPU threads (default: all this process may use)");
}

void SizeFlags::apply(const model::Config& config, exec::ExecutorOptions& options) const {
  if (threads > kMostThreads) fail(ErrorCode::kBadArgument, "-t {}: at most {} threads", threads, kMostThreads);
  options.context = context.value_or(std::min(config.context_length, default_context));
  if (options.context == 0) options.context = config.context_length;
  options.chunk = chosen_chunk(batch, micro_batch, options.context);
  options.threads = threads == 0 ? usable_threads() : threads;
}

uint32_t chosen_chunk(std::optional<uint32_t> batch, std::optional<uint32_t> micro_batch, uint32_t context) {
  if (batch == 0u || micro_batch == 0u) fail(ErrorCode::kBadArgument, "-b and -ub must be at least 1");
  if (!batch && !micro_batch) return 0;
  const uint32_t wanted = micro_batch.value_or(exec::kDefaultChunk);
  return std::min({wanted, batch.value_or(wanted), context});
}

runtime::LoadProgress loading_progress(ProgressLine& line) {
  return [&line, shown = uint64_t{101}](uint64_t done, uint64_t total) mutable {
    const uint64_t percent = total == 0 ? 100 : done * 100 / total;
    if (percent == shown) return;
    shown = percent;
    line.show(fmt::format("loading the model: {} %", percent));
  };
}

std::string read_text_file(const std::string& path) {
  if (path == "-") {
    return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) fail(ErrorCode::kIo, "cannot read {}: it is a directory", path);
  std::ifstream stream(path, std::ios::binary);
  if (!stream) fail(ErrorCode::kIo, "cannot open {}: {}", path, std::strerror(errno));
  std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (stream.bad()) fail(ErrorCode::kIo, "cannot read {}: {}", path, std::strerror(errno));
  return text;
}

}  // namespace carat::cli
