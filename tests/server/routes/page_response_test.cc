#include "server/routes/page_response.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "server/page_files.h"

namespace carat::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

HttpRequest request(std::vector<std::pair<std::string, std::string>> headers) {
  HttpRequest request;
  request.method = "GET";
  request.headers = std::move(headers);
  return request;
}

std::string header(const Response& response, std::string_view name) {
  for (const auto& [known, value] : response.headers) {
    if (known == name) return value;
  }
  return {};
}

TEST(PageResponse, BrowsersGetThePageAndClientsOfApisTheirGreeting) {
  EXPECT_TRUE(wants_page(request({{"accept", "text/html,application/xhtml+xml,*/*;q=0.8"}})));
  EXPECT_TRUE(wants_page(request({{"accept", "application/json, text/html;q=0.5"}})));
  EXPECT_FALSE(wants_page(request({{"accept", "*/*"}})));
  EXPECT_FALSE(wants_page(request({{"accept", "text/html;q=0.0, */*"}})));
  EXPECT_FALSE(wants_page(request({{"accept", "text/html2"}})));
  EXPECT_FALSE(wants_page(request({})));
}

TEST(PageResponse, EveryFileHasItsTypeItsHashAndItsHeaders) {
  std::set<std::string> hashes;
  for (const PageFile& file : page_files()) {
    const Response response = page_response(file.name, request({}));
    EXPECT_EQ(response.status, 200u);
    EXPECT_EQ(response.body, file.content);
    EXPECT_FALSE(response.body.empty());
    EXPECT_THAT(response.content_type, Not(HasSubstr("json"))) << file.name;
    EXPECT_THAT(header(response, "Content-Security-Policy"), StartsWith("default-src 'self';"));
    EXPECT_EQ(header(response, "X-Content-Type-Options"), "nosniff");
    EXPECT_EQ(header(response, "Content-Encoding"), "");
    EXPECT_THAT(header(response, "Vary"), HasSubstr("Accept-Encoding"));
    hashes.insert(std::string(file.hash));
  }
  EXPECT_EQ(hashes.size(), page_files().size());
  EXPECT_EQ(page_response("index.html", request({})).content_type, "text/html; charset=utf-8");
  EXPECT_EQ(page_response("main.js", request({})).content_type, "text/javascript; charset=utf-8");
  EXPECT_EQ(page_response("style.css", request({})).content_type, "text/css; charset=utf-8");
}

TEST(PageResponse, ThePageIsSmall) {
  size_t plain = 0, packed = 0;
  for (const PageFile& file : page_files()) {
    plain += file.content.size();
    packed += file.packed.size();
  }
  EXPECT_LE(plain, 120'000u);
  EXPECT_LE(packed, plain / 2);
}

TEST(PageResponse, IsCompressedForThoseWhoTakeIt) {
  const Response packed = page_response("main.js", request({{"accept-encoding", "br, gzip"}}));
  EXPECT_EQ(header(packed, "Content-Encoding"), "gzip");
  EXPECT_THAT(packed.body, StartsWith("\x1f\x8b"));
  for (const char* encoding : {"br", "gzip;q=0", "gzip; q=0.000", "identity", "xgzip"}) {
    EXPECT_EQ(header(page_response("main.js", request({{"accept-encoding", encoding}})), "Content-Encoding"), "")
        << encoding;
  }
  EXPECT_EQ(header(page_response("main.js", request({{"accept-encoding", "gzip;q=0.5"}})), "Content-Encoding"), "gzip");
}

TEST(PageResponse, WhoHasTheFileIsToldSo) {
  const std::string tag = header(page_response("main.js", request({})), "ETag");
  const std::string packed_tag = header(page_response("main.js", request({{"accept-encoding", "gzip"}})), "ETag");
  EXPECT_NE(tag, packed_tag);  // two representations
  EXPECT_NE(tag, header(page_response("chat.js", request({})), "ETag"));
  for (const std::string& known : {tag, "W/" + tag, "\"old\", " + tag, std::string("*")}) {
    const Response response = page_response("main.js", request({{"if-none-match", known}}));
    EXPECT_EQ(response.status, 304u) << known;
    EXPECT_TRUE(response.body.empty());
    EXPECT_EQ(header(response, "ETag"), tag);
  }
  EXPECT_EQ(page_response("main.js", request({{"if-none-match", "\"old\""}})).status, 200u);
  EXPECT_EQ(page_response("main.js", request({{"if-none-match", packed_tag}})).status, 200u);
}

TEST(PageResponse, OtherNamesAreNothing) {
  for (const char* name : {"", "main", "../main.js", "page/main.js", "MAIN.JS", "main.js "}) {
    EXPECT_EQ(page_response(name, request({})).status, 0u) << name;
  }
}

}  // namespace
}  // namespace carat::server
