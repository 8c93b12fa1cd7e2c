// All of the load generator against a server in the same process.
#include "serve/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "bench/serve/fake_server.h"
#include "serve/figures.h"
#include "serve/server_info.h"

namespace carat::serve_bench {
namespace {

using namespace std::chrono_literals;
using server::Exchange;
using test::FakeServer;
using testing::ElementsAre;
using testing::HasSubstr;

Workload prompts(uint32_t count, uint32_t output = 8) {
  return make_workload({.num_prompts = count, .input_len = 5, .output_len = output}, 0);
}
TargetOptions target_of(const FakeServer& server, Backend backend = Backend::kChat) {
  return {.base_url = server.url(), .backend = backend, .timeout = 20.0};
}
LoadResult load(const FakeServer& server, const Workload& workload, uint32_t concurrency) {
  return run_load(target_of(server), "m", workload, concurrency, false, {});
}

TEST(Load, CountsWhatTheServerSends) {
  std::atomic<uint32_t> now{0}, most{0};
  FakeServer server([&](Exchange& exchange) {
    const uint32_t here = ++now;
    for (uint32_t seen = most; seen < here && !most.compare_exchange_weak(seen, here);) {
    }
    std::this_thread::sleep_for(2ms);
    --now;
    test::answer_with(exchange, 5, 40);
  });
  const LoadResult result = load(server, prompts(40), 4);
  ASSERT_EQ(result.requests.size(), 40u);
  const Figures figures = figures_of(result, {});
  EXPECT_EQ(figures.completed, 40u);
  EXPECT_EQ(figures.failed, 0u);
  EXPECT_EQ(figures.input_tokens, 4000u);
  EXPECT_EQ(figures.cached_tokens, 1600u);
  EXPECT_EQ(figures.output_tokens, 400u) << "the server's count, not that of the chunks";
  EXPECT_EQ(figures.most_at_once, 4u);
  EXPECT_LE(most, 4u);
  EXPECT_EQ(server.connections(), 4u) << "connections are kept";
  for (const RequestResult& request : result.requests) EXPECT_EQ(request.gaps.size(), 4u);
  EXPECT_GT(figures.output_throughput, 0.0);
}

// Only lower bounds: whatever else the machine does, nothing comes before it was sent.
TEST(Load, TimesAreThoseOfTheScript) {
  FakeServer server([](Exchange& exchange) {
    exchange.begin_stream("text/event-stream");
    exchange.write("data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n");
    std::this_thread::sleep_for(60ms);
    for (int i = 0; i < 3; ++i) {
      exchange.write(test::chat_chunk("a"));
      std::this_thread::sleep_for(30ms);
    }
    exchange.write(test::chat_chunk("b") + test::last_chunk() + test::kDone);
    exchange.finish();
  });
  const LoadResult result = load(server, prompts(2), 2);
  for (const RequestResult& request : result.requests) {
    ASSERT_TRUE(request.is_complete) << request.error;
    EXPECT_GE(request.first_token, 0.060) << "neither the headers nor the role are a token";
    EXPECT_GE(request.latency, 0.150);
    ASSERT_EQ(request.gaps.size(), 3u);
    EXPECT_GE(*std::max_element(request.gaps.begin(), request.gaps.end()), 0.025);
    EXPECT_EQ(request.output_tokens, 4u) << "chunks, where the server tells no usage";
    EXPECT_FALSE(request.has_usage);
  }
  EXPECT_GE(result.seconds, 0.150);
}

TEST(Load, FailuresHaveKinds) {
  std::atomic<int> count{0};
  FakeServer server([&](Exchange& exchange) {
    switch (count++) {
      case 0:
        return exchange.respond({.status = 429, .body = R"({"error":{"message":"too many","code":429}})"});
      case 1:
        exchange.begin_stream("text/event-stream");
        exchange.write(test::chat_chunk("a") + "data: {\"error\":{\"message\":\"the pass failed\"}}\n\n");
        return exchange.finish();
      case 2:
        exchange.begin_stream("text/event-stream");
        exchange.write(test::chat_chunk("a"));
        std::this_thread::sleep_for(50ms);  // until that is sent
        return exchange.abandon();
      case 3:
        exchange.begin_stream("text/event-stream");
        exchange.write(test::chat_chunk("a"));
        return exchange.finish();
      case 4:
        exchange.begin_stream("text/event-stream");
        exchange.write(test::last_chunk() + test::kDone);
        return exchange.finish();
      default:
        return test::answer_with(exchange, 2);
    }
  });
  const LoadResult result = load(server, prompts(6), 1);
  std::vector<std::string> kinds;
  for (const RequestResult& request : result.requests) kinds.push_back(request.error_kind);
  EXPECT_THAT(kinds, ElementsAre("HTTP 429", "error in the stream", "cut off", "cut off", "empty", ""));
  EXPECT_EQ(result.requests[0].error, "too many");
  EXPECT_EQ(result.requests[1].error, "the pass failed");
  const Figures figures = figures_of(result, {});
  EXPECT_EQ(figures.completed, 1u);
  EXPECT_EQ(figures.errors.at("cut off").count, 2u);
}

TEST(Load, SilenceAndNobodyAreFailures) {
  const std::string nobody = [] {
    FakeServer gone([](Exchange&) {});
    return gone.url();
  }();
  const TargetOptions to_nobody{.base_url = nobody};
  EXPECT_EQ(run_load(to_nobody, "m", prompts(1), 1, false, {}).requests[0].error_kind, "connection");

  FakeServer silent([](Exchange&) {});
  TargetOptions target = target_of(silent);
  target.timeout = 0.2;
  EXPECT_EQ(run_load(target, "m", prompts(1), 1, false, {}).requests[0].error_kind, "timeout");
}

TEST(Load, AConnectionThatWasClosedMeanwhileIsMadeAnew) {
  FakeServer server([](Exchange& exchange) { test::answer_with(exchange, 1); });
  server.close_after_answers();
  const LoadResult result = load(server, prompts(5), 1);
  EXPECT_EQ(figures_of(result, {}).completed, 5u);
  EXPECT_EQ(server.connections(), 5u);
}

TEST(Load, EveryTurnRepeatsWhatWasSaidBefore) {
  FakeServer server([](Exchange& exchange) {
    exchange.begin_stream("text/event-stream");
    exchange.write(test::chat_chunk(R"(He said \"yes\",\n)") + test::chat_chunk(R"(\u00e9\\)") + test::last_chunk());
    exchange.finish();
  });
  const Workload workload = make_workload(
      {.dataset = Dataset::kAgent, .num_sessions = 1, .turns = 3, .system_len = 4, .first_len = 3, .turn_len = 2}, 0);
  const LoadResult result = load(server, workload, 1);
  ASSERT_EQ(figures_of(result, {}).completed, 3u);
  const auto bodies = server.bodies();
  ASSERT_EQ(bodies.size(), 3u);
  const auto first = nlohmann::json::parse(bodies[0])["messages"], last = nlohmann::json::parse(bodies[2])["messages"];
  ASSERT_EQ(first.size(), 2u);
  ASSERT_EQ(last.size(), 6u);
  EXPECT_EQ(first[0]["role"], "system");
  EXPECT_EQ(first[0], last[0]);
  EXPECT_EQ(first[1], last[1]);
  EXPECT_EQ(last[2]["role"], "assistant");
  EXPECT_EQ(last[2]["content"], "He said \"yes\",\n\u00e9\\");
  EXPECT_EQ(last[5]["role"], "user");
  EXPECT_EQ(result.requests[2].turn, 2u);
}

TEST(Load, AfterAFailureTheRestOfAConversationIsSkipped) {
  std::atomic<int> count{0};
  FakeServer server([&](Exchange& exchange) {
    if (count++ == 1) return exchange.respond({.status = 500, .body = "no"});
    test::answer_with(exchange, 1);
  });
  const Workload workload = make_workload({.dataset = Dataset::kAgent, .num_sessions = 1, .turns = 4}, 0);
  const LoadResult result = load(server, workload, 1);
  std::vector<std::string> kinds;
  for (const RequestResult& request : result.requests) kinds.push_back(request.error_kind);
  EXPECT_THAT(kinds, ElementsAre("", "HTTP 500", "skipped", "skipped"));
}

TEST(Load, RoundsVisitOneSessionAfterTheOther) {
  FakeServer server([](Exchange& exchange) { test::answer_with(exchange, 1); });
  const Workload workload = make_workload({.dataset = Dataset::kRoundRobin, .num_sessions = 3, .turns = 2}, 0);
  const LoadResult result = load(server, workload, 1);
  std::vector<uint32_t> sessions;
  for (const RequestResult& request : result.requests) sessions.push_back(request.session);
  EXPECT_THAT(sessions, ElementsAre(0, 1, 2, 0, 1, 2));
}

TEST(Load, NothingIsSentBeforeItsTime) {
  FakeServer server([](Exchange& exchange) { test::answer_with(exchange, 1); });
  Workload workload = prompts(2);
  workload.sessions[1].start_seconds = 0.1;
  const LoadResult result = load(server, workload, 2);
  EXPECT_GE(result.requests[1].start, 0.1);
}

TEST(WarmUp, SaysWhatTheServerSaid) {
  FakeServer server([](Exchange& exchange) {
    exchange.respond({.status = 401, .body = R"({"error":{"message":"a key is needed"}})"});
  });
  try {
    warm_up(target_of(server), "m", 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("401"), HasSubstr("a key is needed")));
  }
}

TEST(ServerInfo, IsReadFromTheListOfModels) {
  FakeServer server([](Exchange& exchange) {
    exchange.respond({.body = R"({"object":"list","data":[{"id":"gemma","meta":{"n_vocab":262144}}]})"});
  });
  const ServerInfo info = ask_server(target_of(server));
  EXPECT_EQ(info.model, "gemma");
  EXPECT_EQ(info.vocabulary, 262144u);
  for (const char* body : {"", "{}", "[]", R"({"data":[]})", R"({"data":[3]})", R"({"data":[{"id":7}]})"}) {
    FakeServer odd([&](Exchange& exchange) { exchange.respond({.body = body}); });
    EXPECT_THROW(ask_server(target_of(odd)), Error) << body;
  }
}

}  // namespace
}  // namespace carat::serve_bench
