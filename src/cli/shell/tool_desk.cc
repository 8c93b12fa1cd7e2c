#include "cli/shell/tool_desk.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/interrupts.h"
#include "cli/terminal.h"
#include "cli/view/sanitise.h"

namespace carat::cli {

namespace {

// As a person would type it, shortened: the first bytes are enough to see what is about to happen.
std::string shown_arguments(const text::ToolCall& call) {
  constexpr size_t kMost = 2000;
  std::string arguments = call.arguments.empty() ? "{}" : call.arguments;
  if (arguments.size() > kMost) {
    size_t end = kMost;
    while (end > 0 && (static_cast<unsigned char>(arguments[end]) & 0xC0) == 0x80) --end;
    arguments = fmt::format("{}… ({} bytes)", arguments.substr(0, end), arguments.size());
  }
  return sanitise(arguments);
}

std::string first_word(std::string_view line) {
  std::string word;
  for (const char c : line) {
    if (c == ' ' || c == '\t') {
      if (!word.empty()) break;
      continue;
    }
    word += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  return word;
}

}  // namespace

ToolDesk::ToolDesk(Options options, Ask ask) : options_(std::move(options)), ask_(std::move(ask)) {}

std::optional<std::vector<text::Message>> ToolDesk::carry_out(const std::vector<text::ToolCall>& calls) {
  std::vector<text::Message> results;
  for (const text::ToolCall& call : calls) {
    if (!options_.command.empty()) {
      results.push_back(run(call));
      continue;
    }
    std::optional<text::Message> result = typed_result(call);
    if (!result) return std::nullopt;
    results.push_back(std::move(*result));
  }
  return results;
}

std::optional<text::Message> ToolDesk::typed_result(const text::ToolCall& call) {
  const std::optional<std::string> line = ask_(fmt::format("result of {}> ", sanitise(call.name)));
  if (!line || line->empty()) return std::nullopt;
  return chat::tool_message(call, {.ok = true, .output = *line});
}

bool ToolDesk::is_approved(const text::ToolCall& call, std::string& refusal) {
  if (options_.without_asking) return true;
  const std::optional<std::string> line =
      ask_(fmt::format("run {} {} with {}? [y]es, [n]o, [a]lways: ", options_.command.front(), sanitise(call.name),
                       shown_arguments(call)));
  if (!line) {
    refusal = "the call was not carried out: nobody could be asked for permission";
    write_message("carat: warning: calls are only carried out after a yes; --yes goes without");
    return false;
  }
  const std::string word = first_word(*line);
  if (word == "a" || word == "always") options_.without_asking = true;
  if (options_.without_asking || word == "y" || word == "yes") return true;
  refusal = "the user declined the call";
  return false;
}

text::Message ToolDesk::run(const text::ToolCall& call) {
  chat::ToolOutcome outcome;
  if (is_approved(call, outcome.problem)) {
    const Stoppable stoppable;
    outcome = chat::run_tool(options_.command, call, options_.limits, &interrupted());
  }
  if (!outcome.ok) write_message(fmt::format("carat: warning: {}: {}", sanitise(call.name), sanitise(outcome.problem)));
  return chat::tool_message(call, outcome);
}

}  // namespace carat::cli
