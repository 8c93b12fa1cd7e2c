#include "engine/cache/resume_points.h"

#include <gtest/gtest.h>

#include "text/chat/chat_format.h"
#include "text/demo_vocab.h"
#include "text/tokenizer/detokenizer.h"

namespace carat::engine {
namespace {

struct Found {
  MarkKind kind;
  std::string before;  // the end of the text before it
  bool operator==(const Found&) const = default;
};

std::vector<Found> points_of(const text::Conversation& conversation) {
  const auto vocab = text::test::demo_vocab();
  const text::Tokenizer tokenizer(vocab);
  text::ChatOptions options;
  options.empty_thought_block = true;
  const auto prompt = text::encode_prompt(tokenizer, text::render_chat(conversation, options));
  std::vector<Found> found;
  for (const ResumePoint& point : resume_points_of(prompt, *vocab)) {
    std::string before = text::decode(vocab, std::span(prompt).first(point.position), true);
    found.push_back({point.kind, before.substr(before.size() - std::min<size_t>(before.size(), 21))});
  }
  return found;
}

text::Message message(text::Role role, std::string content) {
  text::Message result;
  result.role = role;
  result.content = std::move(content);
  return result;
}

TEST(ResumePoints, BehindTheSystemTurnAndTheHeaderOfTheModelsTurn) {
  text::Conversation conversation;
  conversation.messages = {message(text::Role::kSystem, "Be brief."), message(text::Role::kUser, "One?"),
                           message(text::Role::kModel, "1"), message(text::Role::kUser, "Two, please?")};
  EXPECT_EQ(points_of(conversation), (std::vector<Found>{{MarkKind::kSystem, "tem\nBe brief.<turn|>\n"},
                                                         {MarkKind::kTurn, "<turn|>\n<|turn>model\n"}}));
}

TEST(ResumePoints, WithoutASystemTurnThereIsOne) {
  text::Conversation conversation;
  conversation.messages = {message(text::Role::kUser, "One, please?")};
  EXPECT_EQ(points_of(conversation), (std::vector<Found>{{MarkKind::kTurn, "<turn|>\n<|turn>model\n"}}));
}

TEST(ResumePoints, TextWithoutTurnsHasNone) {
  const auto vocab = text::test::demo_vocab();
  EXPECT_TRUE(resume_points_of(text::Tokenizer(vocab).encode("What is nginx?"), *vocab).empty());
  EXPECT_TRUE(resume_points_of({}, *vocab).empty());
}

}  // namespace
}  // namespace carat::engine
