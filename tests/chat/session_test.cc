#include "chat/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "chat/demo_session.h"
#include "text/chat/conversation_json.h"
#include "text/grammar/compiled_grammar.h"
#include "text/grammar/grammar.h"
#include "text/grammar/schema/json_schema.h"

namespace carat::chat {
namespace {

using engine::TurnEnding;
using testing::HasSubstr;
using testing::IsEmpty;

using test::demo_session;
using Recorder = test::TurnRecorder;

TEST(ChatSession, ReadsOnlyWhatIsNew) {
  ChatSession session = demo_session();
  Recorder watcher;
  const TurnReport first = session.ask("My name is Clara.", watcher);
  EXPECT_EQ(first.result.ending, TurnEnding::kComplete);
  EXPECT_EQ(first.prompt_reused, 0u);
  EXPECT_THAT(first.cache_note, IsEmpty());
  EXPECT_THAT(first.ending_note, IsEmpty());
  const TurnReport second = session.ask("What is my name?", watcher);
  EXPECT_EQ(second.result.message.content.joined(), "Your name is Clara.");
  // The demo model's template ends a prompt with an empty thought that the history leaves out.
  EXPECT_GE(second.prompt_reused, first.prompt_new - 4);
  EXPECT_THAT(second.cache_note,
              HasSubstr("the last prompt ended with an empty thought, which the history leaves out"));
  EXPECT_EQ(session.conversation().messages.size(), 4u);
}

TEST(ChatSession, ReusesEverythingWhereTheTemplateAllowsIt) {
  ChatSession session = demo_session(2048, {}, text::ChatTemplate::from_source("", "<bos>", false));
  Recorder watcher;
  const TurnReport first = session.ask("My name is Clara.", watcher);
  const TurnReport second = session.ask("What is my name?", watcher);
  EXPECT_EQ(second.result.message.content.joined(), "Your name is Clara.");
  EXPECT_EQ(second.prompt_reused, first.context_used);
  EXPECT_THAT(second.cache_note, IsEmpty());
}

TEST(ChatSession, SaysWhyItReadsAgain) {
  ChatSession session = demo_session();
  Recorder watcher;
  session.ask("What is nginx?", watcher);
  EXPECT_THAT(session.regenerate(watcher).cache_note, IsEmpty());  // the prompt is the same
  EXPECT_EQ(session.conversation().messages.size(), 2u);
  session.set_system("Be brief.");
  EXPECT_THAT(session.ask("What is curl?", watcher).cache_note, HasSubstr("the system instructions were changed"));
  session.set_thinking(true);
  EXPECT_THAT(session.ask("What is 12 + 34?", watcher).cache_note, HasSubstr("thinking was switched"));
  EXPECT_THAT(session.ask("What is 21 + 43?", watcher).cache_note,
              HasSubstr("the thoughts of the last answer are not part of the history"));
  session.clear();
  EXPECT_THAT(session.ask("What is vim?", watcher).cache_note, HasSubstr("the conversation was cleared"));
  EXPECT_EQ(session.system(), "Be brief.");
}

TEST(ChatSession, SaysWhenTheSlidingWindowHasMovedOn) {
  ChatSession session = demo_session();
  session.options().turn.max_tokens = 4;
  Recorder watcher;
  session.ask(std::string(1500, 'a') + " What is nginx?", watcher);
  session.set_system("Be brief.");
  const TurnReport report = session.ask("What is curl?", watcher);
  EXPECT_EQ(report.prompt_reused, 0u);
  EXPECT_THAT(report.cache_note, HasSubstr("the sliding window had moved past"));
}

TEST(ChatSession, AConversationThatDoesNotFitIsNeverCutSilently) {
  ChatSession session = demo_session(96);
  Recorder watcher;
  session.ask("What is nginx?", watcher);
  size_t before = 0;
  try {
    for (int i = 0; i < 6; ++i) {
      before = session.conversation().messages.size();
      session.ask("My name is Clara. What is curl?", watcher);
    }
    FAIL() << "six turns fit into 96 tokens";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
    EXPECT_THAT(error.what(),
                HasSubstr("the context holds 96: start anew (/clear), give a larger -c, or --overflow shift"));
  }
  EXPECT_EQ(session.conversation().messages.size(), before);  // the question that failed is not kept
}

TEST(ChatSession, ShiftLeavesOutTheOldestTurnsAndSaysSo) {
  ChatSession::Options options;
  options.overflow = Overflow::kShift;
  ChatSession session = demo_session(160, options);
  session.set_system("Be brief.");
  Recorder watcher;
  for (int i = 0; i < 8; ++i) {
    const TurnReport report = session.ask("My name is Clara. What is my name?", watcher);
    EXPECT_NE(report.result.ending, TurnEnding::kContextFull);
  }
  EXPECT_THAT(watcher.notes, HasSubstr("oldest messages are left out from now on"));
  EXPECT_EQ(session.system(), "Be brief.");
  EXPECT_EQ(session.conversation().messages[1].role, text::Role::kUser);
  EXPECT_THROW(session.ask(std::string(4000, 'x'), watcher), Error);  // one message alone is too long
}

TEST(ChatSession, EndsThoughtsAtTheirBudget) {
  ChatSession::Options options;
  options.thinking = true;
  options.turn.think_budget = 6;
  ChatSession session = demo_session(1024, options);
  Recorder watcher;
  const TurnReport report = session.ask("What is 456 + 378?", watcher);
  EXPECT_EQ(report.result.ending, TurnEnding::kThoughtBudget);
  EXPECT_THAT(report.ending_note, HasSubstr("at their budget of 6 tokens (--think-budget)"));
  EXPECT_THAT(watcher.thoughts, HasSubstr("That is enough thought; now the answer."));
  EXPECT_THAT(watcher.answer, HasSubstr("456 + 378"));
  EXPECT_GT(watcher.thought_tokens, 5);
}

TEST(ChatSession, TellsALimitInsideTheThoughtsFromOneInTheAnswer) {
  ChatSession::Options options;
  options.turn.max_tokens = 4;
  ChatSession session = demo_session(1024, options);
  Recorder watcher;
  EXPECT_EQ(session.ask("What is nginx?", watcher).result.ending, TurnEnding::kLength);
  session.clear();
  session.set_thinking(true);
  const TurnReport report = session.ask("What is 456 + 378?", watcher);
  EXPECT_EQ(report.result.ending, TurnEnding::kThoughtsOnly);
  EXPECT_THAT(report.ending_note, HasSubstr("inside the thoughts, before an answer"));
}

TEST(ChatSession, StopsAModelThatRepeatsItself) {
  ChatSession session = demo_session(1024);
  const text::TokenId word =
      text::Tokenizer(test::demo_vocab()).encode("again", text::Tokenizer::Specials::kPlainText).front();
  session.options().turn.sampling.bias = {{word, 1000.0f}};
  Recorder watcher;
  const TurnReport report = session.ask("What is nginx?", watcher);
  EXPECT_EQ(report.result.ending, TurnEnding::kLoop);
  EXPECT_THAT(report.ending_note, HasSubstr("the model repeats itself"));
  EXPECT_LT(report.generated, 200u);
  session.options().turn.loop_guard = false;
  session.options().turn.max_tokens = 300;
  EXPECT_EQ(session.ask("What is nginx?", watcher).result.ending, TurnEnding::kLength);
}

TEST(ChatSession, CallsAToolAndGoesOnWithItsResult) {
  ChatSession session = demo_session(1024);
  session.set_tools(text::parse_tools(test::kWeatherTool, "tools"));
  Recorder watcher;
  const TurnReport called = session.ask("What is the weather in Paris?", watcher);
  ASSERT_EQ(called.result.ending, TurnEnding::kToolCalls);
  ASSERT_EQ(called.result.message.tool_calls.size(), 1u);
  const text::ToolCall& call = called.result.message.tool_calls.front();
  EXPECT_EQ(call.name, "get_weather");
  EXPECT_EQ(call.arguments, R"({"city":"Paris"})");
  text::Message result = {text::Role::kTool};
  result.tool_call_id = call.id;
  result.result_json = R"({"temperature": 21, "condition": "sunny"})";
  const TurnReport answered = session.go_on({result}, watcher);
  EXPECT_EQ(answered.result.ending, TurnEnding::kComplete);
  EXPECT_THAT(answered.result.message.content.joined(), HasSubstr("21"));
  EXPECT_GT(answered.prompt_reused, 0u);
}

TEST(ChatSession, AnAnswerObeysItsSchemaAlsoAfterThoughts) {
  ChatSession::Options options;
  options.turn.grammar = text::grammar::compile(
      text::grammar::grammar_from_json_schema(
          R"({"type": "object", "properties": {"sum": {"type": "integer"}, "ok": {"type": "boolean"}},
              "required": ["sum", "ok"], "additionalProperties": false})",
          text::grammar::JsonStyle::kSchema),
      test::demo_vocab());
  options.turn.max_tokens = 400;
  ChatSession session = demo_session(1024, options);
  Recorder plain;
  EXPECT_EQ(session.ask("What is 12 + 34?", plain).result.ending, TurnEnding::kComplete);
  EXPECT_THAT(plain.answer, testing::ContainsRegex(R"(^\{"sum": ?-?[0-9]+, ?"ok": ?(true|false)\}$)"));
  session.set_thinking(true);
  Recorder thoughtful;
  const TurnReport report = session.ask("What is 456 + 378?", thoughtful);
  EXPECT_EQ(report.result.ending, TurnEnding::kComplete);
  EXPECT_THAT(thoughtful.answer, testing::ContainsRegex(R"(^\{"sum": ?-?[0-9]+, ?"ok": ?(true|false)\}$)"));
  EXPECT_GT(thoughtful.thoughts.size(), 10u);
}

TEST(ChatSession, ARawTextKeepsItsMarks) {
  ChatSession session = demo_session();
  session.options().turn.max_tokens = 40;
  Recorder watcher;
  session.complete("<bos><|turn>system\n<|think|>\n<turn|>\n<|turn>user\nWhat is 456 + 378?<turn|>\n<|turn>model\n",
                   watcher);
  EXPECT_THAT(watcher.answer, HasSubstr("<|channel>thought\n"));
  EXPECT_THAT(watcher.thoughts, IsEmpty());
  EXPECT_TRUE(session.conversation().messages.empty());
}

TEST(ChatSession, ThereMustBeAQuestionToAnswerAgain) {
  ChatSession session = demo_session();
  Recorder watcher;
  EXPECT_THROW(session.regenerate(watcher), Error);
}

}  // namespace
}  // namespace carat::chat
