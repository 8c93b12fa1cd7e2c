// Requests that two programs could read differently, one after the other: what is not clear is refused, and what is
// behind a request never becomes part of it.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "server/http/request_reader.h"

namespace carat::server {
namespace {

using namespace std::string_literals;

HttpLimits small_limits() {
  HttpLimits limits;
  limits.header_bytes = 1024;
  limits.body_bytes = 100;
  return limits;
}

struct Outcome {
  unsigned refused = 0;  // the status; 0: not refused
  std::vector<HttpRequest> requests;
  bool is_waiting = false;  // for the rest of a request
};

Outcome read(std::string_view bytes, size_t piece) {
  RequestReader reader(small_limits());
  Outcome outcome;
  std::string waiting;
  for (size_t begin = 0; begin < bytes.size(); begin += piece) {
    waiting += bytes.substr(begin, piece);
    for (bool goes_on = true; goes_on && !waiting.empty();) {
      waiting.erase(0, reader.take(waiting));
      if (reader.problem()) {
        outcome.refused = status_of(reader.problem()->refusal);
        return outcome;
      }
      goes_on = reader.is_done();
      if (goes_on) outcome.requests.push_back(reader.release("client"));
    }
  }
  outcome.is_waiting = reader.has_begun() || !waiting.empty();
  return outcome;
}

const std::string kPost = "POST / HTTP/1.1\r\nHost: h\r\n";
const std::string kChunked = kPost + "Transfer-Encoding: chunked\r\n\r\n";
const std::string kEnd = "0\r\n\r\n";
// What an attacker wants to be read as a request of its own.
const std::string kHidden = "GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n";

// Each with the hidden request behind it, whole and in single bytes. Neither may ever come out.
void expect_refused(const std::string& request, unsigned status = 400) {
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{100000}}) {
    const Outcome outcome = read(request + kHidden, piece);
    EXPECT_TRUE(outcome.requests.empty()) << request << " in pieces of " << piece;
    EXPECT_TRUE(outcome.refused == status || outcome.is_waiting) << request << " in pieces of " << piece;
  }
  EXPECT_EQ(read(request + kHidden, 100000).refused, status) << request;
}

// Taken, with this body, and then comes the next request.
void expect_taken(const std::string& request, std::string_view body) {
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{100000}}) {
    const Outcome outcome = read(request + kHidden, piece);
    ASSERT_EQ(outcome.refused, 0u) << request;
    ASSERT_EQ(outcome.requests.size(), 2u) << request << " in pieces of " << piece;
    EXPECT_EQ(outcome.requests[0].body, body);
    EXPECT_EQ(outcome.requests[1].path, "/hidden");
  }
}

TEST(RequestSmuggling, TwoLengths) {
  expect_refused(kPost + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello");
  expect_refused(kPost + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello");
  expect_refused(kPost + "Content-Length: 5, 6\r\n\r\nhello");
  expect_refused(kPost + "Content-Length: 5, 5\r\n\r\nhello");
  expect_refused(kPost + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + kEnd);
  expect_refused(kPost + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + kEnd);
}

TEST(RequestSmuggling, LengthsThatAreNoNumber) {
  for (const char* length : {"", "+5", "-5", "0x5", "5 0", "5;", "5a", "\"5\"", "1e1", "five", "18446744073709551621",
                             "36893488147419103237", "99999999999999999999999999"}) {
    expect_refused(kPost + "Content-Length: " + length + "\r\n\r\nhello");
  }
  expect_taken(kPost + "Content-Length:5\r\n\r\nhello", "hello");
  expect_taken(kPost + "Content-Length: \t 005 \t\r\n\r\nhello", "hello");
}

TEST(RequestSmuggling, EncodingsOtherThanChunked) {
  for (const char* encoding : {"", "identity", "gzip", "xchunked", "chunkedx", "chunked, chunked", "gzip, chunked",
                               "chunked, gzip", "identity, chunked", "\"chunked\"", "chunked;q=1",
                               "\x0b"
                               "chunked",
                               "chu nked"}) {
    expect_refused(kPost + "Transfer-Encoding: " + encoding + "\r\n\r\n" + kEnd);
    expect_refused(kPost + "Transfer-Encoding: " + encoding + "\r\nContent-Length: 5\r\n\r\n" + kEnd);
  }
  expect_refused(kPost + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + kEnd);
  expect_refused(kPost + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + kEnd);
  expect_refused(kPost + "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n" + kEnd);
  expect_refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + kEnd);
  expect_taken(kPost + "Transfer-Encoding: Chunked\r\n\r\n" + kEnd, "");
}

TEST(RequestSmuggling, LinesThatEndOtherwise) {
  expect_refused("GET / HTTP/1.1\nHost: h\n\n");
  expect_refused("GET / HTTP/1.1\r\nHost: h\nA: b\r\n\r\n");
  expect_refused("GET / HTTP/1.1\r\nHost: h\rA: b\r\n\r\n");
  expect_refused("GET / HTTP/1.1\r\nHost: h\r\n\nA: b\r\n\r\n");
  expect_refused("GET / HTTP/1.1\r\r\nHost: h\r\n\r\n");
}

TEST(RequestSmuggling, LinesThatGoOnInTheNext) {
  expect_refused(kPost + "A: b\r\n c\r\n\r\n");
  expect_refused(kPost + "A: b\r\n\tc\r\n\r\n");
  expect_refused(kPost + "Transfer-Encoding:\r\n chunked\r\n\r\n" + kEnd);
  expect_refused(kPost + "Content-Length:\r\n 5\r\n\r\nhello");
  expect_refused("GET / HTTP/1.1\r\n Host: h\r\n\r\n");
  expect_taken(kPost + "Content-Length: 12\r\n\r\n{\r\n\t\"a\":\n 1}", "{\r\n\t\"a\":\n 1}");
}

TEST(RequestSmuggling, NamesOfHeaders) {
  expect_refused(kPost + "Content-Length : 5\r\n\r\nhello");
  expect_refused(kPost + "Content-Length\t: 5\r\n\r\nhello");
  expect_refused(kPost + " Content-Length: 5\r\n\r\nhello");
  expect_refused(kPost + "Content Length: 5\r\n\r\nhello");
  expect_refused(kPost + ": 5\r\n\r\n");
  expect_refused(kPost + "Content-Length\r\n\r\n");
  expect_refused(kPost + "Content-Length\0: 5\r\n\r\nhello"s);
  expect_refused(kPost + "A: b\0\r\n\r\n"s);
  expect_refused(kPost + "\xc3\xa9: b\r\n\r\n");
  expect_taken(kPost + "Content_Length: 5\r\n\r\n", "");
}

TEST(RequestSmuggling, TheFirstLine) {
  for (const char* line : {"GET /", "GET / HTTP/1.2", "GET / HTTP/1.10", "GET / HTTP/01.1", "GET / HTTP/2.0",
                           "GET / http/1.1", "GET  / HTTP/1.1", "GET\t/\tHTTP/1.1", "GET / x HTTP/1.1",
                           " GET / HTTP/1.1", "G@T / HTTP/1.1", "GET / HTTP/1.1 ", "GET HTTP/1.1", "PRI * HTTP/2.0"}) {
    expect_refused(std::string(line) + "\r\nHost: h\r\n\r\n");
  }
  expect_refused("GET /\0 HTTP/1.1\r\nHost: h\r\n\r\n"s);
  expect_refused("GET / HTTP/1.1\r\n\r\n");
  expect_refused("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
  expect_refused("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n");
}

TEST(RequestSmuggling, Chunks) {
  for (const char* chunk :
       {"+5\r\nhello\r\n", "-5\r\nhello\r\n", "0x5\r\nhello\r\n", " 5\r\nhello\r\n", "5 \r\nhello\r\n", "\r\nhello\r\n",
        "g\r\nhello\r\n", "5\nhello\r\n", "5\rhello\r\n", "5\r\nhello\n", "5\r\nhello", "5\r\nhellooo\r\n",
        "4\r\nhello\r\n", "10000000000000005\r\nhello\r\n", "fffffffffffffffffffff\r\nhello\r\n",
        "5;a=\nb\r\nhello\r\n", "5;a=\rb\r\nhello\r\n", "5;;\r\nhello\r\n", "5,5\r\nhello\r\n"}) {
    expect_refused(kChunked + chunk + kEnd);
  }
  expect_refused(kChunked + "5;a=\0\r\nhello\r\n"s + kEnd);
  // A quote that is not closed: its end is waited for, and the lines in between are no lines.
  for (const size_t piece : {size_t{1}, size_t{100000}}) {
    EXPECT_TRUE(read(kChunked + "5;a=\"b\r\nhello\r\n" + kEnd + kHidden, piece).requests.empty());
    EXPECT_NE(read(kChunked + "5;a=\"b\r\nhello\r\n" + kEnd + kHidden + "\"\r\n", piece).refused, 0u);
  }
  expect_refused(kChunked + "65\r\n" + std::string(101, 'a') + "\r\n" + kEnd, 413);
  expect_refused(kChunked + "7fffffffffffffff\r\n" + std::string(101, 'a'), 413);
  expect_taken(kChunked + "5\r\nhello\r\n" + kEnd, "hello");
  expect_taken(kChunked + "0005\r\nhello\r\nA\r\n 123456789\r\n" + kEnd, "hello 123456789");
  expect_taken(kChunked + "5;a=b;c=\"d;\\\"e\"\r\nhello\r\n00\r\n\r\n", "hello");
}

TEST(RequestSmuggling, WhatFollowsTheLastChunkIsNoHeader) {
  const std::string request =
      kChunked +
      "1\r\na\r\n0\r\nHost: evil\r\nAuthorization: Bearer k\r\nConnection: close\r\nX-Request-Id: theirs\r\n\r\n";
  expect_taken(request, "a");
  RequestReader reader(small_limits());
  reader.take(request);
  EXPECT_TRUE(reader.keeps_alive());
  const HttpRequest taken = reader.release("");
  EXPECT_EQ(taken.header("host"), "h");
  EXPECT_EQ(taken.headers.size(), 2u);
  EXPECT_FALSE(taken.has_header("authorization"));
  EXPECT_NE(taken.id, "theirs");
  for (const char* trailer : {"Content-Length: 3", "Transfer-Encoding: chunked", "A B: c", "A", ": b"}) {
    expect_refused(kChunked + "0\r\n" + trailer + "\r\n\r\n");
  }
}

TEST(RequestSmuggling, NothingOfARequestIsEndless) {
  const std::string much(5000, 'a');
  expect_refused(kPost + "A: " + much + "\r\n\r\n", 431);
  expect_refused("GET /" + much + " HTTP/1.1\r\nHost: h\r\n\r\n", 431);
  expect_refused(kChunked + "1;" + much + "\r\na\r\n" + kEnd, 431);
  expect_refused(kChunked + "0\r\nA: " + much + "\r\n\r\n", 431);
  std::string lines;
  for (int i = 0; i < 500; ++i) lines += "a: b\r\n";
  expect_refused(kPost + lines + "\r\n", 431);
  expect_refused(kChunked + "0\r\n" + lines + "\r\n", 431);
  // Without an end, they are refused when the limit is reached.
  for (const std::string& begin : {kPost + "A: ", kChunked + "1;", kChunked + "0\r\nA: "}) {
    EXPECT_EQ(read(begin + much, 1).refused, 431u);
    EXPECT_EQ(read(begin + much, 100000).refused, 431u);
  }
}

// The limit is the same whatever the pieces: the longest that is taken, and one byte more.
TEST(RequestSmuggling, TheLimitOfHeadersIsExact) {
  const std::string begin = kPost + "A: ";
  for (const size_t piece : {size_t{1}, size_t{13}, size_t{100000}}) {
    const std::string longest = begin + std::string(1024 - begin.size() - 4, 'a') + "\r\n\r\n";
    EXPECT_EQ(read(longest, piece).requests.size(), 1u) << piece;
    const std::string longer = begin + std::string(1024 - begin.size() - 3, 'a') + "\r\n\r\n";
    EXPECT_EQ(read(longer, piece).refused, 431u) << piece;
  }
}

}  // namespace
}  // namespace carat::server
