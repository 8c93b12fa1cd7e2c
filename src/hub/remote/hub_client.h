#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "hub/hub_settings.h"
#include "hub/remote/http_transport.h"
#include "hub/remote/repo_reference.h"

namespace carat::hub {

// Waits; returns early when the user asked to stop. A test gives one that takes no time.
using Sleep = std::function<void(std::chrono::milliseconds)>;
Sleep real_sleep(const std::atomic<bool>* cancelled);

// How long to wait before trying again: 1, 2, 4 ... seconds, or what the server asks for.
class Backoff {
 public:
  // Tries in a row that bring nothing new.
  static constexpr int kMaxTries = 6;
  // A server that wants a longer pause is not worth waiting for in the foreground.
  static constexpr std::chrono::seconds kLongestPause{300};

  Backoff(Sleep sleep, const std::atomic<bool>* cancelled, Logger log)
      : sleep_(std::move(sleep)), cancelled_(cancelled), log_(std::move(log)) {}

  // Waits, saying why. Throws kIo with `failure` when all tries are spent or the server asks for more than
  // kLongestPause, kInterrupted when the user stopped it.
  void wait(const std::string& failure, const HttpResponse& response);
  void reset() { tries_ = 1; }

 private:
  Sleep sleep_;
  const std::atomic<bool>* cancelled_;
  Logger log_;
  int tries_ = 1;
};

struct HubClientOptions {
  Sleep sleep;
  const std::atomic<bool>* cancelled = nullptr;
  Logger log;
};

// The Hub over a transport: addresses, the token, redirects, retries. The token goes to the endpoint alone, and over
// plain http only to this machine; a redirect never leads from https to http. Not thread-safe.
class HubClient {
 public:
  HubClient(HubSettings settings, HttpTransport& transport, HubClientOptions options);

  // The endpoint's address for a path that begins with '/' and is encoded already.
  Url address(std::string_view path) const;

  // One try, redirects followed; the sink sees only bodies of success (2xx). Throws kIo for a redirect that breaks the
  // rules.
  HttpResult get(const Url& url, const std::vector<std::string>& headers, const BodySink& sink);

  struct Document {
    std::string body;
    HttpResponse response;
    Url url;  // where it was asked for
  };
  // A small document, retried as needed. Throws kIo when it cannot be had, kBadArgument for what a status says about
  // the request; `what` is the thing asked for, in words.
  Document get_document(const Url& url, const RepoReference& reference, const std::string& what);

  // Whether an exchange that was no success may succeed later.
  bool worth_another_try(const HttpResult& result) const;
  // In words, with the host but never with a query, which may hold a signature.
  std::string describe_failure(const HttpResult& result, const Url& url) const;
  // The error for a status that will not change.
  [[noreturn]] void fail_for_good(const HttpResult& result, const Url& url, const RepoReference& reference,
                                  const std::string& what) const;

  Backoff make_backoff() const { return Backoff(options_.sleep, options_.cancelled, options_.log); }
  const HubClientOptions& options() const { return options_; }
  const HubSettings& settings() const { return settings_; }

 private:
  HttpResult get_once(const Url& url, const std::vector<std::string>& headers, const BodySink& sink);

  HubSettings settings_;
  HttpTransport& transport_;
  HubClientOptions options_;
  bool reached_ = false;  // the endpoint has answered before, so not reaching it is a passing trouble
};

inline bool is_success(int status) { return status >= 200 && status < 300; }

// Throws kInterrupted when the flag is set.
void check_cancelled(const std::atomic<bool>* cancelled);

}  // namespace carat::hub
