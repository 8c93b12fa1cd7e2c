// libcarat where memory runs out: each allocation of a load, and of an answer, fails once. Whatever fails, the program
// goes on, who waits is told, and what comes next works. The sanitizers see whether anything is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "capi/failing_memory.h"
#include "carat/carat.h"

namespace {

using carat::test::FailingMemory;
using nlohmann::json;

struct Closer {
  void operator()(carat_engine* engine) const { carat_close(engine); }
  void operator()(carat_request* request) const { carat_release(request); }
  void operator()(carat_error* error) const { carat_error_free(error); }
  void operator()(char* text) const { carat_free(text); }
};
using Engine = std::unique_ptr<carat_engine, Closer>;
using Request = std::unique_ptr<carat_request, Closer>;
using CaratError = std::unique_ptr<carat_error, Closer>;
using Text = std::unique_ptr<char, Closer>;

constexpr const char* kOptions = R"({"parallel":2,"context":256,"threads":1,"device":"cpu"})";
constexpr const char* kRequest =
    R"({"messages":[{"role":"user","content":"What is nginx?"}],"stream":true,"temperature":0,"max_tokens":12})";
constexpr const char* kWhole =
    R"({"messages":[{"role":"user","content":"What is nginx?"}],"temperature":0,"max_tokens":12})";

Engine open(CaratError* why = nullptr) {
  carat_error* error = nullptr;
  Engine engine(carat_open(CARAT_DEMO_MODEL, kOptions, nullptr, &error));
  if (why != nullptr) {
    why->reset(error);
  } else {
    carat_error_free(error);
  }
  return engine;
}

struct Answer {
  std::vector<std::string> events = {};
  bool was_refused = false;  // there is no request
  bool is_error() const { return was_refused || (!events.empty() && events.back().starts_with(R"({"error")")); }
  // Tokens that came together are one event, so that the number of events is not always the same.
  std::string text() const {
    std::string all;
    for (const std::string& event : events) {
      const json parsed = json::parse(event);
      for (const json& choice : parsed["choices"]) {
        all += choice.contains("delta") ? choice["delta"].value("content", "") : choice["message"].value("content", "");
      }
    }
    return all;
  }
  // The last event says how it ended.
  bool is_complete(bool is_stream) const {
    if (events.empty()) return false;
    const json last = json::parse(events.back());
    return is_stream ? last.contains("usage") : last["choices"][0].contains("finish_reason");
  }
};

enum class Reading { kPolling, kCallback };

// What a callback was told. Its own memory is not what fails.
struct Heard {
  std::mutex mutex;
  std::vector<std::string> events;
  int ends = 0;

  static void on_event(const char* event, void* user) {
    FailingMemory::exempt_this_thread(true);
    {
      auto& heard = *static_cast<Heard*>(user);
      const std::lock_guard lock(heard.mutex);
      if (event == nullptr) ++heard.ends;
      if (event != nullptr) heard.events.emplace_back(event);
    }
    FailingMemory::exempt_this_thread(false);
  }
};

Answer hear(carat_engine* engine, const char* body) {
  Heard heard;
  const Request request(carat_chat(engine, body, Heard::on_event, &heard, nullptr));
  if (!request) return {.was_refused = true};
  EXPECT_TRUE(carat_wait(request.get(), 60.0)) << "no end after " << heard.events.size() << " events";
  EXPECT_EQ(heard.ends, 1);
  return {.events = std::move(heard.events)};
}

// A request that is never ended is what these tests are for: their patience is bounded.
Answer ask(carat_engine* engine, const char* body, Reading reading) {
  if (reading == Reading::kCallback) return hear(engine, body);
  Answer answer;
  const Request request(carat_chat(engine, body, nullptr, nullptr, nullptr));
  if (!request) return {.was_refused = true};
  FailingMemory::exempt_this_thread(true);
  for (int waits = 0; !carat_is_done(request.get());) {
    const Text event(carat_next(request.get(), 0.5));
    if (event) answer.events.emplace_back(event.get());
    if (!event && ++waits > 10) {
      ADD_FAILURE() << "no end after " << answer.events.size() << " events";
      break;
    }
  }
  FailingMemory::exempt_this_thread(false);
  return answer;
}

// About `count` of them, the first ones and the last one among them.
std::vector<long> sample(long all, long count) {
  std::vector<long> chosen;
  for (long i = 0; i < std::min(all, 8L); ++i) chosen.push_back(i);
  const long step = std::max(1L, all / count) | 1;  // odd: allocations often come in pairs
  for (long i = 8; i < all; i += step) chosen.push_back(i);
  if (all > 8) chosen.push_back(all - 1);
  return chosen;
}

TEST(AllocationFailure, LoadingFailsWithAnErrorAndWorksAfterwards) {
  FailingMemory counting;
  ASSERT_NE(open(), nullptr);
  const long all = FailingMemory::stop();
  int failures = 0;
  for (const long number : sample(all, 60)) {
    SCOPED_TRACE(number);
    CaratError why;
    FailingMemory failing(number);
    const Engine engine = open(&why);
    FailingMemory::stop();
    if (engine) continue;  // what failed was one that can be done without
    ++failures;
    ASSERT_NE(why, nullptr);
    EXPECT_EQ(carat_error_code(why.get()), CARAT_NO_MEMORY) << carat_error_text(why.get());
  }
  EXPECT_GT(failures, 30) << "of " << all << " allocations";
  EXPECT_NE(open(), nullptr);
}

TEST(AllocationFailure, ClosingWorksWithoutMemory) {
  for (const long number : {0, 1, 2, 3, 4, 5, 10, 20}) {
    Engine engine = open();
    const Request running(carat_chat(engine.get(),
                                     R"({"messages":[{"role":"user","content":"a"}],"stream":true,"ignore_eos":true})",
                                     nullptr, nullptr, nullptr));
    const Text first(carat_next(running.get(), -1.0));
    FailingMemory failing(number);
    engine.reset();
    FailingMemory::stop();
    while (const Text event{carat_next(running.get(), -1.0)}) {
    }
    EXPECT_TRUE(carat_is_done(running.get()));
  }
}

// From one allocation to several in a row: handlers of failures find no memory, either.
class AnswersTest : public testing::TestWithParam<std::tuple<const char*, Reading, int>> {};

TEST_P(AnswersTest, EndWithAnErrorOrAreWhole) {
  const auto [body, reading, in_a_row] = GetParam();
  const bool is_stream = body == kRequest;
  Engine engine = open();
  const Answer expected = ask(engine.get(), body, reading);
  ASSERT_TRUE(expected.is_complete(is_stream));
  FailingMemory counting;
  ask(engine.get(), body, reading);
  const long all = FailingMemory::stop();
  int errors = 0, lost = 0;
  for (const long number : sample(all, 60)) {
    SCOPED_TRACE(number);
    Answer answer;
    {
      FailingMemory failing(number, number + in_a_row - 1);
      answer = ask(engine.get(), body, reading);
      FailingMemory::stop();
    }
    if (answer.is_error()) {
      ++errors;
    } else {
      ASSERT_TRUE(answer.is_complete(is_stream)) << (answer.events.empty() ? "nothing" : answer.events.back());
      ASSERT_EQ(answer.text(), expected.text());
    }
    const Answer next = ask(engine.get(), body, reading);
    if (!next.is_error()) continue;
    // The engine itself could not go on, and says so to everybody. That must be rare.
    ++lost;
    EXPECT_THAT(next.was_refused ? "" : next.events.back(), testing::HasSubstr("memory"));
    engine = open();
  }
  EXPECT_GT(errors, 20) << "of " << all << " allocations";
  EXPECT_LT(lost, 25);
  RecordProperty("allocations", std::to_string(all));
  RecordProperty("errors", errors);
  RecordProperty("engines_lost", lost);
}

INSTANTIATE_TEST_SUITE_P(AllocationFailure, AnswersTest,
                         testing::Combine(testing::Values(kRequest, kWhole),
                                          testing::Values(Reading::kPolling, Reading::kCallback),
                                          testing::Values(1, 20)),
                         [](const auto& made) {
                           return std::string(std::get<0>(made.param) == kRequest ? "Stream" : "Whole") +
                                  (std::get<1>(made.param) == Reading::kPolling ? "Polled" : "Heard") +
                                  std::to_string(std::get<2>(made.param));
                         });

}  // namespace
