#pragma once

#include <string_view>

namespace carat::test {

// A function the demo model calls reliably.
inline constexpr std::string_view kWeatherTool = R"([{"type": "function", "function": {"name": "get_weather",
    "description": "Get the weather for a city", "parameters": {"type": "object",
    "properties": {"city": {"type": "string", "description": "City name"}}, "required": ["city"]}}}])";

}  // namespace carat::test
