#include "hub/remote/hub_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <thread>

#include "base/error.h"
#include "gguf/printable.h"

namespace carat::hub {

namespace {

constexpr int kMaxRedirects = 10;
constexpr size_t kMaxDocumentBytes = size_t{16} << 20;  // the Hub's pages have less than one MiB

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// Seconds only: a date would need this machine's clock to be right.
std::optional<std::chrono::seconds> retry_after(const HttpResponse& response) {
  const auto value = response.header("retry-after");
  if (!value) return std::nullopt;
  uint32_t seconds = 0;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), seconds);
  if (error != std::errc() || end != value->data() + value->size()) return std::nullopt;
  return std::chrono::seconds(seconds);
}

std::string without_query(const Url& url) { return url.origin() + url.target.substr(0, url.target.find('?')); }

}  // namespace

void check_cancelled(const std::atomic<bool>* cancelled) {
  if (cancelled != nullptr && cancelled->load()) fail(ErrorCode::kInterrupted, "interrupted");
}

Sleep real_sleep(const std::atomic<bool>* cancelled) {
  return [cancelled](std::chrono::milliseconds duration) {
    constexpr std::chrono::milliseconds kStep{50};
    const auto until = std::chrono::steady_clock::now() + duration;
    while (std::chrono::steady_clock::now() < until && (cancelled == nullptr || !cancelled->load())) {
      std::this_thread::sleep_for(kStep);
    }
  };
}

void Backoff::wait(const std::string& failure, const HttpResponse& response) {
  const auto asked = retry_after(response);
  if (asked && *asked > kLongestPause) {
    fail(ErrorCode::kIo, "{}; it asks to come back in {} s: try again then, the download goes on where it stopped",
         failure, asked->count());
  }
  if (tries_ >= kMaxTries) {
    fail(ErrorCode::kIo, "{}; given up after {} tries. Try again later: a download goes on where it stopped", failure,
         kMaxTries);
  }
  const std::chrono::seconds pause = asked.value_or(std::chrono::seconds(int64_t{1} << (tries_ - 1)));
  ++tries_;
  if (log_) log_->warn("{}; trying again in {} s", failure, pause.count());
  sleep_(pause);
  check_cancelled(cancelled_);
}

HubClient::HubClient(HubSettings settings, HttpTransport& transport, HubClientOptions options)
    : settings_(std::move(settings)), transport_(transport), options_(std::move(options)) {
  const Url& endpoint = settings_.endpoint;
  if (!settings_.token.empty() && endpoint.scheme == "http" && !endpoint.is_loopback()) {
    settings_.token.clear();
    if (options_.log) {
      options_.log->warn("the token of {} is not sent, because {} is plain http and everybody on the way could read it",
                         settings_.token_source, endpoint.origin());
    }
  }
}

Url HubClient::address(std::string_view path) const {
  Url url = settings_.endpoint;
  url.target += path;
  return url;
}

HttpResult HubClient::get_once(const Url& url, const std::vector<std::string>& headers, const BodySink& sink) {
  HttpRequest request{url, headers};
  if (!settings_.token.empty() && url.same_origin(settings_.endpoint)) {
    request.headers.push_back("Authorization: Bearer " + settings_.token);
  }
  HttpResult result = transport_.get(request, [&sink](const HttpResponse& response, std::string_view piece) {
    if (is_success(response.status)) sink(response, piece);
  });
  if (result.response.status != 0) reached_ = true;
  return result;
}

HttpResult HubClient::get(const Url& url, const std::vector<std::string>& headers, const BodySink& sink) {
  Url at = url;
  for (int redirects = 0; redirects <= kMaxRedirects; ++redirects) {
    HttpResult result = get_once(at, headers, sink);
    if (result.end != TransferEnd::kComplete || !is_redirect(result.response.status)) return result;
    const std::string location = result.response.header("location").value_or("");
    const auto next = resolve_url(at, location);
    if (!next) {
      fail(ErrorCode::kIo, "{} redirects to {}, which is no http or https address", without_query(at),
           gguf::printable(location.substr(0, location.find('?'))));
    }
    if (at.scheme == "https" && next->scheme != "https") {
      fail(ErrorCode::kIo, "{} redirects to {}, which is not encrypted; carat does not follow", without_query(at),
           without_query(*next));
    }
    at = *next;
  }
  fail(ErrorCode::kIo, "{} redirects more than {} times", without_query(url), kMaxRedirects);
}

HubClient::Document HubClient::get_document(const Url& url, const RepoReference& reference, const std::string& what) {
  Backoff backoff = make_backoff();
  for (;;) {
    Document document{.body = {}, .response = {}, .url = url};
    const HttpResult result = get(url, {}, [&](const HttpResponse&, std::string_view piece) {
      if (document.body.size() + piece.size() > kMaxDocumentBytes) {
        fail(ErrorCode::kIo, "{} sends more than {} MiB as {}", url.origin(), kMaxDocumentBytes >> 20, what);
      }
      document.body += piece;
    });
    if (result.end == TransferEnd::kComplete && is_success(result.response.status)) {
      document.response = result.response;
      return document;
    }
    if (!worth_another_try(result)) fail_for_good(result, url, reference, what);
    backoff.wait(describe_failure(result, url), result.response);
  }
}

bool HubClient::worth_another_try(const HttpResult& result) const {
  switch (result.end) {
    case TransferEnd::kLost:
      return true;
    case TransferEnd::kUnreachable:
      return reached_;  // at the very start it is a wrong address or no network, better said at once
    case TransferEnd::kRefused:
      return false;
    case TransferEnd::kComplete:
      break;
  }
  const int status = result.response.status;
  return status == 408 || status == 429 || status >= 500;
}

std::string HubClient::describe_failure(const HttpResult& result, const Url& url) const {
  switch (result.end) {
    case TransferEnd::kUnreachable:
      return fmt::format("{} cannot be reached ({})", url.origin(), gguf::printable(result.failure));
    case TransferEnd::kLost:
      return fmt::format("the connection to {} was lost ({})", url.origin(), gguf::printable(result.failure));
    case TransferEnd::kRefused:
      return fmt::format("{} cannot be used ({})", url.origin(), gguf::printable(result.failure));
    case TransferEnd::kComplete:
      break;
  }
  const int status = result.response.status;
  return fmt::format("{} answered with HTTP {}{}", url.origin(), status,
                     status == 429   ? " (too many requests)"
                     : status >= 500 ? " (trouble on its side)"
                                     : "");
}

void HubClient::fail_for_good(const HttpResult& result, const Url& url, const RepoReference& reference,
                              const std::string& what) const {
  const std::string failure = describe_failure(result, url);
  if (result.end == TransferEnd::kUnreachable) {
    fail(ErrorCode::kIo, "{}; check the network and HF_ENDPOINT. Models that are here already need neither", failure);
  }
  if (result.end != TransferEnd::kComplete) fail(ErrorCode::kIo, "{}", failure);
  const std::string page = without_query(address("/" + reference.id()));
  switch (result.response.status) {
    case 401:
    case 403:
      if (settings_.token.empty()) {
        fail(ErrorCode::kBadArgument,
             "{} gives no access to {} (HTTP {}): it does not exist, is private, or its licence has to be accepted "
             "first. Accept it at {} and set HF_TOKEN to a token of your account",
             url.origin(), reference.id(), result.response.status, page);
      }
      fail(
          ErrorCode::kBadArgument,
          "{} gives no access to {} with the token of {} (HTTP {}): accept the licence at {} with the token's account, "
          "and check that the token may read this repository",
          url.origin(), reference.id(), settings_.token_source, result.response.status, page);
    case 404:
      fail(ErrorCode::kBadArgument, "{} has no {} (HTTP 404); check the spelling at {}", url.origin(), what, page);
    default:
      fail(ErrorCode::kIo, "{} when asked for {}", failure, what);
  }
}

}  // namespace carat::hub
