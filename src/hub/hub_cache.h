#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/environment.h"
#include "hub/model_files.h"
#include "hub/remote/repo_reference.h"

// The cache folders all tools of Hugging Face share, and llama.cpp with them:
//   ROOT/models--owner--repo/refs/main                      the commit "main" was when it was last looked at
//   ROOT/models--owner--repo/snapshots/COMMIT/FILE          a link to ../../blobs/SHA256, or the file itself
//   ROOT/models--owner--repo/blobs/SHA256[.incomplete]
//   ROOT/.locks/models--owner--repo/SHA256.lock
// Reading never touches the network and never changes anything.
namespace carat::hub {

// Every place a cache may be, in the order it is looked for; the first is where downloads go. Empty when the
// environment does not even name a home folder.
std::vector<std::filesystem::path> cache_folders(const Environment& environment);

// "models--owner--repo"
std::string repo_folder_name(const RepoReference& reference);

// The repositories in a cache, sorted by name; empty when there is no such folder.
std::vector<RepoReference> cached_repos(const std::filesystem::path& cache);

// A model in some snapshot of a repository.
struct CachedModel {
  ModelFiles files;
  std::filesystem::path snapshot;

  // The file to open: the first part.
  std::string path() const { return (snapshot / files.parts.front()).string(); }
};

// The models of all snapshots of a repository. Of models with the same name the one in the snapshot refs/main points at
// counts, then the one in the newest snapshot; one that is complete before one that is not.
std::vector<CachedModel> cached_models(const std::filesystem::path& repo_folder);

// All GGUF files below a folder; also links to nothing, as not readable. Never throws: what cannot be read is not
// there.
std::vector<ListedFile> list_gguf_files(const std::filesystem::path& folder);

// Whether a text is a commit (40 or 64 lower-case hexadecimal digits) or a SHA-256.
bool is_commit(std::string_view text);
bool is_sha256(std::string_view text);

}  // namespace carat::hub
