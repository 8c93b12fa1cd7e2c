#include "support/http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <stdexcept>

namespace carat::test {

namespace {

constexpr int kPollMilliseconds = 20;
constexpr std::chrono::seconds kPatience{10};

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return text;
}

// All up to the empty line; empty when the client went away first.
std::string read_head(int connection, const std::atomic<bool>& stopping) {
  std::string head;
  std::array<char, 4096> buffer;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (head.find("\r\n\r\n") == std::string::npos) {
    if (stopping.load() || std::chrono::steady_clock::now() > until) return "";
    pollfd wanted{connection, POLLIN, 0};
    if (::poll(&wanted, 1, kPollMilliseconds) <= 0) continue;
    const ssize_t count = ::recv(connection, buffer.data(), buffer.size(), 0);
    if (count <= 0) return "";
    head.append(buffer.data(), static_cast<size_t>(count));
  }
  return head;
}

ServerRequest parse_head(const std::string& head) {
  ServerRequest request;
  std::istringstream lines(head);
  std::string method;
  lines >> method >> request.target;
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && line != "\r") {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    request.headers[lower_case(line.substr(0, colon))] = line.substr(colon + 2, line.size() - colon - 3);
  }
  return request;
}

bool send_all(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

}  // namespace

HttpServer::HttpServer(Handler handler) : handler_(std::move(handler)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (listener_ < 0 || ::bind(listener_, generic, length) != 0 || ::listen(listener_, 16) != 0 ||
      ::getsockname(listener_, generic, &length) != 0) {
    throw std::runtime_error("cannot open a port for the test server");
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { serve(); });
}

HttpServer::~HttpServer() {
  stopping_.store(true);
  thread_.join();
  ::close(listener_);
}

std::string HttpServer::url() const { return fmt::format("http://127.0.0.1:{}", port_); }

std::vector<ServerRequest> HttpServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void HttpServer::serve() {
  while (!stopping_.load()) {
    pollfd wanted{listener_, POLLIN, 0};
    if (::poll(&wanted, 1, kPollMilliseconds) <= 0) continue;
    const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    answer(connection);
    ::close(connection);
  }
}

void HttpServer::answer(int connection) {
  const std::string head = read_head(connection, stopping_);
  if (head.empty()) return;
  const ServerRequest request = parse_head(head);
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
  }
  send_reply(connection, handler_(request));
}

void HttpServer::send_reply(int connection, const ServerReply& reply) const {
  std::string head = fmt::format("HTTP/1.1 {} Status\r\nConnection: close\r\n", reply.status);
  if (reply.send_length) {
    head += fmt::format("Content-Length: {}\r\n", reply.claimed_length.value_or(reply.body.size()));
  }
  for (const auto& [name, value] : reply.headers) head += fmt::format("{}: {}\r\n", name, value);
  if (!send_all(connection, head + "\r\n")) return;
  std::string_view left = std::string_view(reply.body).substr(0, reply.cut_after.value_or(reply.body.size()));
  while (!left.empty() && !stopping_.load()) {
    const std::string_view piece = left.substr(0, reply.piece_bytes);
    if (!send_all(connection, piece)) return;
    left.remove_prefix(piece.size());
    if (!left.empty()) std::this_thread::sleep_for(reply.between_pieces);
  }
}

}  // namespace carat::test
