#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/api/api_error.h"
#include "server/http/http_request.h"
#include "server/http/limits.h"

namespace carat::server {

// Makes requests of the bytes of a connection, whatever the pieces they come in. Pure: no sockets, so that hostile
// bytes can be tested and fuzzed by themselves. What the grammar of HTTP leaves open to two readings (two lengths, a
// length beside chunks) is refused, or a proxy in front could be made to see other requests than we do.
class RequestReader {
 public:
  explicit RequestReader(const HttpLimits& limits);
  ~RequestReader();

  // Takes what it can of `bytes` and says how much that was. After is_done() or a problem it takes nothing more.
  size_t take(std::string_view bytes);
  bool has_begun() const;    // a byte of the request has come
  bool has_headers() const;  // they are complete
  bool is_done() const;
  const std::optional<Problem>& problem() const { return problem_; }
  // The client waits for "100 Continue" before it sends the body. Once.
  bool wants_continue();
  // Whether the connection may be used again after the answer.
  bool keeps_alive() const;
  std::string_view method() const;
  std::string path() const;

  // The request, when it is done; the reader is then ready for the next one. `client` is the address.
  HttpRequest release(std::string client);

 private:
  struct Parser;
  struct Step {
    size_t used = 0;
    bool needs_more = false;  // of what was not used
  };
  Step take_step(std::string_view bytes);
  bool is_too_long(bool needs_more, size_t waiting) const;
  void reset();
  void refuse(Refusal refusal, std::string message);
  void check_headers();
  void keep_headers();

  HttpLimits limits_;
  std::unique_ptr<Parser> parser_;
  std::optional<Problem> problem_;
};

}  // namespace carat::server
