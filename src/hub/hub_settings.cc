#include "hub/hub_settings.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "gguf/printable.h"

namespace carat::hub {

namespace {

constexpr std::string_view kDefaultEndpoint = "https://huggingface.co";
constexpr size_t kMaxTokenBytes = 4096;

Url read_endpoint(const Environment& environment) {
  const std::string text = environment("HF_ENDPOINT").value_or(std::string(kDefaultEndpoint));
  auto url = parse_url(text);
  if (!url || url->target.find('?') != std::string::npos) {
    fail(ErrorCode::kBadArgument, "HF_ENDPOINT is {}; it must be an address such as {}", gguf::printable(text),
         kDefaultEndpoint);
  }
  while (url->target.ends_with('/')) url->target.pop_back();
  return *url;
}

// A token goes into a header line: anything but one printable word could add headers of its own.
void check_token(const HubSettings& settings) {
  const bool fine = settings.token.size() <= kMaxTokenBytes && std::all_of(settings.token.begin(), settings.token.end(),
                                                                           [](char c) { return c > ' ' && c < 0x7f; });
  if (!fine) {
    fail(ErrorCode::kBadArgument, "{} holds something that is no token (one word of plain characters)",
         settings.token_source);
  }
}

std::string first_word_of_file(const std::string& path) {
  std::ifstream stream(path);
  std::string line;
  std::getline(stream, line);
  const size_t end = line.find_last_not_of(" \t\r");
  return end == std::string::npos ? "" : line.substr(0, end + 1);
}

void read_token(const Environment& environment, HubSettings& settings) {
  for (const char* variable : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (const auto value = environment(variable)) {
      settings.token = *value;
      settings.token_source = variable;
      return;
    }
  }
  std::string path;
  if (const auto given = environment("HF_TOKEN_PATH")) {
    path = *given;
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) {
      fail(ErrorCode::kBadArgument, "HF_TOKEN_PATH names {}, which is not there", path);
    }
  } else if (const auto home = environment("HF_HOME")) {
    path = *home + "/token";
  } else if (const auto cache = environment("XDG_CACHE_HOME")) {
    path = *cache + "/huggingface/token";
  } else if (const auto user = environment("HOME")) {
    path = *user + "/.cache/huggingface/token";
  }
  if (path.empty()) return;
  settings.token = first_word_of_file(path);
  settings.token_source = path;
}

}  // namespace

HubSettings read_settings(const Environment& environment) {
  HubSettings settings;
  settings.endpoint = read_endpoint(environment);
  read_token(environment, settings);
  check_token(settings);
  std::string offline = environment("HF_HUB_OFFLINE").value_or("");
  std::transform(offline.begin(), offline.end(), offline.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  settings.offline = offline == "1" || offline == "ON" || offline == "YES" || offline == "TRUE";
  return settings;
}

}  // namespace carat::hub
