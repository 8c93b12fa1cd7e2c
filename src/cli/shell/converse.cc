#include "cli/shell/converse.h"

#include <fmt/format.h>

#include <iostream>
#include <optional>

#include "base/error.h"
#include "cli/exit_codes.h"
#include "cli/interrupts.h"
#include "cli/shell/line_editor.h"
#include "cli/shell/slash_commands.h"
#include "cli/shell/terminal_guard.h"
#include "cli/shell/tool_desk.h"
#include "cli/terminal.h"
#include "cli/view/markdown/markdown_layout.h"
#include "cli/view/sanitise.h"
#include "cli/view/styled_text.h"
#include "cli/view/turn_printer.h"

namespace carat::cli {

namespace {

using engine::TurnEnding;

// A turn of the model may call tools this often before the user is asked to step in: a model that never stops calling
// is stuck.
constexpr int kMostRounds = 16;

Screen screen_of(int descriptor, const TalkFlags& talk) {
  return Screen::of(descriptor, parse_colour_choice(talk.colour));
}

ToolDesk::Options desk_options(const ChatFlags& flags) {
  ToolDesk::Options options;
  if (!flags.tool_exec.empty()) options.command = chat::split_command(flags.tool_exec);
  options.limits.timeout = std::chrono::milliseconds(static_cast<int64_t>(flags.tool_timeout * 1000.0));
  options.without_asking = flags.tool_yes;
  return options;
}

// One session with everything around it.
class Talk {
 public:
  Talk(const ChatFlags& chat, const TalkFlags& talk, ToolDesk::Ask ask)
      : out_(screen_of(1, talk)),
        err_(screen_of(2, talk)),
        log_(make_logger(chat.model.verbose)),
        desk_(desk_options(chat), std::move(ask)),
        printer_(out_, err_, printer_options(chat, talk)),
        session_(chat.open(log_)) {}

  chat::ChatSession& session() { return session_; }
  TurnPrinter& printer() { return printer_; }
  SessionTotals& totals() { return totals_; }

  TurnEnding ask(const std::string& text) {
    return with_tools(turn([&] { return session_.ask(text, printer_); }));
  }
  TurnEnding regenerate() {
    return with_tools(turn([&] { return session_.regenerate(printer_); }));
  }
  TurnEnding complete(const std::string& text) {
    return turn([&] { return session_.complete(text, printer_); }).result.ending;
  }

 private:
  TurnPrinter::Options printer_options(const ChatFlags& chat, const TalkFlags& talk) const {
    TurnPrinter::Options options;
    options.show_thinking = parse_show_thinking(chat.show_thinking);
    options.markdown = !talk.raw_output && markdown_available();
    options.status = err_.is_terminal || chat.model.verbose;
    options.print_calls = chat.tool_exec.empty() && !stdin_is_terminal();
    return options;
  }

  template <typename Run>
  chat::TurnReport turn(Run run) {
    const SilentKeys silent(0);
    try {
      chat::TurnReport report = stoppable(run);
      printer_.finish(report, session_.context());
      totals_.add(report);
      return report;
    } catch (...) {
      printer_.abandon();
      throw;
    }
  }

  // Ctrl-C ends the turn, and not the program.
  template <typename Run>
  static chat::TurnReport stoppable(Run run) {
    const Stoppable stoppable;
    return run();
  }

  // Carries out what the model calls and lets it go on, until it answers.
  TurnEnding with_tools(chat::TurnReport report) {
    for (int round = 0; report.result.ending == TurnEnding::kToolCalls; ++round) {
      if (round == kMostRounds) {
        printer_.note(fmt::format("the model called functions {} times in a row; its calls stay pending", kMostRounds));
        break;
      }
      auto results = desk_.carry_out(report.result.message.tool_calls);
      if (!results) break;
      report = turn([&] { return session_.go_on(std::move(*results), printer_); });
    }
    return report.result.ending;
  }

  Screen out_;
  Screen err_;
  Logger log_;
  ToolDesk desk_;
  TurnPrinter printer_;
  chat::ChatSession session_;
  SessionTotals totals_;
};

void greet(const chat::ChatSession& session, unsigned columns) {
  const std::string& name = session.runner().model().config().name;
  const bool thinks = session.options().thinking;
  const std::string text = fmt::format(
      "{} on {}, context {} tokens. Thinking is {}. /help lists commands; Ctrl-C stops an answer, Ctrl-D "
      "leaves.",
      name.empty() ? "Gemma 4" : sanitise(name), session.runner().executor_name(), session.context(),
      thinks ? "on" : "off (/think on)");
  for (const std::string& line : wrap_plain(text, columns)) write_stderr(line + "\n");
}

// The lines of a person or a pipe, and what they do.
class Loop {
 public:
  Loop(const ChatFlags& chat, const TalkFlags& talk)
      : typed_(stdin_is_terminal()),
        takes_commands_(typed_ || talk.commands),
        editor_(editor_options(talk)),
        talk_(chat, talk, [this](std::string_view question) { return ask_person(question); }),
        commands_(talk_.session(), talk_.printer(), talk_.totals()),
        load_(talk.load) {}

  TurnEnding run() {
    if (typed_) greet(talk_.session(), talk_.printer().error_columns());
    if (!load_.empty()) commands_.carry_out("/load " + load_);
    std::string line;
    bool is_leaving = false;  // after one Ctrl-C at the prompt
    while (true) {
      const LineEditor::Read read = editor_.read(typed_ ? "> " : "", line);
      if (read == LineEditor::Read::kEnd) break;
      if (read == LineEditor::Read::kInterrupted) {
        if (is_leaving) break;
        write_stderr("Ctrl-C again, Ctrl-D or /exit leaves.\n");
        is_leaving = true;
        continue;
      }
      is_leaving = false;
      if (line.empty()) continue;
      if (!take(line)) break;
    }
    return ending_;
  }

 private:
  LineEditor::Options editor_options(const TalkFlags& talk) const {
    LineEditor::Options options;
    if (talk.keep_history) options.history_file = default_history_file();
    options.complete = &SlashCommands::complete;
    return options;
  }

  // A line from a pipe was not written as an answer to the question, so it counts for none.
  std::optional<std::string> ask_person(std::string_view question) {
    std::string line;
    if (!typed_ || editor_.ask(question, line) != LineEditor::Read::kLine) return std::nullopt;
    return line;
  }

  // False: leave.
  bool take(const std::string& line) {
    try {
      if (takes_commands_ && !editor_.was_quoted() && SlashCommands::is_command(line)) {
        switch (commands_.carry_out(line)) {
          case CommandEffect::kLeave:
            return false;
          case CommandEffect::kDone:
            return true;
          case CommandEffect::kRegenerate:
            ending_ = talk_.regenerate();
        }
      } else {
        ending_ = talk_.ask(line);
      }
    } catch (const Error& error) {
      if (!typed_ || (error.code() != ErrorCode::kBadArgument && error.code() != ErrorCode::kIo)) throw;
      write_message(fmt::format("carat: error: {}", error.what()));
      return true;
    }
    if (ending_ == TurnEnding::kInterrupted && !typed_) fail(ErrorCode::kInterrupted, "interrupted");
    return true;
  }

  bool typed_;
  bool takes_commands_;
  LineEditor editor_;
  Talk talk_;
  SlashCommands commands_;
  std::string load_;
  TurnEnding ending_ = TurnEnding::kComplete;
};

// For a single question there is no line of input to answer with, unless a person sits at the terminal.
std::optional<std::string> ask_terminal(std::string_view question) {
  if (!stdin_is_terminal() || !stderr_is_terminal()) return std::nullopt;
  write_stderr(question);
  std::string line;
  if (!std::getline(std::cin, line)) return std::nullopt;
  return line;
}

// How an answer ended. Interruption and failure are errors.
ExitCode exit_code(TurnEnding ending) {
  switch (ending) {
    case TurnEnding::kComplete:
    case TurnEnding::kStopString:
    case TurnEnding::kStopToken:
      return kSuccess;
    case TurnEnding::kToolCalls:
      return kCallsPending;
    case TurnEnding::kLength:
      return kAnswerCutOff;
    case TurnEnding::kThoughtsOnly:
    case TurnEnding::kThoughtBudget:
      return kThoughtBudgetSpent;
    case TurnEnding::kContextFull:
      return kContextIsFull;
    case TurnEnding::kLoop:
      return kLoopDetected;
    case TurnEnding::kInterrupted:
      return kStopped;
    case TurnEnding::kFailed:
      break;
  }
  return kInternalError;
}

TalkFlags raw_talk() {
  TalkFlags talk;
  talk.raw_output = true;
  return talk;
}

}  // namespace

void TalkFlags::add_to(CLI::App& command) {
  command.add_option("--color", colour, "colours; auto: on a terminal, unless NO_COLOR is set")
      ->type_name("auto|always|never")
      ->capture_default_str();
}

TurnEnding converse(const ChatFlags& chat, const TalkFlags& talk) {
  const TurnEnding ending = Loop(chat, talk).run();
  // Who was there has seen how each turn ended.
  return stdin_is_terminal() ? TurnEnding::kComplete : ending;
}

TurnEnding answer_once(const ChatFlags& chat, const TalkFlags& talk, const std::string& message) {
  return Talk(chat, talk, ask_terminal).ask(message);
}

TurnEnding complete_once(const ChatFlags& chat, const std::string& text) {
  return Talk(chat, raw_talk(), ask_terminal).complete(text);
}

TurnEnding complete_lines(const ChatFlags& chat) {
  Talk talk(chat, raw_talk(), ask_terminal);
  TurnEnding ending = TurnEnding::kComplete;
  std::string line;
  while (ending != TurnEnding::kInterrupted && std::getline(std::cin, line)) {
    if (!line.empty()) ending = talk.complete(line);
  }
  return ending;
}

void exit_with(TurnEnding ending) {
  if (ending == TurnEnding::kInterrupted) fail(ErrorCode::kInterrupted, "interrupted");
  if (const ExitCode code = exit_code(ending); code != kSuccess) throw CLI::RuntimeError(code);
}

}  // namespace carat::cli
