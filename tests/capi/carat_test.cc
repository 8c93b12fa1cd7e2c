// libcarat as a program sees it: through its header and the shared library, with the demo model.
#include "carat/carat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace {

using nlohmann::json;
using testing::HasSubstr;

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

Engine open(const char* options = R"({"parallel":4,"context":512,"threads":1})") {
  carat_error* error = nullptr;
  Engine engine(carat_open(CARAT_DEMO_MODEL, options, nullptr, &error));
  EXPECT_NE(engine, nullptr) << carat_error_text(error);
  carat_error_free(error);
  return engine;
}

std::string question(const std::string& fields = R"("stream":true,"temperature":0)") {
  return R"({"messages":[{"role":"user","content":"What is nginx?"}],)" + fields + "}";
}

Request chat(const Engine& engine, const std::string& body) {
  return Request(carat_chat(engine.get(), body.c_str(), nullptr, nullptr, nullptr));
}

std::vector<json> events_of(const Request& request) {
  std::vector<json> events;
  while (const Text event{carat_next(request.get(), -1.0)}) events.push_back(json::parse(event.get()));
  return events;
}

std::string answer_of(const std::vector<json>& events) {
  std::string answer;
  for (const json& event : events) {
    for (const json& choice : event["choices"]) answer += choice["delta"].value("content", "");
  }
  return answer;
}

// Collects what a callback is told.
struct Listener {
  std::mutex mutex;
  std::condition_variable has_news;
  std::vector<std::string> events;
  int ends = 0;
  std::atomic<carat_request*> cancels{nullptr};  // on its first event

  static void on_event(const char* event, void* user) {
    auto& self = *static_cast<Listener*>(user);
    if (carat_request* request = self.cancels.exchange(nullptr)) carat_cancel(request);
    const std::lock_guard lock(self.mutex);
    if (event == nullptr) ++self.ends;
    if (event != nullptr) self.events.emplace_back(event);
    self.has_news.notify_all();
  }
};

TEST(CaratLibrary, AnswersInAStream) {
  const Engine engine = open();
  const Request request = chat(engine, question());
  const std::vector<json> events = events_of(request);
  ASSERT_GT(events.size(), 3u);
  EXPECT_EQ(events.front()["choices"][0]["delta"]["role"], "assistant");
  EXPECT_THAT(answer_of(events), HasSubstr("nginx"));
  EXPECT_GT(events.back()["usage"]["completion_tokens"], 0);
  EXPECT_TRUE(carat_is_done(request.get()));
  EXPECT_EQ(carat_next(request.get(), -1.0), nullptr) << "again";
}

TEST(CaratLibrary, AWholeAnswerIsOneEventAndEqualToTheStreamed) {
  const Engine engine = open();
  const std::vector<json> whole = events_of(chat(engine, question(R"("temperature":0)")));
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0]["choices"][0]["message"]["content"], answer_of(events_of(chat(engine, question()))));
}

TEST(CaratLibrary, TextWithoutATemplate) {
  const Engine engine = open();
  const Request request(carat_complete(engine.get(), R"({"prompt":"nginx is","max_tokens":4,"temperature":0})", nullptr,
                                       nullptr, nullptr));
  const std::vector<json> events = events_of(request);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["usage"]["completion_tokens"], 4);
}

TEST(CaratLibrary, MistakesInARequestAreItsLastEvent) {
  const Engine engine = open();
  for (const char* body : {"{", "[]", R"({"messages":[]})", R"({"messages":[{"role":"user","content":"a"}],"n":0})"}) {
    const std::vector<json> events = events_of(chat(engine, body));
    ASSERT_EQ(events.size(), 1u) << body;
    EXPECT_TRUE(events[0].contains("error")) << body;
  }
}

TEST(CaratLibrary, ErrorsSayWhatIsWrong) {
  const auto refused = [](const char* model, const char* options) {
    carat_error* error = nullptr;
    const Engine engine(carat_open(model, options, nullptr, &error));
    EXPECT_EQ(engine, nullptr);
    const CaratError owned(error);
    return std::pair<int, std::string>(carat_error_code(error), carat_error_text(error));
  };
  EXPECT_EQ(refused("/nonexistent.gguf", nullptr).first, CARAT_FILE_ACCESS);
  EXPECT_THAT(refused(CARAT_DEMO_MODEL, R"({"contxt":1})").second, HasSubstr("contxt"));
  EXPECT_THAT(refused(CARAT_DEMO_MODEL, R"({"context":"long"})").second, HasSubstr("context"));
  EXPECT_EQ(refused(CARAT_DEMO_MODEL, "{").first, CARAT_BAD_ARGUMENT);
  EXPECT_THAT(refused(CARAT_DEMO_MODEL, R"({"device":"abacus"})").second, HasSubstr("abacus"));
  EXPECT_EQ(carat_open("/nonexistent.gguf", nullptr, nullptr, nullptr), nullptr) << "nobody wants to know why";
  carat_error* error = nullptr;
  EXPECT_EQ(carat_chat(nullptr, "{}", nullptr, nullptr, &error), nullptr);
  EXPECT_EQ(carat_error_code(CaratError(error).get()), CARAT_BAD_ARGUMENT);
}

TEST(CaratLibrary, NothingIsNothing) {
  carat_close(nullptr);
  carat_release(nullptr);
  carat_cancel(nullptr);
  carat_error_free(nullptr);
  carat_free(nullptr);
  EXPECT_EQ(carat_next(nullptr, -1.0), nullptr);
  EXPECT_TRUE(carat_is_done(nullptr));
}

TEST(CaratLibrary, TokensAndBack) {
  const Engine engine = open();
  const std::string text = "What is nginx? <turn|> äöü";
  int32_t* tokens = nullptr;
  size_t count = 0;
  ASSERT_EQ(carat_tokenize(engine.get(), text.data(), text.size(), 0, &tokens, &count, nullptr), 0);
  size_t bytes = 0;
  const Text back(carat_detokenize(engine.get(), tokens, count, &bytes, nullptr));
  EXPECT_EQ(std::string(back.get(), bytes), text);
  carat_free(tokens);
  const int32_t wrong = 1 << 30;
  carat_error* error = nullptr;
  EXPECT_EQ(carat_detokenize(engine.get(), &wrong, 1, nullptr, &error), nullptr);
  EXPECT_THAT(carat_error_text(CaratError(error).get()), HasSubstr("tokens[0]"));
}

TEST(CaratLibrary, ACallbackHearsAllAndTheEndOnce) {
  const Engine engine = open();
  Listener listener;
  const Request request(carat_chat(engine.get(), question().c_str(), Listener::on_event, &listener, nullptr));
  EXPECT_TRUE(carat_wait(request.get(), -1.0));
  const std::lock_guard lock(listener.mutex);
  EXPECT_EQ(listener.ends, 1);
  std::vector<json> events;
  for (const std::string& event : listener.events) events.push_back(json::parse(event));
  EXPECT_THAT(answer_of(events), HasSubstr("nginx"));
}

TEST(CaratLibrary, ACallbackMayCancelItsRequest) {
  const Engine engine = open();
  for (int i = 0; i < 20; ++i) {
    Listener listener;
    Request request(carat_chat(engine.get(), question(R"("stream":true,"ignore_eos":true)").c_str(), Listener::on_event,
                               &listener, nullptr));
    listener.cancels = request.get();
    EXPECT_TRUE(carat_wait(request.get(), -1.0));
    request.reset();
    const std::lock_guard lock(listener.mutex);
    EXPECT_EQ(listener.ends, 1);
  }
}

TEST(CaratLibrary, CancelledRequestsEndAndLeaveOthersAlone) {
  const Engine engine = open();
  const std::string alone = answer_of(events_of(chat(engine, question())));
  const Request long_one = chat(engine, question(R"("stream":true,"ignore_eos":true)"));
  const Text first(carat_next(long_one.get(), -1.0));
  EXPECT_NE(first, nullptr);
  const Request other = chat(engine, question());
  carat_cancel(long_one.get());
  EXPECT_EQ(carat_next(long_one.get(), -1.0), nullptr);
  EXPECT_TRUE(carat_is_done(long_one.get()));
  EXPECT_EQ(answer_of(events_of(other)), alone);
}

TEST(CaratLibrary, ManyThreadsShareAnEngine) {
  const Engine engine = open();
  const std::string expected = answer_of(events_of(chat(engine, question())));
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        const Request request = chat(engine, question());
        if ((t + i) % 5 == 0) {
          carat_cancel(request.get());
          continue;
        }
        right += answer_of(events_of(request)) == expected ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 6 * 4);
}

TEST(CaratLibrary, ClosingEndsWhatRuns) {
  Engine engine = open();
  const Request running = chat(engine, question(R"("stream":true,"ignore_eos":true)"));
  const Request waiting = chat(engine, question());
  const Text first(carat_next(running.get(), -1.0));
  std::thread reader([&] {
    while (const Text event{carat_next(running.get(), -1.0)}) {
    }
  });
  engine.reset();
  reader.join();
  while (const Text event{carat_next(waiting.get(), -1.0)}) {
  }
  EXPECT_TRUE(carat_is_done(running.get()) && carat_is_done(waiting.get()));
}

TEST(CaratLibrary, WhoReadsLateGetsAll) {
  const Engine engine = open();
  const Request request = chat(engine, question(R"("stream":true,"ignore_eos":true,"max_tokens":300)"));
  const std::vector<json> events = events_of(request);
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], 300);
}

TEST(CaratLibrary, LogAndMetrics) {
  std::vector<std::string> lines;
  carat_hooks hooks = {};
  hooks.size = sizeof hooks;
  hooks.user = &lines;
  hooks.log = [](int, const char* text, void* user) { static_cast<std::vector<std::string>*>(user)->push_back(text); };
  Engine engine(carat_open(CARAT_DEMO_MODEL, R"({"device":"auto"})", &hooks, nullptr));
  events_of(chat(engine, question()));
  // A request is counted once the engine has let go of it, which may be a moment after its last event.
  const std::string counted = "carat_requests_total{api=\"openai\",route=\"/v1/chat/completions\",status=\"200\"} 1";
  const auto is_counted = [&] {
    return std::string(Text(carat_metrics(engine.get(), nullptr)).get()).find(counted) != std::string::npos;
  };
  for (int tries = 0; tries < 1000 && !is_counted(); ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(is_counted());
  const Text info(carat_model_info(engine.get(), nullptr));
  EXPECT_EQ(json::parse(info.get())["id"], "demo-e-q8_0");
  engine.reset();
  EXPECT_FALSE(lines.empty()) << "which device was chosen";
}

}  // namespace
