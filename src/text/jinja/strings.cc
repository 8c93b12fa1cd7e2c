#include "text/jinja/strings.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/letter_case.h"
#include "text/white_space.h"

namespace carat::text::jinja {

namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 0x80;
}

}  // namespace

MarkedText stripped(const MarkedText& text, Side side, std::string_view characters, const Site& site) {
  site.spend_bytes(text.size());
  const std::string_view all = text.text();
  size_t begin = 0, end = all.size();
  if (characters.empty()) {
    if (side != Side::kEnd) begin = end - trim_start(all).size();
    if (side != Side::kStart) end = begin + trim_end(all.substr(begin)).size();
  } else {
    const auto goes = [&](char c) { return characters.find(c) != std::string_view::npos; };
    while (side != Side::kEnd && begin < end && goes(all[begin])) ++begin;
    while (side != Side::kStart && begin < end && goes(all[end - 1])) --end;
  }
  return text.part(begin, end);
}

MarkedText replaced(const MarkedText& text, std::string_view from, const MarkedText& to, int64_t count,
                    const Site& site) {
  site.spend_bytes(text.size());
  if (from.empty()) site.fail("replace() needs something to replace");
  MarkedText result;
  size_t at = 0;
  for (; count != 0; --count) {
    const size_t found = text.text().find(from, at);
    if (found == std::string::npos) break;
    site.spend_bytes(to.size() + 16);
    result.append(text.part(at, found));
    result.append(to);
    at = found + from.size();
  }
  result.append(text.part(at, text.size()));
  return result;
}

namespace {

std::vector<Value> split_at_space(const MarkedText& text, int64_t limit) {
  std::vector<Value> parts;
  const std::string_view all = text.text();
  for (size_t at = 0;;) {
    at = all.size() - trim_start(all.substr(at)).size();
    if (at == all.size()) return parts;
    size_t end = at;
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      end = all.size();
    } else {
      while (end < all.size() && leading_space(all.substr(end)) == 0) ++end;
    }
    parts.push_back(Value::string(text.part(at, end)));
    at = end;
  }
}

}  // namespace

std::vector<Value> split(const MarkedText& text, std::string_view separator, int64_t limit, const Site& site) {
  site.spend_bytes(text.size());
  site.spend(text.size() / 4 + 1);
  if (separator.empty()) return split_at_space(text, limit);
  std::vector<Value> parts;
  size_t at = 0;
  for (; limit < 0 || static_cast<int64_t>(parts.size()) < limit;) {
    const size_t found = text.text().find(separator, at);
    if (found == std::string::npos) break;
    parts.push_back(Value::string(text.part(at, found)));
    at = found + separator.size();
  }
  parts.push_back(Value::string(text.part(at, text.size())));
  return parts;
}

std::vector<Value> split_lines(const MarkedText& text, const Site& site) {
  std::vector<Value> lines = split(text, "\n", -1, site);
  if (!lines.empty() && lines.back().as_string().empty()) lines.pop_back();
  for (Value& line : lines) {
    const MarkedText& all = line.as_string();
    if (!all.empty() && all.text().back() == '\r') line = Value::string(all.part(0, all.size() - 1));
  }
  return lines;
}

MarkedText capitalised(const MarkedText& text, const Site& site) {
  site.spend_bytes(text.size());
  if (text.empty()) return {};
  const size_t first = std::max<size_t>(1, utf8_sequence_length(text.text()));
  MarkedText result = text.part(0, first).mapped(to_upper);
  result.append(text.part(first, text.size()).mapped(to_lower));
  return result;
}

MarkedText title_case(const MarkedText& text, const Site& site) {
  MarkedText result;
  const std::string& all = text.text();
  for (size_t at = 0; at < all.size();) {
    size_t end = at;
    while (end < all.size() && is_letter(all[end]) == is_letter(all[at])) ++end;
    result.append(capitalised(text.part(at, end), site));
    at = end;
  }
  return result;
}

MarkedText indented(const MarkedText& text, int64_t width, bool first, bool blank, const Site& site) {
  if (width < 0 || width > 1000) site.fail("indent by {}", width);
  const std::string spaces(static_cast<size_t>(width), ' ');
  const std::vector<Value> lines = split(text, "\n", -1, site);
  MarkedText result;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) result.append("\n", false);
    const bool indents = i > 0 ? blank || !lines[i].as_string().empty() : first;
    if (indents) {
      site.spend_bytes(spaces.size());
      result.append(spaces, false);
    }
    result.append(lines[i].as_string());
  }
  return result;
}

MarkedText joined(const std::vector<Value>& items, const MarkedText& separator, const Site& site) {
  MarkedText result;
  for (const Value& item : items) {
    if (&item != items.data()) {
      site.spend_bytes(separator.size());
      result.append(separator);
    }
    result.append(site.printed(item));
  }
  return result;
}

}  // namespace carat::text::jinja
