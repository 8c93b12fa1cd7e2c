// Connections on loopback: framing, limits, clients that leave, clients that do not read.
#include "server/http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/http/raw_client.h"

namespace carat::server {
namespace {

using namespace std::chrono_literals;
using test::get;
using test::post;
using test::RawClient;

// /echo answers with the body; /stream leaves the exchange to the test; /wait too, without an answer.
class HttpServerTest : public testing::Test {
 protected:
  void start(HttpOptions options = {}) {
    options.port = 0;
    server_ = std::make_unique<HttpServer>(
        options, [this](std::shared_ptr<Exchange> exchange) { handle(std::move(exchange)); },
        [](const Problem& problem, std::string_view) {
          return Response{.status = status_of(problem.refusal), .body = problem.message};
        });
  }
  void handle(std::shared_ptr<Exchange> exchange) {
    if (exchange->request().path == "/echo") return exchange->respond({.body = exchange->request().body});
    const std::lock_guard lock(mutex_);
    exchange->on_gone([this] { ++gone_; });
    if (exchange->request().path == "/stream") exchange->begin_stream("text/event-stream");
    held_.push_back(std::move(exchange));
    arrived_.notify_all();
  }
  std::shared_ptr<Exchange> held(size_t index = 0) {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, 5s, [&] { return held_.size() > index; })) {
      throw std::runtime_error("the request did not arrive");
    }
    return held_[index];
  }
  bool becomes_gone(unsigned count) {
    for (int i = 0; i < 500 && gone_ < count; ++i) std::this_thread::sleep_for(10ms);
    return gone_ >= count;
  }
  RawClient client() { return RawClient(server_->port()); }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::shared_ptr<Exchange>> held_;
  std::atomic<unsigned> gone_{0};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AThousandRequestsOnOneConnection) {
  start();
  RawClient raw = client();
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(raw.send(post("/echo", "n" + std::to_string(i) + ".")));
    ASSERT_THAT(raw.receive_until("."), testing::HasSubstr("\r\n\r\nn" + std::to_string(i) + ".")) << i;
  }
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  start();
  RawClient raw = client();
  raw.send(post("/echo", "one.") + post("/echo", "two.") + post("/echo", "three!"));
  const std::string answers = raw.receive_until("!");
  EXPECT_LT(answers.find("one."), answers.find("two."));
  EXPECT_LT(answers.find("two."), answers.find("three!"));
}

TEST_F(HttpServerTest, AStreamIsChunkedAndEnds) {
  start();
  RawClient raw = client();
  raw.send(get("/stream"));
  const auto exchange = held();
  EXPECT_THAT(raw.receive_until("\r\n\r\n"), testing::HasSubstr("Transfer-Encoding: chunked"));
  exchange->write("data: 1\n\n");
  EXPECT_EQ(raw.receive_until("\n\n\r\n"), "9\r\ndata: 1\n\n\r\n");
  exchange->write("data: 2\n\n");
  exchange->finish();
  EXPECT_EQ(raw.receive_until("0\r\n\r\n"), "9\r\ndata: 2\n\n\r\n0\r\n\r\n");
  raw.send(post("/echo", "again."));
  EXPECT_THAT(raw.receive_until("again."), testing::HasSubstr("200 OK")) << "the connection goes on";
  EXPECT_EQ(gone_, 0u);
}

TEST_F(HttpServerTest, AbandonedStreamsEndWithoutTheirLastChunk) {
  start();
  RawClient raw = client();
  raw.send(get("/stream"));
  const auto exchange = held();
  exchange->write("data: 1\n\n");
  std::this_thread::sleep_for(50ms);
  exchange->abandon();
  const std::string all = raw.receive_all();
  EXPECT_THAT(all, testing::HasSubstr("data: 1"));
  EXPECT_THAT(all, testing::Not(testing::HasSubstr("0\r\n\r\n")));
}

TEST_F(HttpServerTest, HttpOneZeroGetsNoChunks) {
  start();
  RawClient raw = client();
  raw.send("GET /stream HTTP/1.0\r\n\r\n");
  const auto exchange = held();
  exchange->write("data: 1\n\n");
  exchange->finish();
  const std::string all = raw.receive_all();
  EXPECT_THAT(all, testing::Not(testing::HasSubstr("chunked")));
  EXPECT_THAT(all, testing::EndsWith("\r\n\r\ndata: 1\n\n"));
}

TEST_F(HttpServerTest, WhoLeavesIsNoticedWhileWaitingAndWhileStreaming) {
  start();
  RawClient waiting = client(), streaming = client(), resetting = client(), half = client();
  waiting.send(get("/wait"));
  held(0);
  streaming.send(get("/stream"));
  held(1);
  resetting.send(get("/wait"));
  held(2);
  half.send(get("/wait"));
  held(3);
  EXPECT_EQ(gone_, 0u);
  waiting.close();
  EXPECT_TRUE(becomes_gone(1));
  streaming.close();
  EXPECT_TRUE(becomes_gone(2));
  resetting.reset();
  EXPECT_TRUE(becomes_gone(3));
  half.half_close();
  EXPECT_TRUE(becomes_gone(4));
  EXPECT_TRUE(held(1)->is_gone());
  for (int i = 0; i < 200 && server_->figures().connections > 0; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(server_->figures().connections, 0u);
}

TEST_F(HttpServerTest, ASlowReaderIsToldFromOneThatKeepsUp) {
  HttpOptions options;
  options.limits.stream_bytes = 1 << 16;
  start(options);
  RawClient raw = client();
  raw.send(get("/stream"));
  const auto exchange = held();
  std::atomic<bool> drained{false};
  exchange->on_drained([&] { drained = true; });
  const std::string piece(8192, 'x');
  int written = 0;
  while (written < 10000 && exchange->write(piece)) {
    ++written;
    std::this_thread::sleep_for(100us);
  }
  ASSERT_LT(written, 10000) << "a client that reads nothing must be noticed";
  EXPECT_FALSE(drained);
  std::thread reader([&] { raw.receive_all(500ms); });
  for (int i = 0; i < 500 && !drained; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(drained);
  exchange->finish();
  reader.join();
}

TEST_F(HttpServerTest, AReaderThatStopsIsDropped) {
  HttpOptions options;
  options.limits.send = 200ms;
  start(options);
  RawClient raw = client();
  raw.send(get("/stream"));
  const auto exchange = held();
  exchange->write(std::string(32 << 20, 'x'));
  EXPECT_TRUE(becomes_gone(1));
}

TEST_F(HttpServerTest, SlowHeadersAndBodiesRunOut) {
  HttpOptions options;
  options.limits.receive = 200ms;
  options.limits.idle = 400ms;
  start(options);
  RawClient idle = client(), headers = client(), body = client();
  headers.send("GET / HT");
  body.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nab");
  EXPECT_TRUE(headers.is_closed(3s));
  EXPECT_TRUE(body.is_closed(3s));
  EXPECT_TRUE(idle.is_closed(3s));
  // A byte now and then does not hold the headers open.
  RawClient drip = client();
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 100 && !drip.is_closed(20ms); ++i) drip.send("G");
  EXPECT_LT(std::chrono::steady_clock::now() - began, 2s);
}

TEST_F(HttpServerTest, TooManyConnectionsAreClosed) {
  HttpOptions options;
  options.limits.connections = 3;
  start(options);
  std::vector<RawClient> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(client());
    clients.back().send(post("/echo", "ok."));
    EXPECT_THAT(clients.back().receive_until("ok."), testing::HasSubstr("200"));
  }
  RawClient fourth = client();
  EXPECT_TRUE(fourth.is_closed(3s));
  clients.pop_back();
  for (int i = 0; i < 200 && server_->figures().connections > 2; ++i) std::this_thread::sleep_for(10ms);
  RawClient fifth = client();
  fifth.send(post("/echo", "ok."));
  EXPECT_THAT(fifth.receive_until("ok."), testing::HasSubstr("200"));
}

TEST_F(HttpServerTest, RefusalsAreReadableAndClose) {
  HttpOptions options;
  options.limits.body_bytes = 1000;
  start(options);
  RawClient raw = client();
  raw.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5000000\r\n\r\n" + std::string(200000, 'x'));
  const std::string answer = raw.receive_all();
  EXPECT_THAT(answer, testing::HasSubstr("413 Content Too Large"));
  EXPECT_THAT(answer, testing::HasSubstr("Connection: close"));
}

TEST_F(HttpServerTest, ContinueBeforeALargeBody) {
  start();
  RawClient raw = client();
  raw.send("POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_EQ(raw.receive_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  raw.send("ab.");
  EXPECT_THAT(raw.receive_until("ab."), testing::HasSubstr("200 OK"));
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  start();
  RawClient raw = client();
  raw.send("HEAD /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(raw.receive_all(), testing::EndsWith("\r\n\r\n"));
}

TEST_F(HttpServerTest, DrainingClosesIdleConnectionsAndLetsAnswersFinish) {
  start();
  RawClient idle = client(), busy = client();
  idle.send(post("/echo", "ok."));
  idle.receive_until("ok.");
  busy.send(get("/stream"));
  const auto exchange = held();
  server_->close_connections_after_answers();
  EXPECT_TRUE(idle.is_closed(3s));
  exchange->write("data: 1\n\n");
  exchange->finish();
  EXPECT_THAT(busy.receive_all(), testing::HasSubstr("0\r\n\r\n"));
}

TEST_F(HttpServerTest, StoppingTellsThoseWhoAnswer) {
  start();
  RawClient raw = client();
  raw.send(get("/wait"));
  held();
  server_->stop();
  EXPECT_EQ(gone_, 1u);
  EXPECT_TRUE(raw.is_closed(3s));
}

TEST_F(HttpServerTest, TwoHundredIdleAndTwoHundredFiftySixAtOnce) {
  start();
  std::vector<RawClient> idle;
  for (int i = 0; i < 200; ++i) idle.push_back(client());
  std::vector<RawClient> busy;
  for (int i = 0; i < 256; ++i) {
    busy.push_back(client());
    busy.back().send(get("/stream"));
  }
  held(255);
  for (size_t i = 0; i < 256; ++i) {
    held(i)->write("data: ok\n\n");
    held(i)->finish();
  }
  for (RawClient& raw : busy) EXPECT_THAT(raw.receive_until("0\r\n\r\n"), testing::HasSubstr("data: ok"));
}

TEST(HttpServer, APortInUseIsNamed) {
  const auto handler = [](std::shared_ptr<Exchange>) {};
  const auto refuser = [](const Problem&, std::string_view) { return Response{}; };
  HttpOptions options;
  options.port = 0;
  const HttpServer first(options, handler, refuser);
  options.port = first.port();
  try {
    const HttpServer second(options, handler, refuser);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(std::to_string(first.port())));
  }
}

}  // namespace
}  // namespace carat::server
