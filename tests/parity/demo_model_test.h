#pragma once

// What tests share that compare an executor with the logits an independent implementation computed for the demo models.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "gguf/reader.h"
#include "model/model.h"
#include "support/demo_models.h"
#include "support/references.h"

namespace carat::test {

// How far from these logits an executor may be.
struct DemoLimits {
  const char* file;
  double top1, divergence;
};
inline std::ostream& operator<<(std::ostream& out, const DemoLimits& limits) { return out << limits.file; }

// What llama.cpp (node-llama-cpp 3.22.1, CPU) reaches over the prompts under 800 tokens.
inline constexpr DemoLimits kLlamaCppLimits[] = {
    {"demo-e-q8_0.gguf", 0.974, 1.0e-4}, {"demo-e-q4_0.gguf", 0.982, 1.4e-4}, {"demo-moe-q8_0.gguf", 0.979, 2.4e-3}};

// A demo model and its references.
struct DemoModel {
  std::shared_ptr<const gguf::ModelFile> file;
  std::shared_ptr<const model::Model> model;
  std::vector<Reference> references;
};

// nullopt where the file is not on this machine.
inline std::optional<DemoModel> load_demo_model(const std::string& name) {
  const auto path = find_demo_model(name);
  if (!path) return std::nullopt;
  const auto file = gguf::ModelFile::open(*path);
  return DemoModel{file, model::Model::load(file), load_references(name)};
}

// The name of a test whose parameter is a file, or limits for one.
inline constexpr auto demo_test_name = [](const auto& test) {
  std::string name;
  if constexpr (requires { test.param.file; }) {
    name = test.param.file;
  } else {
    name = test.param;
  }
  name.resize(name.find('.'));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
};

}  // namespace carat::test
