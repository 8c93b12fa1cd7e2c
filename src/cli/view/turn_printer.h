#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "chat/session.h"
#include "cli/view/markdown/markdown_view.h"
#include "cli/view/screen.h"
#include "cli/view/thought_view.h"

namespace carat::cli {

// Shows turns to a person or a pipe: the answer on standard output; thoughts, progress, calls and figures on standard
// error.
class TurnPrinter : public chat::TurnWatcher {
 public:
  struct Options {
    ShowThinking show_thinking = ShowThinking::kFull;
    bool markdown = false;    // where standard output is a terminal
    bool status = false;      // a line of figures after each turn
    bool print_calls = true;  // calls go to standard output as JSON, one a line, where nothing carries them out
  };

  TurnPrinter(Screen out, Screen err, Options options);

  Options& options() { return options_; }
  unsigned error_columns() const { return err_.columns(); }

  void note(std::string_view text) override;
  void reading(uint32_t done, uint32_t total, double seconds) override;
  void event(const text::OutputEvent& event, const engine::ChatTurn& turn) override;
  void thinking(const engine::ChatTurn& turn) override;

  // Ends what the turn has shown and says how it went. Must follow every turn that did not throw.
  void finish(const chat::TurnReport& report, uint32_t context);
  // Clears progress after a turn that threw.
  void abandon();

 private:
  void answer(std::string_view text);
  void end_thought(uint32_t tokens, double seconds);
  void show_call(const text::OutputEvent& call);
  void show_bad_call(const text::OutputEvent& call);
  void clear_progress();
  std::string dimmed(std::string_view text) const;

  Screen out_;
  Screen err_;
  Options options_;
  std::unique_ptr<AnswerView> answer_;    // while an answer is being written
  std::unique_ptr<ThoughtView> thought_;  // while a thought is
  std::chrono::steady_clock::time_point thought_began_;
  bool shows_progress_ = false;
  bool ends_line_ = true;  // the answer's last character was a newline, or there was none
};

}  // namespace carat::cli
