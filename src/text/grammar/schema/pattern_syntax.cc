#include "text/grammar/schema/pattern_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "text/grammar/grammar_builder.h"
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

class PatternParser {
 public:
  PatternParser(std::string_view pattern, std::string_view place) : pattern_(pattern), place_(place) {}

  PatternNode run() {
    if (pattern_.size() > kMaxPatternBytes) {
      refuse(fmt::format("is longer than the {} bytes it may have", kMaxPatternBytes));
    }
    PatternNode alternatives = read_alternatives(0);
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

  PatternNode read_alternatives(uint32_t depth) {
    if (depth > kMaxNesting / 2) refuse(fmt::format("nests more than {} deep", kMaxNesting / 2));
    PatternNode choice{PatternNode::Kind::kChoice};
    do {
      choice.children.push_back(read_alternative(depth));
    } while (take("|"));
    return choice;
  }

  PatternNode read_alternative(uint32_t depth) {
    PatternNode sequence{PatternNode::Kind::kSequence};
    while (!at_end() && peek() != '|' && peek() != ')') {
      if (take("^")) {
        sequence.children.push_back({PatternNode::Kind::kStart});
      } else if (take("$")) {
        sequence.children.push_back({PatternNode::Kind::kEnd});
      } else {
        sequence.children.push_back(read_quantifier(read_atom(depth)));
      }
    }
    return sequence;
  }

  PatternNode read_atom(uint32_t depth) {
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

  PatternNode one_of(const Set& set) {
    const Set valid = normalised(set);
    if (valid.empty()) refuse("has a class without characters");
    return {PatternNode::Kind::kSet, valid};
  }

  PatternNode read_group(uint32_t depth) {
    ++at_;
    bool is_ahead = false, negated = false;
    if (take("?:")) {
    } else if (take("?=")) {
      is_ahead = true;
    } else if (take("?!")) {
      is_ahead = negated = true;
    } else if (peek() == '?' && peek(1) == '<' && peek(2) != '=' && peek(2) != '!') {
      const size_t close = pattern_.find('>', at_);
      if (close == std::string_view::npos) refuse("has a group whose name does not end");
      at_ = close + 1;
    } else if (peek() == '?') {
      refuse("uses look-behind or flags, which a grammar cannot express");
    }
    PatternNode group = read_alternatives(depth + 1);
    if (!take(")")) refuse("has a ( without a )");
    if (!is_ahead) return group;
    PatternNode ahead{PatternNode::Kind::kAhead};
    ahead.negated = negated;
    ahead.children.push_back(std::move(group));
    return ahead;
  }

  PatternNode read_quantifier(PatternNode atom) {
    uint32_t min = 0, max = kUnbounded;
    if (take("*")) {
    } else if (take("+")) {
      min = 1;
    } else if (take("?")) {
      max = 1;
    } else if (take("{")) {
      min = read_count();
      max = min;
      if (take(",")) max = peek() == '}' ? kUnbounded : read_count();
      if (!take("}")) refuse("has a { that is no {n}, {n,} or {n,m}");
      if (max < min) refuse("has a {n,m} with m below n");
    } else {
      return atom;
    }
    if (atom.kind == PatternNode::Kind::kAhead) refuse("repeats a look-ahead");
    take("?");  // the lazy form matches the same texts
    if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{') refuse("has two quantifiers in a row");
    PatternNode repeat{PatternNode::Kind::kRepeat};
    repeat.min = min;
    repeat.max = max;
    repeat.children.push_back(std::move(atom));
    return repeat;
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

  std::string_view pattern_;
  std::string_view place_;
  size_t at_ = 0;
};

}  // namespace

PatternNode parse_pattern(std::string_view pattern, std::string_view place) {
  return PatternParser(pattern, place).run();
}

}  // namespace carat::text::grammar
