#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace carat::test {

struct RaisedError {
  bool raised = false;
  ErrorCode code = ErrorCode::kBadArgument;
  std::string message;
};

// What an action throws; a failure of the test when it throws nothing.
template <typename Action>
RaisedError error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return {true, error.code(), error.what()};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace carat::test
