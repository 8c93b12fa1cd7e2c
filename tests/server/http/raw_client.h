#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace carat::server::test {

// A socket to a port on loopback, for bytes that no well-behaved client would send.
class RawClient {
 public:
  explicit RawClient(uint16_t port);
  ~RawClient();
  RawClient(RawClient&& other) noexcept;
  RawClient(const RawClient&) = delete;

  // Returns whether all of it could be sent.
  bool send(std::string_view bytes);
  void half_close();  // nothing more is sent
  void close();
  void reset();  // closes so that the other side sees a reset
  // Whatever comes until the other side closes, or nothing came for so long.
  std::string receive_all(std::chrono::milliseconds quiet = std::chrono::seconds(5));
  // Until the text holds `end`, or the other side closes, or nothing came for so long.
  std::string receive_until(std::string_view end, std::chrono::milliseconds quiet = std::chrono::seconds(5));
  bool is_closed(std::chrono::milliseconds within);  // by the other side

 private:
  int socket_ = -1;
};

// GET with the headers a client has to send.
std::string get(std::string_view path);
std::string post(std::string_view path, std::string_view body);

}  // namespace carat::server::test
