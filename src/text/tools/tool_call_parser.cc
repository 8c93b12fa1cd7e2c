#include "text/tools/tool_call_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "text/value_json.h"

namespace carat::text {

namespace {

constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxNameBytes = 256;
constexpr size_t kMaxNumberBytes = 1024;  // longer ones are only numbers where no doubt is possible

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_quote(char c) { return c == kStringDelimiter || c == '"' || c == '\''; }
bool is_closer(char c) { return c == '}' || c == ']' || c == ')'; }
bool is_name_char(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' || c == '.' ||
         c == '/' || c == ':';
}
bool is_key_char(char c) {
  return (c != ':' && is_name_char(c)) || (static_cast<unsigned char>(c) >= 0x80 && c != kStringDelimiter);
}

std::string_view trim_ascii(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(text, false, out);
  return out;
}

// Whether `text` is a number as JSON has them.
bool is_json_number(std::string_view text) {
  size_t at = 0;
  const auto digits = [&] {
    const size_t begin = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    return at - begin;
  };
  if (at < text.size() && text[at] == '-') ++at;
  const bool leading_zero = at < text.size() && text[at] == '0';
  const size_t whole = digits();
  if (whole == 0 || (leading_zero && whole > 1)) return false;
  if (at < text.size() && text[at] == '.') {
    ++at;
    if (digits() == 0) return false;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (digits() == 0) return false;
  }
  return at == text.size();
}

// Larger than any double: a number by its form only, for which readers of JSON refuse the whole text.
bool is_too_large(std::string_view number) {
  double value = 0.0;
  const auto parsed = std::from_chars(number.data(), number.data() + number.size(), value);
  return parsed.ec == std::errc::result_out_of_range && number.find("e-") == number.npos &&
         number.find("E-") == number.npos;
}

// The JSON of a word without quotes, when it is no string.
std::optional<std::string> literal_of(std::string_view word) {
  if (is_json_number(word) && !is_too_large(word)) return std::string(word);
  if (word == "true" || word == "True") return "true";
  if (word == "false" || word == "False") return "false";
  if (word == "null" || word == "None") return "null";
  return std::nullopt;
}

// An object under construction; of two entries with one key the later counts.
class ObjectWriter {
 public:
  void add(const std::string& key, std::string json) {
    const auto [place, is_new] = places_.emplace(key, entries_.size());
    if (is_new) {
      entries_.emplace_back(key, std::move(json));
    } else {
      entries_[place->second].second = std::move(json);
    }
  }
  std::string take() const {
    std::string out = "{";
    for (const auto& [key, json] : entries_) {
      if (out.size() > 1) out += ',';
      append_json_string(key, false, out);
      out += ':';
      out += json;
    }
    return out + "}";
  }
  const std::string* find(std::string_view key) const {
    const auto place = places_.find(std::string(key));
    return place == places_.end() ? nullptr : &entries_[place->second].second;
  }

 private:
  std::vector<std::pair<std::string, std::string>> entries_;
  std::unordered_map<std::string, size_t> places_;
};

class CallReader {
 public:
  explicit CallReader(std::string_view text) : text_(text) {}

  ParsedCalls read() {
    ParsedCalls result;
    do {
      ParsedCall call;
      if (!read_call(call, result.calls.empty())) break;
      result.calls.push_back(std::move(call));
      skip_leftovers();
    } while (problem_.empty() && !at_end());
    if (!problem_.empty()) result = {{}, std::move(problem_)};
    return result;
  }

 private:
  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  void skip_space() {
    while (!at_end() && is_space(text_[at_])) ++at_;
  }
  bool take(char c) { return !at_end() && text_[at_] == c && ++at_; }
  bool fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
    return false;
  }

  // Brackets, quotes and commas too many after a call.
  void skip_leftovers() {
    while (!at_end() && (is_space(peek()) || is_quote(peek()) || is_closer(peek()) || peek() == ',')) ++at_;
  }

  // "call:" in front of a name.
  bool take_keyword() {
    if (text_.substr(at_, 4) != "call") return false;
    const size_t before = at_;
    at_ += 4;
    skip_space();
    if (take(':') || take('=')) return true;
    at_ = before;
    return false;
  }

  bool read_call(ParsedCall& call, bool is_first) {
    skip_space();
    if (peek() == '{' && is_first) return read_json_call(call);
    const bool has_keyword = take_keyword();
    if (!has_keyword && !is_first) return fail("something other than a call after a call");
    skip_space();
    while (!at_end() && is_quote(peek())) ++at_;
    const size_t begin = at_;
    while (!at_end() && is_name_char(peek())) ++at_;
    call.name = std::string(text_.substr(begin, at_ - begin));
    if (call.name.empty()) return fail("no name where call:NAME{...} should be");
    if (call.name.size() > kMaxNameBytes) return fail("the name of the tool is too long");
    while (!at_end() && (is_quote(peek()) || is_space(peek()))) ++at_;
    if (at_end() && has_keyword) {
      call.arguments = "{}";
      return true;
    }
    if (!take('{') && !take('(')) return fail("no { after the name of the tool");
    ObjectWriter arguments;
    if (!read_entries(arguments, 1)) return false;
    call.arguments = arguments.take();
    return true;
  }

  // {"name": ..., "arguments": {...}}, as other models write calls.
  bool read_json_call(ParsedCall& call) {
    ObjectWriter object;
    ++at_;
    if (!read_entries(object, 1)) return false;
    const std::string* name = object.find("name");
    const std::string* arguments = object.find("arguments");
    if (arguments == nullptr) arguments = object.find("parameters");
    if (name == nullptr || name->size() < 3 || name->front() != '"') return fail("an object without a name of a tool");
    if (arguments != nullptr && arguments->front() != '{') return fail("arguments that are no object");
    call.name = parse_json(*name, false, "name").text();
    call.arguments = arguments == nullptr ? "{}" : *arguments;
    return true;
  }

  // key:value, ... and the closing bracket, which may be missing at the end.
  bool read_entries(ObjectWriter& object, size_t depth) {
    if (depth > kMaxDepth) return fail("the arguments nest too deeply");
    for (;;) {
      while (!at_end() && (is_space(peek()) || peek() == ',')) ++at_;
      if (at_end() || take('}') || take(')')) return true;
      if (peek() == ']') return fail("a ] that closes nothing");
      std::string key;
      if (!read_key(key)) return false;
      std::string json;
      if (!read_value(json, depth, true)) return false;
      object.add(key, std::move(json));
    }
  }

  bool read_key(std::string& key) {
    const char quote = is_quote(peek()) ? peek() : '\0';
    if (quote != '\0') ++at_;
    const size_t begin = at_;
    const auto ends = [&](char c) {
      return quote != '\0' ? c == quote : c == ':' || c == '=' || c == '}' || c == kStringDelimiter;
    };
    while (!at_end() && !ends(peek())) ++at_;
    key = std::string(trim_ascii(text_.substr(begin, at_ - begin)));
    while (!at_end() && (is_quote(peek()) || is_space(peek()))) ++at_;
    if (!take(':') && !take('=')) return fail(fmt::format("no value for the argument \"{}\"", printable(key)));
    if (key.empty()) return fail("an argument without a name");
    return true;
  }
  static std::string printable(std::string_view text) {
    std::string out(text.substr(0, 80));
    std::replace(out.begin(), out.end(), kStringDelimiter, '"');
    return out;
  }

  bool read_value(std::string& json, size_t depth, bool in_object) {
    skip_space();
    if (peek() == kStringDelimiter) {
      json = json_string(read_delimited(depth, in_object));
    } else if (take('{')) {
      ObjectWriter object;
      if (!read_entries(object, depth + 1)) return false;
      json = object.take();
    } else if (take('[')) {
      return read_array(json, depth + 1);
    } else if (peek() == '"' || peek() == '\'') {
      json = json_string(read_quoted(depth, in_object));
    } else {
      read_bare(json, depth, in_object);
    }
    // Doubled or stray delimiters after the value.
    while (!at_end() && peek() == kStringDelimiter && value_may_end(at_ + 1, in_object)) ++at_;
    return true;
  }

  bool read_array(std::string& json, size_t depth) {
    if (depth > kMaxDepth) return fail("the arguments nest too deeply");
    json = "[";
    for (;;) {
      while (!at_end() && (is_space(peek()) || peek() == ',')) ++at_;
      if (at_end() || take(']')) break;
      if (peek() == '}' || peek() == ')') break;  // the ] is missing
      std::string item;
      if (!read_value(item, depth, false)) return false;
      if (json.size() > 1) json += ',';
      json += item;
    }
    json += ']';
    return true;
  }

  // Whether a value can end just before `at`: at the end, at a comma or bracket, or where the next key stands.
  bool value_may_end(size_t at, bool in_object) const {
    while (at < text_.size() && is_space(text_[at])) ++at;
    if (at >= text_.size() || text_[at] == ',' || is_closer(text_[at])) return true;
    return in_object && key_at(at);
  }
  // Whether `key:` stands at `at`.
  bool key_at(size_t at) const {
    const bool quoted = at < text_.size() && is_quote(text_[at]);
    if (quoted) ++at;
    const size_t begin = at;
    while (at < text_.size() && at - begin < kMaxNameBytes && is_key_char(text_[at])) ++at;
    if (at == begin) return false;
    if (quoted && at < text_.size() && is_quote(text_[at])) ++at;
    while (at < text_.size() && at - begin < 2 * kMaxNameBytes && is_space(text_[at])) ++at;
    return at < text_.size() && (text_[at] == ':' || text_[at] == '=');
  }

  // A string that begins with <|"|>.
  std::string read_delimited(size_t depth, bool in_object) {
    const size_t open = at_++;
    // Doubled: an empty string would be followed by a delimiter of values.
    if (peek() == kStringDelimiter && !value_may_end(at_ + 1, in_object)) ++at_;
    const size_t begin = at_;
    size_t quote = text_.find(kStringDelimiter, begin);
    while (quote != std::string_view::npos && !value_may_end(quote + 1, in_object)) {
      if (const auto comma = missing_close(begin, quote)) {
        at_ = *comma;
        return std::string(text_.substr(begin, *comma - begin));
      }
      quote = text_.find(kStringDelimiter, quote + 1);
    }
    if (quote == std::string_view::npos) return rest_without_closers(open + 1, depth);
    at_ = quote + 1;
    return without_delimiters(text_.substr(begin, quote - begin));
  }

  // Of `Paris,unit:` before the next delimiter: the place of the comma, where the string should have ended.
  std::optional<size_t> missing_close(size_t begin, size_t quote) const {
    size_t end = quote;
    while (end > begin && is_space(text_[end - 1])) --end;
    if (end == begin || (text_[end - 1] != ':' && text_[end - 1] != '=')) return std::nullopt;
    --end;
    while (end > begin && is_space(text_[end - 1])) --end;
    const size_t key_end = end;
    while (end > begin && is_key_char(text_[end - 1])) --end;
    if (end == key_end) return std::nullopt;
    while (end > begin && is_space(text_[end - 1])) --end;
    if (end == begin || text_[end - 1] != ',') return std::nullopt;
    return end - 1;
  }

  static std::string without_delimiters(std::string_view text) {
    std::string out(text);
    std::erase(out, kStringDelimiter);
    return out;
  }

  // Everything up to the end, except the brackets that close what is open.
  std::string rest_without_closers(size_t begin, size_t depth) {
    std::string_view rest = text_.substr(begin);
    at_ = text_.size();
    rest = trim_ascii(rest);
    for (; depth > 0 && !rest.empty() && is_closer(rest.back()); --depth)
      rest = trim_ascii(rest.substr(0, rest.size() - 1));
    if (!rest.empty() && is_quote(rest.back())) rest.remove_suffix(1);
    return without_delimiters(rest);
  }

  // A string in ordinary quotes, with the escapes of JSON. <|"|> may close it too.
  std::string read_quoted(size_t depth, bool in_object) {
    const char quote = text_[at_];
    const size_t open = at_;
    std::string out;
    for (size_t i = open + 1; i < text_.size(); ++i) {
      const char c = text_[i];
      if ((c == quote || c == kStringDelimiter) && value_may_end(i + 1, in_object)) {
        at_ = i + 1;
        return out;
      }
      if (c == '\\' && i + 1 < text_.size()) {
        i = append_unescaped(i + 1, out);
      } else if (c != kStringDelimiter) {
        out += c;
      }
    }
    return rest_without_closers(open + 1, depth);
  }

  // The character escaped at `at`; returns its last place.
  size_t append_unescaped(size_t at, std::string& out) const {
    constexpr std::string_view kLetters = "bfnrt";
    constexpr std::string_view kMeanings = "\b\f\n\r\t";
    const size_t known = kLetters.find(text_[at]);
    if (known != std::string_view::npos) {
      out += kMeanings[known];
      return at;
    }
    if (text_[at] == 'u') {
      // Two \uXXXX in a row may be one character.
      const size_t begin = at - 1;
      size_t end = begin;
      while (end - begin < 12 && text_.substr(end, 2) == "\\u" && text_.size() - end >= 6) end += 6;
      for (; end > begin; end -= 6) {
        const std::string json = "\"" + std::string(text_.substr(begin, end - begin)) + "\"";
        if (const auto decoded = decoded_json(json)) {
          out += *decoded;
          return end - 1;
        }
      }
    }
    if (!is_quote(text_[at]) && text_[at] != '\\' && text_[at] != '/') out += '\\';  // no escape: a Windows path, say
    if (text_[at] != kStringDelimiter) out += text_[at];
    return at;
  }
  static std::optional<std::string> decoded_json(const std::string& json);

  // A value without quotes: a number, a word, or a string whose delimiters are missing.
  void read_bare(std::string& json, size_t depth, bool in_object) {
    const size_t begin = at_;
    size_t open = 0;  // brackets of its own
    for (; !at_end(); ++at_) {
      const char c = peek();
      if ((c == '}' || c == ']') && open > 0) {
        --open;
      } else if (bare_ends(begin, in_object)) {
        break;
      }
      if (c == '{' || c == '[') ++open;
    }
    const std::string_view word = trim_ascii(text_.substr(begin, at_ - begin));
    if (const auto literal = literal_of(word)) {
      json = *literal;
      return;
    }
    // The last argument may contain brackets of its own, and then reaches to the last bracket of all.
    if (depth == 1 && in_object && peek() == '}' && !only_leftovers(at_)) {
      json = json_string(rest_without_closers(begin, depth));
      return;
    }
    json = json_string(without_delimiters(word));
  }
  bool bare_ends(size_t begin, bool in_object) {
    const char c = text_[at_];
    if (is_closer(c) && c != ')') return true;
    if (c == ')') return value_may_end(at_ + 1, false) && only_leftovers(at_);
    if (c != ',') return false;
    if (!in_object) return true;
    const std::string_view word = trim_ascii(text_.substr(begin, std::min(at_ - begin, kMaxNumberBytes)));
    if (at_ - begin <= kMaxNumberBytes && literal_of(word)) return true;
    size_t next = at_ + 1;
    while (next < text_.size() && is_space(text_[next])) ++next;
    return next >= text_.size() || is_closer(text_[next]) || key_at(next);
  }
  // Whether nothing but brackets and quotes follows, or another call.
  bool only_leftovers(size_t at) {
    // Asked for at growing places; the last answer spares going through the same brackets again.
    if (at < leftovers_begin_ || at > leftovers_end_) {
      leftovers_begin_ = leftovers_end_ = at;
      const auto is_leftover = [](char c) { return is_space(c) || is_quote(c) || is_closer(c) || c == ','; };
      while (leftovers_end_ < text_.size() && is_leftover(text_[leftovers_end_])) ++leftovers_end_;
    }
    return leftovers_end_ == text_.size() || text_.substr(leftovers_end_, 5) == "call:";
  }

  std::string_view text_;
  size_t at_ = 0;
  size_t leftovers_begin_ = 1, leftovers_end_ = 0;  // no answer yet
  std::string problem_;
};

std::optional<std::string> CallReader::decoded_json(const std::string& json) {
  try {
    return parse_json(json, false, "string").text();
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace

bool is_call_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && std::all_of(name.begin(), name.end(), is_name_char);
}

ParsedCalls parse_tool_calls(std::string_view text) { return CallReader(text).read(); }

}  // namespace carat::text
