#include "serve/response_reader.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace carat::serve_bench {
namespace {

struct Read {
  std::string body;
  size_t taken = 0;
  ResponseReader reader;
};

Read read(std::string_view bytes, size_t piece) {
  Read read;
  for (size_t i = 0; i < bytes.size() && !read.reader.is_done(); i += piece) {
    read.taken += read.reader.take(bytes.substr(i, piece), [&](std::string_view part) { read.body += part; });
  }
  return read;
}

TEST(ResponseReader, TakesEveryFramingInAnyPieces) {
  const std::string_view length = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
  const std::string_view chunks =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=1\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: 1\r\n\r\n";
  const std::string_view interim =
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello";
  for (const std::string_view bytes : {length, chunks, interim}) {
    for (size_t piece = 1; piece <= bytes.size(); ++piece) {
      const Read result = read(bytes, piece);
      ASSERT_TRUE(result.reader.is_done()) << bytes << piece;
      ASSERT_EQ(result.body, "hello");
      ASSERT_EQ(result.taken, bytes.size());
      ASSERT_EQ(result.reader.status(), bytes == interim ? 404u : 200u);
      ASSERT_TRUE(result.reader.keeps_alive());
    }
  }
}

TEST(ResponseReader, TheEndOfTheConnectionEndsABodyWithoutLength) {
  Read result = read("HTTP/1.0 200 OK\r\n\r\nhello", 4);
  EXPECT_FALSE(result.reader.is_done());
  EXPECT_TRUE(result.reader.end());
  EXPECT_EQ(result.body, "hello");
  EXPECT_FALSE(result.reader.keeps_alive());
  Read cut = read("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", 4);
  EXPECT_FALSE(cut.reader.end());
}

TEST(ResponseReader, TakesNothingBehindTheEnd) {
  const Read result = read("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhello", 1000);
  EXPECT_EQ(result.body, "he");
  EXPECT_EQ(result.taken, 40u);
  EXPECT_TRUE(read("HTTP/1.1 204 No Content\r\n\r\n", 1000).reader.is_done());
  EXPECT_TRUE(read("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 1000).reader.is_done());
  EXPECT_FALSE(read("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 100).reader.keeps_alive());
}

TEST(ResponseReader, WhatIsNoHttpIsRefused) {
  EXPECT_THROW(read("SSH-2.0-OpenSSH\r\n\r\n", 100), Error);
  EXPECT_THROW(read("HTTP/1.1 2x0 OK\r\n\r\n", 100), Error);
  EXPECT_THROW(read("HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n", 100), Error);
  EXPECT_THROW(read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 100), Error);
  EXPECT_THROW(read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", 100), Error);
  EXPECT_THROW(read(std::string(100000, 'x'), 1000), Error);
}

}  // namespace
}  // namespace carat::serve_bench
