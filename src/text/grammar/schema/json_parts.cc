#include "text/grammar/schema/json_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

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

// The numbers between two of the same number of digits, digit by digit, and among them the multiples of `modulus`.
class DigitRange {
 public:
  // Rules for digits that no bound holds any more: how many are left, whether the last one was a zero behind the point,
  // and the remainder of those before.
  using FreeDigits = std::map<std::tuple<size_t, bool, uint32_t>, RuleId>;

  DigitRange(GrammarBuilder& builder, int64_t low, int64_t high, int integer_digits, int decimals, uint32_t modulus,
             bool canonical, bool broken, FreeDigits& free)
      : builder_(builder),
        low_(fmt::format("{:0{}}", low, integer_digits + decimals)),
        high_(fmt::format("{:0{}}", high, integer_digits + decimals)),
        point_(static_cast<size_t>(integer_digits)),
        modulus_(modulus),
        canonical_(canonical || broken),
        broken_(broken),
        free_(free) {}

  ExpressionId expression() { return from(0, true, true, false, 0); }

 private:
  // The digits from `at` on. `low`, `high`: all digits so far are those of that bound, so the next ones are bound, too.
  // `zero`: the last one was a zero behind the point. `rest`: the remainder of those so far.
  ExpressionId from(size_t at, bool low, bool high, bool zero, uint32_t rest) {
    if (!low && !high && modulus_ == 1) return anything_from(at, zero);
    if (at == low_.size()) {
      const bool may_end = rest == 0 && !(canonical_ && zero) && !(broken_ && at == point_);
      return may_end ? builder_.empty() : builder_.nothing();
    }
    if (low || high) return digits_from(at, low, high, zero, rest);
    const auto [known, is_new] = free_.try_emplace({low_.size() - at, zero, rest}, 0);
    const RuleId rule = is_new ? builder_.declare("multiple", std::string(kPlace)) : known->second;
    if (is_new) {
      known->second = rule;
      builder_.define(rule, digits_from(at, false, false, zero, rest));
    }
    return builder_.call(rule);
  }

  ExpressionId digits_from(size_t at, bool low, bool high, bool zero, uint32_t rest) {
    const char first = low ? low_[at] : '0';
    const char last = high ? high_[at] : '9';
    std::vector<ExpressionId> alternatives;
    for (char digit = first; digit <= last; ++digit) {
      char end = digit;
      // Digits that make no difference go together.
      const auto is_alike = [&](char next) {
        return modulus_ == 1 && (digit != '0' || !canonical_) && !(low && digit == first) && !(high && next == last);
      };
      while (end < last && is_alike(static_cast<char>(end + 1))) ++end;
      const ExpressionId expression = builder_.characters({{static_cast<uint32_t>(digit), static_cast<uint32_t>(end)}});
      const auto next_rest = static_cast<uint32_t>((rest * 10 + static_cast<uint32_t>(digit - '0')) % modulus_);
      alternatives.push_back(builder_.sequence({expression, from(at + 1, low && digit == first, high && digit == last,
                                                                 digit == '0' && at >= point_, next_rest)}));
      digit = end;
    }
    ExpressionId digits = builder_.choice(alternatives);
    if (at < point_) return digits;
    if (at == point_) digits = builder_.sequence({builder_.literal("."), digits});
    // Digits left out are zeros.
    uint64_t whole = rest;
    for (size_t i = at; i < low_.size(); ++i) whole = whole * 10 % modulus_;
    const bool may_stop = (!low || low_.find_first_not_of('0', at) == std::string::npos) && whole == 0 &&
                          !(canonical_ && zero) && !(broken_ && at == point_);
    if (!may_stop) return digits;
    return builder_.is_nothing(digits) ? builder_.empty() : builder_.optional(digits);
  }

  ExpressionId anything_from(size_t at, bool zero) {
    const ExpressionId digit = builder_.characters({{'0', '9'}});
    const auto left = static_cast<uint32_t>(low_.size() - at);
    if (at > point_) return canonical_ ? ending_not_in_zero(left, zero) : builder_.repeat(digit, 0, left);
    const auto decimals = static_cast<uint32_t>(low_.size() - point_);
    ExpressionId fraction = builder_.empty();
    if (decimals > 0) {
      const ExpressionId some = canonical_ ? ending_not_in_zero(decimals, true) : builder_.repeat(digit, 1, decimals);
      fraction = builder_.sequence({builder_.literal("."), some});
      if (!broken_) fraction = builder_.optional(fraction);
    } else if (broken_) {
      return builder_.nothing();
    }
    const uint32_t before_point = left - decimals;
    return builder_.sequence({builder_.repeat(digit, before_point, before_point), fraction});
  }

  ExpressionId ending_not_in_zero(uint32_t most, bool some) {
    if (most == 0) return some ? builder_.nothing() : builder_.empty();
    const ExpressionId digits = builder_.sequence(
        {builder_.repeat(builder_.characters({{'0', '9'}}), 0, most - 1), builder_.characters({{'1', '9'}})});
    return some ? digits : builder_.optional(digits);
  }

  GrammarBuilder& builder_;
  std::string low_, high_;
  size_t point_;
  uint32_t modulus_;
  bool canonical_;
  bool broken_;
  FreeDigits& free_;
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
  if (notation_ != Notation::kJson) {
    const auto text = written_value(notation_, value);
    return text ? builder_.literal(*text) : builder_.nothing();
  }
  if (value.is_number_float()) return constant_number(value);
  if (value.is_array() && !value.empty()) {
    std::vector<ExpressionId> parts = {builder_.literal("[")};
    for (const Json& item : value) {
      if (parts.size() > 1) parts.push_back(comma());
      parts.push_back(builder_.scope(Scope::kValue, constant(item)));
    }
    parts.push_back(builder_.literal("]"));
    return builder_.sequence(parts);
  }
  if (value.is_object() && !value.empty()) return constant_object(value);
  if (value.is_number() && !canonical_) return constant_number(value);
  return builder_.literal(value.dump());
}

// A whole number may also be written with a point, as 1.0.
ExpressionId JsonParts::constant_number(const Json& value) {
  std::string text = value.dump();
  const bool is_whole = text.ends_with(".0");
  if (is_whole) text.resize(text.size() - 2);
  if (text == "-0") text = "0";
  // Another part of the grammar might write the same number without an exponent.
  if (canonical_ && text.find('e') != std::string::npos) return builder_.nothing();
  if (plain_ || (!is_whole && value.is_number_float())) return builder_.literal(text);
  return builder_.sequence({builder_.literal(text), builder_.optional(builder_.literal(".0"))});
}

ExpressionId JsonParts::constant_object(const Json& value) {
  std::vector<std::string> names;
  for (const auto& [name, member] : value.items()) names.push_back(name);
  if (canonical_) std::sort(names.begin(), names.end());
  std::vector<GrammarBuilder::Member> members;
  for (const std::string& name : names) {
    const ExpressionId text = builder_.scope(Scope::kValue, constant(value.at(name)));
    members.push_back({builder_.sequence({key(name), colon(), text}), true});
  }
  if (!canonical_ && members.size() <= kMaxFreeOrder) {
    const ExpressionId all = builder_.permutation(members, comma(), 0, kUnbounded);
    return builder_.sequence({builder_.literal("{"), all, builder_.literal("}")});
  }
  std::vector<ExpressionId> parts = {builder_.literal("{")};
  for (const auto& member : members) {
    if (parts.size() > 1) parts.push_back(comma());
    parts.push_back(member.text);
  }
  parts.push_back(builder_.literal("}"));
  return builder_.sequence(parts);
}

ExpressionId JsonParts::boolean() { return builder_.choice({builder_.literal("true"), builder_.literal("false")}); }

// Halves of surrogate pairs are left out: by themselves they are no characters, and whole ones can be written plainly.
ExpressionId JsonParts::character() {
  if (canonical_) return character_of(complement({}));
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

// Also as 1.0 and 1e3: numbers of JSON are numbers, not ways to write them.
ExpressionId JsonParts::integer() {
  const ExpressionId whole = builder_.sequence(
      {builder_.characters({{'1', '9'}}), digits(0, (canonical_ ? kCanonicalDigits : kMaxIntegerDigits) - 1)});
  const ExpressionId plain =
      builder_.choice({builder_.literal("0"), builder_.sequence({builder_.optional(builder_.literal("-")), whole})});
  if (plain_) return plain;
  const ExpressionId exponent = builder_.sequence(
      {builder_.characters({{'e', 'e'}, {'E', 'E'}}), builder_.optional(builder_.literal("+")), digits(1, 1)});
  return builder_.sequence({plain, builder_.optional(builder_.literal(".0")), builder_.optional(exponent)});
}

ExpressionId JsonParts::fraction() { return not_whole_numbers(false); }

ExpressionId JsonParts::not_whole_numbers(bool may_be_whole) {
  const uint32_t before = canonical_ ? kCanonicalDigits : kFractionDigits;
  const uint32_t behind = canonical_ ? kCanonicalDecimals : kFractionDigits;
  const ExpressionId minus = builder_.optional(builder_.literal("-"));
  const ExpressionId whole = builder_.sequence({builder_.characters({{'1', '9'}}), digits(0, before - 1)});
  const ExpressionId part =
      builder_.sequence({builder_.literal("."), digits(0, behind - 1), builder_.characters({{'1', '9'}})});
  const ExpressionId broken = builder_.sequence({minus, builder_.choice({builder_.literal("0"), whole}), part});
  if (!may_be_whole) return broken;
  return builder_.choice({builder_.literal("0"), builder_.sequence({minus, whole}), broken});
}

ExpressionId JsonParts::number() {
  if (canonical_) return not_whole_numbers(true);
  const ExpressionId whole =
      builder_.choice({builder_.literal("0"),
                       builder_.sequence({builder_.characters({{'1', '9'}}), digits(0, kMaxIntegerDigits - 1)})});
  const ExpressionId fraction = builder_.sequence({builder_.literal("."), digits(1, kMaxIntegerDigits)});
  // At most 289: with the digits before the point the number stays what floating point can hold.
  const ExpressionId size =
      builder_.choice({digits(1, 2), builder_.sequence({builder_.literal("1"), digits(2, 2)}),
                       builder_.sequence({builder_.literal("2"), builder_.characters({{'0', '8'}}), digits(1, 1)})});
  const ExpressionId exponent =
      builder_.sequence({builder_.characters({{'e', 'e'}, {'E', 'E'}}),
                         builder_.optional(builder_.characters({{'+', '+'}, {'-', '-'}})), size});
  return builder_.sequence(
      {builder_.optional(builder_.literal("-")), whole, builder_.optional(fraction), builder_.optional(exponent)});
}

ExpressionId JsonParts::object() {
  const ExpressionId member = builder_.sequence({key_other_than({}), colon(), builder_.scope(Scope::kValue, value())});
  const ExpressionId more = builder_.repeat(builder_.sequence({comma(), member}), 0, canonical_ ? 0 : kUnbounded);
  return builder_.sequence(
      {builder_.literal("{"), builder_.optional(builder_.sequence({member, more})), builder_.literal("}")});
}

ExpressionId JsonParts::array() {
  const ExpressionId item = builder_.scope(Scope::kValue, value());
  const ExpressionId more = builder_.repeat(builder_.sequence({comma(), item}), 0, kUnbounded);
  return builder_.sequence(
      {builder_.literal("["), builder_.optional(builder_.sequence({item, more})), builder_.literal("]")});
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

ExpressionId JsonParts::numbers_between(int64_t low, int64_t high, int decimals, uint32_t modulus, bool broken) {
  DigitRange::FreeDigits free;
  std::vector<ExpressionId> alternatives;
  const auto add_positive = [&](int64_t from, int64_t to, std::string_view sign) {
    for (int length = 1; length + decimals <= kMaxIntegerDigits; ++length) {
      const int64_t shortest = length == 1 ? 0 : power_of_ten(length - 1 + decimals);
      const int64_t longest = power_of_ten(length + decimals) - 1;
      const int64_t first = std::max(from, shortest), last = std::min(to, longest);
      if (first > last) continue;
      const ExpressionId range =
          DigitRange(builder_, first, last, length, decimals, modulus, canonical_, broken, free).expression();
      alternatives.push_back(builder_.sequence({builder_.literal(sign), range}));
    }
  };
  if (high >= 0) add_positive(std::max<int64_t>(low, 0), high, "");
  if (low < 0) add_positive(std::max<int64_t>(1, -high), -low, "-");
  return builder_.choice(alternatives);
}

}  // namespace carat::text::grammar
