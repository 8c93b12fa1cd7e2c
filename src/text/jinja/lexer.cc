#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/error.h"
#include "text/white_space.h"

namespace carat::text::jinja {

void fail_at(int line, const std::string& message) {
  fail(ErrorCode::kBadFile, "chat template, line {}: {}", line, message);
}

namespace {

constexpr std::array<std::string_view, 26> kOperators = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*",
                                                         "/",  "%",  "~",  "<",  ">",  "=",  "(", ")", "[",
                                                         "]",  "{",  "}",  ",",  ".",  ":",  "|", ";"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<uint8_t>(c) >= 0x80;
}
bool is_blank(char c) { return c == ' ' || c == '\t'; }

std::string with_unix_newlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    const bool is_return = source[i] == '\r';
    text += is_return ? '\n' : source[i];
    if (is_return && i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_unix_newlines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_outside();
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  bool looking_at(std::string_view text) const { return std::string_view(source_).substr(at_, text.size()) == text; }
  char peek(size_t offset = 0) const { return at_ + offset < source_.size() ? source_[at_ + offset] : '\0'; }
  void advance(size_t count) {
    for (; count > 0; --count) line_ += source_[at_++] == '\n';
  }
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  // Text up to the next tag, and that tag.
  void read_outside() {
    const size_t begin = at_;
    const int line = line_;
    size_t open = begin;
    do {
      open = source_.find('{', open);
      if (open == std::string::npos) open = source_.size();
      const char next = open + 1 < source_.size() ? source_[open + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') break;
    } while (open++ < source_.size());
    open = std::min(open, source_.size());
    advance(open - begin);
    std::string_view text = std::string_view(source_).substr(begin, open - begin);
    if (at_ < source_.size()) text = strip_before_tag(text);
    if (!text.empty()) tokens_.push_back({TokenKind::kText, std::string(text), line});
    if (at_ == source_.size()) return;
    if (peek(1) == '#') return read_comment();
    if (peek(1) == '%' && read_raw()) return;
    read_tag();
  }

  // White space control on the left of the tag at at_.
  std::string_view strip_before_tag(std::string_view text) const {
    if (peek(2) == '-') return trim_end(text);
    if (peek(1) == '{' || peek(2) == '+') return text;
    size_t end = text.size();
    while (end > 0 && is_blank(text[end - 1])) --end;
    const bool starts_line = end > 0 ? text[end - 1] == '\n' : line_starts_;
    return starts_line ? text.substr(0, end) : text;
  }

  // White space control on the right of a tag that ended with `modifier` (-, + or neither) just before at_.
  void strip_after_tag(char modifier, bool takes_newline) {
    line_starts_ = false;
    if (modifier == '-') {
      const std::string_view rest = std::string_view(source_).substr(at_);
      advance(rest.size() - trim_start(rest).size());
    } else if (takes_newline && modifier != '+' && peek() == '\n') {
      advance(1);
      line_starts_ = true;
    }
  }

  void read_comment() {
    const size_t close = source_.find("#}", at_ + 2);
    if (close == std::string::npos) fail_at(line_, "a comment {# has no #}");
    const char modifier = source_[close - 1];
    advance(close + 2 - at_);
    strip_after_tag(modifier, true);
  }

  // {% raw %}: everything up to {% endraw %} is text. False when the tag is another.
  bool read_raw() {
    const size_t begin = skip_statement_open(at_);
    if (!word_at(begin, "raw")) return false;
    const int line = line_;
    char modifier = 0;
    const size_t body = skip_statement_close(begin + 3, modifier);
    if (body == std::string::npos) fail_at(line, "{% raw takes nothing but %}");
    advance(body - at_);
    strip_after_tag(modifier, true);
    for (size_t open = at_; (open = source_.find("{%", open)) != std::string::npos; ++open) {
      const size_t name = skip_statement_open(open);
      if (!word_at(name, "endraw")) continue;
      const size_t end = skip_statement_close(name + 6, modifier);
      if (end == std::string::npos) continue;
      const std::string_view text = std::string_view(source_).substr(at_, open - at_);
      const std::string_view kept = source_[open + 2] == '-' ? trim_end(text) : text;
      if (!kept.empty()) add(TokenKind::kText, std::string(kept));
      advance(end - at_);
      strip_after_tag(modifier, true);
      return true;
    }
    fail_at(line, "{% raw %} has no {% endraw %}");
  }
  size_t skip_statement_open(size_t at) const {
    at += 2;
    if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) ++at;
    return skip_space(at);
  }
  size_t skip_statement_close(size_t at, char& modifier) const {
    at = skip_space(at);
    modifier = at < source_.size() ? source_[at] : '\0';
    if (modifier == '-' || modifier == '+') ++at;
    return source_.compare(at, 2, "%}") == 0 ? at + 2 : std::string::npos;
  }
  size_t skip_space(size_t at) const {
    while (at < source_.size() && (is_blank(source_[at]) || source_[at] == '\n')) ++at;
    return at;
  }
  bool word_at(size_t at, std::string_view word) const {
    return std::string_view(source_).substr(std::min(at, source_.size()), word.size()) == word &&
           (at + word.size() >= source_.size() || !is_word(source_[at + word.size()]));
  }

  void read_tag() {
    const bool is_statement = peek(1) == '%';
    const std::string_view close = is_statement ? "%}" : "}}";
    const int line = line_;
    add(is_statement ? TokenKind::kOpenStatement : TokenKind::kOpenExpression, "");
    advance(2);
    if (peek() == '-' || peek() == '+') advance(1);
    int braces = 0;
    for (;;) {
      advance(skip_space(at_) - at_);
      if (at_ == source_.size()) fail_at(line, is_statement ? "{% has no %}" : "{{ has no }}");
      const char modifier = peek();
      const bool modified = (modifier == '-' || modifier == '+') && looking_at_close(1, close);
      if (modified || (braces == 0 && looking_at_close(0, close))) {
        advance(modified ? 3 : 2);
        add(is_statement ? TokenKind::kCloseStatement : TokenKind::kCloseExpression, "");
        return strip_after_tag(modified ? modifier : '\0', is_statement);
      }
      read_inside(braces);
    }
  }
  bool looking_at_close(size_t offset, std::string_view close) const {
    return source_.compare(std::min(at_ + offset, source_.size()), 2, close) == 0;
  }

  void read_inside(int& braces) {
    const char c = peek();
    if (c == '\'' || c == '"') return read_string(c);
    if (is_digit(c)) return read_number();
    if (is_word(c)) {
      size_t end = at_;
      while (end < source_.size() && is_word(source_[end])) ++end;
      add(TokenKind::kName, source_.substr(at_, end - at_));
      return advance(end - at_);
    }
    const auto found = std::find_if(kOperators.begin(), kOperators.end(), [&](auto op) { return looking_at(op); });
    if (found == kOperators.end()) fail_at(line_, fmt::format("unexpected character '{}'", printable(c)));
    braces += *found == "{" ? 1 : *found == "}" ? -1 : 0;
    add(TokenKind::kOperator, std::string(*found));
    advance(found->size());
  }
  static std::string printable(char c) {
    return c >= 0x20 && c < 0x7f ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  }

  void read_string(char quote) {
    const int line = line_;
    std::string text;
    advance(1);
    while (peek() != quote || at_ == source_.size()) {
      if (at_ == source_.size()) fail_at(line, "a string has no end");
      if (peek() == '\\') {
        advance(1);
        read_escape(text);
      } else {
        text += peek();
        advance(1);
      }
    }
    advance(1);
    tokens_.push_back({TokenKind::kString, std::move(text), line});
  }

  // Python's escapes, without octal and named characters.
  void read_escape(std::string& text) {
    constexpr std::string_view kLetters = "ntrbfva0\\'\"";
    constexpr std::string_view kMeanings("\n\t\r\b\f\v\a\0\\'\"", 11);
    const char c = peek();
    if (at_ == source_.size()) fail_at(line_, "a string has no end");
    if (c == '\n') return advance(1);  // a line goes on
    if (c == 'x' || c == 'u' || c == 'U') {
      advance(1);
      return append_code_point(read_hex(c == 'x' ? 2 : c == 'u' ? 4 : 8), text);
    }
    const size_t known = kLetters.find(c);
    if (known == std::string_view::npos) {
      text += '\\';  // Python keeps what it does not know
      text += c;
    } else {
      text += kMeanings[known];
    }
    advance(1);
  }
  uint32_t read_hex(int digits) {
    uint32_t value = 0;
    for (; digits > 0; --digits) {
      const char c = peek();
      const int digit = is_digit(c)            ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) fail_at(line_, "an escape in a string has too few hexadecimal digits");
      value = value << 4 | static_cast<uint32_t>(digit);
      advance(1);
    }
    return value;
  }
  void append_code_point(uint32_t code_point, std::string& text) const {
    if (code_point > 0x10ffff || (code_point >= 0xd800 && code_point < 0xe000)) {
      fail_at(line_, "an escape in a string is no character");
    }
    if (code_point < 0x80) {
      text += static_cast<char>(code_point);
      return;
    }
    const int continuation = code_point < 0x800 ? 1 : code_point < 0x10000 ? 2 : 3;
    constexpr std::array<uint8_t, 4> kLead = {0, 0xc0, 0xe0, 0xf0};
    text += static_cast<char>(kLead[static_cast<size_t>(continuation)] | code_point >> (6 * continuation));
    for (int i = continuation - 1; i >= 0; --i) text += static_cast<char>(0x80 | (code_point >> (6 * i) & 0x3f));
  }

  void read_number() {
    size_t end = at_;
    bool is_float = false;
    while (end < source_.size() && (is_digit(source_[end]) || source_[end] == '_')) ++end;
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      is_float = true;
      ++end;
      while (end < source_.size() && is_digit(source_[end])) ++end;
    }
    std::string text = source_.substr(at_, end - at_);
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    add(is_float ? TokenKind::kFloat : TokenKind::kInteger, std::move(text));
    advance(end - at_);
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // nothing of the template stands on this line before at_
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace carat::text::jinja
