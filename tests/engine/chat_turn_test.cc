// What becomes of the tokens of a turn: where it ends, why, and what of its text counts.
#include "engine/chat_turn.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "engine/runner/runner.h"
#include "engine/scripted_executor.h"
#include "engine/turn_walk.h"
#include "gguf/reader.h"
#include "support/files.h"
#include "text/demo_vocab.h"

namespace carat::engine {
namespace {

using test::demo_token;
using test::demo_tokens;
using test::Tokens;
using text::TokenId;
using text::test::demo_vocab;

const text::Tokenizer& tokenizer() {
  static const text::Tokenizer demo(demo_vocab());
  return demo;
}

// A turn that is given the tokens of texts.
class Turn {
 public:
  explicit Turn(TurnOptions options, std::string_view prompt = "<bos>")
      : turn_(tokenizer(), demo_vocab(), demo_tokens(prompt), std::move(options), [this](text::OutputEvent event) {
          if (event.kind == text::OutputEvent::Kind::kAnswer) {
            EXPECT_FALSE(event.text.empty());
            shown_ += event.text;
          } else {
            shown_ += event.kind == text::OutputEvent::Kind::kThought ? "(" + event.text + ")" : "{" + event.name + "}";
          }
        }) {}

  // False as soon as the turn wants no more.
  bool write(std::string_view text) {
    for (const TokenId token : demo_tokens(text)) {
      if (!turn_.append(token)) return false;
    }
    return true;
  }
  TurnResult finish(Ending ending, TokenId stop = -1) { return turn_.finish(ending, stop); }
  const std::string& shown() const { return shown_; }
  ChatTurn& turn() { return turn_; }

 private:
  std::string shown_;
  ChatTurn turn_;
};

TurnOptions with_stops(std::vector<std::string> stops) {
  TurnOptions options;
  options.stops = std::move(stops);
  return options;
}

TokenId turn_close() { return demo_token("<turn|>"); }

// --- stop texts ------------------------------------------------------------------------------------------------------

TEST(StopTexts, EndTheAnswerWhereverTokensEnd) {
  Turn turn(with_stops({"END OF IT", "never"}));
  EXPECT_TRUE(turn.write("Some text. END"));
  EXPECT_EQ(turn.shown(), "Some text. ");
  EXPECT_TRUE(turn.write(" OF"));
  EXPECT_EQ(turn.shown(), "Some text. ");
  EXPECT_FALSE(turn.write(" IT and more"));
  EXPECT_FALSE(turn.write("even more"));
  // The engine did not know, so the caller cancelled.
  const TurnResult result = turn.finish(Ending::kCancelled);
  EXPECT_EQ(result.ending, TurnEnding::kStopString);
  EXPECT_EQ(result.stopped_by, "END OF IT");
  EXPECT_EQ(result.stop_token, -1);
  EXPECT_EQ(result.message.content.joined(), "Some text. ");
  EXPECT_EQ(turn.shown(), "Some text. ");
}

TEST(StopTexts, WinOverWhateverElseEndedTheRequest) {
  for (const Ending ending : {Ending::kLength, Ending::kContextFull, Ending::kStopToken, Ending::kInterrupted}) {
    Turn turn(with_stops({"."}));
    EXPECT_FALSE(turn.write("One."));
    EXPECT_EQ(turn.finish(ending, turn_close()).ending, TurnEnding::kStopString);
  }
}

TEST(StopTexts, WhatOnlyBeganLikeOneIsHandedOutInTheEnd) {
  for (const Ending ending : {Ending::kStopToken, Ending::kLength, Ending::kCancelled}) {
    Turn turn(with_stops({"abc"}));
    EXPECT_TRUE(turn.write("x ab"));
    EXPECT_EQ(turn.shown(), "x ");
    const TurnResult result = turn.finish(ending, turn_close());
    EXPECT_EQ(result.message.content.joined(), "x ab");
    EXPECT_EQ(turn.shown(), "x ab");
    EXPECT_EQ(result.stopped_by, "");
    EXPECT_EQ(result.ending, ending == Ending::kStopToken ? TurnEnding::kComplete
                             : ending == Ending::kLength  ? TurnEnding::kLength
                                                          : TurnEnding::kInterrupted);
  }
}

TEST(StopTexts, AreNotLookedForInThoughtsAndCalls) {
  Turn turn(with_stops({"stop", "Paris"}));
  EXPECT_TRUE(turn.write("<|channel>thought\nI may stop in Paris.<channel|>"));
  EXPECT_TRUE(turn.write("<|tool_call>call:stop{city:<|\"|>Paris<|\"|>}<tool_call|>"));
  const TurnResult result = turn.finish(Ending::kStopToken, turn_close());
  EXPECT_EQ(result.ending, TurnEnding::kToolCalls);
  EXPECT_EQ(turn.shown().substr(turn.shown().size() - 6), "{stop}");
  EXPECT_EQ(result.message.reasoning, "I may stop in Paris.");

  Turn open(with_stops({"stop"}), "<bos><|channel>thought\n");
  EXPECT_TRUE(open.write("a stop<channel|>go on"));
  EXPECT_FALSE(open.write(" and stop"));
  EXPECT_EQ(open.shown(), "(a)( stop)go on and ");
}

// What is held back comes before what follows it, and a stop does not reach across.
TEST(StopTexts, DoNotReachAcrossThoughtsAndCalls) {
  Turn turn(with_stops({"abcd"}));
  EXPECT_TRUE(turn.write("xab<|channel>thought\nh<channel|>cd"));
  EXPECT_EQ(turn.shown(), "xab(h)cd");
  EXPECT_TRUE(turn.write(" ab<|tool_call>call:f{}<tool_call|>cd"));
  EXPECT_EQ(turn.shown(), "xab(h)cd ab{f}cd");
  EXPECT_EQ(turn.finish(Ending::kStopToken, turn_close()).message.content.joined(), "xabcd abcd");
}

TEST(StopTexts, AfterACallTheCallIsTheEnding) {
  Turn turn(with_stops({"stop"}));
  EXPECT_FALSE(turn.write("<|tool_call>call:f{}<tool_call|>now stop"));
  const TurnResult result = turn.finish(Ending::kCancelled);
  EXPECT_EQ(result.ending, TurnEnding::kToolCalls);
  EXPECT_EQ(result.stopped_by, "stop");
}

TEST(StopTexts, CountOnlyAfterTheLeastNumberOfTokens) {
  TurnOptions options = with_stops({"a"});
  options.is_raw = true;
  options.min_tokens = 4;
  Turn turn(options);
  const TokenId a = demo_token("a");
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(turn.turn().append(a));
  EXPECT_FALSE(turn.turn().append(a));
  EXPECT_EQ(turn.shown(), "aaaa");
  EXPECT_EQ(turn.finish(Ending::kCancelled).ending, TurnEnding::kStopString);
}

TEST(StopTexts, AreFoundInRawTurnsBetweenMarks) {
  TurnOptions options = with_stops({"<|channel>", "x"});
  options.is_raw = true;
  Turn turn(options);
  EXPECT_TRUE(turn.write("one<|tool_call>"));
  EXPECT_FALSE(turn.write("twox"));
  EXPECT_EQ(turn.finish(Ending::kCancelled).stopped_by, "x");
}

// --- stop tokens -----------------------------------------------------------------------------------------------------

TEST(StopTokens, ARequestsOwnIsToldFromTheVocabularys) {
  TurnOptions options;
  options.stop_tokens = {demo_token("a"), turn_close()};
  const auto result_of = [&](TokenId stop, std::string_view text = "word") {
    Turn turn(options);
    EXPECT_TRUE(turn.write(text));
    return turn.finish(Ending::kStopToken, stop);
  };
  EXPECT_EQ(result_of(demo_token("a")).ending, TurnEnding::kStopToken);
  EXPECT_EQ(result_of(demo_token("a")).stop_token, demo_token("a"));
  EXPECT_EQ(result_of(turn_close()).ending, TurnEnding::kComplete);
  EXPECT_EQ(result_of(turn_close()).stop_token, -1);
  EXPECT_EQ(result_of(demo_token("<eos>")).ending, TurnEnding::kComplete);
  // A call that was complete is one; a call that the token cut off is not.
  const std::string call = "<|tool_call>call:f{a:1}";
  EXPECT_EQ(result_of(demo_token("a"), call + "<tool_call|>").ending, TurnEnding::kToolCalls);
  EXPECT_EQ(result_of(demo_token("a"), call + "<tool_call|>").stop_token, demo_token("a"));
  EXPECT_EQ(result_of(demo_token("a"), call).ending, TurnEnding::kStopToken);
  EXPECT_EQ(result_of(demo_token("a"), call).bad_calls.size(), 1u);
  EXPECT_EQ(result_of(turn_close(), call).ending, TurnEnding::kToolCalls);
  options.ignore_stops = true;
  EXPECT_EQ(result_of(turn_close()).stop_token, turn_close());
}

TEST(ChatTurn, HandsTheRequestWhatConcernsTheEngine) {
  TurnOptions options;
  options.stop_tokens = {5, 6};
  options.logprobs = 3;
  options.max_tokens = 9;
  Turn turn(options);
  const Request request = turn.turn().take_request();
  EXPECT_EQ(request.stop_tokens, (Tokens{5, 6}));
  EXPECT_EQ(request.logprobs, 3u);
  EXPECT_EQ(request.max_tokens, 9u);
}

// --- thoughts that are ended from outside ----------------------------------------------------------------------------

class EndThoughts : public testing::Test {
 protected:
  // What follows a thought that was ended, and how many tokens were the model's.
  struct Guided {
    TurnResult result;
    size_t forced = 0;
  };
  // The model writes `text`; thoughts are ended before its token number `at`.
  Guided write(std::string_view text, size_t at, std::string_view prompt = "<bos>") {
    TurnOptions options;
    options.can_end_thoughts = true;
    Turn turn(options, prompt);
    const Request request = turn.turn().take_request();
    const Tokens tokens = demo_tokens(text);
    Guided guided;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i == at) turn.turn().end_thoughts();
      while (const auto forced = request.guide->forced()) {
        ++guided.forced;
        request.guide->accept(*forced);
        turn.turn().append(*forced);
      }
      EXPECT_TRUE(request.guide->allowed().empty());
      request.guide->accept(tokens[i]);
      turn.turn().append(tokens[i]);
    }
    guided.result = turn.finish(Ending::kStopToken, turn_close());
    return guided;
  }
};

TEST_F(EndThoughts, RoundsOffTheThoughtThatIsOpen) {
  const Guided guided = write("<|channel>thought\none two three", 5);
  EXPECT_GT(guided.forced, 3u);
  EXPECT_TRUE(guided.result.message.reasoning.ends_with("now the answer.")) << guided.result.message.reasoning;
  EXPECT_FALSE(guided.result.message.content.empty());
  EXPECT_EQ(guided.result.ending, TurnEnding::kComplete);  // that was wanted, and is no budget

  const Guided open = write("one two three", 1, "<bos><|channel>thought\n");
  EXPECT_TRUE(open.result.message.reasoning.ends_with("now the answer."));
  EXPECT_FALSE(open.result.message.content.empty());
}

TEST_F(EndThoughts, AThoughtThatHasJustBegunIsClosedAtOnce) {
  for (const size_t at : {size_t{0}, size_t{1}}) {  // before the mark, and right behind it
    const Guided guided = write("<|channel>answer", at);
    EXPECT_EQ(guided.result.message.reasoning, "");
    EXPECT_EQ(guided.result.message.content.joined(), "answer");
  }
}

TEST_F(EndThoughts, AnAnswerIsLeftAlone) {
  const Guided guided = write("<|channel>thought\nhm<channel|>the answer", 7);
  EXPECT_EQ(guided.forced, 0u);
  EXPECT_EQ(guided.result.message.reasoning, "hm");
  EXPECT_EQ(guided.result.message.content.joined(), "the answer");
}

TEST_F(EndThoughts, OnlyWhereItWasAskedFor) {
  Turn turn({});
  EXPECT_EQ(turn.turn().take_request().guide, nullptr);
  turn.turn().end_thoughts();
  TurnOptions options;
  options.think_budget = 100;
  Turn budgeted(options, "<bos><|channel>thought\n");
  budgeted.turn().end_thoughts();
  EXPECT_EQ(budgeted.turn().take_request().guide->forced(), std::nullopt);
}

// Ends the thoughts of a turn from another thread than the engine's, as soon as there is one.
class ThoughtEnder : public RequestSink {
 public:
  explicit ThoughtEnder(ChatTurn& turn) : turn_(turn) {}

  void update(const RequestUpdate& update) override {
    std::unique_lock lock(mutex_);
    for (const TokenId token : update.tokens) turn_.append(token);
    if (update.end != nullptr) result_ = turn_.finish(update.end->ending, update.end->stop_token);
    is_thinking_ |= turn_.in_thought();
    changed_.notify_all();
    changed_.wait(lock, [this] { return !is_thinking_ || is_told_; });
  }
  void run() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_thinking_; });
    turn_.end_thoughts();
    is_told_ = true;
    changed_.notify_all();
  }
  TurnResult result() {
    const std::lock_guard lock(mutex_);
    return std::move(result_);
  }

 private:
  ChatTurn& turn_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_thinking_ = false, is_told_ = false;
  TurnResult result_;
};

TEST_F(EndThoughts, FromAnotherThreadWhileTheRequestRuns) {
  const auto model = model::Model::load(gguf::ModelFile::open(test::model_path("demo-e-q8_0.gguf")));
  const Tokens prompt = demo_tokens("<bos>Hi");
  Tokens script = prompt;
  for (const TokenId token : demo_tokens("<|channel>thought\n")) script.push_back(token);
  script.resize(200, demo_token("a"));
  script.push_back(turn_close());
  exec::ExecutorOptions executor_options;
  executor_options.context = static_cast<uint32_t>(script.size());
  executor_options.sequences = executor_options.chunk = executor_options.outputs = 1;
  double seconds = 0.0;
  Runner runner(Engine(std::make_unique<test::ScriptedExecutor>(
                           model, executor_options, script, [](uint32_t) { return 0.0; }, &seconds),
                       demo_vocab()));
  TurnOptions options;
  options.can_end_thoughts = true;
  options.loop_guard = false;
  ChatTurn turn(tokenizer(), demo_vocab(), prompt, options, [](const text::OutputEvent&) {});
  const auto ender = std::make_shared<ThoughtEnder>(turn);
  std::thread other([&] { ender->run(); });
  runner.submit(turn.take_request(), ender);
  runner.drain();
  runner.wait();
  other.join();
  const TurnResult result = ender->result();
  EXPECT_EQ(result.ending, TurnEnding::kComplete);
  // The first token of the thought was told of; the next one already closes it.
  EXPECT_EQ(result.message.reasoning, "");
  EXPECT_GT(result.message.content.joined().size(), 150u);
}

}  // namespace
}  // namespace carat::engine
