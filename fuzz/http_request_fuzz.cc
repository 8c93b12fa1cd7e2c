// Connections of any content. Whatever the pieces the bytes come in, the same requests come out of them; no request is
// larger than the limits, and nothing is left waiting that is.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz_check.h"
#include "server/http/request_reader.h"

namespace {

using carat::server::HttpLimits;
using carat::server::HttpRequest;
using carat::server::RequestReader;

HttpLimits limits() {
  HttpLimits limits;
  limits.header_bytes = 512;
  limits.body_bytes = 1024;
  return limits;
}

struct Outcome {
  std::vector<HttpRequest> requests;
  std::vector<bool> kept;  // whether the connection could be used again after each
  std::optional<unsigned> refusal;
  bool has_begun = false;  // a request that is not complete
};

void check_request(const HttpRequest& request) {
  FUZZ_CHECK(!request.method.empty() && !request.target.empty());
  FUZZ_CHECK(request.body.size() <= limits().body_bytes);
  size_t header_bytes = 0, lengths = 0, encodings = 0, hosts = 0;
  for (const auto& [name, value] : request.headers) {
    header_bytes += name.size() + value.size();
    FUZZ_CHECK(!name.empty());
    FUZZ_CHECK(name.find_first_of("\r\n :ABCDEFGHIJKLMNOPQRSTUVWXYZ") == std::string::npos);
    FUZZ_CHECK(value.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos);
    lengths += name == "content-length";
    encodings += name == "transfer-encoding";
    hosts += name == "host";
  }
  FUZZ_CHECK(header_bytes <= limits().header_bytes);
  FUZZ_CHECK(lengths + encodings <= 1);
  FUZZ_CHECK(hosts == 1 || (hosts == 0 && request.is_http_1_0));
  FUZZ_CHECK(lengths + encodings > 0 || request.body.empty());
  FUZZ_CHECK(!request.id.empty() && request.id.size() <= 128);
  FUZZ_CHECK(request.path.find('\0') == std::string::npos);
  request.parameter("a");
}

// As a connection does it. `pieces` gives the sizes of the pieces, again and again; empty: all at once.
Outcome read(std::string_view bytes, const std::vector<size_t>& pieces) {
  RequestReader reader(limits());
  Outcome outcome;
  std::string waiting;
  for (size_t i = 0; !bytes.empty(); ++i) {
    const size_t size = pieces.empty() ? bytes.size() : std::min(bytes.size(), pieces[i % pieces.size()]);
    waiting += bytes.substr(0, size);
    bytes.remove_prefix(size);
    while (!waiting.empty()) {
      const size_t taken = reader.take(waiting);
      FUZZ_CHECK(taken <= waiting.size());
      waiting.erase(0, taken);
      if (reader.problem()) {
        outcome.refusal = carat::server::status_of(reader.problem()->refusal);
        FUZZ_CHECK(!reader.keeps_alive() && !reader.problem()->message.empty());
        reader.path();
        return outcome;
      }
      reader.wants_continue();
      if (!reader.is_done()) break;
      outcome.kept.push_back(reader.keeps_alive());
      outcome.requests.push_back(reader.release("client"));
      check_request(outcome.requests.back());
    }
    FUZZ_CHECK(waiting.size() <= limits().header_bytes);
  }
  outcome.has_begun = reader.has_begun() || !waiting.empty();
  return outcome;
}

void check_same(const Outcome& one, const Outcome& two) {
  FUZZ_CHECK(one.requests.size() == two.requests.size());
  FUZZ_CHECK(one.kept == two.kept);
  // What is wrong may be seen earlier when more of it is there, but what one refuses the other must not take for whole.
  FUZZ_CHECK(one.refusal.has_value() || two.refusal.has_value() || one.has_begun == two.has_begun);
  FUZZ_CHECK(one.refusal.has_value() == two.refusal.has_value() || one.has_begun || two.has_begun);
  for (size_t i = 0; i < one.requests.size(); ++i) {
    const HttpRequest &a = one.requests[i], &b = two.requests[i];
    FUZZ_CHECK(a.method == b.method && a.target == b.target && a.path == b.path && a.query == b.query);
    FUZZ_CHECK(a.headers == b.headers && a.body == b.body && a.is_http_1_0 == b.is_http_1_0);
  }
}

}  // namespace

// The first byte says how many of the next ones are sizes of pieces.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t count = std::min<size_t>(data[0] % 8, size - 1);
  std::vector<size_t> pieces;
  for (size_t i = 1; i <= count; ++i) pieces.push_back(size_t{1} + data[i] % 64);
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1 + count, size - 1 - count);
  const Outcome whole = read(bytes, {});
  check_same(whole, read(bytes, {1}));
  if (!pieces.empty()) check_same(whole, read(bytes, pieces));
  return 0;
}
