#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "model/model.h"
#include "support/metadata_model.h"

namespace carat::cuda::test {

// Loading one parses a header; sharing them keeps tables of cases fast.
inline const model::Model& model_of(std::string_view preset, std::string_view recipe) {
  static std::map<std::string, std::shared_ptr<const model::Model>> models;
  std::shared_ptr<const model::Model>& model = models[std::string(preset) + " " + std::string(recipe)];
  if (model == nullptr) model = carat::test::hollow_model(std::string(preset), std::string(recipe));
  return *model;
}

}  // namespace carat::cuda::test
