#pragma once

#include <vector>

#include "text/tools/callable_tool.h"

namespace carat::engine {

// Whether and how a model may call functions in its answer.
struct CallRules {
  enum class Mode {
    kFree,       // whenever it wants
    kForbidden,  // never
    kRequired,   // it must, after its thoughts; needs `tools`
  };
  Mode mode = Mode::kFree;
  bool is_parallel = true;  // false: the turn ends after the first call
  // Calls are held to these names and arguments. Empty: calls are whatever the model writes. All are of one vocabulary,
  // and all have arguments.
  std::vector<text::CallableTool> tools = {};

  bool is_needed() const { return mode != Mode::kFree || !is_parallel || !tools.empty(); }
};

}  // namespace carat::engine
