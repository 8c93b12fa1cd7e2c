#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "chat/session.h"
#include "chat/weather_tool.h"

namespace carat::test {

std::shared_ptr<const text::Vocab> demo_vocab();

// A conversation with the demo model on the CPU, greedy. Passes of 128 rows, so that a prompt is read in several.
chat::ChatSession demo_session(uint32_t context = 2048, chat::ChatSession::Options options = {});
chat::ChatSession demo_session(uint32_t context, chat::ChatSession::Options options, text::ChatTemplate chat_template);

// Keeps what a turn shows.
class TurnRecorder : public chat::TurnWatcher {
 public:
  void note(std::string_view text) override { notes += text; }
  void reading(uint32_t done, uint32_t total, double) override {
    EXPECT_LE(done, total);
    ++readings;
  }
  void event(const text::OutputEvent& event, const engine::ChatTurn&) override {
    (event.kind == text::OutputEvent::Kind::kThought ? thoughts : answer) += event.text;
  }
  void thinking(const engine::ChatTurn&) override { ++thought_tokens; }

  std::string notes, thoughts, answer;
  int readings = 0;
  int thought_tokens = 0;
};

}  // namespace carat::test
