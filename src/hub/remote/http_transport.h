#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/remote/url.h"

namespace carat::hub {

struct HttpRequest {
  Url url;
  std::vector<std::string> headers;  // "Name: value"
};

struct HttpResponse {
  int status = 0;                              // 0: none arrived
  std::map<std::string, std::string> headers;  // names in lower case

  std::optional<std::string> header(const std::string& lower_case_name) const;
};

// How an exchange ended.
enum class TransferEnd {
  kComplete,
  kUnreachable,  // no connection to the server
  kLost,         // the connection broke or stalled; what arrived is good
  kRefused,      // trying again would not help: a bad certificate, an answer that is not HTTP
};

struct HttpResult {
  HttpResponse response;
  TransferEnd end = TransferEnd::kComplete;
  std::string failure;  // in words, unless complete
};

// Gets the body piece by piece, with the status and headers that came before it; may throw to end the transfer.
using BodySink = std::function<void(const HttpResponse& response, std::string_view piece)>;

struct TransportOptions {
  std::string user_agent;
  std::chrono::seconds connect_timeout{30};
  std::chrono::seconds stall_timeout{60};  // without a byte for so long a connection counts as lost
  const std::atomic<bool>* cancelled = nullptr;
};

// One GET at a time, without following redirects: who may see what is the caller's business. Not thread-safe.
class HttpTransport {
 public:
  virtual ~HttpTransport() = default;
  // Throws kInterrupted when `cancelled` is set, and what the sink throws.
  virtual HttpResult get(const HttpRequest& request, const BodySink& sink) = 0;
};

// Throws kUnsupported in a build without libcurl.
std::unique_ptr<HttpTransport> make_http_transport(const TransportOptions& options);

}  // namespace carat::hub
