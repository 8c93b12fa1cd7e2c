#pragma once

#include <filesystem>
#include <string>

#include "support/files.h"

namespace carat::test {

// A cache folder as Hugging Face's tools leave it, one file at a time.
class MadeUpCache {
 public:
  explicit MadeUpCache(std::filesystem::path root) : root_(std::move(root)) {}

  std::filesystem::path repo(const std::string& owner, const std::string& name) const {
    return root_ / ("models--" + owner + "--" + name);
  }
  const std::filesystem::path& root() const { return root_; }

  // A blob and a link to it. Returns the link.
  std::string add(const std::filesystem::path& repo, const std::string& commit, const std::string& path,
                  const std::string& content = "content") {
    const std::string blob = "blob-of-" + std::to_string(std::hash<std::string>{}(commit + path));
    std::filesystem::create_directories(repo / "blobs");
    write_text((repo / "blobs" / blob).string(), content);
    return link(repo, commit, path, blob);
  }

  // A link alone, which may lead nowhere.
  std::string link(const std::filesystem::path& repo, const std::string& commit, const std::string& path,
                   const std::string& blob) {
    const std::filesystem::path pointer = repo / "snapshots" / commit / path;
    std::filesystem::create_directories(pointer.parent_path());
    std::filesystem::create_symlink((repo / "blobs" / blob).lexically_relative(pointer.parent_path()), pointer);
    return pointer.string();
  }

  void set_main(const std::filesystem::path& repo, const std::string& commit) {
    std::filesystem::create_directories(repo / "refs");
    write_text((repo / "refs" / "main").string(), commit);
  }

 private:
  std::filesystem::path root_;
};

}  // namespace carat::test
