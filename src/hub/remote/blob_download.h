#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "hub/remote/hub_client.h"
#include "hub/remote/repo_listing.h"

namespace carat::hub {

// What a download is doing, for whoever shows it.
struct DownloadProgress {
  enum class Stage { kChecking, kDownloading };  // kChecking: reading what an earlier try left

  Stage stage = Stage::kDownloading;
  std::string_view path;  // of the file in the repository
  uint64_t done = 0;
  uint64_t total = 0;
};
using OnDownload = std::function<void(const DownloadProgress&)>;

// Downloads one file of a repository to `blob`, over `blob`.incomplete, which is continued when it is there and stays
// when the download does not come to its end. Size and SHA-256 are those of `file`, or nothing appears at `blob`: bytes
// that fail the checksum are removed, after a second try from the start where some of them came from an earlier run.
// Throws kBadFile for a wrong size or checksum, kIo for trouble with the network or the disk, kInterrupted.
void download_blob(HubClient& client, const RepoReference& reference, const std::string& commit, const RepoFile& file,
                   const std::filesystem::path& blob, const OnDownload& on_download);

}  // namespace carat::hub
