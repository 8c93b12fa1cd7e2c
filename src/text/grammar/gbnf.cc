// GBNF, llama.cpp's notation for grammars.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "base/utf8.h"
#include "text/grammar/grammar.h"
#include "text/grammar/grammar_builder.h"
#include "text/grammar/limits.h"
#include "text/tokenizer/symbol_table.h"

namespace carat::text::grammar {

namespace {

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::optional<uint32_t> hex_value(char c) {
  if (is_digit(c)) return static_cast<uint32_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<uint32_t>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<uint32_t>(c - 'A' + 10);
  return std::nullopt;
}

class GbnfParser {
 public:
  explicit GbnfParser(std::string_view source) : source_(source) {
    for (size_t i = 0; i < source.size(); ++i) {
      if (source[i] == '\n') line_starts_.push_back(i + 1);
    }
  }

  Grammar run() {
    if (source_.size() > kMaxSourceBytes) {
      fail(ErrorCode::kBadArgument, "the grammar has {} bytes, more than the {} it may have", source_.size(),
           kMaxSourceBytes);
    }
    skip_space(true);
    while (!at_end()) read_rule();
    check_mentioned_rules();
    const auto root = symbols_.find("root");
    if (root == symbols_.end()) fail_at(0, "there is no rule \"root\", with which the output would begin");
    return builder_.finish(root->second.rule);
  }

 private:
  struct Symbol {
    RuleId rule;
    size_t place;  // of the first mention
    bool defined = false;
  };

  [[noreturn]] void fail_at(size_t place, const std::string& problem) const {
    fail(ErrorCode::kBadArgument, "{}: {}", place_text(place), problem);
  }
  [[noreturn]] void fail_here(const std::string& problem) const { fail_at(at_, problem); }

  void check_mentioned_rules() const {
    const auto* first = static_cast<const std::pair<const std::string, Symbol>*>(nullptr);
    for (const auto& entry : symbols_) {
      if (!entry.second.defined && (first == nullptr || entry.second.place < first->second.place)) first = &entry;
    }
    if (first != nullptr) fail_at(first->second.place, fmt::format("there is no rule \"{}\"", first->first));
  }

  std::string place_text(size_t place) const {
    const auto next_line = std::upper_bound(line_starts_.begin(), line_starts_.end(), place);
    return fmt::format("grammar, line {}, column {}", next_line - line_starts_.begin(), place - *(next_line - 1) + 1);
  }

  bool at_end() const { return at_ >= source_.size(); }
  char peek(size_t offset = 0) const { return at_ + offset < source_.size() ? source_[at_ + offset] : '\0'; }
  bool take(std::string_view text) {
    if (source_.substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }

  void skip_space(bool newlines) {
    while (!at_end()) {
      const char c = peek();
      if (c == '#') {
        at_ = std::min(source_.find('\n', at_), source_.size());
      } else if (c == ' ' || c == '\t' || (newlines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string read_name() {
    const size_t begin = at_;
    while (is_name_character(peek())) ++at_;
    if (at_ == begin) fail_here("expected the name of a rule");
    return std::string(source_.substr(begin, at_ - begin));
  }

  Symbol& symbol(const std::string& name, size_t place) {
    const auto [found, is_new] = symbols_.try_emplace(name, Symbol{0, place});
    if (is_new) found->second.rule = builder_.declare(name, place_text(place));
    return found->second;
  }

  void read_rule() {
    const size_t place = at_;
    const std::string name = read_name();
    skip_space(false);
    if (!take("::=")) fail_here(fmt::format("expected ::= after the name \"{}\"", name));
    skip_space(true);
    Symbol& rule = symbol(name, place);
    if (rule.defined) fail_at(place, fmt::format("the rule \"{}\" is defined twice", name));
    rule.defined = true;
    const RuleId id = rule.rule;
    builder_.define(id, read_choice(0));
    if (!at_end() && peek() != '\n' && peek() != '\r') {
      fail_here(fmt::format("{} does not belong here; a rule ends with its line", shown(peek())));
    }
    skip_space(true);
  }

  static std::string shown(char c) {
    if (c > ' ' && c < 0x7f) return fmt::format("'{}'", c);
    return fmt::format("the byte 0x{:02x}", static_cast<uint8_t>(c));
  }

  // Whether an alternative follows on this line, inside a group on one of the next, or, for a rule, on the next line
  // that has anything.
  bool take_bar(bool in_group) {
    if (take("|")) return true;
    if (in_group) return false;
    const size_t before = at_;
    skip_space(true);
    if (take("|")) return true;
    at_ = before;
    return false;
  }

  ExpressionId read_choice(uint32_t depth) {
    if (depth > kMaxNesting) fail_here(fmt::format("groups nest more than {} deep; use rules", kMaxNesting));
    std::vector<ExpressionId> alternatives;
    do {
      skip_space(true);
      alternatives.push_back(read_sequence(depth));
    } while (take_bar(depth > 0));
    return builder_.choice(alternatives);
  }

  ExpressionId read_sequence(uint32_t depth) {
    std::vector<ExpressionId> parts;
    for (;;) {
      // A rule that is empty so far may go on after its ::=, where a line can begin with the next rule.
      if (depth == 0 && parts.empty() && begins_rule()) break;
      const size_t place = at_;
      const std::optional<ExpressionId> part = read_item(depth);
      if (!part) break;
      parts.push_back(read_repetition(*part, place));
      skip_space(depth > 0);
    }
    return builder_.sequence(parts);
  }

  bool begins_rule() {
    const size_t before = at_;
    while (is_name_character(peek())) ++at_;
    const bool named = at_ > before;
    skip_space(false);
    const bool result = named && source_.substr(at_, 3) == "::=";
    at_ = before;
    return result;
  }

  std::optional<ExpressionId> read_item(uint32_t depth) {
    const char c = peek();
    if (at_end()) return std::nullopt;
    if (c == '"') return read_literal();
    if (c == '[') return read_class();
    if (c == '(') return read_group(depth);
    if (take(".")) return builder_.characters({{0, 0x10ffff}});
    if (c == '<' || c == '!') fail_here("tokens by name or number are not supported; write the text they stand for");
    if (!is_name_character(c)) return std::nullopt;
    const size_t place = at_;
    return builder_.call(symbol(read_name(), place).rule);
  }

  ExpressionId read_group(uint32_t depth) {
    const size_t place = at_++;
    const ExpressionId group = read_choice(depth + 1);
    if (!take(")")) {
      if (at_end()) fail_at(place, "this ( is never closed");
      fail_here(fmt::format("expected ) instead of {}", shown(peek())));
    }
    return group;
  }

  ExpressionId read_literal() {
    const size_t place = at_++;
    std::string text;
    while (!take("\"")) {
      if (at_end() || peek() == '\n') fail_at(place, "this literal is never closed: \" is missing");
      append_utf8(read_character(), text);
    }
    return builder_.literal(text);
  }

  ExpressionId read_class() {
    const size_t place = at_++;
    const bool negated = take("^");
    std::vector<CodePointRange> ranges;
    while (!take("]")) {
      if (at_end() || peek() == '\n') fail_at(place, "this character class is never closed: ] is missing");
      const uint32_t first = read_character();
      uint32_t last = first;
      if (peek() == '-' && peek(1) != ']') {
        ++at_;
        if (at_end() || peek() == '\n') continue;
        const size_t end_place = at_;
        last = read_character();
        if (last < first) fail_at(end_place, "the end of this range comes before its start");
      }
      ranges.push_back({first, last});
    }
    ranges = normalised(std::move(ranges));
    if (negated) ranges = complement(ranges);
    if (ranges.empty()) fail_at(place, "this character class has no characters in it");
    return builder_.characters(std::move(ranges));
  }

  uint32_t read_character() {
    if (peek() == '\\') return read_escape();
    const size_t length = utf8_sequence_length(source_.substr(at_));
    if (length == 0) fail_here(fmt::format("{} is no valid UTF-8", shown(peek())));
    const uint32_t code_point = code_point_of(source_.substr(at_, length));
    at_ += length;
    return code_point;
  }

  uint32_t read_escape() {
    const size_t place = at_++;
    const char kind = peek();
    if (!at_end()) ++at_;
    switch (kind) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case '"':
      case '\\':
      case '[':
      case ']':
      case '-':
      case '^':
        return static_cast<uint32_t>(kind);
      case 'x':
        return read_hex(2, place);
      case 'u':
        return read_hex(4, place);
      case 'U':
        return read_hex(8, place);
      default:
        fail_at(place, "unknown escape; there are \\n \\r \\t \\\" \\\\ \\[ \\] \\- \\^ \\xHH \\uHHHH \\UHHHHHHHH");
    }
  }

  uint32_t read_hex(int digits, size_t place) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const auto digit = hex_value(peek());
      if (!digit) fail_at(place, fmt::format("this escape needs {} hexadecimal digits", digits));
      value = value << 4 | *digit;
    }
    if (value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) {
      fail_at(place, fmt::format("there is no character U+{:04X}", value));
    }
    return value;
  }

  ExpressionId read_repetition(ExpressionId part, size_t place) {
    uint32_t levels = 0;
    for (;;) {
      skip_space(false);
      if (take("*")) {
        part = builder_.repeat(part, 0, kUnbounded);
      } else if (take("+")) {
        part = builder_.repeat(part, 1, kUnbounded);
      } else if (take("?")) {
        part = builder_.optional(part);
      } else if (peek() == '{') {
        part = read_bounds(part);
      } else {
        return part;
      }
      if (++levels > kMaxNesting) fail_at(place, fmt::format("repeated in more than {} ways", kMaxNesting));
    }
  }

  ExpressionId read_bounds(ExpressionId part) {
    const size_t place = at_++;
    skip_space(false);
    uint32_t min = 0;
    uint32_t max = kUnbounded;
    const bool has_min = is_digit(peek());
    if (has_min) min = read_count();
    skip_space(false);
    if (take(",")) {
      skip_space(false);
      if (is_digit(peek())) {
        max = read_count();
      } else if (!has_min) {
        fail_at(place, "expected {n}, {n,}, {n,m} or {,m}");
      }
    } else if (has_min) {
      max = min;
    }
    skip_space(false);
    if (!take("}") || (!has_min && max == kUnbounded)) fail_at(place, "expected {n}, {n,}, {n,m} or {,m}");
    if (max < min) fail_at(place, fmt::format("{} to {} times is never", min, max));
    return builder_.repeat(part, min, max);
  }

  uint32_t read_count() {
    const size_t place = at_;
    uint64_t value = 0;
    for (; is_digit(peek()); ++at_)
      value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(peek() - '0'), 1u << 30);
    if (value > kMaxRepetition) fail_at(place, fmt::format("repeated more than {} times", kMaxRepetition));
    return static_cast<uint32_t>(value);
  }

  std::string_view source_;
  std::vector<size_t> line_starts_ = {0};
  size_t at_ = 0;
  GrammarBuilder builder_;
  std::unordered_map<std::string, Symbol> symbols_;
};

}  // namespace

Grammar parse_gbnf(std::string_view source) { return GbnfParser(source).run(); }

}  // namespace carat::text::grammar
