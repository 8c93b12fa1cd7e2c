#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "cli/flags/answer_flags.h"
#include "cli/flags/draft_flags.h"
#include "cli/flags/model_flags.h"
#include "cli/flags/sampling_flags.h"
#include "server/server.h"

namespace carat::cli {

// Everything `carat serve` takes.
struct ServeFlags {
  ModelFlags model;
  DeviceFlags device;
  SizeFlags size;
  SamplingFlags sampling;
  DraftFlags drafts;

  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  bool allow_no_key = false;
  std::vector<std::string> aliases;
  bool strict_model = false;
  AnswerFlags answers;
  double itl_target = 25.0;  // milliseconds

  size_t max_queue = 512;
  double queue_timeout = 0.0;
  double timeout = 60.0;  // seconds without progress of an answer
  double ping = 15.0;
  unsigned http_threads = 1;
  size_t max_connections = 1024;
  size_t max_body_mib = 64;
  std::vector<std::string> cors_origins;
  std::vector<std::string> allowed_hosts;
  std::string tls_cert, tls_key;
  size_t store_responses = 0;
  std::string metrics_compat = "vllm";
  std::string log_format = "text";
  std::string log_requests = "auto";
  double drain_grace = 5.0;
  double drain_timeout = 120.0;

  void add_to(CLI::App& command);
  // Throws kBadArgument on flags that cannot be, or that would open the server to others without their saying so.
  server::ServerOptions options() const;

 private:
  std::vector<std::string> keys() const;
};

}  // namespace carat::cli
