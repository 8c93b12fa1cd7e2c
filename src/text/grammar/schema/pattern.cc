#include "text/grammar/schema/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "text/grammar/limits.h"
#include "text/tokenizer/symbol_table.h"

namespace carat::text::grammar {

namespace {

using Set = std::vector<CodePointRange>;

const Set kDigits = {{'0', '9'}};
const Set kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Set kSpace = {{'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
                    {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
const Set kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

// Lengths in characters; kUnbounded stays what it is.
uint32_t add_lengths(uint32_t a, uint32_t b) {
  if (a == kUnbounded || b == kUnbounded) return kUnbounded;
  return static_cast<uint32_t>(std::min<uint64_t>(uint64_t{a} + b, kUnbounded - 1));
}
uint32_t multiply_lengths(uint32_t a, uint32_t b) {
  if (a == 0 || b == 0) return 0;
  if (a == kUnbounded || b == kUnbounded) return kUnbounded;
  return static_cast<uint32_t>(std::min<uint64_t>(uint64_t{a} * b, kUnbounded - 1));
}

// A part of a pattern: `unit` repeated; its length in characters follows.
struct Piece {
  ExpressionId unit;
  uint32_t unit_min, unit_max;
  uint32_t times_min = 1, times_max = 1;

  uint32_t min() const { return multiply_lengths(unit_min, times_min); }
  uint32_t max() const { return multiply_lengths(unit_max, times_max); }
};

struct Alternative {
  std::vector<Piece> pieces;
  bool from_start = false, to_end = false;  // ^ and $
};

class PatternParser {
 public:
  PatternParser(GrammarBuilder& builder, JsonParts& parts, std::string_view pattern, std::string_view place)
      : builder_(builder), parts_(parts), pattern_(pattern), place_(place) {}

  std::vector<Alternative> run() {
    if (pattern_.size() > kMaxPatternBytes) {
      refuse(fmt::format("is longer than the {} bytes it may have", kMaxPatternBytes));
    }
    auto alternatives = read_alternatives(0);
    if (!at_end()) refuse("has a ) without a (");
    return alternatives;
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    fail(ErrorCode::kBadArgument, "{}: the pattern {} (at byte {})", place_, problem, at_);
  }

  bool at_end() const { return at_ >= pattern_.size(); }
  char peek(size_t offset = 0) const { return at_ + offset < pattern_.size() ? pattern_[at_ + offset] : '\0'; }
  bool take(std::string_view text) {
    if (pattern_.substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }

  std::vector<Alternative> read_alternatives(uint32_t depth) {
    if (depth > kMaxNesting / 2) refuse(fmt::format("nests more than {} deep", kMaxNesting / 2));
    std::vector<Alternative> alternatives;
    do {
      alternatives.push_back(read_alternative(depth));
    } while (take("|"));
    return alternatives;
  }

  Alternative read_alternative(uint32_t depth) {
    Alternative alternative;
    while (!at_end() && peek() != '|' && peek() != ')') {
      if (peek() == '^' || peek() == '$') {
        read_anchor(alternative, depth);
        continue;
      }
      if (alternative.to_end) refuse("has something after $");
      Piece piece = read_atom(depth);
      read_quantifier(piece);
      alternative.pieces.push_back(piece);
    }
    return alternative;
  }

  void read_anchor(Alternative& alternative, uint32_t depth) {
    if (depth > 0) refuse("has ^ or $ inside of a group; put them at the ends of the whole pattern");
    if (take("^")) {
      if (!alternative.pieces.empty() || alternative.to_end) refuse("has something before ^");
      alternative.from_start = true;
    } else {
      ++at_;
      alternative.to_end = true;
    }
  }

  Piece read_atom(uint32_t depth) {
    const char c = peek();
    if (c == '(') return read_group(depth);
    if (c == '[') return one_of(read_class());
    if (c == '*' || c == '+' || c == '?' || c == '{' || c == '}' || c == ']') {
      refuse(fmt::format("has a {} that belongs to nothing", c));
    }
    if (take(".")) return one_of(complement(kLineEnds));
    if (c == '\\') {
      if (const auto set = read_class_escape()) return one_of(*set);
    }
    const uint32_t code_point = read_character(false);
    return one_of({{code_point, code_point}});
  }

  Piece one_of(const Set& set) {
    const Set valid = normalised(set);
    if (valid.empty()) refuse("has a class without characters");
    return {parts_.character_of(valid), 1, 1};
  }

  Piece read_group(uint32_t depth) {
    ++at_;
    if (take("?:")) {
    } else if (peek() == '?' && peek(1) == '<' && peek(2) != '=' && peek(2) != '!') {
      const size_t close = pattern_.find('>', at_);
      if (close == std::string_view::npos) refuse("has a group whose name does not end");
      at_ = close + 1;
    } else if (peek() == '?') {
      refuse("uses look-around or flags, which a grammar cannot express");
    }
    Piece group = {builder_.nothing(), kUnbounded, 0};
    std::vector<ExpressionId> expressions;
    for (const Alternative& alternative : read_alternatives(depth + 1)) {
      std::vector<ExpressionId> sequence;
      uint32_t min = 0, max = 0;
      for (const Piece& piece : alternative.pieces) {
        sequence.push_back(builder_.repeat(piece.unit, piece.times_min, piece.times_max));
        min = add_lengths(min, piece.min());
        max = add_lengths(max, piece.max());
      }
      expressions.push_back(builder_.sequence(sequence));
      group.unit_min = std::min(group.unit_min, min);
      group.unit_max = std::max(group.unit_max, max);
    }
    if (!take(")")) refuse("has a ( without a )");
    group.unit = builder_.choice(expressions);
    return group;
  }

  void read_quantifier(Piece& piece) {
    if (take("*")) {
      piece.times_min = 0;
      piece.times_max = kUnbounded;
    } else if (take("+")) {
      piece.times_max = kUnbounded;
    } else if (take("?")) {
      piece.times_min = 0;
    } else if (take("{")) {
      piece.times_min = read_count();
      piece.times_max = piece.times_min;
      if (take(",")) piece.times_max = peek() == '}' ? kUnbounded : read_count();
      if (!take("}")) refuse("has a { that is no {n}, {n,} or {n,m}");
      if (piece.times_max < piece.times_min) refuse("has a {n,m} with m below n");
    } else {
      return;
    }
    take("?");  // the lazy form matches the same texts
    if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{') refuse("has two quantifiers in a row");
  }

  uint32_t read_count() {
    if (peek() < '0' || peek() > '9') refuse("has a { that is no {n}, {n,} or {n,m}");
    uint64_t value = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(peek() - '0'), uint64_t{1} << 32);
    }
    if (value > kMaxRepetition) refuse(fmt::format("repeats something more than {} times", kMaxRepetition));
    return static_cast<uint32_t>(value);
  }

  // \d \D \w \W \s \S
  std::optional<Set> read_class_escape() {
    const char kind = peek(1);
    const Set* set = kind == 'd' || kind == 'D'   ? &kDigits
                     : kind == 'w' || kind == 'W' ? &kWord
                     : kind == 's' || kind == 'S' ? &kSpace
                                                  : nullptr;
    if (set == nullptr) return std::nullopt;
    at_ += 2;
    return kind >= 'a' ? *set : complement(*set);
  }

  Set read_class() {
    ++at_;
    const bool negated = take("^");
    Set set;
    while (!take("]")) {
      if (at_end()) refuse("has a [ without a ]");
      std::optional<Set> part;
      if (peek() == '\\') part = read_class_escape();
      if (part) {
        if (peek() == '-' && peek(1) != ']') refuse("has a range that begins with a class");
        set.insert(set.end(), part->begin(), part->end());
        continue;
      }
      const uint32_t first = read_character(true);
      uint32_t last = first;
      if (peek() == '-' && peek(1) != ']' && at_ + 1 < pattern_.size()) {
        ++at_;
        if (peek() == '\\' && read_class_escape()) refuse("has a range that ends with a class");
        last = read_character(true);
        if (last < first) refuse("has a range whose end comes before its start");
      }
      set.push_back({first, last});
    }
    set = normalised(std::move(set));
    return negated ? complement(set) : set;
  }

  uint32_t read_character(bool in_class) {
    if (take("\\")) return read_escape(in_class);
    const size_t length = utf8_sequence_length(pattern_.substr(at_));
    if (length == 0) refuse("is no valid UTF-8");
    const uint32_t code_point = code_point_of(pattern_.substr(at_, length));
    at_ += length;
    return code_point;
  }

  uint32_t read_escape(bool in_class) {
    const char kind = peek();
    if (at_end()) refuse("ends with a backslash");
    ++at_;
    switch (kind) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case '0':
        if (peek() >= '0' && peek() <= '9') refuse("has an octal escape");
        return 0;
      case 'x':
        return read_hex(2);
      case 'u':
        return read_unicode();
      default:
        break;
    }
    if (kind == '-' && in_class) return '-';
    if (std::string_view("^$\\.*+?()[]{}|/").find(kind) != std::string_view::npos) return static_cast<uint32_t>(kind);
    refuse(fmt::format("uses \\{}, which is not supported", kind > ' ' && kind < 0x7f ? kind : '?'));
  }

  uint32_t read_unicode() {
    uint32_t value = 0;
    if (!take("{")) {
      value = read_hex(4);
    } else {
      const size_t close = pattern_.find('}', at_);
      if (close == std::string_view::npos || close == at_ || close - at_ > 6)
        refuse("has a \\u{...} that is no number");
      value = read_hex(static_cast<int>(close - at_));
      ++at_;
    }
    if (value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) refuse("names a character that does not exist");
    return value;
  }

  uint32_t read_hex(int digits) {
    uint32_t value = 0;
    for (; digits > 0; --digits, ++at_) {
      const char c = peek();
      const bool is_letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
      if (!is_letter && !(c >= '0' && c <= '9')) refuse("has an escape with too few hexadecimal digits");
      value = value << 4 | static_cast<uint32_t>(is_letter ? (c | 0x20) - 'a' + 10 : c - '0');
    }
    return value;
  }

  GrammarBuilder& builder_;
  JsonParts& parts_;
  std::string_view pattern_;
  std::string_view place_;
  size_t at_ = 0;
};

// Narrows the one part whose length varies, so that the whole keeps the bounds. False when that is not how it is built.
bool keep_length(std::vector<Piece>& pieces, uint32_t min_length, uint32_t max_length, bool& impossible) {
  uint32_t min = 0, max = 0;
  Piece* varying = nullptr;
  size_t varying_count = 0;
  for (Piece& piece : pieces) {
    min = add_lengths(min, piece.min());
    max = add_lengths(max, piece.max());
    if (piece.min() == piece.max()) continue;
    varying = &piece;
    ++varying_count;
  }
  impossible = min > max_length || max < min_length;
  if (impossible || (min >= min_length && max <= max_length)) return true;
  if (varying_count != 1 || varying->unit_min != 1 || varying->unit_max != 1) return false;
  const uint32_t others = min - varying->min();
  if (min_length > others) varying->times_min = std::max(varying->times_min, min_length - others);
  if (max_length != kUnbounded) varying->times_max = std::min(varying->times_max, max_length - others);
  return true;
}

}  // namespace

ExpressionId characters_matching(GrammarBuilder& builder, JsonParts& parts, std::string_view pattern,
                                 uint32_t min_length, uint32_t max_length, std::string_view place) {
  std::vector<ExpressionId> expressions;
  for (Alternative& alternative : PatternParser(builder, parts, pattern, place).run()) {
    std::vector<Piece>& pieces = alternative.pieces;
    const auto anything = [&] { return Piece{parts.character(), 1, 1, 0, kUnbounded}; };
    if (!alternative.from_start) pieces.insert(pieces.begin(), anything());
    if (!alternative.to_end) pieces.push_back(anything());
    bool impossible = false;
    if (!keep_length(pieces, min_length, max_length, impossible)) {
      fail(
          ErrorCode::kBadArgument,
          "{}: minLength or maxLength together with a pattern in which more than one part has no fixed length; put the "
          "lengths into the pattern, as in ^[a-z]{{2,8}}$",
          place);
    }
    if (impossible) continue;
    std::vector<ExpressionId> sequence;
    for (const Piece& piece : pieces) sequence.push_back(builder.repeat(piece.unit, piece.times_min, piece.times_max));
    expressions.push_back(builder.sequence(sequence));
  }
  return builder.choice(expressions);
}

ExpressionId string_matching(GrammarBuilder& builder, JsonParts& parts, std::string_view pattern, uint32_t min_length,
                             uint32_t max_length, std::string_view place) {
  return parts.quoted(characters_matching(builder, parts, pattern, min_length, max_length, place));
}

}  // namespace carat::text::grammar
