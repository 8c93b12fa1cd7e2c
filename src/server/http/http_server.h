#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/http/exchange.h"
#include "server/http/limits.h"

namespace carat::server {

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;  // 0: any free one
  unsigned threads = 1;
  std::string tls_certificate = {}, tls_key = {};  // PEM files; empty: plain HTTP
  HttpLimits limits = {};
};

// What of the server can be counted.
struct HttpFigures {
  uint64_t connections = 0;  // open now
  uint64_t accepted = 0;
  uint64_t refused = 0;  // beyond the limit of connections
};

// Listens, reads requests and sends answers: HTTP/1.1 and 1.0, keep-alive, pipelining one after the other, chunked
// streams, TLS. Knows no routes: whole requests go to the handler, which must not block; malformed ones and those
// beyond a limit are answered here. Threads of its own.
class HttpServer {
 public:
  using Handler = std::function<void(std::shared_ptr<Exchange>)>;
  // The answer to what is wrong with a request before it has a route.
  using Refuser = std::function<Response(const Problem&, std::string_view path)>;

  // Binds and listens. Throws kIo naming host and port where that cannot be, kBadFile for a certificate or key that
  // OpenSSL does not take.
  HttpServer(HttpOptions options, Handler handler, Refuser refuser);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  HttpFigures figures() const;
  // Answers from now on close their connections, and idle ones are closed: a balancer moves on without an error.
  void close_connections_after_answers();
  // No connection is taken any more; open ones go on.
  void stop_listening();
  // Ends everything at once and joins the threads. The destructor does it too.
  void stop();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace carat::server
