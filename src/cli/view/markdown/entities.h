#pragma once

#include <string>
#include <string_view>

namespace carat::cli {

// The text of an HTML entity such as `&amp;`, `&#955;` or `&#x3bb;`, safe for a terminal; one that is not known stays
// as it is written.
std::string decode_entity(std::string_view entity);

}  // namespace carat::cli
