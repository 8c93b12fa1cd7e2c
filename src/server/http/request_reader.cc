#include "server/http/request_reader.h"

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cctype>
#include <random>
#include <utility>

namespace carat::server {

namespace http = boost::beast::http;

namespace {

constexpr size_t kMaxTarget = size_t{16} << 10;
constexpr size_t kMaxRequestId = 128;

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

// A line that begins with a space belongs to the one before, which only some readers of HTTP still know.
bool has_folded_line(std::string_view head) {
  return head.find("\n ") != std::string_view::npos || head.find("\n\t") != std::string_view::npos;
}

std::string random_id() {
  thread_local std::mt19937_64 engine(std::random_device{}());
  return fmt::format("req-{:016x}", engine());
}

}  // namespace

struct RequestReader::Parser {
  http::request_parser<http::string_body> parser;
  // As they were when the headers were complete: the parser adds what stands behind the last chunk to the same fields,
  // where it would be taken for a header that nobody in front of us has seen.
  std::vector<std::pair<std::string, std::string>> headers;
  size_t framing = 0;  // bytes so far of what is not body and not yet whole
  bool keeps_alive = false;
  bool was_told_to_continue = false;
};

RequestReader::RequestReader(const HttpLimits& limits) : limits_(limits) { reset(); }
RequestReader::~RequestReader() = default;

void RequestReader::reset() {
  parser_ = std::make_unique<Parser>();
  // The limit is kept here, because the parser counts differently when bytes come in pieces.
  parser_->parser.header_limit(static_cast<uint32_t>(2 * limits_.header_bytes));
  parser_->parser.body_limit(limits_.body_bytes);
  problem_.reset();
}

void RequestReader::refuse(Refusal refusal, std::string message) {
  problem_ = Problem{.refusal = refusal, .message = std::move(message)};
}

size_t RequestReader::take(std::string_view bytes) {
  size_t taken = 0;
  while (taken < bytes.size() && !parser_->parser.is_done() && !problem_) {
    const Step step = take_step(bytes.substr(taken));
    taken += step.used;
    if (step.needs_more || step.used == 0) break;
  }
  return taken;
}

RequestReader::Step RequestReader::take_step(std::string_view bytes) {
  auto& parser = parser_->parser;
  const bool had_headers = parser.is_header_done();
  const size_t body = parser.get().body().size();
  boost::beast::error_code error;
  const size_t used = parser.put(boost::asio::buffer(bytes.data(), bytes.size()), error);
  const bool needs_more = error == http::error::need_more;
  // The headers, the head of a chunk, or what follows the last one: the parser waits until they are whole.
  const bool is_framing = !had_headers || parser.get().body().size() == body;
  parser_->framing += is_framing ? used : 0;
  if (!had_headers && has_folded_line(bytes.substr(0, used))) {
    refuse(Refusal::kBadRequest, "a header goes on in the next line");
  } else if (error == http::error::header_limit || (is_framing && is_too_long(needs_more, bytes.size() - used))) {
    refuse(Refusal::kHeaders, fmt::format("the {} longer than {} bytes",
                                          had_headers ? "extensions of a chunk, or the trailers, are" : "headers are",
                                          limits_.header_bytes));
  } else if (error == http::error::body_limit) {
    refuse(Refusal::kTooLarge,
           fmt::format("the body is larger than {} bytes; --max-body allows more", limits_.body_bytes));
  } else if (error && !needs_more) {
    refuse(Refusal::kBadRequest, fmt::format("not a valid HTTP request: {}", error.message()));
  } else if (!had_headers && parser.is_header_done()) {
    check_headers();
    if (!problem_) keep_headers();
  }
  if (!needs_more && parser.is_header_done()) parser_->framing = 0;
  return {used, needs_more};
}

// What is too long is refused as soon as that much of it is there, in however many pieces.
bool RequestReader::is_too_long(bool needs_more, size_t waiting) const {
  return needs_more ? parser_->framing + waiting >= limits_.header_bytes : parser_->framing > limits_.header_bytes;
}

void RequestReader::keep_headers() {
  const auto& message = parser_->parser.get();
  for (const auto& field : message) {
    parser_->headers.emplace_back(lower_case(field.name_string()), std::string(field.value()));
  }
  parser_->keeps_alive = message.keep_alive();
}

void RequestReader::check_headers() {
  const auto& message = parser_->parser.get();
  if (message.target().empty() || message.target().size() > kMaxTarget) {
    return refuse(Refusal::kBadRequest, "the path is empty or too long");
  }
  if (message.version() != 10 && message.version() != 11) {
    return refuse(Refusal::kBadRequest, "only HTTP/1.0 and HTTP/1.1 are spoken here");
  }
  const size_t hosts = message.count(http::field::host);
  if (hosts > 1 || (message.version() == 11 && hosts == 0)) {
    return refuse(Refusal::kBadRequest, "a request needs exactly one Host header");
  }
  const std::string encoding = lower_case(message[http::field::content_encoding]);
  if (!encoding.empty() && encoding != "identity") {
    return refuse(Refusal::kMediaType,
                  fmt::format("Content-Encoding {} is not understood; send the body as it is", encoding));
  }
  const std::string_view length = message[http::field::content_length];
  if (message.count(http::field::content_length) > 1 || length.find(',') != std::string_view::npos) {
    return refuse(Refusal::kBadRequest, "a request needs one Content-Length at most");
  }
  if (message.count(http::field::transfer_encoding) == 0) return;
  const std::string transfer = lower_case(message[http::field::transfer_encoding]);
  if (transfer != "chunked") {
    return refuse(Refusal::kBadRequest, fmt::format("Transfer-Encoding \"{}\" is not understood", transfer));
  }
  if (message.version() == 10) return refuse(Refusal::kBadRequest, "HTTP/1.0 has no Transfer-Encoding");
}

bool RequestReader::has_begun() const { return parser_->parser.got_some(); }
bool RequestReader::has_headers() const { return parser_->parser.is_header_done(); }
bool RequestReader::is_done() const { return parser_->parser.is_done(); }

bool RequestReader::wants_continue() {
  const auto& parser = parser_->parser;
  if (!parser.is_header_done() || parser.is_done() || problem_ || parser_->was_told_to_continue) return false;
  if (lower_case(parser.get()[http::field::expect]) != "100-continue") return false;
  parser_->was_told_to_continue = true;
  return true;
}

bool RequestReader::keeps_alive() const { return !problem_ && parser_->parser.is_done() && parser_->keeps_alive; }

std::string_view RequestReader::method() const {
  const auto method = parser_->parser.get().method_string();
  return {method.data(), method.size()};
}

std::string RequestReader::path() const {
  const std::string target(parser_->parser.get().target());
  return target.substr(0, target.find('?'));
}

HttpRequest RequestReader::release(std::string client) {
  auto message = parser_->parser.release();
  HttpRequest request;
  request.method = std::string(message.method_string());
  request.target = std::string(message.target());
  const size_t mark = request.target.find('?');
  // A path that cannot be decoded names no route.
  request.path = percent_decoded(std::string_view(request.target).substr(0, mark), false).value_or("");
  if (mark != std::string::npos) request.query = request.target.substr(mark + 1);
  request.headers = std::move(parser_->headers);
  request.body = std::move(message.body());
  request.client = std::move(client);
  request.is_http_1_0 = message.version() == 10;
  const std::string_view id = request.header("x-request-id");
  request.id = !id.empty() && id.size() <= kMaxRequestId && is_printable(id) ? std::string(id) : random_id();
  reset();
  return request;
}

}  // namespace carat::server
