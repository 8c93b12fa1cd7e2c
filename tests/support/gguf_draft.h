#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace carat::test {

using GgufValue =
    std::variant<bool, uint32_t, int32_t, uint64_t, float, std::string, std::vector<bool>, std::vector<uint32_t>,
                 std::vector<int32_t>, std::vector<float>, std::vector<std::string>>;

// A GGUF file in the making that a test can bend before it is written: change or drop any key or tensor. Tensor values
// are kept as fp32 and encoded by write().
struct GgufDraft {
  struct Tensor {
    std::string name;
    uint32_t type = 0;  // id as in the file
    std::vector<uint64_t> ne;
    std::vector<float> values;  // empty: bytes of zeros of the right size
  };

  std::map<std::string, GgufValue> keys;
  std::vector<Tensor> tensors;

  // Throws std::out_of_range when there is no such tensor.
  Tensor& tensor(std::string_view name);
  void remove_tensor(std::string_view name);

  // Throws std::invalid_argument for a type carat cannot quantise to, unless the tensor is all zeros.
  void write(const std::string& path) const;
};

}  // namespace carat::test
