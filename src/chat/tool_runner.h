#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/conversation.h"

namespace carat::chat {

// The words of a command as a shell would split it: '...', "..." and backslashes quote. Nothing is expanded and there
// are no operators: $, *, ; and | are characters like any other, and whoever wants a shell names one (sh -c '...').
// Throws kBadArgument, naming --tool-exec, for an open quote, a backslash at the end and a command without words.
std::vector<std::string> split_command(std::string_view text);

struct ToolLimits {
  std::chrono::milliseconds timeout = std::chrono::seconds(30);
  size_t output_bytes = size_t{64} << 10;
};

struct ToolOutcome {
  bool ok = false;
  std::string output = {};   // what it wrote to standard output, as UTF-8; of a failure, as far as it was read
  std::string problem = {};  // why it failed, in words
  double seconds = 0.0;
};

// Carries out one call: runs `command` with the tool's name as its last argument and the call's arguments, one JSON
// object, as the only line of its standard input. What a model or a tool can cause is an outcome, never an exception.
//
// No shell is involved. The process gets a session of its own, so it cannot read from the user's terminal, and nothing
// but its three streams. When a limit is reached or `cancelled` (may be null) becomes true, it and all it started are
// ended (SIGTERM, then SIGKILL). It is over when the process ends: what it left running in the background is left alone
// and not waited for. Throws kIo when the system has no descriptors left.
ToolOutcome run_tool(std::span<const std::string> command, const text::ToolCall& call, const ToolLimits& limits,
                     const std::atomic<bool>* cancelled);

// The message that tells the model: output that is JSON as its value, other output as a string without the newlines at
// its end, a failure as {"error": "..."}.
text::Message tool_message(const text::ToolCall& call, const ToolOutcome& outcome);

}  // namespace carat::chat
