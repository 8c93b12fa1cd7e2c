#include "text/grammar/schema/schema_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "text/grammar/limits.h"

namespace carat::text::grammar {

namespace {

__extension__ using Wide = __int128;

constexpr int kMaxDecimals = 10;
constexpr int kMaxFactorDecimals = 9;
// Of multiples of a fraction: so few that who divides in floating point finds a whole number, but for a thousandth.
constexpr int kFractionDigits = 12;
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

// What all numbers are multiples of: factor / 10^decimals; a factor of 0 without any. Whole numbers are multiples of 1.
struct CommonFactor {
  int64_t factor = 0;
  int decimals = 0;
};

CommonFactor common_factor(const SchemaFacts& facts) {
  CommonFactor common;
  if (facts.factors.empty()) return common;
  for (const SchemaPart& factor : facts.factors) {
    common.decimals = std::max(common.decimals, -decimal_of(*factor.schema).exponent);
  }
  const SchemaPart& first = facts.factors.front();
  if (common.decimals > kMaxFactorDecimals) {
    fail_at(first.pointer, fmt::format("more than {} digits behind the point", kMaxFactorDecimals));
  }
  const auto take = [&](int64_t factor) {
    if (common.factor > kLimit) return;
    const int64_t other = factor / std::gcd(common.factor, factor);
    // Of a common multiple beyond all that is written only 0 is left.
    const bool is_beyond = common.factor > 0 && other > kLimit / common.factor;
    common.factor = is_beyond ? 2 * kLimit : common.factor == 0 ? factor : common.factor * other;
  };
  for (const SchemaPart& factor : facts.factors) {
    bool exact = false;
    const int64_t scaled = scaled_down(decimal_of(*factor.schema), common.decimals, exact);
    if (scaled <= 0 || scaled > kLimit || !exact) fail_at(factor.pointer, "only numbers up to 10^15 can be assured");
    take(scaled);
  }
  if (facts.integer) take(power_of_ten(common.decimals));
  while (common.decimals > 0 && common.factor % 10 == 0) {
    common.factor /= 10;
    --common.decimals;
  }
  return common;
}

std::string written(int64_t scaled, int decimals) {
  std::string text = fmt::format("{:0{}}", scaled < 0 ? -scaled : scaled, decimals + 1);
  if (decimals > 0) text.insert(text.size() - static_cast<size_t>(decimals), ".");
  while (decimals > 0 && (text.back() == '0' || text.back() == '.')) {
    const bool is_point = text.back() == '.';
    text.pop_back();
    if (is_point) break;
  }
  return scaled < 0 ? "-" + text : text;
}

ExpressionId multiples(GrammarBuilder& builder, JsonParts& parts, const SchemaFacts& facts, CommonFactor common) {
  const int64_t factor = common.factor;
  const int digits = common.decimals > 0 ? kFractionDigits : kMaxIntegerDigits;
  const Range range = range_of(facts, common.decimals, digits - common.decimals);
  if (range.low > range.high) return builder.nothing();
  if (factor <= kMaxMultipleOf) {
    return parts.numbers_between(range.low, range.high, common.decimals, static_cast<uint32_t>(factor));
  }
  const auto divide_down = [&](int64_t value) { return value / factor - (value % factor < 0 ? 1 : 0); };
  int64_t first = -divide_down(-range.low), last = divide_down(range.high);
  const auto most = static_cast<int64_t>(kMaxEnumeratedValues);
  if (last - first >= most) {
    // Around zero, or as near as the bounds are to it.
    const int64_t middle = std::clamp<int64_t>(0, first, last);
    const int64_t begin = std::max(first, middle - most / 20), end = std::min(last, middle + most / 20);
    builder.add_note(fmt::format("{}: only the multiples from {} to {} are written", facts.factors.front().pointer,
                                 written(begin * factor, common.decimals), written(end * factor, common.decimals)));
    first = begin;
    last = end;
  }
  std::vector<ExpressionId> values;
  for (int64_t i = first; i <= last; ++i) values.push_back(builder.literal(written(i * factor, common.decimals)));
  return builder.choice(values);
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

bool is_multiple(const Json& value, const Json& factor) {
  const Decimal number = decimal_of(value), unit = decimal_of(factor);
  if (unit.mantissa <= 0) return false;
  if (number.mantissa == 0) return true;
  const Wide mantissa = number.mantissa;
  if (number.exponent >= unit.exponent) {
    Wide rest = mantissa % unit.mantissa;
    for (int i = unit.exponent; i < number.exponent && rest != 0; ++i) rest = rest * 10 % unit.mantissa;
    return rest == 0;
  }
  const int shift = unit.exponent - number.exponent;
  return shift <= 18 && mantissa % (static_cast<Wide>(unit.mantissa) * power_of_ten(shift)) == 0;
}

// With at most 15 digits in all, two numbers that differ as texts differ as floating-point numbers, too, in the same
// direction. So a bound kept by the text is kept by whoever reads it.
ExpressionId number_expression(GrammarBuilder& builder, JsonParts& parts, const SchemaFacts& facts) {
  const bool is_bounded = !facts.minima.empty() || !facts.maxima.empty();
  if (facts.fraction) {
    if (facts.integer) return builder.nothing();
    if (!is_bounded && facts.factors.empty()) return parts.fraction();
    if (!facts.factors.empty()) {
      builder.add_note(
          fmt::format("{}: multiples that must not be whole are not written", facts.factors.front().pointer));
      return builder.nothing();
    }
  }
  const CommonFactor factor = common_factor(facts);
  if (factor.factor > 0) return multiples(builder, parts, facts, factor);
  if (!is_bounded) return facts.integer ? parts.integer() : parts.number();
  const int digits = digits_between(facts);
  const int decimals = facts.integer ? 0 : std::min(kMaxDecimals, kMaxIntegerDigits - digits);
  const Range range = range_of(facts, decimals, digits);
  if (range.low > range.high) return builder.nothing();
  return parts.numbers_between(range.low, range.high, decimals, 1, facts.fraction);
}

}  // namespace carat::text::grammar
