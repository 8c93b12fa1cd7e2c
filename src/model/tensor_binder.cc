#include "model/tensor_binder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <span>
#include <string>

#include "base/error.h"
#include "gguf/tensor_type.h"
#include "quant/format.h"

namespace carat::model {
namespace {

std::string shape_text(const std::array<uint64_t, 4>& ne) {
  size_t dimensions = ne.size();
  while (dimensions > 1 && ne[dimensions - 1] == 1) --dimensions;
  return fmt::format("[{}]", fmt::join(std::span(ne).first(dimensions), ", "));
}

std::string type_text(uint32_t id) {
  const gguf::TensorTypeInfo* type = gguf::find_tensor_type(id);
  return type ? std::string(type->name) : fmt::format("with the unknown id {}", id);
}

std::string format_names() {
  std::string names;
  for (const quant::FormatInfo& format : quant::formats()) {
    names += names.empty() ? "" : ", ";
    names += format.name;
  }
  return names;
}

// Some converters (NVFP4) put a multiplier of a whole weight into a tensor beside it. Two such names are part of the
// architecture; leaving out any other would give wrong answers without a word.
std::string foreign_scale_of(std::string_view name) {
  constexpr std::string_view kSuffix = ".weight";
  if (!name.ends_with(kSuffix)) return "";
  name.remove_suffix(kSuffix.size());
  if (name.ends_with(".ffn_gate_inp") || name.ends_with(".ffn_down_exps")) return "";
  return std::string(name) + ".scale";
}

}  // namespace

Matrix TensorBinder::take(std::string_view name, uint64_t cols, uint64_t rows, uint64_t slices) {
  const gguf::TensorView* tensor = file_.find(name);
  if (!tensor) {
    fail(ErrorCode::kBadFile, "tensor {} is missing: the file is damaged or was converted by an unsuitable tool", name);
  }
  const quant::FormatInfo* format = quant::find_format(tensor->info.type);
  if (!format) {
    fail(ErrorCode::kBadFile, "tensor {} has a type carat cannot compute with ({}): use a file quantised to one of {}",
         name, type_text(tensor->info.type), format_names());
  }
  const std::array<uint64_t, 4> expected = {cols, rows, slices, 1};
  if (tensor->info.ne != expected) {
    fail(ErrorCode::kBadFile, "tensor {} has the shape {} but the metadata calls for {}", name,
         shape_text(tensor->info.ne), shape_text(expected));
  }
  const std::string scale = foreign_scale_of(name);
  if (!scale.empty() && has(scale)) {
    fail(ErrorCode::kBadFile,
         "tensor {} has a separate multiplier {}, which carat cannot apply: use another conversion", name, scale);
  }
  Matrix matrix;
  matrix.name = tensor->info.name;
  matrix.format = format->format;
  matrix.cols = cols;
  matrix.rows = rows;
  matrix.slices = slices;
  matrix.data = tensor->data;
  parameters_ += cols * rows * slices;
  bytes_ += tensor->data.size();
  return matrix;
}

Matrix TensorBinder::matrix(std::string_view name, uint64_t cols, uint64_t rows, uint64_t slices) {
  return take(name, cols, rows, slices);
}

Vector TensorBinder::vector(std::string_view name, uint64_t length) {
  const Matrix stored = take(name, length, 1, 1);
  Vector values(length);
  quant::info(stored.format).dequantise(stored.data.data(), values.data(), length);
  return values;
}

}  // namespace carat::model
