#include "text/grammar/schema/json_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"
#include "text/grammar/limits.h"
#include "text/tokenizer/symbol_table.h"

namespace carat::text::grammar {

namespace {

constexpr std::string_view kPlace = "JSON";

std::string escape_of(uint32_t code_point) {
  switch (code_point) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return fmt::format("\\u{:04x}", code_point);
  }
}

int64_t power_of_ten(int exponent) {
  int64_t power = 1;
  for (; exponent > 0; --exponent) power *= 10;
  return power;
}

// The numbers between two of the same number of digits, digit by digit.
class DigitRange {
 public:
  DigitRange(GrammarBuilder& builder, int64_t low, int64_t high, int integer_digits, int decimals)
      : builder_(builder),
        low_(fmt::format("{:0{}}", low, integer_digits + decimals)),
        high_(fmt::format("{:0{}}", high, integer_digits + decimals)),
        point_(static_cast<size_t>(integer_digits)) {}

  ExpressionId expression() { return from(0, true, true); }

 private:
  // The digits from `at` on. `low`, `high`: all digits so far are those of that bound, so the next ones are bound, too.
  ExpressionId from(size_t at, bool low, bool high) {
    if (at == low_.size()) return builder_.empty();
    if (!low && !high) return anything_from(at);
    const char first = low ? low_[at] : '0';
    const char last = high ? high_[at] : '9';
    std::vector<ExpressionId> alternatives;
    const auto add = [&](char from_digit, char to_digit, ExpressionId rest) {
      const ExpressionId digit =
          builder_.characters({{static_cast<uint32_t>(from_digit), static_cast<uint32_t>(to_digit)}});
      alternatives.push_back(builder_.sequence({digit, rest}));
    };
    if (first == last) {
      add(first, first, from(at + 1, low, high));
    } else if (first < last) {
      const char free_from = static_cast<char>(first + (low ? 1 : 0));
      const char free_to = static_cast<char>(last - (high ? 1 : 0));
      if (low) add(first, first, from(at + 1, true, false));
      if (free_from <= free_to) add(free_from, free_to, anything_from(at + 1));
      if (high) add(last, last, from(at + 1, false, true));
    }
    ExpressionId digits = builder_.choice(alternatives);
    if (at < point_) return digits;
    if (at == point_) digits = builder_.sequence({builder_.literal("."), digits});
    // Digits left out are zeros.
    const bool may_stop = !low || low_.find_first_not_of('0', at) == std::string::npos;
    return may_stop ? builder_.optional(digits) : digits;
  }

  ExpressionId anything_from(size_t at) {
    const ExpressionId digit = builder_.characters({{'0', '9'}});
    const auto left = static_cast<uint32_t>(low_.size() - at);
    if (at > point_) return builder_.repeat(digit, 0, left);
    const auto decimals = static_cast<uint32_t>(low_.size() - point_);
    ExpressionId fraction = builder_.empty();
    if (decimals > 0) {
      fraction = builder_.optional(builder_.sequence({builder_.literal("."), builder_.repeat(digit, 1, decimals)}));
    }
    const uint32_t before_point = left - decimals;
    return builder_.sequence({builder_.repeat(digit, before_point, before_point), fraction});
  }

  GrammarBuilder& builder_;
  std::string low_, high_;
  size_t point_;
};

}  // namespace

ExpressionId JsonParts::comma() {
  if (notation_ != Notation::kJson) return builder_.literal(",");
  return builder_.sequence({builder_.literal(","), builder_.optional(builder_.literal(" "))});
}

ExpressionId JsonParts::colon() {
  if (notation_ != Notation::kJson) return builder_.literal(":");
  return builder_.sequence({builder_.literal(":"), builder_.optional(builder_.literal(" "))});
}

ExpressionId JsonParts::quoted(ExpressionId content) {
  const char quote = string_quote(notation_);
  return builder_.sequence({builder_.literal({&quote, 1}), content, builder_.literal({&quote, 1})});
}

ExpressionId JsonParts::key(std::string_view name) {
  const auto text = written_key(notation_, name);
  return text ? builder_.literal(*text) : builder_.nothing();
}

ExpressionId JsonParts::constant(const Json& value) {
  const auto text = written_value(notation_, value);
  return text ? builder_.literal(*text) : builder_.nothing();
}

ExpressionId JsonParts::boolean() { return builder_.choice({builder_.literal("true"), builder_.literal("false")}); }

// Halves of surrogate pairs are left out: by themselves they are no characters, and whole ones can be written plainly.
ExpressionId JsonParts::character() {
  if (notation_ != Notation::kJson) return builder_.characters(plain_characters(notation_));
  const ExpressionId hex = builder_.characters({{'0', '9'}, {'a', 'f'}, {'A', 'F'}});
  const ExpressionId not_d = builder_.characters({{'0', '9'}, {'a', 'c'}, {'e', 'f'}, {'A', 'C'}, {'E', 'F'}});
  const ExpressionId d = builder_.characters({{'d', 'd'}, {'D', 'D'}});
  const ExpressionId below_8 = builder_.characters({{'0', '7'}});
  const ExpressionId unit =
      builder_.choice({builder_.sequence({not_d, hex, hex, hex}), builder_.sequence({d, below_8, hex, hex})});
  const ExpressionId named = builder_.characters(
      {{'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'b', 'b'}, {'f', 'f'}, {'n', 'n'}, {'r', 'r'}, {'t', 't'}});
  const ExpressionId escaped = builder_.choice({named, builder_.sequence({builder_.literal("u"), unit})});
  return builder_.choice(
      {builder_.characters(plain_characters(notation_)), builder_.sequence({builder_.literal("\\"), escaped})});
}

ExpressionId JsonParts::character_of(const std::vector<CodePointRange>& set) {
  if (notation_ != Notation::kJson) return builder_.characters(set);
  std::vector<std::pair<uint32_t, uint32_t>> key;
  for (const CodePointRange& range : set) key.emplace_back(range.first, range.last);
  const auto known = sets_.find(key);
  if (known != sets_.end()) return builder_.call(known->second);
  std::vector<ExpressionId> alternatives = {builder_.characters(intersection(set, plain_characters(notation_)))};
  for (const CodePointRange& range : intersection(set, complement(plain_characters(notation_)))) {
    for (uint32_t code_point = range.first; code_point <= range.last; ++code_point) {
      alternatives.push_back(builder_.literal(escape_of(code_point)));
    }
  }
  const ExpressionId body = builder_.choice(alternatives);
  if (alternatives.size() == 1) return body;
  const RuleId rule = builder_.declare("character", std::string(kPlace));
  builder_.define(rule, body);
  sets_.emplace(std::move(key), rule);
  return builder_.call(rule);
}

ExpressionId JsonParts::string() {
  if (!string_) {
    string_ = builder_.declare("string", std::string(kPlace));
    builder_.define(*string_, quoted(builder_.repeat(character(), 0, kUnbounded)));
  }
  return builder_.call(*string_);
}

ExpressionId JsonParts::string_of_length(uint32_t min, uint32_t max) {
  if (min == 0 && max == kUnbounded) return string();
  if (min <= 1 && max == kUnbounded) return quoted(builder_.repeat(character(), min, max));
  if (!character_) {
    character_ = builder_.declare("character", std::string(kPlace));
    builder_.define(*character_, character());
  }
  if (max != kUnbounded) return quoted(builder_.repeat(builder_.call(*character_), min, max));
  const ExpressionId needed = builder_.repeat(builder_.call(*character_), min, min);
  return quoted(builder_.sequence({needed, builder_.repeat(character(), 0, kUnbounded)}));
}

ExpressionId JsonParts::integer() {
  const ExpressionId whole = builder_.sequence({builder_.characters({{'1', '9'}}), digits(0, kMaxIntegerDigits - 1)});
  return builder_.choice({builder_.literal("0"), builder_.sequence({builder_.optional(builder_.literal("-")), whole})});
}

ExpressionId JsonParts::number() {
  const ExpressionId whole =
      builder_.choice({builder_.literal("0"),
                       builder_.sequence({builder_.characters({{'1', '9'}}), digits(0, kMaxIntegerDigits - 1)})});
  const ExpressionId fraction = builder_.sequence({builder_.literal("."), digits(1, kMaxIntegerDigits)});
  const ExpressionId exponent =
      builder_.sequence({builder_.characters({{'e', 'e'}, {'E', 'E'}}),
                         builder_.optional(builder_.characters({{'+', '+'}, {'-', '-'}})), digits(1, 2)});
  return builder_.sequence(
      {builder_.optional(builder_.literal("-")), whole, builder_.optional(fraction), builder_.optional(exponent)});
}

ExpressionId JsonParts::object() {
  const ExpressionId member = builder_.sequence({key_other_than({}), colon(), value()});
  const ExpressionId more = builder_.repeat(builder_.sequence({comma(), member}), 0, kUnbounded);
  return builder_.sequence(
      {builder_.literal("{"), builder_.optional(builder_.sequence({member, more})), builder_.literal("}")});
}

ExpressionId JsonParts::array() {
  const ExpressionId more = builder_.repeat(builder_.sequence({comma(), value()}), 0, kUnbounded);
  return builder_.sequence(
      {builder_.literal("["), builder_.optional(builder_.sequence({value(), more})), builder_.literal("]")});
}

ExpressionId JsonParts::value() {
  if (!value_) {
    value_ = builder_.declare("value", std::string(kPlace));
    builder_.define(*value_, builder_.choice({object(), array(), string(), number(), boolean(), null()}));
  }
  return builder_.call(*value_);
}

// The rest of a key that agrees with the first `at` bytes of all `names` (sorted): anything that leaves their tree, or
// ends where none of them ends.
ExpressionId JsonParts::rest_of_key(const std::vector<std::string>& names, size_t at) {
  const std::vector<CodePointRange>& plain = key_characters(notation_);
  const bool may_end = at > 0 || notation_ == Notation::kJson;
  if (names.empty()) return builder_.repeat(builder_.characters(plain), may_end ? 0 : 1, kUnbounded);
  const ExpressionId anything = builder_.repeat(builder_.characters(plain), 0, kUnbounded);
  std::vector<CodePointRange> continued;
  std::vector<ExpressionId> alternatives;
  if (may_end && names.front().size() > at) alternatives.push_back(builder_.empty());
  for (auto begin = names.begin(); begin != names.end();) {
    if (begin->size() <= at) {
      ++begin;
      continue;
    }
    const size_t length = utf8_sequence_length(std::string_view(*begin).substr(at));
    const std::string character = begin->substr(at, length);
    const auto end =
        std::find_if(begin, names.end(), [&](const auto& n) { return n.compare(at, length, character) != 0; });
    const uint32_t code_point = code_point_of(character);
    continued.push_back({code_point, code_point});
    const ExpressionId rest = rest_of_key({begin, end}, at + length);
    // A name with quotes or the like cannot be written without escapes, so there is nothing to exclude.
    if (!intersection({{code_point, code_point}}, plain).empty()) {
      alternatives.push_back(builder_.sequence({builder_.literal(character), rest}));
    }
    begin = end;
  }
  const auto others = intersection(complement(normalised(continued)), plain);
  alternatives.push_back(builder_.sequence({builder_.characters(others), anything}));
  const RuleId rule = builder_.declare("key", std::string(kPlace));
  builder_.define(rule, builder_.choice(alternatives));
  return builder_.call(rule);
}

ExpressionId JsonParts::key_other_than(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  const ExpressionId key = rest_of_key(names, 0);
  return notation_ == Notation::kJson ? quoted(key) : key;
}

ExpressionId JsonParts::numbers_between(int64_t low, int64_t high, int decimals) {
  std::vector<ExpressionId> alternatives;
  const auto add_positive = [&](int64_t from, int64_t to, std::string_view sign) {
    for (int length = 1; length + decimals <= kMaxIntegerDigits; ++length) {
      const int64_t shortest = length == 1 ? 0 : power_of_ten(length - 1 + decimals);
      const int64_t longest = power_of_ten(length + decimals) - 1;
      const int64_t first = std::max(from, shortest), last = std::min(to, longest);
      if (first > last) continue;
      const ExpressionId range = DigitRange(builder_, first, last, length, decimals).expression();
      alternatives.push_back(builder_.sequence({builder_.literal(sign), range}));
    }
  };
  if (high >= 0) add_positive(std::max<int64_t>(low, 0), high, "");
  if (low < 0) add_positive(std::max<int64_t>(1, -high), -low, "-");
  return builder_.choice(alternatives);
}

// One rule for each remainder of the digits so far and number of digits that may follow.
ExpressionId JsonParts::multiples_of(uint32_t factor) {
  std::vector<RuleId> shorter, rules;  // by remainder
  const auto digit_then_rest = [&](uint32_t remainder, uint32_t digit) {
    const char text = static_cast<char>('0' + digit);
    return builder_.sequence({builder_.literal({&text, 1}), builder_.call(shorter[(remainder * 10 + digit) % factor])});
  };
  for (int left = 0; left < kMaxIntegerDigits; ++left) {
    rules.clear();
    for (uint32_t remainder = 0; remainder < factor; ++remainder) {
      std::vector<ExpressionId> alternatives;
      if (remainder == 0) alternatives.push_back(builder_.empty());
      for (uint32_t digit = 0; digit < 10 && left > 0; ++digit)
        alternatives.push_back(digit_then_rest(remainder, digit));
      rules.push_back(builder_.declare("multiple", std::string(kPlace)));
      builder_.define(rules.back(), builder_.choice(alternatives));
    }
    shorter = rules;
  }
  std::vector<ExpressionId> first;
  for (uint32_t digit = 1; digit < 10; ++digit) first.push_back(digit_then_rest(0, digit));
  const ExpressionId sign = builder_.optional(builder_.literal("-"));
  return builder_.choice({builder_.literal("0"), builder_.sequence({sign, builder_.choice(first)})});
}

}  // namespace carat::text::grammar
