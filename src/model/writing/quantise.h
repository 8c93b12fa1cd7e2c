#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "gguf/reader.h"
#include "model/metadata_edit.h"
#include "model/writing/importance.h"
#include "model/writing/recipe.h"
#include "model/writing/write_control.h"

namespace carat::model {

// What becomes of one tensor of the source file.
struct QuantiseStep {
  const gguf::TensorView* source = nullptr;
  uint32_t to_type = 0;  // GGUF type id; equal to the source's when the bytes are copied
  uint64_t to_bytes = 0;

  bool copies() const { return to_type == source->info.type; }
};

struct QuantisePlan {
  std::optional<Recipe> recipe;                        // without one every tensor is copied
  std::vector<QuantiseStep> steps;                     // in file order
  std::vector<MetadataEdit> edits;                     // carried out after everything else, so that they win
  std::shared_ptr<const ImportanceMatrix> importance;  // weighs errors; nullptr: all count alike

  uint64_t from_bytes() const;
  uint64_t to_bytes() const;
};

// Decides what to convert; reads no tensor data. Throws kBadArgument when a tensor is quantised already and would have
// to change (unless allow_requantise: its error adds up), or when carat cannot write the format the recipe asks for.
// Tensors of types carat does not compute with are copied. `file` must outlive the plan.
QuantisePlan plan_quantise(const gguf::ModelFile& file, std::optional<Recipe> recipe, bool allow_requantise);

// Throws kBadFile when an entry of plan.importance does not fit its tensor, or none is of a tensor that is converted.
void check_importance(const gguf::ModelFile& file, const QuantisePlan& plan);

// Carries the plan out: streams every tensor through memory once, on all workers. Metadata is copied except the keys of
// plan.edits, split.* and, under a recipe, general.file_type and general.quantization_version. Throws kBadFile naming
// the tensor when a value is not finite, kBadArgument when an edit does not fit its key. Progress counts bytes of the
// source.
void quantise(const gguf::ModelFile& file, const QuantisePlan& plan, const std::string& path, ThreadPool& pool,
              const WriteControl& control = {});

}  // namespace carat::model
