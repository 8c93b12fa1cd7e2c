#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <optional>
#include <string>

#include "cli/flags/sampling_flags.h"
#include "model/config.h"
#include "server/service/turn_maker.h"

namespace carat::cli {

// What requests get that do not say otherwise, and how many run at the same time: of serve and batch.
struct AnswerFlags {
  uint32_t parallel = 4;
  uint64_t cache_tokens = 0;  // 0: as many as all requests may hold
  uint32_t max_n = 8;
  int64_t max_tokens = -1;
  bool think = false;
  std::optional<uint64_t> think_budget;
  bool no_loop_guard = false;
  std::string json_style = "free";
  std::string chat_template = "auto";

  void add_to(CLI::App& command);
  // Throws kBadArgument on flags that cannot be.
  server::TurnDefaults turn_defaults(const SamplingFlags& sampling, const model::Config& config) const;
};

}  // namespace carat::cli
