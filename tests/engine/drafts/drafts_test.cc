// Drafts change how fast a text is made and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/background_executor.h"
#include "engine/chat_turn.h"
#include "engine/engine.h"
#include "engine/scripted_executor.h"
#include "gguf/reader.h"
#include "runtime/executor_factory.h"
#include "support/files.h"
#include "support/random.h"
#include "support/tiny_model.h"
#include "text/grammar/compiled_grammar.h"
#include "text/grammar/grammar.h"
#include "text/grammar/token_trie.h"

namespace carat::engine {
namespace {

using runtime::Device;
using runtime::make_executor;
using test::TinyKind;
using text::TokenId;
using Tokens = std::vector<TokenId>;

DraftOptions drafts(DraftMode mode, uint32_t max_draft = 7) {
  DraftOptions options;
  options.mode = mode;
  options.max_draft = max_draft;
  return options;
}

struct Loaded {
  explicit Loaded(std::shared_ptr<const model::Model> from)
      : model(std::move(from)), vocab(text::Vocab::from_metadata(model->file().metadata())) {}
  std::shared_ptr<const model::Model> model;
  std::shared_ptr<const text::Vocab> vocab;
};

const Loaded& demo(const std::string& name) {
  static std::map<std::string, Loaded> loaded;
  const auto found = loaded.find(name);
  if (found != loaded.end()) return found->second;
  return loaded.emplace(name, Loaded(model::Model::load(gguf::ModelFile::open(test::model_path(name))))).first->second;
}

exec::ExecutorOptions executor_options(uint32_t context, uint32_t chunk, uint32_t sequences = 1) {
  exec::ExecutorOptions options;
  options.context = context;
  options.chunk = chunk;
  options.sequences = sequences;
  options.outputs = 8 * sequences;
  options.threads = 1;
  return options;
}

struct Outcome {
  Tokens tokens;
  Tokens streamed;
  Ending ending;
  TokenId stop_token;
  uint32_t processed;

  bool operator==(const Outcome&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
  out << ending_name(outcome.ending) << ", stop " << outcome.stop_token << ", processed " << outcome.processed << ":";
  for (const TokenId token : outcome.tokens) out << ' ' << token;
  return out;
}

struct Answer {
  Outcome outcome;
  DraftFigures figures;
  uint32_t passes;
};

// One request in an engine of its own; cancelled by its own callback after so many tokens.
Answer answer(const Loaded& loaded, Device device, const exec::ExecutorOptions& options, const DraftOptions& how,
              const Request& request, size_t cancelled_after = SIZE_MAX) {
  Engine engine(make_executor(device, loaded.model, options), loaded.vocab, {.drafts = how});
  Answer result;
  std::shared_ptr<const Sequence> sequence;
  sequence = engine.submit(request, [&](TokenId token) {
    result.outcome.streamed.push_back(token);
    // What a callback sees is what it would see without drafts.
    EXPECT_EQ(sequence->generated().size(), result.outcome.streamed.size());
    if (result.outcome.streamed.size() == cancelled_after) engine.cancel(*sequence);
  });
  engine.run();
  EXPECT_EQ(engine.executor().length(0), sequence->processed());
  result.outcome.tokens.assign(sequence->generated().begin(), sequence->generated().end());
  result.outcome.ending = sequence->ending();
  result.outcome.stop_token = sequence->stop_token();
  result.outcome.processed = sequence->processed();
  result.figures = sequence->drafts();
  result.passes = sequence->decode_passes();
  EXPECT_LE(result.figures.accepted, result.figures.drafted);
  EXPECT_EQ(sequence->decode_tokens(), sequence->decode_passes() + result.figures.accepted);
  return result;
}

Tokens encoded(const Loaded& loaded, std::string_view text) {
  const text::Tokenizer tokenizer(loaded.vocab);
  Tokens tokens = tokenizer.encode(text, text::Tokenizer::Specials::kParse);
  tokens.insert(tokens.begin(), loaded.vocab->bos());
  return tokens;
}

constexpr std::string_view kRepetitive =
    "<|turn>user\nRepeat after me: the quick brown fox jumps over the lazy dog, the quick brown fox jumps over the "
    "lazy "
    "dog.<turn|>\n<|turn>model\nthe quick brown fox jumps over the lazy dog, the quick brown fox";

Request request_for(const Loaded& loaded, std::string_view text, uint32_t max_tokens) {
  Request request;
  request.prompt = encoded(loaded, text);
  request.max_tokens = max_tokens;
  request.ignore_stops = true;
  request.sampling.temperature = 0.0f;
  return request;
}

// The same request with drafts of every kind; returns how many tokens were accepted in all.
uint32_t expect_same(const Loaded& loaded, const exec::ExecutorOptions& options, const Request& request,
                     Device device = Device::kCpu) {
  const Answer plain = answer(loaded, device, options, drafts(DraftMode::kOff), request);
  EXPECT_EQ(plain.figures.drafted, 0u);
  uint32_t accepted = 0;
  for (const DraftOptions& how :
       {drafts(DraftMode::kOn), drafts(DraftMode::kOn, 1), drafts(DraftMode::kOn, 63), drafts(DraftMode::kAuto)}) {
    const Answer drafted = answer(loaded, device, options, how, request);
    EXPECT_EQ(drafted.outcome, plain.outcome) << "drafts of " << how.max_draft;
    accepted += drafted.figures.accepted;
  }
  return accepted;
}

class DraftsOfDemo : public testing::TestWithParam<const char*> {
 protected:
  const Loaded& loaded() const { return demo(GetParam()); }
};

TEST_P(DraftsOfDemo, GreedyTextsAreTheSame) {
  EXPECT_GT(expect_same(loaded(), executor_options(1024, 128), request_for(loaded(), kRepetitive, 120)), 50u);
}

TEST_P(DraftsOfDemo, TheTextOfASeedIsTheSame) {
  uint32_t accepted = 0;
  for (const uint64_t seed : {1u, 2u, 3u}) {
    Request request = request_for(loaded(), kRepetitive, 80);
    request.sampling.temperature = 0.8f;
    request.sampling.seed = seed;
    accepted += expect_same(loaded(), executor_options(1024, 128), request);
  }
  EXPECT_GT(accepted, 0u);
}

TEST_P(DraftsOfDemo, PenaltiesSeeEveryToken) {
  for (const float temperature : {0.0f, 1.0f}) {
    Request request = request_for(loaded(), kRepetitive, 80);
    request.sampling.temperature = temperature;
    request.sampling.seed = 7;
    request.sampling.repeat_penalty = 1.05f;
    request.sampling.frequency_penalty = 0.02f;
    request.sampling.repeat_last_n = 20;
    expect_same(loaded(), executor_options(1024, 128), request);
  }
}

TEST_P(DraftsOfDemo, StopsAreTheSame) {
  for (const std::string_view text :
       {std::string_view("<|turn>user\nMy name is Clara.<turn|>\n<|turn>model\nHello Clara.<turn|>\n<|turn>user\nMy "
                         "name is Clara.<turn|>\n<|turn>model\n"),
        kRepetitive}) {
    Request request = request_for(loaded(), text, 100);
    request.ignore_stops = false;
    expect_same(loaded(), executor_options(1024, 128), request);
  }
}

TEST_P(DraftsOfDemo, TheEndOfTheContextIsTheSame) {
  const Request request = request_for(loaded(), kRepetitive, Request::kUnlimited);
  for (const uint32_t room : {0u, 1u, 2u, 5u, 30u}) {
    const auto context = static_cast<uint32_t>(request.prompt.size()) + room;
    expect_same(loaded(), executor_options(context, 32), request);
    const Answer drafted =
        answer(loaded(), Device::kCpu, executor_options(context, 32), drafts(DraftMode::kOn), request);
    EXPECT_EQ(drafted.outcome.ending, Ending::kContextFull);
    EXPECT_EQ(drafted.outcome.tokens.size(), room + 1);
  }
}

TEST_P(DraftsOfDemo, LimitsOfAnAnswerAreTheSame) {
  for (uint32_t limit = 1; limit < 12; ++limit) {
    expect_same(loaded(), executor_options(512, 64), request_for(loaded(), kRepetitive, limit));
  }
}

TEST_P(DraftsOfDemo, ACallbackMayEndItInsideAnAcceptedDraft) {
  const Request request = request_for(loaded(), kRepetitive, 60);
  const exec::ExecutorOptions options = executor_options(512, 64);
  uint32_t accepted = 0;
  for (size_t after = 1; after < 40; ++after) {
    const Answer plain = answer(loaded(), Device::kCpu, options, drafts(DraftMode::kOff), request, after);
    const Answer drafted = answer(loaded(), Device::kCpu, options, drafts(DraftMode::kOn), request, after);
    EXPECT_EQ(drafted.outcome, plain.outcome) << "cancelled after " << after;
    EXPECT_EQ(drafted.outcome.ending, Ending::kCancelled);
    EXPECT_EQ(drafted.outcome.tokens.size(), after);
    accepted += drafted.figures.accepted;
  }
  EXPECT_GT(accepted, 0u);
}

INSTANTIATE_TEST_SUITE_P(Models, DraftsOfDemo, testing::Values("demo-e-q8_0.gguf", "demo-moe-q8_0.gguf"),
                         [](const auto& parameter) {
                           return std::string(parameter.param).find("moe") == std::string::npos ? "E" : "Moe";
                         });

// Windows of 8 positions in rings that hold only a few more: every draft overwrites positions the window has just left,
// and rejected ones are taken back there again and again.
class DraftsOfTiny : public testing::TestWithParam<TinyKind> {};

TEST_P(DraftsOfTiny, SlidingWindowsSurviveRejectedDrafts) {
  const Loaded loaded(test::tiny_model(GetParam()));
  test::Random random(5);
  Tokens few;  // of few different tokens, so that there is always something to draft
  for (int i = 0; i < 20; ++i) few.push_back(static_cast<TokenId>(random.below(3) + 40));
  uint32_t drafted = 0, accepted = 0;
  for (const Device device : {Device::kReference, Device::kCpu}) {
    if (device == Device::kCpu && GetParam() != TinyKind::kE2B) continue;
    for (const uint32_t chunk : {2u, 8u, 20u}) {
      for (const float temperature : {0.0f, 0.7f}) {
        Request request;
        request.prompt = few;
        request.max_tokens = 60;
        request.ignore_stops = true;
        request.sampling.temperature = temperature;
        request.sampling.seed = 3;
        // The sampler keeps to three tokens, among which drafts are right now and then.
        for (TokenId token = 40; token < 43; ++token) request.sampling.bias.push_back({token, 100.0f});
        const exec::ExecutorOptions options = executor_options(96, chunk);
        const Answer plain = answer(loaded, device, options, drafts(DraftMode::kOff), request);
        const Answer with = answer(loaded, device, options, drafts(DraftMode::kOn), request);
        EXPECT_EQ(with.outcome, plain.outcome) << "chunk " << chunk << ", temperature " << temperature;
        drafted += with.figures.drafted;
        accepted += with.figures.accepted;
      }
    }
  }
  EXPECT_GT(accepted, 0u);
  EXPECT_LT(accepted, drafted) << "nothing was ever taken back";
}

TEST_P(DraftsOfTiny, SequencesInOneBatchGetWhatTheyGetAlone) {
  const Loaded loaded(test::tiny_model(GetParam()));
  Engine engine(make_executor(Device::kReference, loaded.model, executor_options(96, 12, 3)), loaded.vocab,
                {.drafts = drafts(DraftMode::kOn, 3)});
  std::vector<Request> requests;
  std::vector<std::shared_ptr<const Sequence>> sequences;
  for (uint64_t i = 0; i < 5; ++i) {
    Request request;
    for (size_t j = 0; j < 4 + 5 * i; ++j) request.prompt.push_back(static_cast<TokenId>(40 + j % (2 + i)));
    request.max_tokens = static_cast<uint32_t>(10 + 7 * i);
    request.ignore_stops = true;
    request.sampling.seed = i;
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.7f;
    for (TokenId token = 40; token < 43; ++token) request.sampling.bias.push_back({token, 100.0f});
    requests.push_back(request);
    sequences.push_back(engine.submit(request));
  }
  engine.run();
  uint32_t accepted = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Answer alone =
        answer(loaded, Device::kReference, executor_options(96, 12), drafts(DraftMode::kOff), requests[i]);
    EXPECT_EQ(Tokens(sequences[i]->generated().begin(), sequences[i]->generated().end()), alone.outcome.tokens) << i;
    accepted += sequences[i]->drafts().accepted;
  }
  EXPECT_GT(accepted, 0u);
}

INSTANTIATE_TEST_SUITE_P(Family, DraftsOfTiny, testing::ValuesIn(test::kTinyKinds),
                         [](const auto& kind) { return std::string(test::tiny_name(kind.param)); });

// A turn on an engine of its own; how it went, and its sequence.
std::pair<TurnResult, std::shared_ptr<const Sequence>> run_turn(Engine& engine, ChatTurn& turn) {
  std::shared_ptr<const Sequence> sequence;
  sequence = engine.submit(turn.take_request(), [&](TokenId token) {
    if (!turn.append(token)) engine.cancel(*sequence);
  });
  engine.run();
  return {turn.finish(sequence->ending()), sequence};
}

// A turn with everything that steers it: an answer under a grammar, after thoughts that have a budget.
TEST(Drafts, AGuidedTurnIsTheSame) {
  const Loaded& loaded = demo("demo-e-q8_0.gguf");
  const text::Tokenizer tokenizer(loaded.vocab);
  const auto grammar = text::grammar::compile(
      text::grammar::parse_gbnf("root ::= \"[\" item (\", \" item){20,40} \"]\"\nitem ::= \"the fox\" | \"dogs\""),
      loaded.vocab);
  const auto turn_of = [&](DraftMode mode, uint64_t seed, std::optional<uint64_t> budget, DraftFigures& figures) {
    Engine engine(make_executor(Device::kCpu, loaded.model, executor_options(1024, 128)), loaded.vocab,
                  {.drafts = drafts(mode)});
    TurnOptions options;
    options.grammar = grammar;
    options.think_budget = budget;
    options.max_tokens = 300;
    options.loop_guard = false;
    options.sampling.seed = seed;
    std::string text;
    ChatTurn turn(tokenizer, loaded.vocab, encoded(loaded, kRepetitive), options,
                  [&text](const text::OutputEvent& event) { text += event.text + "|"; });
    const auto [result, sequence] = run_turn(engine, turn);
    figures = sequence->drafts();
    return std::make_pair(text, result.ending);
  };
  for (const uint64_t seed : {1u, 2u}) {
    for (const std::optional<uint64_t> budget : {std::optional<uint64_t>(), std::optional<uint64_t>(5)}) {
      DraftFigures plain, drafted;
      const auto without = turn_of(DraftMode::kOff, seed, budget, plain);
      EXPECT_EQ(turn_of(DraftMode::kOn, seed, budget, drafted), without);
      EXPECT_GT(drafted.accepted, 10u);
      EXPECT_EQ(plain.drafted, 0u);
    }
  }
}

// A call that is held to its tool, with the least number of tokens and a budget for thoughts, drafted or not, and where
// passes run in the background.
TEST(Drafts, ATurnThatMustCallIsTheSame) {
  const Loaded& loaded = demo("demo-e-q8_0.gguf");
  const text::Tokenizer tokenizer(loaded.vocab);
  const text::CallableTool tool = text::callable_tool(
      {"note", R"({"name": "note", "parameters": {"type": "object", "properties": {"words": {"type": "array",
       "items": {"enum": ["the quick brown fox", "the lazy dog"]}, "minItems": 12, "maxItems": 20}},
       "required": ["words"]}})"},
      std::make_shared<const text::grammar::TokenTrie>(loaded.vocab));
  ASSERT_EQ(tool.problem, "");
  const auto turn_of = [&](DraftMode mode, bool in_background, uint64_t seed, DraftFigures& figures) {
    auto executor = make_executor(Device::kCpu, loaded.model, executor_options(1024, 128));
    if (in_background) executor = std::make_unique<test::BackgroundExecutor>(std::move(executor));
    Engine engine(std::move(executor), loaded.vocab, {.drafts = drafts(mode)});
    TurnOptions options;
    options.calls = {CallRules::Mode::kRequired, false, {tool}};
    options.think_budget = 10;
    options.min_tokens = 30;
    options.max_tokens = 400;
    options.loop_guard = false;
    options.sampling.seed = seed;
    std::string text;
    ChatTurn turn(tokenizer, loaded.vocab, encoded(loaded, kRepetitive), options,
                  [&text](const text::OutputEvent& event) { text += event.text + event.arguments + "|"; });
    const auto [result, sequence] = run_turn(engine, turn);
    EXPECT_EQ(result.ending, TurnEnding::kToolCalls);
    EXPECT_EQ(result.message.tool_calls.size(), 1u);
    figures = sequence->drafts();
    return std::make_pair(text, Tokens(sequence->generated().begin(), sequence->generated().end()));
  };
  for (const uint64_t seed : {1u, 2u, 3u}) {
    DraftFigures plain, drafted, ahead;
    const auto without = turn_of(DraftMode::kOff, false, seed, plain);
    EXPECT_EQ(turn_of(DraftMode::kOn, false, seed, drafted), without);
    EXPECT_EQ(turn_of(DraftMode::kOff, true, seed, ahead), without);
    EXPECT_GT(drafted.accepted, 10u);
  }
}

TEST(Drafts, TheLoopGuardStopsAtTheSameToken) {
  const Loaded& loaded = demo("demo-e-q8_0.gguf");
  const text::Tokenizer tokenizer(loaded.vocab);
  const auto turn_of = [&](DraftMode mode) {
    Engine engine(make_executor(Device::kCpu, loaded.model, executor_options(1024, 128)), loaded.vocab,
                  {.drafts = drafts(mode)});
    TurnOptions options;
    options.sampling.temperature = 0.0f;
    options.sampling.bias = {{encoded(loaded, " fox").back(), 100.0f}};
    std::string text;
    ChatTurn turn(tokenizer, loaded.vocab, encoded(loaded, kRepetitive), options,
                  [&text](const text::OutputEvent& event) { text += event.text; });
    const auto [result, sequence] = run_turn(engine, turn);
    EXPECT_EQ(result.ending, TurnEnding::kLoop);
    return std::make_pair(text, sequence->generated().size());
  };
  EXPECT_EQ(turn_of(DraftMode::kOn), turn_of(DraftMode::kOff));
}

TEST(Drafts, TheNextTurnFindsTheCacheAsItShouldBe) {
  const Loaded& loaded = demo("demo-e-q8_0.gguf");
  const auto second_of = [&](DraftMode mode) {
    Engine engine(make_executor(Device::kCpu, loaded.model, executor_options(512, 64)), loaded.vocab,
                  {.drafts = drafts(mode)});
    Request request = request_for(loaded, kRepetitive, 41);
    const auto first = engine.submit(request);
    engine.run();
    request.prompt.assign(first->tokens().begin(), first->tokens().end());
    request.prompt.push_back(encoded(loaded, " dog").back());
    const auto second = engine.submit(request);
    engine.run();
    return std::make_pair(second->prefix_reused(), Tokens(second->generated().begin(), second->generated().end()));
  };
  EXPECT_EQ(second_of(DraftMode::kOn), second_of(DraftMode::kOff));
}

// Scripts for an executor that measures time by rows alone.
class DraftsAuto : public testing::Test {
 protected:
  static constexpr uint32_t kPrompt = 8;

  // Seconds for the script, and how many tokens were drafted for it.
  std::pair<double, uint32_t> time(DraftMode mode, const Tokens& script, std::function<double(uint32_t)> cost) {
    double seconds = 0.0;
    const auto length = static_cast<uint32_t>(script.size());
    auto executor = std::make_unique<test::ScriptedExecutor>(loaded_.model, executor_options(length, 64), script,
                                                             std::move(cost), &seconds);
    Engine engine(std::move(executor), loaded_.vocab,
                  {.drafts = drafts(mode), .clock = [&seconds] { return seconds; }});
    Request request;
    request.prompt.assign(script.begin(), script.begin() + kPrompt);
    request.max_tokens = length - kPrompt;
    request.ignore_stops = true;
    request.sampling.temperature = 0.0f;
    const auto sequence = engine.submit(request);
    engine.run();
    EXPECT_TRUE(std::equal(script.begin(), script.end(), sequence->tokens().begin(), sequence->tokens().end()));
    return {seconds, sequence->drafts().drafted};
  }

  // Tokens of a small alphabet: nearly every pair has occurred before, and says nothing about what follows.
  Tokens noise(size_t count, uint64_t seed) const {
    test::Random random(seed);
    Tokens tokens;
    for (size_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(100 + random.below(40)));
    return tokens;
  }
  Tokens echo(size_t count) const {
    const Tokens verse = noise(60, 99);
    Tokens tokens;
    for (size_t i = 0; i < count; ++i) tokens.push_back(verse[i % verse.size()]);
    return tokens;
  }

  Loaded loaded_{test::tiny_model(TinyKind::kE2B)};
};

// The model ends its answer where the draft, which goes on, has been right so far.
TEST_F(DraftsAuto, AStopInsideADraftEndsTheAnswerThere) {
  Tokens script = echo(150);
  const size_t stop = 137;
  script[stop] = loaded_.vocab->stops().front();
  double seconds = 0.0;
  auto executor = std::make_unique<test::ScriptedExecutor>(
      loaded_.model, executor_options(200, 64), script, [](uint32_t) { return 1.0; }, &seconds);
  Engine engine(std::move(executor), loaded_.vocab, {.drafts = drafts(DraftMode::kOn)});
  Request request;
  request.prompt.assign(script.begin(), script.begin() + kPrompt);
  request.sampling.temperature = 0.0f;
  Tokens streamed;
  const auto sequence = engine.submit(request, [&streamed](TokenId token) { streamed.push_back(token); });
  engine.run();
  EXPECT_EQ(sequence->ending(), Ending::kStopToken);
  EXPECT_EQ(sequence->stop_token(), script[stop]);
  EXPECT_EQ(streamed, Tokens(script.begin() + kPrompt, script.begin() + stop));
  EXPECT_GT(sequence->drafts().accepted, 50u);
  EXPECT_EQ(sequence->processed(), stop);
  EXPECT_EQ(engine.executor().length(0), stop);
}

double nearly_free(uint32_t rows) { return 1.0 + 0.02 * (rows - 1); }
double proportional(uint32_t rows) { return rows; }

TEST_F(DraftsAuto, MakesAnEchoSeveralTimesFaster) {
  const Tokens script = echo(2000);
  EXPECT_LT(time(DraftMode::kAuto, script, nearly_free).first, 0.25 * time(DraftMode::kOff, script, nearly_free).first);
}

TEST_F(DraftsAuto, LosesNextToNothingOnNoise) {
  const Tokens script = noise(4000, 1);
  for (const auto& cost : {nearly_free, proportional}) {
    const double plain = time(DraftMode::kOff, script, cost).first;
    EXPECT_LT(time(DraftMode::kAuto, script, cost).first, 1.02 * plain) << "8 rows take " << cost(8);
    EXPECT_GT(time(DraftMode::kOn, script, cost).first, 1.05 * plain) << "so there was something to lose";
  }
}

TEST_F(DraftsAuto, LosesNextToNothingWhereRowsCostAsMuchAsPasses) {
  const Tokens script = echo(4000);
  EXPECT_LT(time(DraftMode::kAuto, script, proportional).first,
            1.02 * time(DraftMode::kOff, script, proportional).first);
}

TEST_F(DraftsAuto, SwitchesOnAndOffWithTheText) {
  Tokens script = noise(1500, 1);
  const Tokens middle = echo(1500), end = noise(1500, 2);
  const uint32_t before = time(DraftMode::kAuto, script, nearly_free).second;
  script.insert(script.end(), middle.begin(), middle.end());
  const uint32_t with_echo = time(DraftMode::kAuto, script, nearly_free).second;
  script.insert(script.end(), end.begin(), end.end());
  const uint32_t after = time(DraftMode::kAuto, script, nearly_free).second;
  EXPECT_GT(with_echo - before, 1000u);
  EXPECT_LT(before, 400u);
  EXPECT_LT(after - with_echo, 400u);
}

}  // namespace
}  // namespace carat::engine
