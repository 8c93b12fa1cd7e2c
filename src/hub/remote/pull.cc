#include "hub/remote/pull.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "base/byte_size.h"
#include "base/error.h"
#include "hub/hub_cache.h"
#include "hub/model_files.h"

namespace carat::hub {

namespace fs = std::filesystem;

namespace {

void create_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(ErrorCode::kIo, "cannot create {}: {}", folder.string(), error.message());
}

// Held while a file is downloaded; the kernel lets go of it however the process ends. The file stays, as other tools
// leave it too: removing it would let two processes hold "the" lock.
class FileLock {
 public:
  FileLock(const fs::path& path, const std::string& what) {
    create_folders(path.parent_path());
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (descriptor_ < 0) fail(ErrorCode::kIo, "cannot open {}: {}", path.string(), std::strerror(errno));
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      const int code = errno;
      ::close(descriptor_);
      if (code != EWOULDBLOCK) fail(ErrorCode::kIo, "cannot lock {}: {}", path.string(), std::strerror(code));
      fail(ErrorCode::kIo, "another process is downloading {} (it holds {}); wait until it is done", what,
           path.string());
    }
  }
  ~FileLock() { ::close(descriptor_); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int descriptor_ = -1;
};

// What of the file is in the cache. A file in the way that cannot be this one is an error, because it is not ours to
// replace.
void look_up(const PullPlan& plan, PlannedFile& planned) {
  const fs::path pointer = plan.snapshot() / planned.file.path;
  const fs::path blob = plan.blob(planned);
  std::error_code error;
  if (fs::is_regular_file(pointer, error)) {
    const uint64_t bytes = fs::file_size(pointer, error);
    if (bytes != planned.file.bytes) {
      fail(ErrorCode::kBadFile, "{} has {} bytes, but should have {}; remove it and pull again", pointer.string(),
           bytes, planned.file.bytes);
    }
    planned.in_place = true;
    return;
  }
  if (fs::is_regular_file(blob, error)) {
    const uint64_t bytes = fs::file_size(blob, error);
    if (bytes != planned.file.bytes) {
      fail(ErrorCode::kBadFile, "{} has {} bytes, but should have {}; remove it and pull again", blob.string(), bytes,
           planned.file.bytes);
    }
    planned.downloaded = true;
    return;
  }
  const fs::path incomplete = fs::path(blob).concat(".incomplete");
  if (!fs::is_regular_file(incomplete, error)) return;
  const uint64_t here = fs::file_size(incomplete, error);
  planned.here_bytes = !error && here <= planned.file.bytes ? here : 0;
}

void check_free_space(const PullPlan& plan) {
  std::error_code error;
  const fs::space_info space = fs::space(plan.repo_folder(), error);
  if (error) fail(ErrorCode::kIo, "cannot read the free space at {}: {}", plan.cache.string(), error.message());
  if (space.available < plan.missing_bytes()) {
    fail(ErrorCode::kIo, "{} needs {}, but {} has only {} free; make room, or set HF_HUB_CACHE to a folder elsewhere",
         plan.reference.text(), byte_size(plan.missing_bytes()), plan.cache.string(), byte_size(space.available));
  }
}

// snapshots/COMMIT/a/b.gguf -> ../../../blobs/SHA256
void link_blob(const PullPlan& plan, const PlannedFile& planned) {
  const fs::path pointer = plan.snapshot() / planned.file.path;
  create_folders(pointer.parent_path());
  const fs::path target = plan.blob(planned).lexically_relative(pointer.parent_path());
  std::error_code error;
  fs::create_symlink(target, pointer, error);
  if (!error) return;
  // There already, for example as a link that pointed to nothing until now.
  std::error_code ignored;
  if (fs::equivalent(pointer, plan.blob(planned), ignored)) return;
  fail(ErrorCode::kIo, "cannot create the link {}: {}; the file itself is {}", pointer.string(), error.message(),
       plan.blob(planned).string());
}

// refs/REVISION holds the commit the revision stood for; written beside and renamed, so that readers never see half.
void write_reference(const PullPlan& plan) {
  if (is_commit(plan.revision)) return;  // names itself
  const fs::path path = plan.repo_folder() / "refs" / plan.revision;
  create_folders(path.parent_path());
  std::string before;
  std::ifstream(path) >> before;
  if (before == plan.commit) return;
  const fs::path fresh = fs::path(path).concat(fmt::format(".{}.new", ::getpid()));
  std::ofstream stream(fresh, std::ios::trunc);
  stream << plan.commit;
  stream.close();
  std::error_code error;
  if (stream) fs::rename(fresh, path, error);
  if (!stream || error) fail(ErrorCode::kIo, "cannot write {}", path.string());
}

void pull_file(HubClient& client, const PullPlan& plan, const PlannedFile& planned, const OnDownload& on_download) {
  if (planned.in_place) return;
  const FileLock lock(plan.cache / ".locks" / repo_folder_name(plan.reference) / (planned.file.sha256 + ".lock"),
                      planned.file.path);
  PlannedFile now{planned.file};
  look_up(plan, now);  // another process may have finished it since
  if (!now.in_place && !now.downloaded) {
    download_blob(client, plan.reference, plan.commit, planned.file, plan.blob(planned), on_download);
  }
  if (!now.in_place) link_blob(plan, planned);
}

}  // namespace

uint64_t PullPlan::total_bytes() const {
  uint64_t total = 0;
  for (const PlannedFile& planned : files) total += planned.file.bytes;
  return total;
}

uint64_t PullPlan::missing_bytes() const {
  uint64_t missing = 0;
  for (const PlannedFile& planned : files) missing += planned.missing_bytes();
  return missing;
}

fs::path PullPlan::repo_folder() const { return cache / repo_folder_name(reference); }

PullPlan plan_pull(HubClient& client, const RepoReference& reference, const std::string& revision,
                   const fs::path& cache) {
  const RepoListing listing = list_repo(client, reference, revision);
  std::vector<ListedFile> files;
  for (const RepoFile& file : listing.files) files.push_back({file.path, file.bytes});
  const std::vector<ModelFiles> models = group_models(files);
  const auto choice = choose_model(models, reference);
  if (!choice) {
    const std::string there = list_choices(models);
    fail(ErrorCode::kBadArgument, "{} has no model {}; it has {}", reference.id(),
         reference.quant.empty() ? "in a GGUF file" : reference.quant, there.empty() ? "no GGUF files at all" : there);
  }
  const ModelFiles& model = models[choice->index];
  if (!model.complete()) {
    fail(ErrorCode::kBadArgument, "{} is not complete in {}: part {} of {} is missing there", model.name,
         reference.id(), model.missing.front(), model.part_count);
  }
  PullPlan plan{.reference = reference,
                .revision = revision,
                .commit = listing.commit,
                .cache = cache,
                .files = {},
                .note = choice->note};
  for (const std::string& path : model.parts) {
    const auto file = std::find_if(listing.files.begin(), listing.files.end(),
                                   [&](const RepoFile& candidate) { return candidate.path == path; });
    if (file->sha256.empty()) {
      fail(ErrorCode::kUnsupported,
           "{} gives no SHA-256 for {} (it is not stored as a large file), so a download could not be checked",
           client.settings().endpoint.origin(), path);
    }
    PlannedFile planned{*file};
    look_up(plan, planned);
    plan.files.push_back(std::move(planned));
  }
  return plan;
}

void carry_out(HubClient& client, const PullPlan& plan, const OnDownload& on_download) {
  create_folders(plan.repo_folder() / "blobs");
  check_free_space(plan);
  for (const PlannedFile& planned : plan.files) pull_file(client, plan, planned, on_download);
  write_reference(plan);
}

}  // namespace carat::hub
