#pragma once

#include <string>
#include <string_view>

namespace carat::text {

// Upper and lower case of UTF-8 text: Latin, Greek, Cyrillic and Armenian letters by their one-to-one mappings, and
// sharp s to "SS". Everything else, malformed bytes included, stays as it is. Templates only need it for the names of
// types and for the order of keys, so the rarer scripts and context rules (final sigma) are left out.
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);

}  // namespace carat::text
