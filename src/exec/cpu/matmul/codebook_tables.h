#pragma once

#include <array>
#include <cstdint>

namespace carat::exec::cpu {

// The codebooks of quant/codebooks.h as the integer kernels read them: the bytes of all elements a code stands for, the
// first one lowest, with `zero` added so that they and their mirror images about it are positive bytes of seven bits.
// Plain data, the same for every instruction set.
inline constexpr int kIq2Zero = 64;
inline constexpr int kIq3XxsZero = 64;
inline constexpr int kIq3SZero = 16;
inline constexpr int kIq1Zero = 16;  // of eight times the level - 1

// And as quant/codebooks.h has them, for machines whose permutations reach a whole table (kPermutesWords).
struct LevelTables {
  alignas(64) std::array<uint16_t, 256> iq3_xxs;
  alignas(64) std::array<uint16_t, 512> iq3_s;
};

extern const LevelTables kLevelTables;

struct CodebookTables {
  std::array<uint64_t, 256> iq2_xxs;
  std::array<uint64_t, 512> iq2_xs;
  std::array<uint64_t, 1024> iq2_s;
  std::array<uint64_t, 2048> iq1;
  std::array<uint32_t, 256> iq3_xxs;
  std::array<uint32_t, 512> iq3_s;
};

extern const CodebookTables kCodebookTables;

}  // namespace carat::exec::cpu
