#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "chat/tool_runner.h"
#include "text/chat/conversation.h"

namespace carat::cli {

// Carries out the calls of a turn with the user's program, each after the user said yes.
class ToolDesk {
 public:
  struct Options {
    std::vector<std::string> command;  // empty: nothing carries calls out
    chat::ToolLimits limits;
    bool without_asking = false;
  };
  // Shows a question and returns the line typed in answer to it; nothing when nobody can be asked.
  using Ask = std::function<std::optional<std::string>(std::string_view question)>;

  ToolDesk(Options options, Ask ask);

  // The results in the order of the calls. A call the user declines, or that nobody could be asked about, becomes a
  // result that says so. Where nothing carries calls out, the user is asked for each result; without an answer there
  // are none, and the calls stay pending.
  std::optional<std::vector<text::Message>> carry_out(const std::vector<text::ToolCall>& calls);

 private:
  std::optional<text::Message> typed_result(const text::ToolCall& call);
  text::Message run(const text::ToolCall& call);
  bool is_approved(const text::ToolCall& call, std::string& refusal);

  Options options_;
  Ask ask_;
};

}  // namespace carat::cli
