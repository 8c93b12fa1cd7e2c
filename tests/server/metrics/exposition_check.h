#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace carat::server::test {

// A text in Prometheus's format 0.0.4, read as its specification says.
struct CheckedExposition {
  std::vector<std::string> problems;      // empty: the text is right
  std::map<std::string, double> samples;  // by name and labels as written: 'a_total{b="c"}'
  std::map<std::string, std::string> types;
};

CheckedExposition check_exposition(std::string_view text);

}  // namespace carat::server::test
