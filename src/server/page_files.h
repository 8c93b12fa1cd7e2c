#pragma once

#include <span>
#include <string_view>

namespace carat::server {

// A file of the page (src/server/page), which is part of the program.
struct PageFile {
  std::string_view name;     // "main.js"
  std::string_view hash;     // of its content
  std::string_view content;  // without comments and indentation
  std::string_view packed;   // the same, compressed by gzip
};

std::span<const PageFile> page_files();

}  // namespace carat::server
