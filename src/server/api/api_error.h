#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"

namespace carat::server {

// What kind of refusal a client is told about. Each dialect has its own words for these (status_of, and the error
// bodies of the dialects).
enum class Refusal {
  kBadRequest,       // 400: something in the body
  kContextExceeded,  // 400: the prompt does not fit the context
  kUnauthorized,     // 401
  kForbidden,        // 403
  kNotFound,         // 404: a path
  kModelNotFound,    // 404
  kMethod,           // 405
  kTooLarge,         // 413
  kMediaType,        // 415
  kHeaders,          // 431
  kQueueFull,        // 429, with Retry-After
  kFailed,           // 500: a pass failed
  kNotSupported,     // 501: a route that carat does not serve, on purpose
  kLoading,          // 503, with Retry-After
  kDraining,         // 503, with Retry-After
  kQueueTimeout,     // 503, with Retry-After
};

// The HTTP status of OpenAI's dialect; the others deviate where their documentation says so.
constexpr unsigned status_of(Refusal refusal) {
  switch (refusal) {
    case Refusal::kBadRequest:
    case Refusal::kContextExceeded:
      return 400;
    case Refusal::kUnauthorized:
      return 401;
    case Refusal::kForbidden:
      return 403;
    case Refusal::kNotFound:
    case Refusal::kModelNotFound:
      return 404;
    case Refusal::kMethod:
      return 405;
    case Refusal::kTooLarge:
      return 413;
    case Refusal::kMediaType:
      return 415;
    case Refusal::kHeaders:
      return 431;
    case Refusal::kQueueFull:
      return 429;
    case Refusal::kFailed:
      return 500;
    case Refusal::kNotSupported:
      return 501;
    case Refusal::kLoading:
    case Refusal::kDraining:
    case Refusal::kQueueTimeout:
      return 503;
  }
  return 500;
}

// What a request is answered with when it cannot be served. `param` names the field, as in "messages[2].content[1]".
struct Problem {
  Refusal refusal = Refusal::kBadRequest;
  std::string message;
  std::string param = {};
  std::string code = {};                           // empty: the dialect's own for this refusal
  std::optional<double> retry_after = {};          // seconds
  bool is_repeatable = false;                      // the same request would fail again
  uint64_t prompt_tokens = 0, context_tokens = 0;  // of kContextExceeded
};

// Thrown while a request is read and prepared; caught where its answer is written.
class ApiError : public Error {
 public:
  explicit ApiError(Problem problem) : Error(ErrorCode::kBadArgument, problem.message), problem_(std::move(problem)) {}
  const Problem& problem() const { return problem_; }

 private:
  Problem problem_;
};

template <typename... Args>
[[noreturn]] void refuse(std::string param, fmt::format_string<Args...> format, Args&&... args) {
  throw ApiError({.message = fmt::format(format, std::forward<Args>(args)...), .param = std::move(param)});
}

}  // namespace carat::server
