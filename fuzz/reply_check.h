#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/dialect.h"

namespace carat::fuzz {

// What the fuzz targets of all dialects have in common: any bytes are either refused with ApiError, or the request they
// make is sound and its reply turns every course of events into well-formed answers.

// One piece of a stream.
struct Sent {
  std::string name;     // of the server-sent event; empty: none
  nlohmann::json data;  // "[DONE]" as a string
};

// How the events of a request ended.
enum class Course { kEnded, kFailedAtOnce, kFailedMidway };

struct DialectRules {
  std::function<server::ParsedRequest(std::string_view body)> read;
  // Checks the order of a stream.
  std::function<void(const std::vector<Sent>& sent, Course course)> check_stream;
  // Checks an answer with status 200.
  std::function<void(const nlohmann::json& body)> check_whole;
};

// Reads `body`, and where it is accepted, answers it in every course, once as it is and once with "stream" the other
// way around.
void check_dialect(std::string_view body, const DialectRules& rules);

}  // namespace carat::fuzz
