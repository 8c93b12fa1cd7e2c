#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace carat::server {

// What one client may take of the server before it is refused or dropped.
struct HttpLimits {
  size_t header_bytes = size_t{64} << 10;
  size_t body_bytes = size_t{64} << 20;
  size_t connections = 1024;
  // Of a stream that its client reads slowly; beyond it the request is told to pause.
  size_t stream_bytes = size_t{256} << 10;
  std::chrono::milliseconds idle{75'000};     // between two requests of a connection
  std::chrono::milliseconds receive{30'000};  // without a byte of a request that has begun; headers as a whole
  std::chrono::milliseconds send{60'000};     // without progress of an answer
};

}  // namespace carat::server
