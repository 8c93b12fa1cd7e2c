#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hub/remote/hub_client.h"
#include "hub/remote/repo_reference.h"

namespace carat::hub {

// No file of a model is larger; what a listing claims is bounded before it is added up.
inline constexpr uint64_t kMaxFileBytes = uint64_t{1} << 44;

// A GGUF file of a repository. The path is safe to create below a folder.
struct RepoFile {
  std::string path;
  uint64_t bytes = 0;
  std::string sha256;  // empty when the server gives none
};

struct RepoListing {
  std::string commit;
  std::vector<RepoFile> files;  // only what ends in .gguf
};

// What the repository holds at a revision. Throws kBadArgument when there is no such repository or no access, kIo for
// an answer that makes no sense or is not safe to follow.
RepoListing list_repo(HubClient& client, const RepoReference& reference, const std::string& revision);

// Whether a path from a server may be created below a folder: relative, no "." or "..", no control characters or
// backslashes, well-formed UTF-8, of bearable length.
bool is_safe_path(std::string_view path);

}  // namespace carat::hub
