#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <optional>
#include <string>

#include "base/log.h"
#include "chat/session.h"
#include "cli/flags/draft_flags.h"
#include "cli/flags/model_flags.h"
#include "cli/flags/sampling_flags.h"

namespace carat::cli {

// What `run` and `chat` share: the model, where and how it runs, and the rules of the conversation.
struct ChatFlags {
  ModelFlags model;
  DeviceFlags device;
  SizeFlags size;
  SamplingFlags sampling;
  DraftFlags drafts;

  int64_t max_tokens = -1;
  std::string system;
  bool think = false;
  std::optional<uint64_t> think_budget;
  std::string show_thinking = "full";
  std::string tools;
  std::string tool_exec;
  bool tool_yes = false;
  double tool_timeout = 30.0;  // seconds
  std::string json_style = "free";
  std::string json_schema;
  std::string grammar;
  bool no_loop_guard = false;
  bool ignore_stops = false;
  std::string overflow = "error";
  std::string chat_template = "auto";

  void add_to(CLI::App& command);
  // Loads the model; says what the user should know about its chat template. Throws on flags that cannot be.
  chat::ChatSession open(const Logger& log) const;
};

// --chat-template; throws kBadArgument listing what there is.
text::ChatTemplate::Choice parse_template_choice(const std::string& text);

}  // namespace carat::cli
