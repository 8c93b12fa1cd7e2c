#include "server/http/connection.h"

#include <array>
#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <limits>
#include <span>
#include <utility>

#include "server/http/request_reader.h"
#include "server/http/response_text.h"

namespace carat::server {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

namespace {

constexpr size_t kReadBytes = size_t{64} << 10;
// Of requests that a client sends before it has the answer to the one in progress.
constexpr size_t kAheadBytes = size_t{256} << 10;

const std::string kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

// One coroutine reads whatever comes, also while an answer is made: that is how a client that leaves is noticed. A
// second one takes requests out of what was read and sends the answers, one after the other. A timer that never expires
// is how they wake each other; all of it runs on the connection's strand.
template <typename Stream>
class ConnectionOf final : public Connection, public std::enable_shared_from_this<ConnectionOf<Stream>> {
 public:
  template <typename... Arguments>
  ConnectionOf(std::shared_ptr<ConnectionHost> host, Arguments&&... arguments)
      : host_(std::move(host)),
        stream_(std::forward<Arguments>(arguments)...),
        news_(stream_.get_executor(), Clock::time_point::max()),
        room_(stream_.get_executor(), Clock::time_point::max()),
        reader_(host_->limits()) {
    error_code ignored;
    const auto remote = stream_.lowest_layer().remote_endpoint(ignored);
    if (!ignored) client_ = remote.address().to_string();
  }

  void start() override {
    asio::co_spawn(
        stream_.get_executor(), [self = this->shared_from_this()] { return self->serve(); }, asio::detached);
  }
  void close() override {
    asio::post(stream_.get_executor(), [self = this->shared_from_this()] { self->shut(); });
  }
  void close_if_idle() override {
    asio::post(stream_.get_executor(), [self = this->shared_from_this()] {
      if (!self->exchange_ && !self->reader_.has_begun() && self->incoming_.empty()) self->shut();
    });
  }

 private:
  static constexpr bool kIsTls = !std::is_same_v<Stream, tcp::socket>;

  asio::awaitable<void> serve() {
    const auto self = this->shared_from_this();
    if constexpr (kIsTls) {
      if (!co_await shake_hands()) {
        shut();
        host_->ended(self);
        co_return;
      }
    }
    asio::co_spawn(
        stream_.get_executor(), [self] { return self->read(); }, asio::detached);
    try {
      while (co_await serve_one()) {
      }
    } catch (const std::exception&) {
      // The connection is lost; whoever answers is told below.
    }
    if (exchange_) exchange_->client_gone();
    exchange_.reset();
    shut();
    host_->ended(self);
  }

  asio::awaitable<bool> shake_hands() {
    asio::steady_timer deadline(stream_.get_executor(), host_->limits().receive);
    deadline.async_wait([self = this->shared_from_this()](error_code error) {
      if (!error) self->shut();
    });
    error_code error;
    if constexpr (kIsTls) {
      co_await stream_.async_handshake(asio::ssl::stream_base::server,
                                       asio::redirect_error(asio::use_awaitable, error));
    }
    co_return !error;
  }

  asio::awaitable<void> read() {
    const auto self = this->shared_from_this();
    std::vector<char> bytes(kReadBytes);
    for (;;) {
      while (incoming_.size() >= kAheadBytes && !is_shut_) co_await wait_for(room_);
      error_code error;
      const size_t count =
          co_await stream_.async_read_some(asio::buffer(bytes), asio::redirect_error(asio::use_awaitable, error));
      incoming_.append(bytes.data(), count);
      is_over_ = is_over_ || error || is_shut_;
      // Nobody who wants an answer stops sending before it: half-closed connections count as left.
      if (is_over_ && exchange_) exchange_->client_gone();
      news_.cancel();
      if (is_over_) co_return;
    }
  }

  // Until somebody wakes the timer.
  asio::awaitable<void> wait_for(asio::steady_timer& timer) {
    error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  // The same, but no longer than until `deadline`. Returns whether there is still time.
  asio::awaitable<bool> wait_for_news(Clock::time_point deadline) {
    if (Clock::now() >= deadline) co_return false;
    news_.expires_at(deadline);
    co_await wait_for(news_);
    news_.expires_at(Clock::time_point::max());
    co_return true;
  }

  // One request and its answer. Returns whether another may follow.
  asio::awaitable<bool> serve_one() {
    if (!co_await receive()) co_return false;
    if (reader_.problem()) {
      const std::string refusal = refusal_text();
      co_await send(refusal);
      co_await linger();
      co_return false;
    }
    const bool keeps_alive = reader_.keeps_alive();
    begin_exchange(reader_.method() == "HEAD", keeps_alive);
    const bool may_go_on = co_await answer();
    exchange_.reset();
    co_return may_go_on;
  }

  std::string refusal_text() {
    return whole_response(host_->refusal(*reader_.problem(), reader_.path()), {.closes = true});
  }

  void begin_exchange(bool is_head, bool keeps_alive) {
    HttpRequest request = reader_.release(client_);
    style_ = {.is_head = is_head, .is_http_1_0 = request.is_http_1_0, .closes = !keeps_alive, .request_id = request.id};
    has_head_ = false;
    has_news_ = false;
    exchange_ = std::make_shared<Exchange>(std::move(request), host_->limits().stream_bytes,
                                           [weak = this->weak_from_this()] { wake(weak); });
    host_->handle(exchange_);
  }

  // Reads one request. False: there is none, and nothing to say about it.
  asio::awaitable<bool> receive() {
    const HttpLimits& limits = host_->limits();
    Clock::time_point deadline = Clock::now() + limits.idle;
    bool in_headers = false;
    for (;;) {
      if (!incoming_.empty()) {
        incoming_.erase(0, reader_.take(incoming_));
        room_.cancel();
        if (reader_.is_done() || reader_.problem()) co_return true;
        if (reader_.wants_continue()) co_await send(kContinue);
        // Headers have one deadline as a whole, or one byte now and then would hold a connection for ever; a body may
        // take as long as it keeps coming.
        if (reader_.has_begun() && (!in_headers || reader_.has_headers())) deadline = Clock::now() + limits.receive;
        in_headers = reader_.has_begun();
      }
      if (is_over_ || is_shut_) co_return false;
      if (!co_await wait_for_news(deadline)) co_return false;
    }
  }

  // What is to be sent now, and whether something follows it.
  enum class Next { kMore, kLast, kCutOff };
  Next next_output(std::string& bytes) {
    has_news_ = false;
    const Exchange::Output output = exchange_->take_output();
    if (!has_head_) style_.closes = style_.closes || host_->closes_after_answers();
    switch (output.phase) {
      case Exchange::Phase::kOpen:
        return Next::kMore;
      case Exchange::Phase::kAbandoned:
        // What the stream still held is sent: an error, most likely.
        if (has_head_) append_chunk(output.bytes, style_, bytes);
        return Next::kCutOff;
      case Exchange::Phase::kWhole:
        bytes = whole_response(output.head, style_);
        return Next::kLast;
      case Exchange::Phase::kStreaming:
      case Exchange::Phase::kFinished:
        break;
    }
    if (!std::exchange(has_head_, true)) {
      style_.closes = style_.closes || style_.is_http_1_0;
      bytes = stream_head(output.head, style_);
    }
    append_chunk(output.bytes, style_, bytes);
    if (output.phase != Exchange::Phase::kFinished) return Next::kMore;
    append_last_chunk(style_, bytes);
    return Next::kLast;
  }

  asio::awaitable<bool> answer() {
    for (;;) {
      std::string bytes;
      const Next next = next_output(bytes);
      if (!bytes.empty()) co_await send(bytes);
      exchange_->sent();
      if (next == Next::kLast) co_return !style_.closes;
      if (next == Next::kCutOff || is_over_ || is_shut_) co_return false;
      if (!has_news_) co_await wait_for(news_);
    }
  }

  // Throws when it cannot be sent, or makes no progress for too long. Callers keep the bytes in a variable: GCC 12
  // destroys some temporaries of an expression with co_await twice.
  asio::awaitable<void> send(const std::string& bytes) {
    asio::steady_timer deadline(stream_.get_executor());
    for (size_t sent = 0; sent < bytes.size();) {
      deadline.expires_after(host_->limits().send);
      deadline.async_wait([self = this->shared_from_this()](error_code error) {
        if (!error) self->shut();
      });
      sent += co_await stream_.async_write_some(asio::buffer(bytes.data() + sent, bytes.size() - sent),
                                                asio::use_awaitable);
      deadline.cancel();
    }
  }

  // After a refusal the rest of the request is read for a moment: closing at once would reset the connection, and the
  // client might never see why.
  asio::awaitable<void> linger() {
    error_code ignored;
    if constexpr (!kIsTls) stream_.shutdown(tcp::socket::shutdown_send, ignored);
    const Clock::time_point end = Clock::now() + std::chrono::milliseconds(500);
    while (!is_over_ && !is_shut_) {
      incoming_.clear();
      room_.cancel();
      if (!co_await wait_for_news(end)) break;
    }
  }

  static void wake(const std::weak_ptr<ConnectionOf>& weak) {
    const auto self = weak.lock();
    if (!self || self->has_news_.exchange(true)) return;
    asio::post(self->stream_.get_executor(), [self] { self->news_.cancel(); });
  }

  void shut() {
    if (std::exchange(is_shut_, true)) return;
    error_code ignored;
    stream_.lowest_layer().shutdown(tcp::socket::shutdown_both, ignored);
    stream_.lowest_layer().close(ignored);
    news_.cancel();
    room_.cancel();
  }

  std::shared_ptr<ConnectionHost> host_;
  Stream stream_;
  asio::steady_timer news_, room_;
  RequestReader reader_;
  std::string client_;
  std::string incoming_;
  bool is_over_ = false;  // the client sends nothing any more
  bool is_shut_ = false;
  ResponseStyle style_;    // of the answer in progress
  bool has_head_ = false;  // status and headers of its stream were made
  std::atomic<bool> has_news_{false};
  std::shared_ptr<Exchange> exchange_;  // the request in progress
};

}  // namespace

std::shared_ptr<Connection> make_plain_connection(tcp::socket socket, std::shared_ptr<ConnectionHost> host) {
  return std::make_shared<ConnectionOf<tcp::socket>>(std::move(host), std::move(socket));
}

std::shared_ptr<Connection> make_tls_connection(tcp::socket socket, asio::ssl::context& tls,
                                                std::shared_ptr<ConnectionHost> host) {
  return std::make_shared<ConnectionOf<asio::ssl::stream<tcp::socket>>>(std::move(host), std::move(socket), tls);
}

}  // namespace carat::server
