#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "base/log.h"

namespace carat::server {

// What is said of a request that was answered: never a word of a user or a model.
struct RequestLine {
  std::string_view method = {};
  std::string_view route = {};  // as the table of routes has it, not the path the client sent
  unsigned status = 200;
  double seconds = 0.0;
  std::string_view request_id = {};
  // Of requests for text.
  bool is_generation = false;
  uint64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  double first_token_seconds = 0.0;
};

// Where a server says what it does: one line for each event, as text for people or as JSON for collectors. Thread-safe.
class ServerLog {
 public:
  // A null logger is silence. `as_json`: each message is a JSON object; the logger should add nothing to it.
  ServerLog(Logger logger, bool as_json, bool with_requests);

  void info(std::string_view text) const;
  void warn(std::string_view text) const;
  void error(std::string_view text) const;
  void request(const RequestLine& line) const;

 private:
  void write(spdlog::level::level_enum level, std::string_view text) const;

  Logger logger_;
  bool as_json_;
  bool with_requests_;
};

}  // namespace carat::server
