#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string_view>

#include "server/http/exchange.h"
#include "server/http/limits.h"

namespace carat::server {

// A client's connection, on an executor that runs one thing at a time. Public functions may be called from any thread.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual void start() = 0;
  virtual void close() = 0;
  virtual void close_if_idle() = 0;
};

// What a connection needs of its server.
class ConnectionHost {
 public:
  virtual ~ConnectionHost() = default;
  virtual const HttpLimits& limits() const = 0;
  virtual void handle(std::shared_ptr<Exchange> exchange) = 0;
  virtual Response refusal(const Problem& problem, std::string_view path) = 0;
  virtual bool closes_after_answers() const = 0;
  virtual void ended(const std::shared_ptr<Connection>& connection) = 0;
};

std::shared_ptr<Connection> make_plain_connection(boost::asio::ip::tcp::socket socket,
                                                  std::shared_ptr<ConnectionHost> host);
// `tls` must outlive the connection.
std::shared_ptr<Connection> make_tls_connection(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context& tls,
                                                std::shared_ptr<ConnectionHost> host);

}  // namespace carat::server
