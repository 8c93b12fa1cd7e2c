#pragma once

#include <string_view>
#include <vector>

#include "text/jinja/site.h"

namespace carat::text::jinja {

// Operations on strings that filters and methods share. All keep the marks of what the template wrote.

enum class Side { kBoth, kStart, kEnd };
// Without white space, or without any of `characters` (ASCII) where some are given, on that side.
MarkedText stripped(const MarkedText& text, Side side, std::string_view characters, const Site& site);
// At most `count` times; a negative count means everywhere.
MarkedText replaced(const MarkedText& text, std::string_view from, const MarkedText& to, int64_t count,
                    const Site& site);
// Between separators, or at white space (without empty parts) when `separator` is empty; at most `limit` cuts from the
// left, or any number when it is negative.
std::vector<Value> split(const MarkedText& text, std::string_view separator, int64_t limit, const Site& site);
std::vector<Value> split_lines(const MarkedText& text, const Site& site);
MarkedText capitalised(const MarkedText& text, const Site& site);
MarkedText title_case(const MarkedText& text, const Site& site);
// Spaces before all lines but the first; before empty lines only when `blank` says so.
MarkedText indented(const MarkedText& text, int64_t width, bool first, bool blank, const Site& site);
MarkedText joined(const std::vector<Value>& items, const MarkedText& separator, const Site& site);

}  // namespace carat::text::jinja
