#pragma once

#include <optional>
#include <string>

#include "base/error.h"

namespace carat::engine {

// Why a sequence failed or an engine is lost: the kind and the words of an exception that was caught.
struct Failure {
  std::optional<ErrorCode> code;  // none: the exception was no carat::Error, so a mistake of the program
  std::string text;

  static Failure of(const Error& error) { return {error.code(), error.what()}; }
  static Failure current();  // of the exception that is being handled
  [[noreturn]] void rethrow() const;
};

}  // namespace carat::engine
