#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "model/model.h"
#include "model/writing/synth.h"

namespace carat::test {

// A model of random weights as `carat synth` writes it. The file is gone when this returns; the mapping stays.
std::shared_ptr<const model::Model> synth_model(const model::SynthOptions& options);

// The name of a test whose parameter is a preset, or has one.
inline constexpr auto synth_test_name = [](const auto& test) {
  std::string name;
  if constexpr (requires { test.param.preset; }) {
    name = test.param.preset;
  } else {
    name = test.param;
  }
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
};

}  // namespace carat::test
