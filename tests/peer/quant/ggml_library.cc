#include "peer/quant/ggml_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <stdexcept>

namespace carat::test {
namespace {

using quant::Format;

// The peer's own spelling: lower case with a capital K.
std::string dequantise_function(const quant::FormatInfo& format) {
  if (format.format == Format::kF16) return "ggml_fp16_to_fp32_row";
  if (format.format == Format::kBF16) return "ggml_bf16_to_fp32_row";
  std::string name = "dequantize_row_";
  for (const char c : format.name) {
    name += c >= 'A' && c <= 'Z' && c != 'K' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return name;
}

}  // namespace

GgmlLibrary::GgmlLibrary(const std::string& path) : handle_(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) throw std::runtime_error(fmt::format("cannot load {}: {}", path, ::dlerror()));
}

GgmlLibrary::~GgmlLibrary() { ::dlclose(handle_); }

template <typename Function>
Function GgmlLibrary::function(const std::string& name) const {
  void* address = ::dlsym(handle_, name.c_str());
  if (address == nullptr) throw std::runtime_error(fmt::format("the peer's library has no function {}", name));
  return reinterpret_cast<Function>(address);
}

std::vector<float> GgmlLibrary::dequantise(const quant::FormatInfo& format,
                                           const std::vector<std::byte>& blocks) const {
  using ToFloat = void (*)(const void* blocks, float* out, int64_t count);
  std::vector<float> values(blocks.size() / format.bytes * format.block);
  function<ToFloat>(dequantise_function(format))(blocks.data(), values.data(), static_cast<int64_t>(values.size()));
  return values;
}

std::string GgmlLibrary::type_name(uint32_t id) const {
  return function<const char* (*)(int)>("ggml_type_name")(static_cast<int>(id));
}

uint64_t GgmlLibrary::type_block(uint32_t id) const {
  return static_cast<uint64_t>(function<int64_t (*)(int)>("ggml_blck_size")(static_cast<int>(id)));
}

uint64_t GgmlLibrary::type_bytes(uint32_t id) const {
  return function<size_t (*)(int)>("ggml_type_size")(static_cast<int>(id));
}

std::vector<std::byte> GgmlLibrary::quantise(const quant::FormatInfo& format, const std::vector<float>& values,
                                             size_t columns, const std::vector<float>& column_importance) const {
  using QuantizeInit = void (*)(int type);
  using QuantizeChunk = size_t (*)(int type, const float* values, void* blocks, int64_t first, int64_t rows,
                                   int64_t columns, const float* column_importance);
  const int type = static_cast<int>(format.format);
  std::vector<std::byte> blocks(format.row_bytes(values.size()));
  function<QuantizeInit>("ggml_quantize_init")(type);
  const size_t written = function<QuantizeChunk>("ggml_quantize_chunk")(
      type, values.data(), blocks.data(), 0, static_cast<int64_t>(values.size() / columns),
      static_cast<int64_t>(columns), column_importance.empty() ? nullptr : column_importance.data());
  if (written != blocks.size()) throw std::runtime_error(fmt::format("the peer wrote {} bytes", written));
  return blocks;
}

}  // namespace carat::test
