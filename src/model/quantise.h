#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "gguf/reader.h"
#include "model/recipe.h"
#include "model/write_control.h"

namespace carat::model {

// What becomes of one tensor of the source file.
struct QuantiseStep {
  const gguf::TensorView* source = nullptr;
  uint32_t to_type = 0;  // GGUF type id; equal to the source's when the bytes are copied
  uint64_t to_bytes = 0;

  bool copies() const { return to_type == source->info.type; }
};

struct QuantisePlan {
  Recipe recipe;
  std::vector<QuantiseStep> steps;  // in file order

  uint64_t from_bytes() const;
  uint64_t to_bytes() const;
};

// Decides what to convert; reads no tensor data. Throws kBadArgument when a tensor is quantised already and would have
// to change (unless allow_requantise: its error adds up), or when carat cannot write the format the recipe asks for.
// Tensors of types carat does not compute with are copied. `file` must outlive the plan.
QuantisePlan plan_quantise(const gguf::ModelFile& file, Recipe recipe, bool allow_requantise);

// Carries the plan out: streams every tensor through memory once, on all workers. Metadata is copied except
// general.file_type, general.quantization_version and split.*. Throws kBadFile naming the tensor when a value is not
// finite. Progress counts bytes of the source.
void quantise(const gguf::ModelFile& file, const QuantisePlan& plan, const std::string& path, ThreadPool& pool,
              const WriteControl& control = {});

}  // namespace carat::model
