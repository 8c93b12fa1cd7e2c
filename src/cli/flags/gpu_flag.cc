#include "cli/flags/gpu_flag.h"

#include <charconv>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/error.h"

namespace carat::cli {

namespace {

constexpr double kGiB = 0x1p30;
constexpr double kTaken = 0.5;  // GB a driver and a desktop have usually taken

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

std::optional<double> number(std::string_view text) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "8.9" or "89".
std::optional<uint32_t> capability_of(std::string_view text) {
  const std::optional<double> value = number(text);
  if (!value || *value < 1.0 || *value > 200.0) return std::nullopt;
  const bool dotted = text.find('.') != std::string_view::npos;
  return static_cast<uint32_t>(dotted ? *value * 10.0 + 0.5 : *value);
}

// Shared memory a block can have, from the programming guide's table of compute capabilities.
uint32_t shared_memory_of(uint32_t capability) {
  switch (capability) {
    case 80:
    case 87:
      return 163 * 1024;
    case 90:
    case 100:
    case 103:
    case 110:
      return 227 * 1024;
    default:  // 8.6, 8.9, 12.0, 12.1, and no less on what is not out yet
      return capability < 80 ? 64 * 1024 : 99 * 1024;
  }
}

}  // namespace

cuda::GpuFacts parse_gpu(std::string_view text) {
  const auto refuse = [&](std::string_view what) {
    fail(ErrorCode::kBadArgument,
         "--gpu \"{}\": {}; give name, compute capability, number of SMs and GB of memory, such as \"RTX 4070 "
         "Ti,8.9,60,12\"",
         text, what);
  };
  const std::vector<std::string_view> parts = split(text);
  if (parts.size() != 4 && parts.size() != 5) refuse("four parts (or five, with the free GB) are needed");
  const auto capability = capability_of(parts[1]);
  if (!capability) refuse("the compute capability is no number such as 8.9");
  const auto sms = number(parts[2]);
  if (!sms || *sms < 1 || *sms > 10'000) refuse("the number of SMs is no whole number");
  const auto total = number(parts[3]);
  if (!total || !(*total > kTaken) || *total > 100'000) refuse("the memory is no number of GB");
  const auto free_part = parts.size() == 5 ? number(parts[4]) : std::optional(*total - kTaken);
  if (!free_part || !(*free_part >= 0.0) || *free_part > *total) refuse("the free memory is no part of the memory");
  cuda::GpuFacts facts;
  facts.name = parts[0];
  facts.capability = *capability;
  facts.sm_count = static_cast<uint32_t>(*sms);
  facts.shared_memory = shared_memory_of(*capability);
  facts.row_scaled_fp8 = *capability == 90;
  facts.total_bytes = static_cast<uint64_t>(*total * kGiB);
  facts.free_bytes = static_cast<uint64_t>(*free_part * kGiB);
  return facts;
}

void GpuFlag::add_to(CLI::App& command) {
  command
      .add_option("--gpu", described,
                  "plan for a GPU that is not here: \"NAME,CAPABILITY,SMS,GB\", such as \"H200,9.0,132,141\"")
      ->type_name("GPU");
}

cuda::GpuFacts GpuFlag::resolve() const {
  if (!described.empty()) return parse_gpu(described);
  std::string why;
  const auto gpu = cuda::query_gpu(&why);
  if (!gpu) {
    fail(ErrorCode::kUnsupported,
         "there is no GPU to plan for: {}; describe one with --gpu \"NAME,CAPABILITY,SMS,GB\", such as "
         "\"H200,9.0,132,141\"",
         why);
  }
  return *gpu;
}

}  // namespace carat::cli
