#include "server/http/http_server.h"

#include <array>
#include <atomic>
#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <set>
#include <thread>
#include <vector>

#include "base/error.h"
#include "server/http/connection.h"

namespace carat::server {

namespace asio = boost::asio;
using asio::ip::tcp;

class HttpServer::Impl : public ConnectionHost, public std::enable_shared_from_this<Impl> {
 public:
  Impl(HttpOptions options, Handler handler, Refuser refuser)
      : options_(std::move(options)),
        handler_(std::move(handler)),
        refuser_(std::move(refuser)),
        work_(asio::make_work_guard(context_)),
        acceptor_(context_) {}

  void listen() {
    if (!options_.tls_certificate.empty()) load_certificate();
    try {
      const auto resolved = tcp::resolver(context_).resolve(options_.host, std::to_string(options_.port),
                                                            tcp::resolver::passive | tcp::resolver::numeric_service);
      const tcp::endpoint endpoint = resolved.begin()->endpoint();
      acceptor_.open(endpoint.protocol());
      acceptor_.set_option(tcp::acceptor::reuse_address(true));
      acceptor_.bind(endpoint);
      acceptor_.listen(asio::socket_base::max_listen_connections);
      port_ = acceptor_.local_endpoint().port();
    } catch (const boost::system::system_error& error) {
      fail(ErrorCode::kIo, "cannot listen on {}:{}: {}; choose another with --host and --port", options_.host,
           options_.port, error.code().message());
    }
  }

  void run() {
    asio::post(acceptor_.get_executor(), [self = shared_from_this()] { self->accept(); });
    for (unsigned i = 0; i < std::max(1u, options_.threads); ++i) {
      threads_.emplace_back([this] { context_.run(); });
    }
  }

  void stop_listening() {
    asio::post(context_, [self = shared_from_this()] {
      boost::system::error_code ignored;
      self->acceptor_.close(ignored);
    });
  }

  void close_after_answers() {
    closes_after_answers_ = true;
    const std::lock_guard lock(mutex_);
    for (const auto& connection : connections_) connection->close_if_idle();
  }

  // Closed sockets end all coroutines, so the threads run out of work by themselves. Cutting them off instead would
  // leave coroutines that own connections, which own this object.
  void stop() {
    if (is_stopped_.exchange(true)) return;
    stop_listening();
    {
      const std::lock_guard lock(mutex_);
      for (const auto& connection : connections_) connection->close();
    }
    work_.reset();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  uint16_t port() const { return port_; }
  HttpFigures figures() const {
    const std::lock_guard lock(mutex_);
    return {connections_.size(), accepted_, refused_};
  }

  // --- ConnectionHost
  const HttpLimits& limits() const override { return options_.limits; }
  void handle(std::shared_ptr<Exchange> exchange) override { handler_(std::move(exchange)); }
  Response refusal(const Problem& problem, std::string_view path) override { return refuser_(problem, path); }
  bool closes_after_answers() const override { return closes_after_answers_; }
  void ended(const std::shared_ptr<Connection>& connection) override {
    const std::lock_guard lock(mutex_);
    connections_.erase(connection);
  }

 private:
  void load_certificate() {
    tls_.emplace(asio::ssl::context::tls_server);
    try {
      tls_->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                        asio::ssl::context::no_tlsv1_1);
      tls_->use_certificate_chain_file(options_.tls_certificate);
    } catch (const boost::system::system_error& error) {
      fail(ErrorCode::kBadFile, "--tls-cert {}: {}", options_.tls_certificate, error.code().message());
    }
    try {
      tls_->use_private_key_file(options_.tls_key, asio::ssl::context::pem);
    } catch (const boost::system::system_error& error) {
      fail(ErrorCode::kBadFile, "--tls-key {}: {}", options_.tls_key, error.code().message());
    }
  }

  void accept() {
    acceptor_.async_accept(asio::make_strand(context_),
                           [self = shared_from_this()](boost::system::error_code error, tcp::socket socket) {
                             if (error == asio::error::operation_aborted || !self->acceptor_.is_open()) return;
                             if (!error) self->take(std::move(socket));
                             if (error == asio::error::no_descriptors) return self->accept_later();
                             self->accept();
                           });
  }

  // Out of descriptors: connections that end give some back.
  void accept_later() {
    auto timer = std::make_shared<asio::steady_timer>(context_, std::chrono::milliseconds(50));
    timer->async_wait([self = shared_from_this(), timer](boost::system::error_code) {
      if (self->acceptor_.is_open()) self->accept();
    });
  }

  void take(tcp::socket socket) {
    boost::system::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    std::shared_ptr<Connection> connection;
    {
      const std::lock_guard lock(mutex_);
      if (is_stopped_) return;
      if (connections_.size() >= options_.limits.connections) {
        ++refused_;
        return;  // closes it
      }
      ++accepted_;
      connection = tls_ ? make_tls_connection(std::move(socket), *tls_, shared_from_this())
                        : make_plain_connection(std::move(socket), shared_from_this());
      connections_.insert(connection);
    }
    connection->start();
  }

  HttpOptions options_;
  Handler handler_;
  Refuser refuser_;
  asio::io_context context_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  tcp::acceptor acceptor_;
  std::optional<asio::ssl::context> tls_;
  uint16_t port_ = 0;
  std::atomic<bool> closes_after_answers_{false}, is_stopped_{false};
  std::vector<std::thread> threads_;
  mutable std::mutex mutex_;
  std::set<std::shared_ptr<Connection>> connections_;
  uint64_t accepted_ = 0, refused_ = 0;
};

HttpServer::HttpServer(HttpOptions options, Handler handler, Refuser refuser)
    : impl_(std::make_shared<Impl>(std::move(options), std::move(handler), std::move(refuser))) {
  impl_->listen();
  impl_->run();
}

HttpServer::~HttpServer() { stop(); }

uint16_t HttpServer::port() const { return impl_->port(); }
HttpFigures HttpServer::figures() const { return impl_->figures(); }
void HttpServer::close_connections_after_answers() { impl_->close_after_answers(); }
void HttpServer::stop_listening() { impl_->stop_listening(); }
void HttpServer::stop() { impl_->stop(); }

}  // namespace carat::server
