#include "gguf/split_name.h"

#include <fmt/format.h>

#include <charconv>

namespace carat::gguf {

namespace {
std::optional<uint32_t> five_digits(std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}
}  // namespace

std::string SplitName::path_of(uint32_t number) const {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, number, count);
}

std::optional<SplitName> parse_split_name(std::string_view path) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";
  if (path.size() <= kPattern.size()) return std::nullopt;
  const std::string_view tail = path.substr(path.size() - kPattern.size());
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || !tail.ends_with(".gguf")) return std::nullopt;
  const auto part = five_digits(tail.substr(1, 5));
  const auto count = five_digits(tail.substr(10, 5));
  if (!part || !count) return std::nullopt;
  return SplitName{std::string(path.substr(0, path.size() - kPattern.size())), *part, *count};
}

}  // namespace carat::gguf
