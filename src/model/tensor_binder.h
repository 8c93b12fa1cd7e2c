#pragma once

#include <cstdint>
#include <string_view>

#include "gguf/reader.h"
#include "model/model.h"

namespace carat::model {

// Takes tensors out of a file by name, checks type and shape, and counts what was taken: those are the live tensors.
// Errors are kBadFile and name the tensor but not the file (the caller adds that).
class TensorBinder {
 public:
  explicit TensorBinder(const gguf::ModelFile& file) : file_(file) {}

  bool has(std::string_view name) const { return file_.find(name) != nullptr; }
  // A view of `slices` matrices of `rows` rows of `cols` elements.
  Matrix matrix(std::string_view name, uint64_t cols, uint64_t rows, uint64_t slices = 1);
  // A copy as fp32, whatever the file stores.
  Vector vector(std::string_view name, uint64_t length);

  uint64_t parameters() const { return parameters_; }
  uint64_t bytes() const { return bytes_; }

 private:
  Matrix take(std::string_view name, uint64_t cols, uint64_t rows, uint64_t slices);

  const gguf::ModelFile& file_;
  uint64_t parameters_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace carat::model
