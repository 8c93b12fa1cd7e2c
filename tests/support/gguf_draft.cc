#include "support/gguf_draft.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <type_traits>

#include "gguf/tensor_type.h"
#include "gguf/writer.h"
#include "quant/format.h"

namespace carat::test {
namespace {

void add_key(gguf::Writer& writer, const std::string& key, const GgufValue& value) {
  std::visit(
      [&](const auto& typed) {
        using T = std::decay_t<decltype(typed)>;
        if constexpr (std::is_same_v<T, bool>) writer.add_bool(key, typed);
        if constexpr (std::is_same_v<T, uint32_t>) writer.add_u32(key, typed);
        if constexpr (std::is_same_v<T, int32_t>) writer.add_i32(key, typed);
        if constexpr (std::is_same_v<T, uint64_t>) writer.add(key, {gguf::ValueType::kU64, typed});
        if constexpr (std::is_same_v<T, float>) writer.add_f32(key, typed);
        if constexpr (std::is_same_v<T, std::string>) writer.add_string(key, typed);
        if constexpr (std::is_same_v<T, std::vector<bool>>) writer.add_bools(key, typed);
        if constexpr (std::is_same_v<T, std::vector<uint32_t>>) writer.add_u32s(key, typed);
        if constexpr (std::is_same_v<T, std::vector<int32_t>>) writer.add_i32s(key, typed);
        if constexpr (std::is_same_v<T, std::vector<float>>) writer.add_f32s(key, typed);
        if constexpr (std::is_same_v<T, std::vector<std::string>>) writer.add_strings(key, typed);
      },
      value);
}

std::vector<std::byte> encode(const GgufDraft::Tensor& tensor) {
  uint64_t elements = 1;
  for (const uint64_t n : tensor.ne) elements *= n;
  if (tensor.values.empty()) {
    const gguf::TensorTypeInfo* type = gguf::find_tensor_type(tensor.type);
    if (!type) throw std::invalid_argument(fmt::format("{}: unknown type {}", tensor.name, tensor.type));
    return std::vector<std::byte>(elements / type->block * type->bytes);
  }
  const quant::FormatInfo* format = quant::find_format(tensor.type);
  if (!format || !format->quantise || tensor.values.size() != elements || tensor.ne[0] % format->block != 0) {
    throw std::invalid_argument(fmt::format("{} cannot be encoded", tensor.name));
  }
  std::vector<std::byte> bytes(format->row_bytes(elements));
  format->quantise(tensor.values.data(), bytes.data(), elements, nullptr);
  return bytes;
}

}  // namespace

GgufDraft::Tensor& GgufDraft::tensor(std::string_view name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& t) { return t.name == name; });
  if (found == tensors.end()) throw std::out_of_range(fmt::format("the draft has no tensor {}", name));
  return *found;
}

void GgufDraft::remove_tensor(std::string_view name) {
  tensors.erase(tensors.begin() + (&tensor(name) - tensors.data()));
}

void GgufDraft::write(const std::string& path) const {
  gguf::Writer writer(path);
  for (const auto& [key, value] : keys) add_key(writer, key, value);
  for (const Tensor& tensor : tensors) writer.declare_tensor(tensor.name, tensor.type, tensor.ne);
  writer.begin_data();
  for (const Tensor& tensor : tensors) writer.write(encode(tensor));
  writer.finish();
}

}  // namespace carat::test
