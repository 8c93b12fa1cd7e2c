// Days of a server in seconds: an engine over an executor without arithmetic and a clock that passes move. Every day is
// made from a seed, which a failure names.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>

#include "engine/engine.h"
#include "engine/simulation/simulated_executor.h"
#include "engine/tiny_engine.h"
#include "support/random.h"
#include "support/tiny_model.h"

namespace carat::engine {
namespace {

using test::Random;
using test::SimulatedExecutor;
using test::TextChain;
using test::Tokens;

constexpr uint32_t kWindow = 128;
constexpr double kTarget = 0.025;  // seconds between two tokens of an answer

std::shared_ptr<const model::Model> windowed_model() {
  static const auto model = [] {
    test::TinyShape shape = test::tiny_shape(test::TinyKind::k12B);
    shape.W = kWindow;
    shape.context = 1u << 17;
    return test::load_draft(test::tiny_draft(shape));
  }();
  return model;
}

struct Machine {
  uint32_t sequences = 16;
  uint32_t context = 16384;
  uint32_t chunk = 256;
  model::PageCount pages = {2048, 512};  // 131,072 positions of global layers
};

// A pass of a card that reads 20,000 tokens a second and answers 16 requests with 2,000 tokens a second.
double cost(const SimulatedExecutor::Load& load) {
  return 0.004 + 50e-6 * load.prompt_rows + 250e-6 * load.decode_rows + 1e-9 * static_cast<double>(load.depth);
}

// One answer of a session, and what was seen of it.
struct Step : SequenceObserver {
  Request request;
  std::shared_ptr<Sequence> sequence;
  Tokens tokens;
  double submitted = 0.0, first = -1.0, last = -1.0, worst_gap = 0.0, ended = -1.0;
  const double* now = nullptr;
  bool is_over = false;

  void on_token(text::TokenId token) override {
    if (first < 0.0) first = *now;
    if (last >= 0.0) worst_gap = std::max(worst_gap, *now - last);
    last = *now;
    tokens.push_back(token);
  }
  void on_end() override { is_over = true, ended = *now; }
};

// A client that sends its whole history each time: the system turn, what was said, and something new. Its answers begin
// with thoughts, which the history leaves out.
struct Session {
  Tokens history = {};
  std::string client = {};
  uint32_t header = 3;  // tokens of the header of a model's turn
  uint32_t steps_left = 0;
  uint32_t answer = 40, thoughts = 10, more = 60;
  double next_at = 0.0;
  double pause = 0.2;  // between an answer and the next request
  std::shared_ptr<Step> step = {};
};

class Day {
 public:
  Day(const Machine& machine, uint64_t seed) : random_(seed) {
    exec::ExecutorOptions options;
    options.sequences = machine.sequences;
    options.context = machine.context;
    options.chunk = machine.chunk;
    options.outputs = machine.sequences;
    auto executor = std::make_unique<SimulatedExecutor>(windowed_model(), options, machine.pages, cost, &now_);
    executor_ = executor.get();
    EngineOptions engine_options;
    engine_options.itl_target = kTarget;
    engine_options.clock = [this] { return now_; };
    engine_.emplace(std::move(executor), test::vocab_of(*windowed_model()), engine_options);
  }

  Tokens text(size_t count) {
    Tokens tokens(count);
    for (auto& token : tokens)
      token = static_cast<text::TokenId>(16 + random_.below(windowed_model()->config().V - 16));
    return tokens;
  }
  Random& random() { return random_; }
  double now() const { return now_; }
  Engine& engine() { return *engine_; }
  const SimulatedExecutor& executor() const { return *executor_; }

  Session& add(Session session) { return sessions_.emplace_back(std::move(session)); }

  // Until all sessions have ended. `each_pass` may cancel.
  void run(const std::function<void()>& each_pass = [] {}) {
    for (uint64_t idle = 0; idle < 3;) {
      bool is_any_left = false;
      double next = 1e30;
      for (Session& session : sessions_) {
        finish_step(session);
        if (session.step == nullptr && session.steps_left > 0 && session.next_at <= now_) begin_step(session);
        is_any_left |= session.step != nullptr || session.steps_left > 0;
        if (session.step == nullptr && session.steps_left > 0) next = std::min(next, session.next_at);
      }
      if (!is_any_left) return;
      const uint64_t before = executor_->passes();
      engine_->step();
      each_pass();
      if (executor_->passes() > before) {
        idle = 0;
      } else if (next < 1e29 && next > now_) {
        now_ = next;
        idle = 0;
      } else {
        ++idle;
      }
    }
    FAIL() << "the engine has stopped with requests left";
  }

  // A request of somebody, wherever it is.
  void cancel_one() {
    std::vector<Step*> open;
    for (const Session& session : sessions_) {
      if (session.step != nullptr && !session.step->is_over) open.push_back(session.step.get());
    }
    if (open.empty()) return;
    Step& step = *open[random_.below(open.size())];
    ++cancelled_[!step.sequence->has_started() ? 1 : step.tokens.empty() ? 2 : 3];
    engine_->cancel(*step.sequence);
    EXPECT_EQ(step.sequence->ending(), Ending::kCancelled);
  }
  // 1: while it waited, 2: while its prompt was read, 3: while its answer was written.
  uint32_t cancelled_in(int phase) const { return cancelled_[phase]; }

  struct Sums {
    uint64_t prompt = 0, known = 0, reused = 0, answers = 0, failed = 0;
    double worst_gap = 0.0, worst_wait = 0.0;
  };
  const Sums& sums() const { return sums_; }
  const std::vector<std::shared_ptr<Step>>& done() const { return done_; }

 private:
  void begin_step(Session& session) {
    auto step = std::make_shared<Step>();
    session.history = joined(session.history, text(session.more));
    Tokens prompt = joined(session.history, Tokens(session.header, 20));
    step->request.prompt = prompt;
    step->request.max_tokens = session.thoughts + session.answer;
    step->request.ignore_stops = true;
    step->request.sampling.temperature = 0.0f;
    step->request.client = session.client;
    step->request.resume_points = {{static_cast<uint32_t>(prompt.size()), MarkKind::kTurn}};
    step->now = &now_;
    step->submitted = now_;
    step->sequence = engine_->prepare(step->request);
    engine_->submit(step->sequence, step);
    session.step = step;
    --session.steps_left;
  }

  void finish_step(Session& session) {
    if (session.step == nullptr || !session.step->is_over) return;
    const Step& step = *session.step;
    check_text(step);
    const SequenceFigures figures = step.sequence->figures();
    sums_.prompt += figures.prompt_tokens;
    sums_.known += figures.prefix_shared;
    sums_.reused += figures.prefix_reused;
    sums_.failed += step.sequence->ending() == Ending::kFailed ? 1 : 0;
    ++sums_.answers;
    sums_.worst_gap = std::max(sums_.worst_gap, step.worst_gap);
    sums_.worst_wait = std::max(sums_.worst_wait, step.first - step.submitted);
    if (step.sequence->ending() == Ending::kLength) {
      session.history = step.request.prompt;
      session.history.insert(session.history.end(), step.tokens.begin() + session.thoughts, step.tokens.end());
    }
    session.next_at = now_ + session.pause * (0.5 + static_cast<double>(random_.below(1000)) / 1000.0);
    done_.push_back(session.step);
    session.step = nullptr;
  }

  // The answer is what follows its own prompt, whatever was shared, copied, evicted and begun anew on the way.
  static void check_text(const Step& step) {
    TextChain chain;
    for (const text::TokenId token : step.request.prompt) chain.append(token);
    for (const text::TokenId token : step.tokens) {
      ASSERT_EQ(token, chain.next(windowed_model()->config().V));
      chain.append(token);
    }
    if (step.sequence->ending() == Ending::kLength) {
      ASSERT_EQ(step.tokens.size(), step.request.max_tokens);
    }
  }

  static Tokens joined(Tokens a, const Tokens& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }

  Random random_;
  double now_ = 0.0;
  SimulatedExecutor* executor_ = nullptr;
  std::optional<Engine> engine_;
  std::deque<Session> sessions_;
  std::vector<std::shared_ptr<Step>> done_;
  Sums sums_;
  std::array<uint32_t, 4> cancelled_{};
};

class Days : public testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, Days, testing::Values(1u, 2u, 3u));

// Agents with a shared system prompt of 2,000 tokens: of what was sent before, nearly all is reused, though each answer
// begins with thoughts that the history leaves out.
TEST_P(Days, AgentsReadAgainOnlyWhatTheirHistoryLeavesOut) {
  Day day({}, GetParam());
  const Tokens system[] = {day.text(2000), day.text(2000)};
  for (int i = 0; i < 24; ++i) {
    day.add({.history = system[i % 2], .client = fmt::format("{}", i % 5), .steps_left = 12, .next_at = 0.05 * i});
  }
  day.run();
  EXPECT_EQ(day.sums().answers, 24u * 12u);
  EXPECT_EQ(day.sums().failed, 0u);
  // An answer without its thoughts is new to the cache: 40 tokens of each step.
  EXPECT_GE(day.sums().reused, 0.95 * static_cast<double>(day.sums().known));
  EXPECT_GE(day.sums().reused, 0.90 * static_cast<double>(day.sums().prompt));
  EXPECT_EQ(day.engine().figures().preempted, 0u);
}

// Sessions in turn, until nine tenths of the memory are full: nobody loses what was read.
TEST_P(Days, SessionsInTurnKeepWhatTheyHadUntilMemoryIsFull) {
  Day day({}, GetParam());
  // 40 sessions of 2,900 tokens at the end are 116,000 of 131,072 positions.
  for (int i = 0; i < 40; ++i) {
    day.add({.history = day.text(2300), .steps_left = 6, .thoughts = 0, .next_at = 0.3 * i, .pause = 6.0});
  }
  day.run();
  EXPECT_GE(day.sums().reused, 0.95 * static_cast<double>(day.sums().known));
  EXPECT_EQ(day.engine().figures().prefixes.evicted_for.global, 0u);
}

// Three times as many: marks are given up, answers are right, and it is said why something was read again.
TEST_P(Days, WhatDoesNotFitIsGivenUpAndSaid) {
  Machine small;
  small.pages = {512, 160};
  Day day(small, GetParam());
  for (int i = 0; i < 40; ++i) {
    day.add({.history = day.text(1500 + day.random().below(1500)), .steps_left = 6, .next_at = 0.1 * i, .pause = 1.0});
  }
  day.run();
  EXPECT_EQ(day.sums().answers, 240u);
  EXPECT_EQ(day.sums().failed, 0u);
  EXPECT_GT(day.engine().figures().prefixes.evicted_for.global, 0u);
  const bool is_said = std::any_of(day.done().begin(), day.done().end(), [](const auto& step) {
    return step->sequence->prefix_loss() == PrefixLoss::kEvicted;
  });
  EXPECT_TRUE(is_said);
}

// Answers that are longer than memory for all of them: some give back their place and end with the same text.
TEST_P(Days, NothingThatStreamsFailsForWantOfMemory) {
  Machine tiny;
  tiny.sequences = 8;
  tiny.context = 8192;
  tiny.pages = {132, 60};  // 8,448 positions for eight answers of 3,000 tokens
  Day day(tiny, GetParam());
  for (int i = 0; i < 8; ++i) day.add({.history = day.text(50), .steps_left = 2, .answer = 3000});
  day.run();
  EXPECT_EQ(day.sums().answers, 16u);
  EXPECT_EQ(day.sums().failed, 0u);
  EXPECT_GT(day.engine().figures().preempted, 0u);
}

// Sixteen answers are being written when a prompt of 60,000 tokens comes.
TEST_P(Days, ALongPromptHoldsUpNobodyForLong) {
  Machine machine;
  machine.context = 1u << 16;
  Day day(machine, GetParam());
  for (int i = 0; i < 15; ++i) {
    day.add({.history = day.text(200), .steps_left = 1, .answer = 1500, .thoughts = 0});
  }
  day.add({.history = day.text(60000), .steps_left = 1, .answer = 4, .thoughts = 0, .next_at = 1.0});
  day.run();
  const auto intruder = std::max_element(day.done().begin(), day.done().end(), [](const auto& a, const auto& b) {
    return a->request.prompt.size() < b->request.prompt.size();
  });
  EXPECT_LE(day.sums().worst_gap, 2.0 * kTarget);
  // Alone it takes 235 passes of 256 rows: 3.9 s and what its depth adds.
  EXPECT_LE((*intruder)->first - (*intruder)->submitted, 9.0);
}

// One client with thirty requests and one with a single one: the latter does not wait for the former.
TEST_P(Days, OneClientDoesNotStarveAnother) {
  Machine machine;
  machine.sequences = 4;
  Day day(machine, GetParam());
  for (int i = 0; i < 30; ++i) {
    day.add({.history = day.text(3000), .client = "many", .steps_left = 1, .answer = 200, .thoughts = 0});
  }
  day.add({.history = day.text(3000), .client = "one", .steps_left = 1, .answer = 20, .thoughts = 0, .next_at = 2.0});
  day.run();
  const auto& done = day.done();
  const auto one = std::find_if(done.begin(), done.end(), [](const auto& s) { return s->request.client == "one"; });
  ASSERT_NE(one, done.end());
  EXPECT_LE(one - done.begin(), 12) << "it ended behind most of the other client's";
}

// Requests with the same beginning that come together: it is read once.
TEST_P(Days, TheSameBeginningInFlightIsReadOnce) {
  Day day({}, GetParam());
  const Tokens system = day.text(4000);
  for (int i = 0; i < 16; ++i) day.add({.history = system, .steps_left = 1, .thoughts = 0});
  day.run();
  const uint64_t run = day.sums().prompt - day.sums().reused;
  EXPECT_LE(run, 4000u + 16u * 63u + 64u);
}

// Clients that leave at any time, in the queue, while their prompt is read and while their answer is written.
TEST_P(Days, ClientsThatLeaveFreeTheirPages) {
  Machine machine;
  machine.sequences = 6;
  Day day(machine, GetParam());
  const Tokens system = day.text(1500);
  for (int i = 0; i < 60; ++i) {
    const Tokens own = i % 2 == 0 ? system : day.text(3000);
    day.add({.history = own, .steps_left = 3, .answer = 60, .thoughts = 5, .next_at = 0.02 * i});
  }
  day.run([&] {
    if (day.random().below(6) == 0) day.cancel_one();
  });
  EXPECT_EQ(day.sums().answers, 180u);
  EXPECT_EQ(day.sums().failed, 0u);
  EXPECT_EQ(day.cancelled_in(0), 0u);
  for (const int phase : {1, 2, 3}) EXPECT_GT(day.cancelled_in(phase), 0u) << phase;
  day.engine().step();
  EXPECT_EQ(day.executor().table().held(), (model::PageCount{0, 0}));
}

}  // namespace
}  // namespace carat::engine
