#pragma once

#include <string>

#include "hub/environment.h"
#include "hub/remote/url.h"

namespace carat::hub {

// How to reach the Hub, as all its tools take it from the environment.
struct HubSettings {
  Url endpoint;              // HF_ENDPOINT; the target is a prefix of every path, without a slash at its end
  std::string token;         // empty: none. Never part of a message
  std::string token_source;  // "HF_TOKEN" or the file it was in
  bool offline = false;      // HF_HUB_OFFLINE
};

// The token is HF_TOKEN, HUGGING_FACE_HUB_TOKEN, or in the file HF_TOKEN_PATH names, else HF_HOME/token, else token in
// huggingface/ of XDG_CACHE_HOME or ~/.cache. Throws kBadArgument naming the variable or file that makes no sense.
HubSettings read_settings(const Environment& environment);

}  // namespace carat::hub
