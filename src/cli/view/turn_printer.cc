#include "cli/view/turn_printer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "cli/terminal.h"
#include "cli/view/sanitise.h"
#include "cli/view/status_line.h"

namespace carat::cli {

namespace {

double per_second(uint64_t count, double seconds) { return seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0; }

// Prompts that are read faster than this need no bar.
constexpr double kPatience = 0.4;

}  // namespace

TurnPrinter::TurnPrinter(Screen out, Screen err, Options options) : out_(out), err_(err), options_(options) {}

std::string TurnPrinter::dimmed(std::string_view text) const {
  return err_.colour ? fmt::format("\033[2m{}\033[0m", text) : std::string(text);
}

void TurnPrinter::note(std::string_view text) {
  clear_progress();
  write_message(fmt::format("carat: note: {}", text));
}

void TurnPrinter::reading(uint32_t done, uint32_t total, double seconds) {
  if (!err_.can_move_cursor) return;
  const double speed = per_second(done, seconds);
  if (!shows_progress_ && (seconds < kPatience / 4 || speed <= 0.0 || total / speed < kPatience)) return;
  write_stderr(fmt::format("\r\033[K{}", prefill_progress(done, total, speed, err_.columns())));
  shows_progress_ = true;
}

void TurnPrinter::clear_progress() {
  if (std::exchange(shows_progress_, false)) write_stderr("\r\033[K");
}

void TurnPrinter::event(const text::OutputEvent& event, const engine::ChatTurn& turn) {
  clear_progress();
  if (event.kind == text::OutputEvent::Kind::kThought) {
    if (!thought_) {
      thought_ = std::make_unique<ThoughtView>(write_stderr, err_, options_.show_thinking);
      thought_began_ = std::chrono::steady_clock::now();
    }
    thought_->append(event.text);
    return;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - thought_began_).count();
  end_thought(turn.thought_tokens(), seconds);
  switch (event.kind) {
    case text::OutputEvent::Kind::kAnswer:
      return answer(event.text);
    case text::OutputEvent::Kind::kToolCall:
      return show_call(event);
    default:
      return show_bad_call(event);
  }
}

void TurnPrinter::thinking(const engine::ChatTurn& turn) {
  if (!thought_) return;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - thought_began_).count();
  thought_->progress(seconds, turn.thought_tokens());
}

void TurnPrinter::end_thought(uint32_t tokens, double seconds) {
  if (!thought_) return;
  thought_->finish(seconds, tokens);
  thought_.reset();
}

void TurnPrinter::answer(std::string_view text) {
  if (!answer_) {
    answer_ = out_.is_terminal && options_.markdown ? make_markdown_view(write_stdout, out_)
                                                    : make_raw_view(write_stdout, out_.is_terminal);
  }
  answer_->append(text);
  ends_line_ = text.ends_with('\n');
}

void TurnPrinter::show_call(const text::OutputEvent& call) {
  if (options_.print_calls) {
    nlohmann::ordered_json object;
    object["name"] = call.name;
    object["arguments"] = nlohmann::ordered_json::parse(call.arguments);
    const std::string line = object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    write_stdout((ends_line_ ? "" : "\n") + line + "\n");
    ends_line_ = true;
    return;
  }
  write_stderr(fmt::format("{}{}\n", ends_line_ ? "" : "\n",
                           dimmed(fmt::format("calls {}({})", sanitise(call.name), sanitise(call.arguments)))));
  ends_line_ = true;
}

void TurnPrinter::show_bad_call(const text::OutputEvent& call) {
  const std::string text = err_.is_terminal ? sanitise(call.text) : call.text;
  write_stderr(fmt::format("{}carat: warning: the model wrote a tool call that cannot be read: {}\n{}\n",
                           ends_line_ || !err_.is_terminal ? "" : "\n", call.problem, text));
}

void TurnPrinter::abandon() {
  clear_progress();
  // What was being written stays as far as it got; the message about the error begins a line of its own.
  if ((answer_ && !ends_line_ && out_.is_terminal) || (thought_ && err_.is_terminal)) write_stderr("\n");
  answer_.reset();
  thought_.reset();
  ends_line_ = true;
}

void TurnPrinter::finish(const chat::TurnReport& report, uint32_t context) {
  clear_progress();
  end_thought(report.result.thought_tokens, report.result.thought_seconds);
  const bool is_markdown = out_.is_terminal && options_.markdown;
  if (answer_) answer_->finish();
  // A Markdown view ends its last line itself; an answer without a word still is a line.
  if (!(answer_ && is_markdown) && (!ends_line_ || (!answer_ && report.result.message.tool_calls.empty()))) {
    write_stdout("\n");
  }
  answer_.reset();
  ends_line_ = true;

  if (!options_.status) {
    if (!report.ending_note.empty()) write_message(fmt::format("carat: warning: {}", report.ending_note));
    return;
  }
  TurnStatus status;
  status.prompt_reused = report.prompt_reused;
  status.prompt_new = report.prompt_new;
  status.prompt_tps = per_second(report.prompt_new, report.prompt_seconds);
  status.generated = report.generated;
  status.decode_tps = per_second(report.decode_tokens, report.decode_seconds);
  status.drafted = report.drafts.drafted;
  status.accepted = report.drafts.accepted;
  status.tokens_per_pass =
      report.decode_passes == 0 ? 0.0 : static_cast<double>(report.decode_tokens) / report.decode_passes;
  status.context_used = report.context_used;
  status.context_size = context;
  status.ending = report.ending_note;
  status.cache_note = report.cache_note;
  write_stderr(dimmed(status_line(status, err_.columns())) + "\n");
}

}  // namespace carat::cli
