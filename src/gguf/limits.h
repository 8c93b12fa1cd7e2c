#pragma once

#include <cstdint>

// Every limit on what a GGUF file may claim, in one place. All are far above any published model and far below what
// could exhaust memory; each is checked against the file's size as well before anything is allocated.
namespace carat::gguf::limits {

inline constexpr uint64_t kMaxStringBytes = uint64_t{1} << 30;
inline constexpr uint64_t kMaxArrayElements = uint64_t{1} << 30;
inline constexpr uint64_t kMaxKeys = uint64_t{1} << 20;
inline constexpr uint64_t kMaxTensors = uint64_t{1} << 17;
inline constexpr uint64_t kMaxKeyBytes = 65535;
inline constexpr uint64_t kMaxTensorNameBytes = 63;
inline constexpr uint32_t kMaxDimensions = 4;
inline constexpr uint32_t kMaxAlignment = 1u << 20;
inline constexpr uint32_t kDefaultAlignment = 32;
inline constexpr uint32_t kMaxSplits = 1024;
// Smallest encodings: key (8 + 1) + type 4 + value 1; name (8 + 1) + n_dims 4 + one dimension 8 + type 4 + offset 8 - 8.
inline constexpr uint64_t kMinKeyValueBytes = 14;
inline constexpr uint64_t kMinTensorInfoBytes = 25;

}  // namespace carat::gguf::limits
