// The bytes of a request, in pieces of any size, well-formed and not.
#include "server/http/request_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace carat::server {
namespace {

HttpLimits small_limits() {
  HttpLimits limits;
  limits.header_bytes = 1024;
  limits.body_bytes = 100;
  return limits;
}

// The status a request is refused with; 0 where it is taken.
unsigned status_of_bytes(std::string_view bytes) {
  RequestReader reader(small_limits());
  reader.take(bytes);
  return reader.problem() ? status_of(reader.problem()->refusal) : 0;
}

TEST(RequestReader, TakesPiecesOfAnySize) {
  const std::string bytes =
      "POST /v1/a%20b?x=1&y=a+b HTTP/1.1\r\nHost: h\r\nX-Request-Id: mine\r\nContent-Length: 5\r\n\r\nhellonext";
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    RequestReader reader(small_limits());
    std::string rest = bytes;
    std::string waiting;
    while (!reader.is_done() && !rest.empty()) {
      waiting += rest.substr(0, piece);
      rest.erase(0, std::min(piece, rest.size()));
      waiting.erase(0, reader.take(waiting));
      ASSERT_FALSE(reader.problem().has_value()) << reader.problem()->message;
    }
    ASSERT_TRUE(reader.is_done()) << piece;
    EXPECT_TRUE(reader.keeps_alive());
    const HttpRequest request = reader.release("127.0.0.1");
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.path, "/v1/a b");
    EXPECT_EQ(request.parameter("y"), "a b");
    EXPECT_EQ(request.body, "hello");
    EXPECT_EQ(request.id, "mine");
    EXPECT_EQ(request.header("host"), "h");
    EXPECT_EQ((waiting + rest).substr(0, 4), "next") << "what follows belongs to the next request";
    EXPECT_FALSE(reader.is_done());
  }
}

TEST(RequestReader, Chunks) {
  RequestReader reader(small_limits());
  reader.take("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n");
  ASSERT_TRUE(reader.is_done());
  EXPECT_EQ(reader.release("").body, "abcde");
}

TEST(RequestReader, TwoReadingsAreRefused) {
  EXPECT_EQ(status_of_bytes("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"),
            400u);
  EXPECT_EQ(status_of_bytes("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"),
            400u);
  EXPECT_EQ(status_of_bytes("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n"), 400u);
  EXPECT_EQ(status_of_bytes("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n"), 400u);
  EXPECT_EQ(status_of_bytes("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1e1\r\n\r\n"), 400u);
  EXPECT_EQ(status_of_bytes("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"), 400u);
  EXPECT_EQ(status_of_bytes("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"), 400u);
  EXPECT_EQ(status_of_bytes("POST / HTTP/1.1\r\nHost: h\r\nContent-Length : 5\r\n\r\n"), 400u);
  EXPECT_EQ(status_of_bytes("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400u);
  EXPECT_EQ(status_of_bytes("GET / HTTP/1.1\r\n\r\n"), 400u);
  EXPECT_EQ(status_of_bytes("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400u);
}

TEST(RequestReader, WhatIsNoHttpIsRefused) {
  EXPECT_EQ(status_of_bytes("hello\r\n\r\n"), 400u);
  EXPECT_EQ(status_of_bytes("GET / HTTP/2.0\r\nHost: h\r\n\r\n"), 400u);
  EXPECT_EQ(status_of_bytes(std::string("GET /\0 HTTP/1.1\r\nHost: h\r\n\r\n", 28)), 400u);
  EXPECT_EQ(status_of_bytes(std::string("GET / HTTP/1.1\r\nHost: h\r\nA: \0\r\n\r\n", 34)), 400u);
  EXPECT_EQ(status_of_bytes("\x16\x03\x01\x02"), 400u);
}

TEST(RequestReader, LimitsHaveTheirStatus) {
  EXPECT_EQ(status_of_bytes("GET / HTTP/1.1\r\nHost: h\r\nA: " + std::string(2000, 'a') + "\r\n\r\n"), 431u);
  EXPECT_EQ(status_of_bytes("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 101\r\n\r\n"), 413u);
  EXPECT_EQ(status_of_bytes("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n"), 400u);
  EXPECT_EQ(
      status_of_bytes("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n" + std::string(255, 'a')),
      413u);
  EXPECT_EQ(status_of_bytes("POST / HTTP/1.1\r\nHost: h\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\na"),
            415u);
}

TEST(RequestReader, ContinueIsWantedOnce) {
  RequestReader reader(small_limits());
  reader.take("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_TRUE(reader.wants_continue());
  EXPECT_FALSE(reader.wants_continue());
  reader.take("ab");
  EXPECT_TRUE(reader.is_done());
}

TEST(RequestReader, AnIdThatCannotBeALogLineIsReplaced) {
  RequestReader reader(small_limits());
  reader.take("GET / HTTP/1.1\r\nHost: h\r\nX-Request-Id: a b\r\n\r\n");
  EXPECT_EQ(reader.release("").id.substr(0, 4), "req-");
}

TEST(PercentDecoding, RefusesWhatIsNone) {
  EXPECT_EQ(percent_decoded("a%2Fb", false), "a/b");
  EXPECT_EQ(percent_decoded("a+b", true), "a b");
  EXPECT_EQ(percent_decoded("a+b", false), "a+b");
  EXPECT_FALSE(percent_decoded("a%2", false).has_value());
  EXPECT_FALSE(percent_decoded("a%zz", false).has_value());
  EXPECT_FALSE(percent_decoded("a%00", false).has_value());
}

}  // namespace
}  // namespace carat::server
