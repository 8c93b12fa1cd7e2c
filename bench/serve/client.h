#pragma once

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "serve/base_url.h"
#include "serve/response_reader.h"

namespace carat::serve_bench {

using Clock = std::chrono::steady_clock;

// A request that got no whole answer, in a few words of which there are only some, and in detail.
class ExchangeError : public Error {
 public:
  ExchangeError(std::string kind, const std::string& message)
      : Error(ErrorCode::kIo, kind + ": " + message), kind_(std::move(kind)) {}
  const std::string& kind() const { return kind_; }

 private:
  std::string kind_;
};

// One connection, kept for one request after the other. All of it runs on the context's thread.
class Client {
 public:
  using Endpoints = boost::asio::ip::tcp::resolver::results_type;

  Client(boost::asio::io_context& context, const Endpoints& endpoints);

  // Connects where there is no connection, calls `on_sending`, sends `request` and gives the body of the answer to
  // `body`, piece by piece. Returns the status. A kept connection that the server has closed meanwhile is opened anew.
  // Throws ExchangeError, or what `body` throws.
  boost::asio::awaitable<unsigned> exchange(std::string_view request, const std::function<void()>& on_sending,
                                            const ResponseReader::Sink& body);

  // For use within `body`: of the answer that is coming in, and when its last bytes came.
  unsigned status() const { return reader_.status(); }
  Clock::time_point last_bytes() const { return last_bytes_; }

  // Ends an exchange in which nothing has come since `deadline`.
  void give_up_if_silent_since(Clock::time_point deadline);

 private:
  boost::asio::awaitable<void> connect();
  boost::asio::awaitable<boost::system::error_code> send_and_receive(std::string_view request,
                                                                     const ResponseReader::Sink& body);
  void close();

  const Endpoints& endpoints_;
  boost::asio::ip::tcp::socket socket_;
  ResponseReader reader_;
  std::array<char, size_t{32} << 10> bytes_;
  Clock::time_point last_bytes_ = {};
  bool is_busy_ = false, is_given_up_ = false;
};

// Throws kIo naming the flag where the name is not known.
Client::Endpoints resolve_endpoints(boost::asio::io_context& context, const BaseUrl& url);

}  // namespace carat::serve_bench
