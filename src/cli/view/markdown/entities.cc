#include "cli/view/markdown/entities.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <system_error>

#include "cli/view/sanitise.h"

namespace carat::cli {

namespace {

struct NamedEntity {
  std::string_view name;
  std::string_view text;
};

// Those that models write; all others are shown as they are.
constexpr std::array<NamedEntity, 44> kNamed = {{
    {"amp", "&"},   {"lt", "<"},     {"gt", ">"},    {"quot", "\""},  {"apos", "'"},   {"nbsp", "\u00a0"},
    {"copy", "©"},  {"reg", "®"},    {"trade", "™"}, {"hellip", "…"}, {"mdash", "—"},  {"ndash", "–"},
    {"lsquo", "‘"}, {"rsquo", "’"},  {"ldquo", "“"}, {"rdquo", "”"},  {"laquo", "«"},  {"raquo", "»"},
    {"bull", "•"},  {"middot", "·"}, {"times", "×"}, {"divide", "÷"}, {"plusmn", "±"}, {"deg", "°"},
    {"micro", "µ"}, {"para", "¶"},   {"sect", "§"},  {"larr", "←"},   {"rarr", "→"},   {"uarr", "↑"},
    {"darr", "↓"},  {"harr", "↔"},   {"le", "≤"},    {"ge", "≥"},     {"ne", "≠"},     {"asymp", "≈"},
    {"infin", "∞"}, {"sum", "∑"},    {"radic", "√"}, {"pi", "π"},     {"euro", "€"},   {"pound", "£"},
    {"yen", "¥"},   {"cent", "¢"},
}};

}  // namespace

std::string decode_entity(std::string_view entity) {
  if (entity.size() < 3) return std::string(entity);
  std::string_view name = entity.substr(1, entity.size() - 2);
  if (!name.starts_with('#')) {
    const auto found =
        std::find_if(kNamed.begin(), kNamed.end(), [&](const NamedEntity& known) { return known.name == name; });
    return std::string(found == kNamed.end() ? entity : found->text);
  }
  name.remove_prefix(1);
  const bool hexadecimal = name.starts_with('x') || name.starts_with('X');
  if (hexadecimal) name.remove_prefix(1);
  uint32_t code_point = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), code_point, hexadecimal ? 16 : 10);
  if (error != std::errc() || end != name.data() + name.size()) return std::string(entity);
  std::string text;
  append_utf8(text, code_point);
  return sanitise(text);  // &#27; is an escape character
}

}  // namespace carat::cli
