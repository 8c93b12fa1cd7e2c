#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "hub/remote/blob_download.h"
#include "hub/remote/hub_client.h"
#include "hub/remote/repo_listing.h"

namespace carat::hub {

// One file of a pull and what of it is here already.
struct PlannedFile {
  RepoFile file;
  bool in_place = false;    // the snapshot has it: nothing to do
  bool downloaded = false;  // the blob is here, for example from another revision: only a link is missing
  uint64_t here_bytes = 0;  // what an earlier try left
  uint64_t missing_bytes() const { return in_place || downloaded ? 0 : file.bytes - here_bytes; }
};

// What a pull is going to do, before it does it.
struct PullPlan {
  RepoReference reference;
  std::string revision;
  std::string commit;
  std::filesystem::path cache;
  std::vector<PlannedFile> files;  // the parts of the model, in order
  std::string note;                // which model was chosen, when none was named

  uint64_t total_bytes() const;
  uint64_t missing_bytes() const;
  std::filesystem::path repo_folder() const;
  std::filesystem::path snapshot() const { return repo_folder() / "snapshots" / commit; }
  std::filesystem::path blob(const PlannedFile& file) const { return repo_folder() / "blobs" / file.file.sha256; }
  // The file to open when the pull is done.
  std::filesystem::path model_path() const { return snapshot() / files.front().file.path; }
};

// Asks the Hub what there is and chooses; changes nothing. Throws kBadArgument when the repository has no such model or
// several, kIo, kInterrupted.
PullPlan plan_pull(HubClient& client, const RepoReference& reference, const std::string& revision,
                   const std::filesystem::path& cache);

// Downloads what is missing into the cache and links it, in the layout of hub_cache.h. No file that exists is moved or
// changed, but for refs/REVISION, which says what the revision was last. Checks the free space first; holds a lock per
// file, the same one Hugging Face's own tools use. Throws as download_blob(), and kIo when another process is
// downloading the same file.
void carry_out(HubClient& client, const PullPlan& plan, const OnDownload& on_download);

}  // namespace carat::hub
