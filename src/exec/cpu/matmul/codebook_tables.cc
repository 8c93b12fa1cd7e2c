#include "exec/cpu/matmul/codebook_tables.h"

#include <cstddef>

#include "quant/codebooks.h"

namespace carat::exec::cpu {
namespace {

// kBits bits of an entry are a level, and bytes[level] what stands for it.
template <typename Word, int kBits, size_t kEntries>
constexpr std::array<Word, kEntries> spread(const std::array<uint16_t, kEntries>& codebook,
                                            const std::array<uint8_t, size_t{1} << kBits>& bytes) {
  std::array<Word, kEntries> table{};
  for (size_t i = 0; i < kEntries; ++i) {
    for (size_t k = 0; k < sizeof(Word); ++k) {
      table[i] |= static_cast<Word>(bytes[(codebook[i] >> (kBits * k)) & ((1u << kBits) - 1)]) << (8 * k);
    }
  }
  return table;
}

template <size_t kLevels>
constexpr std::array<uint8_t, kLevels> around(int zero, const uint8_t (&values)[kLevels]) {
  std::array<uint8_t, kLevels> bytes{};
  for (size_t i = 0; i < kLevels; ++i) bytes[i] = static_cast<uint8_t>(zero + values[i]);
  return bytes;
}

constexpr auto kIq2 = around(kIq2Zero, quant::kIq2Values);
constexpr std::array<uint8_t, 4> kIq1 = {kIq1Zero - 8, kIq1Zero, kIq1Zero + 8, 0};

}  // namespace

constinit const LevelTables kLevelTables = {quant::kIq3XxsCodebook, quant::kIq3SCodebook};

constinit const CodebookTables kCodebookTables = {
    spread<uint64_t, 2>(quant::kIq2XxsCodebook, kIq2),
    spread<uint64_t, 2>(quant::kIq2XsCodebook, kIq2),
    spread<uint64_t, 2>(quant::kIq2SCodebook, kIq2),
    spread<uint64_t, 2>(quant::kIq1Codebook, kIq1),
    spread<uint32_t, 3>(quant::kIq3XxsCodebook, around(kIq3XxsZero, quant::kIq3XxsValues)),
    spread<uint32_t, 3>(quant::kIq3SCodebook, around(kIq3SZero, quant::kIq3SValues)),
};

}  // namespace carat::exec::cpu
