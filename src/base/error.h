#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace carat {

// What kind of thing went wrong; the command line turns it into an exit code.
enum class ErrorCode {
  kBadArgument,  // a flag or a request
  kBadFile,      // a file's content
  kIo,           // a file cannot be opened, read or written
  kUnsupported,  // valid, but not something this build can do
  kOutOfMemory,  // host or device
  kDevice,       // a GPU reported an error
  kInterrupted,  // the user asked to stop
  kNonFinite,    // the model produced NaN or infinity
};

// The one exception type: the message names the file, field or flag and says what to do. Thrown for anything a file, a
// flag, a request or the machine can cause; caught at the edges.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

template <typename... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// For our own bugs only: never reachable by input.
#define CARAT_CHECK(condition)                                                                      \
  do {                                                                                              \
    if (!(condition)) throw std::logic_error("internal check failed: " #condition " at " __FILE__); \
  } while (false)

}  // namespace carat
