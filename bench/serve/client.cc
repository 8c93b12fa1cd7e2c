#include "serve/client.h"

#include <boost/asio.hpp>

namespace carat::serve_bench {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

Client::Client(asio::io_context& context, const Endpoints& endpoints) : endpoints_(endpoints), socket_(context) {}

asio::awaitable<void> Client::connect() {
  error_code error;
  co_await asio::async_connect(socket_, endpoints_, asio::redirect_error(asio::use_awaitable, error));
  if (error) {
    close();
    throw ExchangeError("connection", error.message());
  }
  socket_.set_option(tcp::no_delay(true), error);
}

void Client::close() {
  error_code ignored;
  socket_.close(ignored);
}

void Client::give_up_if_silent_since(Clock::time_point deadline) {
  if (!is_busy_ || last_bytes_ > deadline) return;
  is_given_up_ = true;
  close();
}

asio::awaitable<error_code> Client::send_and_receive(std::string_view request, const ResponseReader::Sink& body) {
  error_code error;
  const auto out = asio::buffer(request.data(), request.size());
  co_await asio::async_write(socket_, out, asio::redirect_error(asio::use_awaitable, error));
  const auto in = asio::buffer(bytes_);
  while (!error && !reader_.is_done()) {
    const size_t count = co_await socket_.async_read_some(in, asio::redirect_error(asio::use_awaitable, error));
    if (count == 0) continue;
    last_bytes_ = Clock::now();
    const size_t taken = reader_.take({bytes_.data(), count}, body);
    if (taken < count) throw ExchangeError("not HTTP", "bytes behind the end of an answer");
  }
  co_return error;
}

asio::awaitable<unsigned> Client::exchange(std::string_view request, const std::function<void()>& on_sending,
                                           const ResponseReader::Sink& body) {
  bool is_kept = socket_.is_open();
  last_bytes_ = Clock::now();
  is_busy_ = true;
  is_given_up_ = false;
  for (;;) {
    if (!socket_.is_open()) co_await connect();
    reader_.reset();
    last_bytes_ = Clock::now();
    on_sending();
    error_code error;
    try {
      error = co_await send_and_receive(request, body);
    } catch (...) {
      is_busy_ = false;
      close();
      throw;
    }
    if (reader_.is_done() || (!is_given_up_ && error == asio::error::eof && reader_.end())) break;
    const bool has_begun = reader_.has_begun();
    close();
    if (!is_given_up_ && is_kept && !has_begun) {
      is_kept = false;
      continue;
    }
    is_busy_ = false;
    if (is_given_up_) throw ExchangeError("timeout", "nothing came for too long");
    throw ExchangeError(has_begun ? "cut off" : "connection", error.message());
  }
  is_busy_ = false;
  if (!reader_.keeps_alive()) close();
  co_return reader_.status();
}

Client::Endpoints resolve_endpoints(asio::io_context& context, const BaseUrl& url) {
  error_code error;
  auto endpoints = tcp::resolver(context).resolve(url.host, url.port, error);
  if (error) fail(ErrorCode::kIo, "--base-url: {} cannot be resolved: {}", url.host, error.message());
  return endpoints;
}

}  // namespace carat::serve_bench
