#include "text/grammar/schema/schema_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "text/grammar/limits.h"

namespace carat::text::grammar {

namespace {

constexpr int kMaxDecimals = 10;
// Digits before the point where a schema sets no bound: enough, and leaves room for decimals.
constexpr int kUsualDigits = 9;

int64_t power_of_ten(int exponent) {
  int64_t power = 1;
  for (; exponent > 0; --exponent) power *= 10;
  return power;
}

const int64_t kLimit = power_of_ten(kMaxIntegerDigits) - 1;

// mantissa * 10^exponent: the shortest decimal number that reads as the JSON number.
struct Decimal {
  int64_t mantissa = 0;
  int exponent = 0;
};

Decimal decimal_of(const Json& number) {
  std::string text = number.dump();
  Decimal decimal;
  const size_t e = text.find_first_of("eE");
  if (e != std::string::npos) {
    const char* begin = text.data() + e + 1;
    std::from_chars(*begin == '+' ? begin + 1 : begin, text.data() + text.size(), decimal.exponent);
    text.resize(e);
  }
  const size_t point = text.find('.');
  if (point != std::string::npos) {
    text.erase(point, 1);
    decimal.exponent -= static_cast<int>(text.size() - point);
  }
  while (text.size() > 1 && text.back() == '0' && text != "-0") {
    text.pop_back();
    ++decimal.exponent;
  }
  const auto result = std::from_chars(text.data(), text.data() + text.size(), decimal.mantissa);
  // Integers of 20 digits; nothing near them is ever written.
  if (result.ec != std::errc()) return {text[0] == '-' ? -1 : 1, 20};
  return decimal;
}

int integer_digits(const Decimal& decimal) {
  const auto characters = static_cast<int>(std::to_string(decimal.mantissa).size());
  return std::max(1, characters - (decimal.mantissa < 0 ? 1 : 0) + decimal.exponent);
}

// decimal * 10^decimals, rounded down; `exact` tells whether nothing was lost. Beyond all that is written: +-2 *
// kLimit.
int64_t scaled_down(const Decimal& decimal, int decimals, bool& exact) {
  exact = true;
  const int shift = decimal.exponent + decimals;
  if (decimal.mantissa == 0) return 0;
  if (integer_digits(decimal) + decimals > kMaxIntegerDigits + 1)
    return decimal.mantissa < 0 ? -2 * kLimit : 2 * kLimit;
  if (shift >= 0) return decimal.mantissa * power_of_ten(shift);
  exact = false;
  if (shift < -18) return decimal.mantissa < 0 ? -1 : 0;
  const int64_t divisor = power_of_ten(-shift);
  exact = decimal.mantissa % divisor == 0;
  return decimal.mantissa / divisor - (decimal.mantissa < 0 && !exact ? 1 : 0);
}

struct Range {
  int64_t low, high;
};

Range range_of(const SchemaFacts& facts, int decimals, int digits) {
  const int64_t limit = std::min(kLimit, power_of_ten(digits + decimals) - 1);
  Range range = {-limit, limit};
  bool exact = false;
  for (const NumberBound& bound : facts.minima) {
    const int64_t low = scaled_down(decimal_of(*bound.value), decimals, exact);
    range.low = std::max(range.low, !exact || bound.excluded ? low + 1 : low);
  }
  for (const NumberBound& bound : facts.maxima) {
    const int64_t high = scaled_down(decimal_of(*bound.value), decimals, exact);
    range.high = std::min(range.high, exact && bound.excluded ? high - 1 : high);
  }
  return range;
}

// The least common multiple of all factors; 0 without any.
uint64_t common_factor(const SchemaFacts& facts) {
  uint64_t common = 0;
  for (const SchemaPart& factor : facts.factors) {
    const double value = factor.schema->get<double>();
    if (value < 1 || std::floor(value) != value || value > static_cast<double>(kLimit)) {
      fail_at(factor.pointer, "only whole numbers from 1 to 10^15 can be assured");
    }
    const auto whole = static_cast<uint64_t>(value);
    common = common == 0 ? whole : common / std::gcd(common, whole) * whole;
    if (common > static_cast<uint64_t>(kLimit))
      fail_at(factor.pointer, "the common multiple of all factors is too large");
  }
  return common;
}

ExpressionId multiples(GrammarBuilder& builder, JsonParts& parts, const SchemaFacts& facts, int64_t factor) {
  const Range range = range_of(facts, 0, kMaxIntegerDigits);
  if (factor == 1) return parts.numbers_between(range.low, range.high, 0);
  const auto divide_down = [&](int64_t value) { return value / factor - (value % factor < 0 ? 1 : 0); };
  const int64_t first = -divide_down(-range.low), last = divide_down(range.high);
  if (first > last) return builder.nothing();
  if (last - first < static_cast<int64_t>(kMaxEnumeratedValues)) {
    std::vector<ExpressionId> values;
    for (int64_t i = first; i <= last; ++i) values.push_back(builder.literal(std::to_string(i * factor)));
    return builder.choice(values);
  }
  const SchemaPart& keyword = facts.factors.front();
  if (!facts.minima.empty() || !facts.maxima.empty()) {
    fail_at(keyword.pointer, fmt::format("more than {} multiples between the bounds; narrow the bounds or remove one",
                                         kMaxEnumeratedValues));
  }
  if (factor > kMaxMultipleOf) {
    fail_at(keyword.pointer, fmt::format("more than {} needs a minimum and a maximum", kMaxMultipleOf));
  }
  return parts.multiples_of(static_cast<uint32_t>(factor));
}

// How many digits before the point the numbers between the bounds may have. A bound beyond all that is written sets
// none.
int digits_between(const SchemaFacts& facts) {
  if (facts.integer) return kMaxIntegerDigits;
  int digits = 1;
  for (const auto* bounds : {&facts.minima, &facts.maxima}) {
    bool bounded = false;
    for (const NumberBound& bound : *bounds) {
      const int needed = integer_digits(decimal_of(*bound.value));
      if (needed > kMaxIntegerDigits) continue;
      bounded = true;
      digits = std::max(digits, needed);
    }
    if (!bounded) digits = std::max(digits, kUsualDigits);
  }
  return digits;
}

}  // namespace

// With at most 15 digits in all, two numbers that differ as texts differ as floating-point numbers, too, in the same
// direction. So a bound kept by the text is kept by whoever reads it.
ExpressionId number_expression(GrammarBuilder& builder, JsonParts& parts, const SchemaFacts& facts) {
  const uint64_t factor = common_factor(facts);
  if (factor > 0) return multiples(builder, parts, facts, static_cast<int64_t>(factor));
  if (facts.minima.empty() && facts.maxima.empty()) return facts.integer ? parts.integer() : parts.number();
  const int digits = digits_between(facts);
  const int decimals = facts.integer ? 0 : std::min(kMaxDecimals, kMaxIntegerDigits - digits);
  const Range range = range_of(facts, decimals, digits);
  if (range.low > range.high) return builder.nothing();
  return parts.numbers_between(range.low, range.high, decimals);
}

}  // namespace carat::text::grammar
