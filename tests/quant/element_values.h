#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <vector>

#include "quant/format.h"

namespace carat::quant {

// GoogleTest names the parameter of a failed test with this.
inline void PrintTo(const FormatInfo& format, std::ostream* out) { *out << format.name; }

}  // namespace carat::quant

namespace carat::test {

// Spec section 8.2 read literally: the value of element e of the block at `bytes`, from bit positions, in double.
// Shares no code with src/. Rounded to float it is the correctly rounded value: products are exact in double, and the
// sum of two floats rounded to double first rounds to the same float.
double element_value(quant::Format format, const std::byte* bytes, int e);

// The half with these bits, as a double.
double half_value(unsigned bits);

// What a format's few levels make of values; see element_values.cc.
bool has_zero_level(quant::Format format);
// How far an element may come out from its value, as a part of the largest of its block.
float coarseness(quant::Format format);

// Which scales (or, in the float formats, values) random blocks have.
enum class Scales { kAny, kFinite, kSubnormal };

std::vector<std::byte> random_blocks(const quant::FormatInfo& format, size_t count, uint64_t seed, Scales scales);

}  // namespace carat::test
