#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace carat::text::grammar::test {

// Why `value` is not valid under a JSON schema, with its place; empty when it is. Written from the standard's text and
// not from the compiler's; knows the keywords that schemas of tools use, and says so where there is another one.
std::string violation(const nlohmann::ordered_json& schema, const nlohmann::ordered_json& value);

}  // namespace carat::text::grammar::test
