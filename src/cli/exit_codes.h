#pragma once

#include "base/error.h"

namespace carat::cli {

// The process's exit status; docs/cli.md lists them. A status never changes its meaning.
enum ExitCode : int {
  kSuccess = 0,
  kBadUsage = 1,
  kFileAccess = 2,  // also what the handler of a truncated mapping uses
  kDamagedFile = 3,
  kNotSupported = 4,
  kNoMemory = 5,
  kDeviceFailure = 6,
  kNonFiniteResult = 7,
  kAnswerCutOff = 10,        // at -n
  kThoughtBudgetSpent = 11,  // thoughts ended at --think-budget, or -n was reached inside them
  kContextIsFull = 12,
  kLoopDetected = 13,
  kCallsPending = 14,  // the model waits for the results of its tool calls
  kLinesFailed = 15,   // a batch is done, and some of its lines failed
  kInternalError = 70,
  kStopped = 130,  // what a shell reports for a program that Ctrl-C ended
};

constexpr ExitCode exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kBadArgument:
      return kBadUsage;
    case ErrorCode::kIo:
      return kFileAccess;
    case ErrorCode::kBadFile:
      return kDamagedFile;
    case ErrorCode::kUnsupported:
      return kNotSupported;
    case ErrorCode::kOutOfMemory:
      return kNoMemory;
    case ErrorCode::kDevice:
      return kDeviceFailure;
    case ErrorCode::kNonFinite:
      return kNonFiniteResult;
    case ErrorCode::kInterrupted:
      return kStopped;
  }
  return kInternalError;
}

}  // namespace carat::cli
