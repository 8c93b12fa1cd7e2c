#include "hub/remote/url.h"

#include <gtest/gtest.h>

namespace carat::test {
namespace {

using hub::parse_url;
using hub::resolve_url;

TEST(Url, ReadsAddresses) {
  const auto url = parse_url("HTTPS://Host.Example/a/b?c=d#e");
  ASSERT_TRUE(url);
  EXPECT_EQ(url->scheme, "https");
  EXPECT_EQ(url->host, "host.example");
  EXPECT_EQ(url->port, 443);
  EXPECT_EQ(url->target, "/a/b?c=d");
  EXPECT_EQ(url->text(), "https://host.example/a/b?c=d");
  EXPECT_EQ(parse_url("http://127.0.0.1:8080")->text(), "http://127.0.0.1:8080/");
  EXPECT_EQ(parse_url("http://[::1]:81/x")->port, 81);
  EXPECT_EQ(parse_url("http://h?q")->target, "/?q");
}

TEST(Url, RefusesWhatAnotherReaderCouldUnderstandOtherwise) {
  for (const char* text :
       {"", "host", "ftp://h/", "file:///etc/passwd", "http://", "http:///x", "http://user@h/", "http://good@evil/",
        "http://h:0/", "http://h:99999/", "http://h:80x/", "http://h\\@e/", "http://h /", "http://h/\n",
        "http://h/\xc3\xa4", "http://[::1", "http://h%2e/", "http://[::1]x/"}) {
    EXPECT_FALSE(parse_url(text)) << text;
  }
}

TEST(Url, ResolvesRedirects) {
  const auto base = parse_url("https://h:444/a/b?c");
  EXPECT_EQ(resolve_url(*base, "https://x/y")->text(), "https://x/y");
  EXPECT_EQ(resolve_url(*base, "//x/y")->text(), "https://x/y");
  EXPECT_EQ(resolve_url(*base, "/y?u=http://z")->text(), "https://h:444/y?u=http://z");
  EXPECT_EQ(resolve_url(*base, "y")->text(), "https://h:444/a/y");
  EXPECT_FALSE(resolve_url(*base, "file:///etc/passwd"));
  EXPECT_FALSE(resolve_url(*base, "javascript:x"));
  EXPECT_FALSE(resolve_url(*base, ""));
  EXPECT_FALSE(resolve_url(*base, "/a\r\nb"));
}

TEST(Url, KnowsOriginsAndThisMachine) {
  EXPECT_TRUE(parse_url("https://h/a")->same_origin(*parse_url("https://H:443/b")));
  EXPECT_FALSE(parse_url("https://h/")->same_origin(*parse_url("http://h/")));
  EXPECT_FALSE(parse_url("http://h/")->same_origin(*parse_url("http://h:81/")));
  EXPECT_FALSE(parse_url("https://h/")->same_origin(*parse_url("https://h.evil/")));
  for (const char* local : {"http://localhost:1/", "http://127.0.0.1/", "http://127.9.9.9/", "http://[::1]/"}) {
    EXPECT_TRUE(parse_url(local)->is_loopback()) << local;
  }
  for (const char* remote :
       {"http://127.evil.com/", "http://127.0.0.1.evil/", "http://localhost.evil/", "http://10.0.0.1/"}) {
    EXPECT_FALSE(parse_url(remote)->is_loopback()) << remote;
  }
}

TEST(Url, EncodesPaths) {
  EXPECT_EQ(hub::percent_encode("a b/ü#?", "/"), "a%20b/%C3%BC%23%3F");
  EXPECT_EQ(hub::percent_encode("refs/pr/1"), "refs%2Fpr%2F1");
}

}  // namespace
}  // namespace carat::test
