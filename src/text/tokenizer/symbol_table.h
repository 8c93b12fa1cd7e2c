#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizer/token_texts.h"

namespace carat::text {

// The code point of a well-formed UTF-8 sequence; `sequence` is exactly that sequence.
inline uint32_t code_point_of(std::string_view sequence) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(sequence[i])); };
  switch (sequence.size()) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1f) << 6 | (byte(1) & 0x3f);
    case 3:
      return (byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
  }
}

// Code point -> its token, or -1. Pages of 256 code points; those without any token share one.
class SymbolTable {
 public:
  SymbolTable() { pages_.emplace_back().fill(-1); }

  TokenId find(uint32_t code_point) const { return pages_[page_of_[code_point >> 8]][code_point & 255]; }

  // The first token of a code point stays.
  void add(uint32_t code_point, TokenId token) {
    uint16_t& page = page_of_[code_point >> 8];
    if (page == 0) {
      page = static_cast<uint16_t>(pages_.size());
      pages_.emplace_back().fill(-1);
    }
    TokenId& slot = pages_[page][code_point & 255];
    if (slot < 0) slot = token;
  }

 private:
  std::array<uint16_t, 0x1100> page_of_ = {};
  std::vector<std::array<TokenId, 256>> pages_;
};

}  // namespace carat::text
