#pragma once

#include <cstdint>

// Every limit on what a GGUF file may claim, in one place. All are far above any published model and far below what
// could exhaust memory or time; each is checked against the file's size as well before anything is allocated.
namespace carat::gguf::limits {

inline constexpr uint64_t kMaxStringBytes = uint64_t{1} << 30;
// Over all arrays of a file together; a Gemma 4 file has 1.3 million. The container allows 2^30 per array, but a sparse
// file of zeros would then cost 16 GB of string views.
inline constexpr uint64_t kMaxArrayElements = uint64_t{1} << 23;
inline constexpr uint64_t kMaxKeys = uint64_t{1} << 16;
inline constexpr uint64_t kMaxTensors = uint64_t{1} << 17;
inline constexpr uint64_t kMaxKeyBytes = 65535;
inline constexpr uint64_t kMaxTensorNameBytes = 63;
inline constexpr uint32_t kMaxDimensions = 4;
// At least 8, so that every element type can be read in place.
inline constexpr uint32_t kMinAlignment = 8;
inline constexpr uint32_t kMaxAlignment = 1u << 20;
inline constexpr uint32_t kDefaultAlignment = 32;
inline constexpr uint32_t kMaxSplits = 1024;
// Smallest encodings: key (8 + 1), type 4, value 1; and name (8 + 1), n_dims 4, one dimension 8, type 4, offset 8.
inline constexpr uint64_t kMinKeyValueBytes = 14;
inline constexpr uint64_t kMinTensorInfoBytes = 33;

}  // namespace carat::gguf::limits
