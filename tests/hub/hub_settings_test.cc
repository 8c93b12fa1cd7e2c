#include "hub/hub_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "support/files.h"
#include "support/raised_error.h"

namespace carat::test {
namespace {

using testing::HasSubstr;
using testing::Not;

hub::HubSettings settings_of(const std::map<std::string, std::string>& variables) {
  return hub::read_settings([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(HubSettings, TheEndpointIsTheHubUnlessSet) {
  EXPECT_EQ(settings_of({}).endpoint.text(), "https://huggingface.co");
  EXPECT_EQ(settings_of({{"HF_ENDPOINT", "http://127.0.0.1:80/mirror/"}}).endpoint.text(), "http://127.0.0.1/mirror");
  for (const char* bad : {"huggingface.co", "ftp://h", "https://h/?q", "https://u:p@h"}) {
    const RaisedError error = error_of([&] { settings_of({{"HF_ENDPOINT", bad}}); });
    EXPECT_EQ(error.code, ErrorCode::kBadArgument);
    EXPECT_THAT(error.message, HasSubstr("HF_ENDPOINT"));
  }
}

TEST(HubSettings, FindsTheToken) {
  const TemporaryDirectory folder;
  write_text(folder.file("token"), "hf_from_home\n");
  write_text(folder.file("named"), "hf_from_file");
  const std::string home = folder.path().string();
  EXPECT_EQ(settings_of({{"HF_HOME", home}}).token, "hf_from_home");
  EXPECT_EQ(settings_of({{"HF_HOME", home}, {"HF_TOKEN_PATH", folder.file("named")}}).token, "hf_from_file");
  EXPECT_EQ(settings_of({{"HF_HOME", home}, {"HF_TOKEN", "hf_direct"}}).token, "hf_direct");
  EXPECT_EQ(settings_of({{"HUGGING_FACE_HUB_TOKEN", "hf_old"}}).token, "hf_old");
  EXPECT_EQ(settings_of({{"HF_HOME", home + "/nowhere"}}).token, "");
  std::filesystem::create_directories(folder.path() / ".cache/huggingface");
  write_text(folder.file(".cache/huggingface/token"), "hf_default");
  EXPECT_EQ(settings_of({{"HOME", home}}).token, "hf_default");
  EXPECT_EQ(settings_of({{"XDG_CACHE_HOME", folder.file(".cache")}}).token, "hf_default");
  EXPECT_THAT(error_of([&] {
                settings_of({{"HF_TOKEN_PATH", folder.file("none")}});
              }).message,
              HasSubstr("HF_TOKEN_PATH"));
}

// It would become part of the request.
TEST(HubSettings, ATokenIsOneWordAndNeverShown) {
  const RaisedError error = error_of([] { settings_of({{"HF_TOKEN", "hf_secret\r\nX-Evil: 1"}}); });
  EXPECT_EQ(error.code, ErrorCode::kBadArgument);
  EXPECT_THAT(error.message, HasSubstr("HF_TOKEN"));
  EXPECT_THAT(error.message, Not(HasSubstr("secret")));
}

TEST(HubSettings, KnowsOfflineMode) {
  EXPECT_TRUE(settings_of({{"HF_HUB_OFFLINE", "1"}}).offline);
  EXPECT_TRUE(settings_of({{"HF_HUB_OFFLINE", "yes"}}).offline);
  EXPECT_FALSE(settings_of({{"HF_HUB_OFFLINE", "0"}}).offline);
}

}  // namespace
}  // namespace carat::test
