#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "quant/format.h"

namespace carat::test {

// llama.cpp's libggml-base.so, loaded at run time. A library or function that is missing throws std::runtime_error.
class GgmlLibrary {
 public:
  explicit GgmlLibrary(const std::string& path);
  ~GgmlLibrary();
  GgmlLibrary(const GgmlLibrary&) = delete;
  GgmlLibrary& operator=(const GgmlLibrary&) = delete;

  std::vector<float> dequantise(const quant::FormatInfo& format, const std::vector<std::byte>& blocks) const;

  // `values` in rows of `columns`; `column_importance` is empty or one weight for each column.
  std::vector<std::byte> quantise(const quant::FormatInfo& format, const std::vector<float>& values, size_t columns,
                                  const std::vector<float>& column_importance) const;

  // Of a type id; a block of 0 where the peer has no such type.
  std::string type_name(uint32_t id) const;
  uint64_t type_block(uint32_t id) const;
  uint64_t type_bytes(uint32_t id) const;

 private:
  template <typename Function>
  Function function(const std::string& name) const;

  void* handle_;
};

}  // namespace carat::test
