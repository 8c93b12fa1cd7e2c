// The transport over libcurl; only part of builds where that was found.
#include <curl/curl.h>

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "hub/remote/http_transport.h"

namespace carat::hub {

namespace {

constexpr size_t kMaxHeaderBytes = size_t{256} << 10;
constexpr long kReceiveBufferBytes = 512L << 10;

// One exchange in progress, as libcurl's callbacks see it. An exception cannot pass through C, so it waits here.
struct Exchange {
  const BodySink& sink;
  const std::atomic<bool>* cancelled;
  HttpResponse response = {};
  size_t header_bytes = 0;
  bool headers_too_long = false;
  std::exception_ptr thrown = {};
};

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

size_t on_header(char* data, size_t size, size_t count, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  const std::string_view line(data, size * count);
  exchange.header_bytes += line.size();
  if (exchange.header_bytes > kMaxHeaderBytes) {
    exchange.headers_too_long = true;
    return 0;
  }
  if (line.starts_with("HTTP/")) {  // also after "100 Continue": only the last answer counts
    exchange.response = {};
    const size_t space = line.find(' ');
    if (space != std::string_view::npos) exchange.response.status = std::atoi(std::string(line.substr(space)).c_str());
    return line.size();
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return line.size();
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  exchange.response.headers[name] = trimmed(line.substr(colon + 1));
  return line.size();
}

size_t on_body(char* data, size_t size, size_t count, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  try {
    exchange.sink(exchange.response, std::string_view(data, size * count));
  } catch (...) {
    exchange.thrown = std::current_exception();
    return 0;
  }
  return size * count;
}

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto& exchange = *static_cast<Exchange*>(user);
  return exchange.cancelled != nullptr && exchange.cancelled->load() ? 1 : 0;
}

TransferEnd end_of(CURLcode code, const Exchange& exchange) {
  if (exchange.headers_too_long) return TransferEnd::kRefused;
  switch (code) {
    case CURLE_OK:
      return TransferEnd::kComplete;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
      return TransferEnd::kUnreachable;
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return TransferEnd::kLost;
    default:
      return TransferEnd::kRefused;
  }
}

class CurlTransport final : public HttpTransport {
 public:
  explicit CurlTransport(const TransportOptions& options) : options_(options), handle_(curl_easy_init()) {
    if (!handle_) fail(ErrorCode::kOutOfMemory, "libcurl cannot be started");
  }

  HttpResult get(const HttpRequest& request, const BodySink& sink) override {
    Exchange exchange{.sink = sink, .cancelled = options_.cancelled};
    std::string error(CURL_ERROR_SIZE, '\0');
    curl_easy_reset(handle_.get());  // keeps connections
    prepare(exchange, error, request.url);
    HeaderList headers(nullptr, curl_slist_free_all);
    for (const std::string& header : request.headers) {
      curl_slist* longer = curl_slist_append(headers.get(), header.c_str());
      if (longer == nullptr) throw std::bad_alloc();
      (void)headers.release();  // now part of the longer list
      headers.reset(longer);
    }
    set(CURLOPT_HTTPHEADER, headers.get());

    const CURLcode code = curl_easy_perform(handle_.get());
    if (exchange.thrown) std::rethrow_exception(exchange.thrown);
    if (code == CURLE_ABORTED_BY_CALLBACK) fail(ErrorCode::kInterrupted, "interrupted");
    HttpResult result{std::move(exchange.response), end_of(code, exchange), ""};
    if (result.end != TransferEnd::kComplete) {
      const std::string detail = error.c_str();
      result.failure = exchange.headers_too_long ? "the server's headers are too long"
                       : detail.empty()          ? curl_easy_strerror(code)
                                                 : detail;
    }
    return result;
  }

 private:
  using HeaderList = std::unique_ptr<curl_slist, void (*)(curl_slist*)>;
  struct Cleanup {
    void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  };

  // An option that is not set as asked would quietly weaken what is promised here.
  template <typename Value>
  void set(CURLoption option, Value value) {
    const CURLcode code = curl_easy_setopt(handle_.get(), option, value);
    if (code != CURLE_OK) {
      fail(ErrorCode::kUnsupported, "this libcurl does not take option {}: {}", static_cast<int>(option),
           curl_easy_strerror(code));
    }
  }

  void prepare(Exchange& exchange, std::string& error, const Url& url) {
    set(CURLOPT_URL, url.text().c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_USERAGENT, options_.user_agent.c_str());
    set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(options_.connect_timeout.count()));
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(options_.stall_timeout.count()));
    set(CURLOPT_BUFFERSIZE, kReceiveBufferBytes);
    set(CURLOPT_ERRORBUFFER, error.data());
    set(CURLOPT_HEADERFUNCTION, &on_header);
    set(CURLOPT_HEADERDATA, &exchange);
    set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);  // a proxy's answer is not the server's
    set(CURLOPT_WRITEFUNCTION, &on_body);
    set(CURLOPT_WRITEDATA, &exchange);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, &on_progress);
    set(CURLOPT_XFERINFODATA, &exchange);
    // libcurl takes proxies from the environment; none has business with a server on this machine.
    if (url.is_loopback()) set(CURLOPT_NOPROXY, "*");
  }

  TransportOptions options_;
  std::unique_ptr<CURL, Cleanup> handle_;
};

}  // namespace

std::unique_ptr<HttpTransport> make_http_transport(const TransportOptions& options) {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (started != CURLE_OK) fail(ErrorCode::kUnsupported, "libcurl cannot be started: {}", curl_easy_strerror(started));
  return std::make_unique<CurlTransport>(options);
}

}  // namespace carat::hub
