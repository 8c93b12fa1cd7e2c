#include "hub/remote/blob_download.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "gguf/printable.h"
#include "hub/remote/sha256.h"

namespace carat::hub {

namespace fs = std::filesystem;

namespace {

constexpr size_t kReadBytes = size_t{1} << 20;

// The file a download grows in. Errors name the path.
class GrowingFile {
 public:
  explicit GrowingFile(fs::path path) : path_(std::move(path)) {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (descriptor_ < 0) fail_with_errno("cannot open");
  }
  ~GrowingFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;

  uint64_t size() const {
    struct stat info {};
    if (::fstat(descriptor_, &info) != 0) fail_with_errno("cannot read the size of");
    return static_cast<uint64_t>(info.st_size);
  }

  size_t read_at(uint64_t offset, std::span<char> buffer) const {
    const ssize_t count = ::pread(descriptor_, buffer.data(), buffer.size(), static_cast<off_t>(offset));
    if (count < 0) fail_with_errno("cannot read");
    return static_cast<size_t>(count);
  }

  void write_at(uint64_t offset, std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail_with_errno("cannot write");
      bytes.remove_prefix(static_cast<size_t>(count));
      offset += static_cast<uint64_t>(count);
    }
  }

  void truncate() const {
    if (::ftruncate(descriptor_, 0) != 0) fail_with_errno("cannot empty");
  }

  // The bytes are on the disk before the name says so.
  void finish_as(const fs::path& final_path) {
    if (::fsync(descriptor_) != 0) fail_with_errno("cannot write");
    ::close(std::exchange(descriptor_, -1));
    if (::rename(path_.c_str(), final_path.c_str()) != 0) fail_with_errno("cannot rename");
  }

  void remove() const { ::unlink(path_.c_str()); }
  const fs::path& path() const { return path_; }

 private:
  [[noreturn]] void fail_with_errno(std::string_view action) const {
    const int code = errno;
    const bool full = code == ENOSPC || code == EDQUOT;
    fail(ErrorCode::kIo, "{} {}: {}{}", action, path_.string(), std::strerror(code),
         full ? "; make room and run the same command again, it goes on where it stopped" : "");
  }

  fs::path path_;
  int descriptor_ = -1;
};

// "bytes FIRST-LAST/TOTAL"; nullopt when it is not of this form.
struct ContentRange {
  uint64_t first = 0;
  uint64_t total = 0;
};
std::optional<ContentRange> parse_content_range(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  if (!text.starts_with(kUnit)) return std::nullopt;
  text.remove_prefix(kUnit.size());
  ContentRange range;
  const auto first = std::from_chars(text.data(), text.data() + text.size(), range.first);
  const size_t slash = text.find('/');
  if (first.ec != std::errc() || slash == std::string_view::npos) return std::nullopt;
  const std::string_view total = text.substr(slash + 1);
  const auto last = std::from_chars(total.data(), total.data() + total.size(), range.total);
  if (last.ec != std::errc() || last.ptr != total.data() + total.size()) return std::nullopt;
  return range;
}

class BlobDownload {
 public:
  BlobDownload(HubClient& client, const RepoReference& reference, const std::string& commit, const RepoFile& file,
               const fs::path& blob, const OnDownload& on_download)
      : client_(client),
        reference_(reference),
        file_(file),
        blob_(blob),
        on_download_(on_download),
        url_(client.address(fmt::format("/{}/resolve/{}/{}", percent_encode(reference.id(), "/"), commit,
                                        percent_encode(file.path, "/")))),
        growing_(fs::path(blob).concat(".incomplete")),
        backoff_(client.make_backoff()) {}

  void run() {
    take_up();
    const bool continued = offset_ > 0;
    fetch_all();
    std::string digest = hash_.hex_digest();
    if (digest != file_.sha256 && continued) {
      warn(fmt::format("what was there of {} does not fit the rest; it is downloaded from the start", file_.path));
      start_over();
      furthest_ = 0;
      fetch_all();
      digest = hash_.hex_digest();
    }
    if (digest != file_.sha256) {
      growing_.remove();
      fail(ErrorCode::kBadFile,
           "what {} sent for {} has the SHA-256 {}, but the repository says {}; the bytes were removed, try again",
           url_.origin(), file_.path, digest, file_.sha256);
    }
    growing_.finish_as(blob_);
  }

 private:
  void take_up();
  void fetch_all();
  void try_once();
  void check_head(const HttpResponse& response);
  void take(std::string_view piece);
  void start_over();
  void warn(const std::string& message) const {
    if (client_.options().log) client_.options().log->warn(message);
  }

  HubClient& client_;
  const RepoReference& reference_;
  const RepoFile& file_;
  const fs::path& blob_;
  const OnDownload& on_download_;
  const Url url_;
  GrowingFile growing_;
  Backoff backoff_;
  Sha256 hash_;
  uint64_t offset_ = 0;    // bytes that are in the file and in the hash
  uint64_t furthest_ = 0;  // the largest offset ever reached: only beyond it is progress
  std::string etag_;       // of the last answer
};

// Counts what an earlier try left, and hashes it.
void BlobDownload::take_up() {
  const uint64_t there = growing_.size();
  if (there > file_.bytes) {
    warn(fmt::format("{} is longer than {} should be; it is downloaded from the start", growing_.path().string(),
                     file_.path));
    return start_over();
  }
  std::vector<char> buffer(there == 0 ? 0 : kReadBytes);
  while (offset_ < there) {
    check_cancelled(client_.options().cancelled);
    const size_t count = growing_.read_at(offset_, buffer);
    if (count == 0) break;  // became shorter meanwhile
    hash_.add({buffer.data(), count});
    offset_ += count;
    on_download_({DownloadProgress::Stage::kChecking, file_.path, offset_, there});
  }
  furthest_ = offset_;
}

void BlobDownload::fetch_all() {
  while (offset_ < file_.bytes) try_once();
}

void BlobDownload::try_once() {
  std::vector<std::string> headers;
  if (offset_ > 0) {
    headers.push_back(fmt::format("Range: bytes={}-", offset_));
    // Only within one run: the next one may be sent to another mirror, whose tag for the same bytes is another. That
    // they are the same bytes is what the checksum at the end is for.
    if (!etag_.empty()) headers.push_back("If-Range: " + etag_);
  }
  const uint64_t furthest_before = furthest_;
  bool head_checked = false;
  const HttpResult result = client_.get(url_, headers, [&](const HttpResponse& response, std::string_view piece) {
    if (!std::exchange(head_checked, true)) check_head(response);
    take(piece);
  });
  if (furthest_ > furthest_before) backoff_.reset();
  if (offset_ == file_.bytes) return;
  if (result.end == TransferEnd::kComplete && result.response.status == 416) {
    fail(ErrorCode::kBadFile, "{} has no more than {} bytes of {}, but its listing says {}", url_.origin(), offset_,
         file_.path, file_.bytes);
  }
  if (result.end == TransferEnd::kComplete && is_success(result.response.status)) {
    if (!head_checked) check_head(result.response);  // an empty body
    return backoff_.wait(
        fmt::format("{} ended {} after {} of {} bytes", url_.origin(), file_.path, offset_, file_.bytes),
        result.response);
  }
  if (!client_.worth_another_try(result)) {
    client_.fail_for_good(result, url_, reference_, fmt::format("file {} in {}", file_.path, reference_.id()));
  }
  backoff_.wait(client_.describe_failure(result, url_), result.response);
}

// Decides where the body belongs, before any of it is written.
void BlobDownload::check_head(const HttpResponse& response) {
  etag_ = response.header("etag").value_or("");
  if (!etag_.starts_with('"')) etag_.clear();  // weak ones do not promise equal bytes
  if (response.status == 206) {
    const std::string text = response.header("content-range").value_or("");
    const auto range = parse_content_range(text);
    if (!range || range->first != offset_ || range->total != file_.bytes) {
      fail(ErrorCode::kBadFile, "{} was asked for {} from byte {} of {}, but sends {}", url_.origin(), file_.path,
           offset_, file_.bytes, gguf::printable(text));
    }
    return;
  }
  const std::string length = response.header("content-length").value_or("");
  if (!length.empty() && length != std::to_string(file_.bytes)) {
    fail(ErrorCode::kBadFile, "{} sends {} bytes for {}, but its listing says {}", url_.origin(),
         gguf::printable(length), file_.path, file_.bytes);
  }
  if (offset_ > 0) {
    warn(fmt::format("{} sends {} from the start again", url_.origin(), file_.path));
    start_over();
  }
}

void BlobDownload::take(std::string_view piece) {
  check_cancelled(client_.options().cancelled);
  if (piece.size() > file_.bytes - offset_) {
    fail(ErrorCode::kBadFile, "{} sends more than the {} bytes its listing says for {}", url_.origin(), file_.bytes,
         file_.path);
  }
  growing_.write_at(offset_, piece);
  hash_.add(piece);
  offset_ += piece.size();
  furthest_ = std::max(furthest_, offset_);
  on_download_({DownloadProgress::Stage::kDownloading, file_.path, offset_, file_.bytes});
}

void BlobDownload::start_over() {
  growing_.truncate();
  hash_ = Sha256();
  offset_ = 0;
}

}  // namespace

void download_blob(HubClient& client, const RepoReference& reference, const std::string& commit, const RepoFile& file,
                   const fs::path& blob, const OnDownload& on_download) {
  BlobDownload(client, reference, commit, file, blob, on_download).run();
}

}  // namespace carat::hub
