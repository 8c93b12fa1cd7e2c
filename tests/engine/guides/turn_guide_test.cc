// What a turn's guide lets a model do, whatever the model would rather do.
#include "engine/guides/turn_guide.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "engine/turn_walk.h"
#include "text/demo_vocab.h"
#include "text/grammar/schema/json_schema.h"
#include "text/grammar/schema_validity.h"
#include "text/vocab_builder.h"

namespace carat::engine {
namespace {

using Json = nlohmann::ordered_json;
using test::demo_token;
using test::Moment;
using test::walk;
using test::Walk;
using test::WalkPlan;
using text::TokenId;
using text::grammar::TokenMask;

constexpr uint64_t kWalks = 25;

std::shared_ptr<const text::grammar::TokenTrie> demo_trie() {
  static const auto trie = std::make_shared<const text::grammar::TokenTrie>(text::test::demo_vocab());
  return trie;
}

std::shared_ptr<const text::grammar::CompiledGrammar> gbnf(std::string_view source) {
  return text::grammar::compile(text::grammar::parse_gbnf(source), demo_trie());
}

const std::string kPersonSchema =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":8},"age":{"type":"integer","maximum":99,)"
    R"("minimum":0}},"required":["name","age"],"additionalProperties":false})";

std::shared_ptr<const text::grammar::CompiledGrammar> person() {
  static const auto grammar =
      text::grammar::compile(text::grammar::grammar_from_json_schema(kPersonSchema), demo_trie());
  return grammar;
}

// By name; "get" is the beginning of "get_more".
const std::map<std::string, std::string>& parameters() {
  static const std::map<std::string, std::string> all = {
      {"get",
       R"({"type":"object","properties":{"place":{"type":"string","maxLength":9},)"
       R"("days":{"type":"integer","minimum":1,"maximum":7}},"required":["place"],"additionalProperties":false})"},
      {"get_more", R"({"type":"object","properties":{"unit":{"enum":["c","f"]}},"required":["unit"],)"
                   R"("additionalProperties":false})"},
      {"stop_it", R"({"type":"object","properties":{}})"}};
  return all;
}

std::vector<text::CallableTool> tools(const std::vector<std::string>& names) {
  std::vector<text::CallableTool> result;
  for (const std::string& name : names) {
    const Json json = {{"type", "function"},
                       {"function", {{"name", name}, {"parameters", Json::parse(parameters().at(name))}}}};
    result.push_back(text::callable_tool({name, json.dump()}, demo_trie()));
    EXPECT_EQ(result.back().problem, "");
  }
  return result;
}

CallRules rules(CallRules::Mode mode, const std::vector<std::string>& names = {}, bool is_parallel = true) {
  return {mode, is_parallel, tools(names)};
}

bool allows_a_stop(const TokenMask& mask) {
  const auto& stops = text::test::demo_vocab()->stops();
  return std::any_of(stops.begin(), stops.end(), [&](TokenId stop) { return mask.allows(stop); });
}

TokenMask without_stops(TokenMask mask) {
  for (const TokenId stop : text::test::demo_vocab()->stops()) mask.clear(stop);
  return mask;
}

void expect_valid_calls(const Walk& each) {
  for (const text::ToolCall& call : each.result.message.tool_calls) {
    EXPECT_EQ(text::grammar::test::violation(Json::parse(parameters().at(call.name)), Json::parse(call.arguments)), "")
        << call.arguments;
  }
}

// --- an answer with a grammar ----------------------------------------------------------------------------------------

TEST(TurnGuide, AnAnswerFollowsItsGrammarAfterAThoughtOrWithout) {
  size_t with_thought = 0;
  for (uint64_t seed = 1; seed <= kWalks; ++seed) {
    WalkPlan plan{.likings = {{"<|channel>", 0.5}, {"<channel|>", 0.05}, {"<turn|>", 0.5}, {"<|tool_call>", 0.3}}};
    plan.seed = seed;
    plan.watch = [](const Moment& moment) {
      if (moment.turn.in_thought()) {
        EXPECT_FALSE(allows_a_stop(moment.allowed));
      }
      EXPECT_FALSE(moment.allowed.allows(demo_token("<|tool_call>")));  // no tools
    };
    TurnOptions options;
    options.grammar = person();
    const Walk each = walk(options, plan);
    ASSERT_TRUE(each.has_stopped);
    EXPECT_EQ(each.result.ending, TurnEnding::kComplete);
    const std::string content = each.result.message.content.joined();
    ASSERT_TRUE(Json::accept(content)) << content;
    EXPECT_EQ(text::grammar::test::violation(Json::parse(kPersonSchema), Json::parse(content)), "") << content;
    EXPECT_LE(each.count(demo_token("<|channel>")), 1u);
    with_thought += each.count(demo_token("<|channel>"));
  }
  EXPECT_GT(with_thought, 3u);
  EXPECT_LT(with_thought, kWalks);
}

TEST(TurnGuide, ThoughtsCanBeRuledOut) {
  TurnOptions options;
  options.grammar = person();
  options.may_think = false;
  EXPECT_EQ(walk(options, {.likings = {{"<|channel>", 1.0}}}).events, "a");
  options.grammar = nullptr;
  options.calls = rules(CallRules::Mode::kRequired, {"get"});
  EXPECT_EQ(walk(options, {.likings = {{"<|channel>", 1.0}, {"<turn|>", 1.0}}}).events, "c");
}

TEST(TurnGuide, CallsMayComeInPlaceOfAnAnswer) {
  size_t called = 0, answered = 0;
  for (uint64_t seed = 1; seed <= kWalks; ++seed) {
    WalkPlan plan{.likings = {{"<|tool_call>", 0.4}, {"<tool_call|>", 0.2}}};
    plan.seed = seed;
    TurnOptions options;
    options.grammar = person();
    options.tools = {"get"};
    const Walk each = walk(options, plan);
    ASSERT_TRUE(each.has_stopped);
    if (each.count(demo_token("<|tool_call>")) > 0) {  // whatever is in it: nobody holds it to anything
      ++called;
      EXPECT_TRUE(each.result.message.content.empty());
    } else {
      ++answered;
      EXPECT_TRUE(Json::accept(each.result.message.content.joined()));
    }
  }
  EXPECT_GT(called, 3u);
  EXPECT_GT(answered, 3u);

  TurnOptions options;
  options.grammar = person();
  options.calls = rules(CallRules::Mode::kFree, {"get"});
  for (uint64_t seed = 1; seed <= kWalks; ++seed) {
    WalkPlan plan{.likings = {{"<|tool_call>", 0.4}}};
    plan.seed = seed;
    const Walk each = walk(options, plan);
    ASSERT_TRUE(each.has_stopped);
    EXPECT_EQ(each.result.message.content.empty(), !each.result.message.tool_calls.empty());
    expect_valid_calls(each);
  }
}

// A token of the grammar's own text may be one that the request wants to stop at.
TEST(TurnGuide, AnUnfinishedAnswerCannotStop) {
  for (uint64_t seed = 1; seed <= kWalks; ++seed) {
    WalkPlan plan{.likings = {{"}", 0.5}, {"a", 0.5}, {"<pad>", 0.5}, {"<eos>", 0.5}}};
    plan.seed = seed;
    TurnOptions options;
    options.grammar = person();
    options.stop_tokens = {demo_token("a"), demo_token("<pad>")};
    const Walk each = walk(options, plan);
    ASSERT_TRUE(each.has_stopped);
    EXPECT_TRUE(Json::accept(each.result.message.content.joined())) << each.result.message.content.joined();
    const bool by_own = each.tokens.back() == demo_token("<pad>") || each.tokens.back() == demo_token("a");
    EXPECT_EQ(each.result.ending, by_own ? TurnEnding::kStopToken : TurnEnding::kComplete);
  }
}

TEST(TurnGuide, WhatFollowsAnIgnoredStopIsFree) {
  TurnOptions options;
  options.grammar = gbnf("root ::= \"yes\"");
  options.ignore_stops = true;
  const Walk each = walk(options, {.likings = {{"<|channel>", 0.1}}, .max_tokens = 40});
  EXPECT_EQ(each.tokens.size(), 40u);
  EXPECT_EQ(each.result.message.content.joined().substr(0, 3), "yes");
}

TEST(TurnGuide, ARawTurnBeginsItsGrammarAtOnce) {
  TurnOptions options;
  options.grammar = gbnf("root ::= \"yes\" | \"no\"");
  options.is_raw = true;
  options.think_budget = 3;
  for (const std::string prompt : {"<bos>Is it?", "<bos><|channel>thought\nhm"}) {
    const Walk each = walk(options, {.prompt = prompt, .likings = {{"<|channel>", 1.0}, {"<|tool_call>", 1.0}}});
    const std::string content = each.result.message.content.joined();
    EXPECT_TRUE(content == "yes" || content == "no") << content;
    EXPECT_TRUE(each.result.message.reasoning.empty());
  }
  // Without one it is free, whatever is said of calls.
  options.grammar = nullptr;
  options.think_budget.reset();
  options.calls = rules(CallRules::Mode::kForbidden);
  const Walk free = walk(options, {.likings = {{"<|tool_call>", 1.0}}, .max_tokens = 5});
  EXPECT_EQ(free.count(demo_token("<|tool_call>")), 5u);
}

// --- calls -----------------------------------------------------------------------------------------------------------

TEST(TurnGuide, ForbiddenCallsNeverBegin) {
  const TokenId open = demo_token("<|tool_call>");
  for (const bool has_grammar : {false, true}) {
    for (uint64_t seed = 1; seed <= kWalks; ++seed) {
      size_t in_thought = 0;
      WalkPlan plan{.likings = {{"<|tool_call>", 1.0}, {"<|channel>", 0.3}, {"<channel|>", 0.1}}};
      plan.seed = seed;
      plan.watch = [&](const Moment& moment) {
        EXPECT_FALSE(moment.allowed.allows(open));
        in_thought += moment.turn.in_thought() ? 1 : 0;
        if (!has_grammar && !moment.turn.in_thought()) {
          EXPECT_TRUE(allows_a_stop(moment.allowed));
        }
      };
      TurnOptions options;
      if (has_grammar) options.grammar = person();
      options.tools = {"get"};
      options.calls = rules(CallRules::Mode::kForbidden, {"get"});
      const Walk each = walk(options, plan);
      EXPECT_TRUE(each.has_stopped);
      EXPECT_EQ(each.events.find_first_of("cb"), std::string::npos);
    }
  }
}

TEST(TurnGuide, ARequiredCallFollowsAndNothingElse) {
  std::set<std::string> called;
  size_t several = 0, with_thought = 0;
  for (uint64_t seed = 1; seed <= 3 * kWalks; ++seed) {
    WalkPlan plan{.likings = {{"<turn|>", 0.8}, {"<|channel>", 0.3}, {"<channel|>", 0.1}, {"<|tool_call>", 0.2}}};
    plan.seed = seed;
    plan.watch = [](const Moment& moment) {
      const auto& so_far = moment.tokens;
      const bool after_call = !so_far.empty() && so_far.back() == demo_token("<tool_call|>");
      EXPECT_EQ(allows_a_stop(moment.allowed), after_call);
    };
    TurnOptions options;
    options.calls = rules(CallRules::Mode::kRequired, {"get", "get_more", "stop_it"});
    const Walk each = walk(options, plan);
    ASSERT_TRUE(each.has_stopped);
    EXPECT_EQ(each.result.ending, TurnEnding::kToolCalls);
    ASSERT_FALSE(each.result.message.tool_calls.empty());
    EXPECT_TRUE(each.result.bad_calls.empty());
    EXPECT_TRUE(each.result.message.content.empty());
    expect_valid_calls(each);
    for (const text::ToolCall& call : each.result.message.tool_calls) called.insert(call.name);
    several += each.result.message.tool_calls.size() > 1 ? 1 : 0;
    with_thought += each.result.message.reasoning.empty() ? 0 : 1;
  }
  EXPECT_EQ(called, (std::set<std::string>{"get", "get_more", "stop_it"}));
  EXPECT_GT(several, 0u);
  EXPECT_GT(with_thought, 5u);
  EXPECT_LT(with_thought, 3 * kWalks);
}

TEST(TurnGuide, OnlyToolsOfTheRulesAreCalled) {
  std::set<std::string> called;
  for (uint64_t seed = 1; seed <= kWalks; ++seed) {
    WalkPlan plan{.likings = {{"<|tool_call>", 0.7}}};
    plan.seed = seed;
    TurnOptions options;
    options.tools = {"get", "get_more", "stop_it"};
    options.calls = rules(CallRules::Mode::kFree, {"get", "get_more"});
    const Walk each = walk(options, plan);
    EXPECT_TRUE(each.result.bad_calls.empty());
    expect_valid_calls(each);
    for (const text::ToolCall& call : each.result.message.tool_calls) called.insert(call.name);
  }
  EXPECT_EQ(called, (std::set<std::string>{"get", "get_more"}));
}

TEST(TurnGuide, AFreeTurnMayAnswerOrCall) {
  std::set<std::string> events;
  for (uint64_t seed = 1; seed <= 2 * kWalks; ++seed) {
    WalkPlan plan{.likings = {{"<|tool_call>", 0.1}, {"<|channel>", 0.05}, {"<channel|>", 0.2}}};
    plan.seed = seed;
    TurnOptions options;
    options.calls = rules(CallRules::Mode::kFree, {"get", "stop_it"});
    const Walk each = walk(options, plan);
    EXPECT_TRUE(each.result.bad_calls.empty());
    expect_valid_calls(each);
    events.insert(each.events);
  }
  for (const std::string seen : {"a", "ac", "c"}) EXPECT_TRUE(events.contains(seen)) << seen;
}

TEST(TurnGuide, OneCallEndsATurnThatIsNotParallel) {
  const std::vector<std::vector<std::string>> cases = {{}, {"get", "stop_it"}};
  for (const auto& names : cases) {
    size_t called = 0;
    for (uint64_t seed = 1; seed <= kWalks; ++seed) {
      WalkPlan plan{.likings = {{"<tool_call|>", 0.2}, {"<|tool_call>", 0.8}, {"<|turn>", 0.3}, {"<|channel>", 0.3}}};
      plan.seed = seed;
      plan.watch = [](const Moment& moment) {
        if (moment.tokens.empty() || moment.tokens.back() != demo_token("<tool_call|>")) return;
        if (std::count(moment.tokens.begin(), moment.tokens.end(), demo_token("<|tool_call>")) == 0) return;
        EXPECT_TRUE(without_stops(moment.allowed).empty());
        EXPECT_FALSE(moment.allowed.empty());
      };
      TurnOptions options;
      options.calls = rules(names.empty() ? CallRules::Mode::kFree : CallRules::Mode::kRequired, names, false);
      const Walk each = walk(options, plan);
      EXPECT_LE(each.count(demo_token("<|tool_call>")), 1u);
      EXPECT_LE(each.result.message.tool_calls.size(), 1u);
      called += each.count(demo_token("<|tool_call>"));
    }
    EXPECT_GT(called, kWalks / 2);
  }
}

TEST(TurnGuide, AToolThatCannotBeCalledIsRefused) {
  TurnOptions options;
  options.calls = {
      CallRules::Mode::kRequired, true, {text::callable_tool({"two words", R"({"name":"two words"})"}, demo_trie())}};
  EXPECT_THROW(walk(options, {}), Error);
}

// --- thoughts --------------------------------------------------------------------------------------------------------

TEST(TurnGuide, AThoughtOpenInThePromptGoesOn) {
  const std::string prompt = "<bos><|turn>model\n<|channel>thought\n";
  for (uint64_t seed = 1; seed <= kWalks; ++seed) {
    WalkPlan plan{.prompt = prompt, .likings = {{"<channel|>", 0.2}, {"<turn|>", 0.9}}};
    plan.seed = seed;
    TurnOptions options;
    options.grammar = person();
    const Walk answered = walk(options, plan);
    EXPECT_TRUE(Json::accept(answered.result.message.content.joined()));
    EXPECT_EQ(answered.count(demo_token("<channel|>")), 1u);
    options.grammar = nullptr;
    options.calls = rules(CallRules::Mode::kRequired, {"stop_it"});
    EXPECT_EQ(walk(options, plan).result.ending, TurnEnding::kToolCalls);
  }
}

TEST(TurnGuide, AThoughtThatThePromptClosedIsNotOpenedAgain) {
  TurnOptions options;
  options.calls = rules(CallRules::Mode::kRequired, {"stop_it"});
  const Walk each = walk(options, {.prompt = "<bos><|turn>model\n<|channel>thought\n<channel|>",
                                   .likings = {{"<|channel>", 1.0}, {"<turn|>", 1.0}}});
  EXPECT_EQ(each.tokens.front(), demo_token("<|tool_call>"));
  EXPECT_EQ(each.events, "c");
}

TEST(TurnGuide, ThoughtsEndAtTheirBudget) {
  for (const bool must_call : {false, true}) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      WalkPlan plan{.likings = {{"<|channel>", 1.0}, {"a", 0.9}, {"<channel|>", 0.0}}, .free_tokens = 60};
      plan.seed = seed;
      TurnOptions options;
      options.think_budget = 6;
      if (must_call) {
        options.calls = rules(CallRules::Mode::kRequired, {"get"});
      } else {
        options.grammar = person();
      }
      const Walk each = walk(options, plan);
      ASSERT_TRUE(each.has_stopped);
      // Chance alone may close the thought before.
      if (each.result.thought_tokens >= 6) {
        EXPECT_TRUE(each.result.message.reasoning.ends_with("now the answer.")) << each.result.message.reasoning;
        EXPECT_LT(each.result.thought_tokens, 30u);
        EXPECT_EQ(each.result.ending, must_call ? TurnEnding::kToolCalls : TurnEnding::kThoughtBudget);
      }
    }
  }
}

// A call may begin where a thought has not been closed; what is in it are no thoughts.
TEST(TurnGuide, ACallOutOfAThoughtIsNotCutByTheBudget) {
  TurnOptions options;
  options.think_budget = 3;
  options.calls = rules(CallRules::Mode::kRequired, {"get"}, false);
  for (uint64_t seed = 1; seed <= kWalks; ++seed) {
    WalkPlan plan{.prompt = "<bos><|turn>model\n<|channel>thought\n", .likings = {{"<|tool_call>", 1.0}}};
    plan.seed = seed;
    plan.max_tokens = 100;
    const Walk each = walk(options, plan);
    EXPECT_EQ(each.tokens.front(), demo_token("<|tool_call>"));
    EXPECT_EQ(each.result.ending, TurnEnding::kToolCalls);
    EXPECT_TRUE(each.result.bad_calls.empty());
    expect_valid_calls(each);
  }
}

// --- stops -----------------------------------------------------------------------------------------------------------

TEST(TurnGuide, NoStopComesBeforeTheLeastNumberOfTokens) {
  TurnOptions options;
  options.min_tokens = 20;
  options.stop_tokens = {demo_token("a"), demo_token("<pad>")};
  for (const std::string stop : {"<turn|>", "a", "<pad>"}) {
    const Walk each = walk(options, {.likings = {{stop, 1.0}}});
    EXPECT_EQ(each.tokens.size(), 21u);
    EXPECT_EQ(each.tokens.back(), demo_token(stop));
  }
  options.is_raw = true;
  EXPECT_EQ(walk(options, {.likings = {{"<turn|>", 1.0}}}).tokens.size(), 21u);
  options.is_raw = false;
  options.ignore_stops = true;
  EXPECT_EQ(walk(options, {.likings = {{"a", 1.0}}}).tokens.size(), 21u);
  options.ignore_stops = false;
  options.calls = rules(CallRules::Mode::kForbidden);
  EXPECT_EQ(walk(options, {.likings = {{"a", 1.0}}}).tokens.size(), 21u);
}

TEST(TurnGuide, AnAnswerThatCannotGoOnStopsEarly) {
  TurnOptions options;
  options.min_tokens = 50;
  options.grammar = gbnf("root ::= \"yes\" [!]{0,5}");
  const Walk each = walk(options, {.likings = {{"<turn|>", 1.0}}});
  EXPECT_TRUE(each.has_stopped);
  EXPECT_EQ(each.result.message.content.joined(), "yes!!!!!");
  options.grammar = nullptr;
  options.calls = rules(CallRules::Mode::kRequired, {"stop_it"}, false);
  const Walk called = walk(options, {.likings = {{"<turn|>", 1.0}}});
  EXPECT_EQ(called.result.ending, TurnEnding::kToolCalls);
  // Where another call may follow, it does.
  options.calls.is_parallel = true;
  EXPECT_GT(walk(options, {.likings = {{"<turn|>", 1.0}}}).result.message.tool_calls.size(), 3u);
}

TEST(TurnGuide, NothingIsSteeredWithoutNeed) {
  const text::Tokenizer tokenizer(text::test::demo_vocab());
  const auto has_guide = [&](const TurnOptions& options) {
    ChatTurn turn(tokenizer, text::test::demo_vocab(), {1}, options, [](const text::OutputEvent&) {});
    return turn.take_request().guide != nullptr;
  };
  TurnOptions options;
  EXPECT_FALSE(has_guide(options));
  options.stops = {"x"};
  options.stop_tokens = {5};
  options.tools = {"f"};
  EXPECT_FALSE(has_guide(options));
  options.min_tokens = 3;
  EXPECT_TRUE(has_guide(options));
  options.stop_tokens = {};
  options.ignore_stops = true;
  EXPECT_FALSE(has_guide(options));
  options.can_end_thoughts = true;
  EXPECT_TRUE(has_guide(options));
}

TEST(TurnGuide, RulesOfCallsNeedTheMarksOfCalls) {
  text::test::VocabBuilder builder;
  std::replace(builder.tokens->begin(), builder.tokens->end(), std::string("<|tool_call>"), std::string("<|other>"));
  const auto bare = builder.build();
  TurnGuideOptions options;
  options.calls = rules(CallRules::Mode::kRequired, {"get"});
  const text::Tokenizer tokenizer(bare);
  EXPECT_THROW(TurnGuide(tokenizer, bare, {}, options), Error);
}

}  // namespace
}  // namespace carat::engine
