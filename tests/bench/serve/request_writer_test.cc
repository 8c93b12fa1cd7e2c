#include "serve/request_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace carat::serve_bench {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

nlohmann::json body_of(const std::string& request) {
  const size_t end = request.find("\r\n\r\n");
  const std::string body = request.substr(end + 4);
  EXPECT_THAT(request, HasSubstr("Content-Length: " + std::to_string(body.size()) + "\r\n"));
  return nlohmann::json::parse(body);
}

TEST(RequestWriter, WritesCompletions) {
  const RequestWriter writer({.extra_body = R"({"top_k": 3})", .ignore_eos = true}, {"h", "80", "/x"}, "a \"b\"",
                             false);
  Conversation conversation = writer.begin({.system = "sys"});
  writer.add_turn({.content = "one"}, conversation);
  writer.add_answer("two", conversation);
  const std::string request = writer.request(conversation, 77);
  EXPECT_THAT(request, StartsWith("POST /x/v1/completions HTTP/1.1\r\nHost: h:80\r\n"));
  const auto body = body_of(request);
  EXPECT_EQ(body["model"], "a \"b\"");
  EXPECT_EQ(body["prompt"], "sys one two");
  EXPECT_EQ(body["max_tokens"], 77);
  EXPECT_EQ(body["stream_options"]["include_usage"], true);
  EXPECT_EQ(body["ignore_eos"], true);
  EXPECT_EQ(body["top_k"], 3);
  EXPECT_EQ(body["temperature"], 0.0);
}

TEST(RequestWriter, NamesTheConversation) {
  const RequestWriter writer({.session_header = "x-session"}, {"h", "80", ""}, "m", false);
  Conversation conversation = writer.begin({.name = "7-3"});
  writer.add_turn({.content = "hi"}, conversation);
  EXPECT_THAT(writer.request(conversation, 1), HasSubstr("\r\nx-session: 7-3\r\n"));
  const RequestWriter plain({}, {"h", "80", ""}, "m", false);
  EXPECT_THAT(plain.request(plain.begin({.name = "7-3"}), 1), testing::Not(HasSubstr("7-3")));
}

TEST(RequestWriter, WritesTokenIds) {
  const RequestWriter writer({}, {"h", "80", ""}, "m", true);
  Conversation conversation = writer.begin({});
  writer.add_turn({.content = "5,6,7"}, conversation);
  EXPECT_EQ(body_of(writer.request(conversation, 1))["prompt"], nlohmann::json({5, 6, 7}));
}

TEST(RequestWriter, WritesChats) {
  const RequestWriter writer({.backend = Backend::kChat, .api_key = "k", .headers = {{"X-A", "b"}}}, {"::1", "80", ""},
                             "m", false);
  Conversation conversation = writer.begin({});
  writer.add_turn({.content = "hi"}, conversation);
  const std::string request = writer.request(conversation, 5);
  EXPECT_THAT(request, StartsWith("POST /v1/chat/completions HTTP/1.1\r\nHost: [::1]:80\r\n"));
  EXPECT_THAT(request, HasSubstr("Authorization: Bearer k\r\nX-A: b\r\n"));
  const auto body = body_of(request);
  EXPECT_EQ(body["messages"], nlohmann::json::parse(R"([{"role":"user","content":"hi"}])"));
  EXPECT_EQ(body["max_completion_tokens"], 5);
  EXPECT_FALSE(body.contains("ignore_eos"));
}

TEST(RequestWriter, RefusesWhatCannotBe) {
  EXPECT_THROW(RequestWriter({.extra_body = "[1]"}, {"h", "80", ""}, "m", false), Error);
  const RequestWriter writer({}, {"h", "80", ""}, "m", false);
  Conversation conversation;
  EXPECT_THROW(writer.add_turn({.messages = "{}"}, conversation), Error);
}

TEST(BaseUrl, IsTakenApart) {
  const BaseUrl url = parse_base_url("http://[::1]:99/a/b/");
  EXPECT_EQ(url.host, "::1");
  EXPECT_EQ(url.port, "99");
  EXPECT_EQ(url.prefix, "/a/b");
  EXPECT_EQ(parse_base_url("http://localhost").port, "80");
  for (const char* wrong : {"https://h", "h:80", "http://", "http://:80", "http://h:x", "http://h:"}) {
    EXPECT_THROW(parse_base_url(wrong), Error) << wrong;
  }
}

}  // namespace
}  // namespace carat::serve_bench
