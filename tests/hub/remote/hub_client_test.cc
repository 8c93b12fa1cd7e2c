// The rules of who may see what, over a transport that only pretends: no server can be https here, nor be remote.
#include "hub/remote/hub_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <deque>
#include <sstream>

#include "hub/remote/repo_listing.h"
#include "support/raised_error.h"

namespace carat::test {
namespace {

using hub::HttpResult;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class PretendedTransport final : public hub::HttpTransport {
 public:
  HttpResult get(const hub::HttpRequest& request, const hub::BodySink& sink) override {
    requests.push_back(request);
    if (answers.empty()) return {{.status = 200, .headers = {}}, hub::TransferEnd::kComplete, ""};
    auto [result, body] = std::move(answers.front());
    answers.pop_front();
    if (!body.empty()) sink(result.response, body);
    return result;
  }
  void answer(int status, std::map<std::string, std::string> headers = {}, std::string body = "") {
    answers.push_back({{{status, std::move(headers)}, hub::TransferEnd::kComplete, ""}, std::move(body)});
  }
  void fail_with(hub::TransferEnd end) { answers.push_back({{{}, end, "the failure"}, ""}); }

  std::vector<hub::HttpRequest> requests;
  std::deque<std::pair<HttpResult, std::string>> answers;
};

class HubClientTest : public testing::Test {
 protected:
  hub::HubClient make_client(const std::string& endpoint, const std::string& token = "hf_secret") {
    hub::HubSettings settings{.endpoint = *hub::parse_url(endpoint), .token = token, .token_source = "HF_TOKEN"};
    settings.endpoint.target.clear();
    auto logger = std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log));
    return hub::HubClient(
        settings, transport,
        {.sleep = [this](std::chrono::milliseconds pause) { pauses.push_back(static_cast<int>(pause.count() / 1000)); },
         .cancelled = &cancelled,
         .log = logger});
  }
  static void no_body(const hub::HttpResponse&, std::string_view) {}

  PretendedTransport transport;
  std::ostringstream log;
  std::vector<int> pauses;  // seconds
  std::atomic<bool> cancelled{false};
  const hub::RepoReference reference{"maker", "tiny", ""};
  const std::string authorization = "Authorization: Bearer hf_secret";
};

TEST_F(HubClientTest, TheTokenGoesToTheEndpointAlone) {
  hub::HubClient client = make_client("https://hub.example");
  transport.answer(302, {{"location", "https://cdn.example/x?signature=1"}});
  transport.answer(302, {{"location", "https://hub.example:8443/y"}});
  client.get(client.address("/a"), {"Range: bytes=1-"}, no_body);
  ASSERT_EQ(transport.requests.size(), 3u);
  EXPECT_THAT(transport.requests[0].headers, ElementsAre("Range: bytes=1-", authorization));
  EXPECT_THAT(transport.requests[1].headers, ElementsAre("Range: bytes=1-"));
  EXPECT_THAT(transport.requests[2].headers, ElementsAre("Range: bytes=1-"));
}

TEST_F(HubClientTest, TheTokenIsNotSentInTheClear) {
  hub::HubClient client = make_client("http://hub.example");
  client.get(client.address("/a"), {}, no_body);
  EXPECT_THAT(transport.requests[0].headers, IsEmpty());
  EXPECT_THAT(log.str(), HasSubstr("the token of HF_TOKEN is not sent"));
  EXPECT_THAT(log.str(), Not(HasSubstr("secret")));

  hub::HubClient local = make_client("http://127.0.0.1:8080");
  local.get(local.address("/a"), {}, no_body);
  EXPECT_THAT(transport.requests[1].headers, ElementsAre(authorization));
}

TEST_F(HubClientTest, HttpsNeverLeadsToHttp) {
  hub::HubClient client = make_client("https://hub.example");
  transport.answer(302, {{"location", "http://hub.example/a?signature=1"}});
  const RaisedError error = error_of([&] { client.get(client.address("/a"), {}, no_body); });
  EXPECT_EQ(error.code, ErrorCode::kIo);
  EXPECT_THAT(error.message, HasSubstr("not encrypted"));
  EXPECT_THAT(error.message, Not(HasSubstr("signature")));
  EXPECT_EQ(transport.requests.size(), 1u);

  transport.answer(200, {{"link", "<http://hub.example/next>; rel=\"next\""}}, "[]");
  transport.answers.push_front(
      {{{200, {}}, hub::TransferEnd::kComplete, ""}, R"({"sha":"0123456789abcdef0123456789abcdef01234567"})"});
  EXPECT_THAT(error_of([&] { hub::list_repo(client, reference, "main"); }).message, HasSubstr("cannot be followed"));
}

TEST_F(HubClientTest, RedirectsGoOnlyToWebAddressesAndEnd) {
  hub::HubClient client = make_client("http://127.0.0.1");
  for (const char* location : {"file:///etc/passwd", "ftp://h/x", "gopher://h", "http://u:p@h/", ""}) {
    transport.answer(301, {{"location", location}});
    EXPECT_EQ(error_of([&] { client.get(client.address("/a"), {}, no_body); }).code, ErrorCode::kIo) << location;
  }
  for (int i = 0; i < 20; ++i) transport.answer(307, {{"location", "/again"}});
  EXPECT_THAT(error_of([&] { client.get(client.address("/a"), {}, no_body); }).message,
              HasSubstr("more than 10 times"));
}

TEST_F(HubClientTest, PausesDoubleAndEnd) {
  hub::HubClient client = make_client("https://hub.example");
  for (int i = 0; i < 10; ++i) transport.answer(503);
  const RaisedError error = error_of([&] { client.get_document(client.address("/a"), reference, "list"); });
  EXPECT_EQ(error.code, ErrorCode::kIo);
  EXPECT_THAT(error.message, HasSubstr("HTTP 503"));
  EXPECT_THAT(error.message, HasSubstr("given up after 6 tries"));
  EXPECT_THAT(pauses, ElementsAre(1, 2, 4, 8, 16));
  EXPECT_EQ(transport.requests.size(), 6u);
}

TEST_F(HubClientTest, AServerMayAskForAPause) {
  hub::HubClient client = make_client("https://hub.example");
  transport.answer(429, {{"retry-after", "17"}});
  transport.answer(429, {{"retry-after", "Wed, 21 Oct 2026 07:28:00 GMT"}});
  transport.answer(200, {}, "document");
  EXPECT_EQ(client.get_document(client.address("/a"), reference, "list").body, "document");
  EXPECT_THAT(pauses, ElementsAre(17, 2));

  transport.answer(429, {{"retry-after", "4000"}});
  EXPECT_THAT(error_of([&] { client.get_document(client.address("/a"), reference, "list"); }).message,
              HasSubstr("come back in 4000 s"));
}

TEST_F(HubClientTest, AnUnreachableHubIsSaidAtOnceALostOneIsTriedAgain) {
  hub::HubClient client = make_client("https://hub.example");
  transport.fail_with(hub::TransferEnd::kUnreachable);
  const RaisedError error = error_of([&] { client.get_document(client.address("/a"), reference, "list"); });
  EXPECT_EQ(error.code, ErrorCode::kIo);
  EXPECT_THAT(error.message, HasSubstr("check the network and HF_ENDPOINT"));
  EXPECT_THAT(pauses, IsEmpty());

  transport.answer(500);
  transport.fail_with(hub::TransferEnd::kUnreachable);
  transport.fail_with(hub::TransferEnd::kLost);
  transport.answer(200, {}, "document");
  EXPECT_EQ(client.get_document(client.address("/a"), reference, "list").body, "document");
  EXPECT_THAT(pauses, ElementsAre(1, 2, 4));

  transport.fail_with(hub::TransferEnd::kRefused);
  EXPECT_THAT(error_of([&] { client.get_document(client.address("/a"), reference, "list"); }).message,
              HasSubstr("the failure"));
}

TEST_F(HubClientTest, StatusesAreExplained) {
  const auto message = [&](int status, const std::string& token) {
    hub::HubClient client = make_client("https://hub.example", token);
    transport.answer(status);
    const RaisedError error = error_of([&] { client.get_document(client.address("/a"), reference, "thing"); });
    EXPECT_EQ(error.code, status == 418 ? ErrorCode::kIo : ErrorCode::kBadArgument);
    EXPECT_THAT(error.message, Not(HasSubstr("secret")));
    return error.message;
  };
  EXPECT_THAT(message(401, ""), HasSubstr("Accept it at https://hub.example/maker/tiny and set HF_TOKEN"));
  EXPECT_THAT(message(403, "hf_secret"), HasSubstr("with the token of HF_TOKEN (HTTP 403)"));
  EXPECT_THAT(message(404, ""), HasSubstr("has no thing (HTTP 404)"));
  EXPECT_THAT(message(418, ""), HasSubstr("HTTP 418"));
}

TEST_F(HubClientTest, DocumentsHaveALimit) {
  hub::HubClient client = make_client("https://hub.example");
  transport.answer(200, {}, std::string((size_t{16} << 20) + 1, ' '));
  EXPECT_THAT(error_of([&] { client.get_document(client.address("/a"), reference, "list"); }).message,
              HasSubstr("more than 16 MiB"));
}

TEST_F(HubClientTest, AStopEndsAPause) {
  hub::HubClient client = make_client("https://hub.example");
  cancelled.store(true);
  transport.answer(503);
  EXPECT_EQ(error_of([&] { client.get_document(client.address("/a"), reference, "list"); }).code,
            ErrorCode::kInterrupted);
}

TEST(SafePath, RefusesWhatLeavesTheFolder) {
  for (const char* path : {"a.gguf", "a/b.gguf", "a b/ü..gguf", ".a/b", "..."})
    EXPECT_TRUE(hub::is_safe_path(path)) << path;
  for (const char* path :
       {"", "/a", "../a", "a/../b", "a/..", "./a", "a//b", "a/", "a\\b", "a\nb", "a\x1b", "a\x7f", "a\xff"}) {
    EXPECT_FALSE(hub::is_safe_path(path)) << path;
  }
  EXPECT_FALSE(hub::is_safe_path(std::string(256, 'a')));
  EXPECT_TRUE(hub::is_safe_path(std::string(255, 'a')));
}

TEST_F(HubClientTest, ListingsThatMakeNoSenseAreRefused) {
  const std::string commit = R"({"sha":"0123456789abcdef0123456789abcdef01234567"})";
  const std::string sha(64, 'a');
  const auto refused = [&](const std::string& info, const std::string& listing) {
    hub::HubClient client = make_client("https://hub.example");
    transport.answers.clear();
    transport.answer(200, {}, info);
    transport.answer(200, {}, listing);
    const RaisedError error = error_of([&] { hub::list_repo(client, reference, "main"); });
    EXPECT_EQ(error.code, ErrorCode::kIo);
    EXPECT_THAT(error.message, Not(HasSubstr("\x1b")));
    return error.message;
  };
  EXPECT_THAT(refused("<html>", "[]"), HasSubstr("is HF_ENDPOINT right?"));
  EXPECT_THAT(refused("{}", "[]"), HasSubstr("field sha"));
  EXPECT_THAT(refused(R"({"sha":"../../etc"})", "[]"), HasSubstr("field sha"));
  EXPECT_THAT(refused(commit, "{}"), HasSubstr("no list"));
  EXPECT_THAT(refused(commit, std::string(100'000, '[')), HasSubstr("cannot be read"));
  const auto entry = [&](const std::string& path, const std::string& size, const std::string& oid) {
    return R"([{"type":"file","path":")" + path + R"(","size":)" + size + R"(,"lfs":{"oid":")" + oid + R"(","size":)" +
           size + "}}]";
  };
  EXPECT_THAT(refused(commit, entry("../x.gguf", "1", sha)), HasSubstr("no safe path"));
  EXPECT_THAT(refused(commit, entry("/etc/x.gguf", "1", sha)), HasSubstr("no safe path"));
  EXPECT_THAT(refused(commit, entry("a\\u001b[2J.gguf", "1", sha)), HasSubstr("no safe path"));
  EXPECT_THAT(refused(commit, entry("x.gguf", "-1", sha)), HasSubstr("size"));
  EXPECT_THAT(refused(commit, entry("x.gguf", "18446744073709551615", sha)), HasSubstr("size"));
  EXPECT_THAT(refused(commit, entry("x.gguf", "1e30", sha)), HasSubstr("size"));
  EXPECT_THAT(refused(commit, entry("x.gguf", "1", "../" + sha.substr(3))), HasSubstr("lfs"));
}

}  // namespace
}  // namespace carat::test
