#pragma once

#include <string>
#include <string_view>

namespace carat::serve_bench {

struct BaseUrl {
  std::string host, port, prefix;  // "127.0.0.1", "8080", "" or "/path" without a slash at the end
  std::string authority() const;   // for the Host header
};

// Of "http://host:port/path". Throws kBadArgument for what is none, and for https.
BaseUrl parse_base_url(std::string_view text);

}  // namespace carat::serve_bench
