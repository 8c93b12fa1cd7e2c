#pragma once

#include <map>
#include <memory>
#include <string>

#include "model/model.h"
#include "support/hollow_model.h"

namespace carat::cuda::test {

// Loading one parses a header; sharing them keeps tables of cases fast.
inline const model::Model& model_of(const std::string& preset, const std::string& recipe) {
  static std::map<std::string, std::shared_ptr<const model::Model>> models;
  std::shared_ptr<const model::Model>& model = models[preset + " " + recipe];
  if (model == nullptr) model = carat::test::hollow_model(preset, recipe);
  return *model;
}

}  // namespace carat::cuda::test
