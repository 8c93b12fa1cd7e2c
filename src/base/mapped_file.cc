#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace carat {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail(ErrorCode::kIo, "cannot open {}: {}", path, std::strerror(errno));
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0) {
    const int saved = errno;
    release();
    fail(ErrorCode::kIo, "cannot read the size of {}: {}", path, std::strerror(saved));
  }
  if (!S_ISREG(info.st_mode)) {
    release();
    fail(ErrorCode::kIo, "{} is {}, not a regular file", path,
         S_ISDIR(info.st_mode) ? "a directory" : "a device or pipe");
  }
  size_ = static_cast<size_t>(info.st_size);
  if (size_ == 0) {
    release();
    fail(ErrorCode::kBadFile, "{} is empty", path);
  }
  void* mapping = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor_, 0);
  if (mapping == MAP_FAILED) {
    const int saved = errno;
    const size_t size = std::exchange(size_, 0);
    release();
    fail(ErrorCode::kIo, "cannot map {} ({} bytes): {}", path, size, std::strerror(saved));
  }
  data_ = static_cast<const std::byte*>(mapping);
}

MappedFile::~MappedFile() { release(); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    release();
    path_ = std::move(other.path_);
    descriptor_ = std::exchange(other.descriptor_, -1);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void MappedFile::read(size_t offset, std::span<std::byte> to) const {
  CARAT_CHECK(offset <= size_ && to.size() <= size_ - offset);
  for (size_t done = 0; done < to.size();) {
    const ssize_t count = ::pread(descriptor_, to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      fail(ErrorCode::kIo, "cannot read {} at byte {}: {}", path_, offset + done, std::strerror(errno));
    }
    if (count == 0) fail_shorter();
    done += static_cast<size_t>(count);
  }
}

void MappedFile::check_unchanged() const {
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0 || static_cast<size_t>(info.st_size) < size_) fail_shorter();
}

void MappedFile::fail_shorter() const {
  fail(ErrorCode::kIo, "{} became shorter while it was in use; restore the file and start again", path_);
}

void MappedFile::release() noexcept {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  if (descriptor_ >= 0) ::close(descriptor_);
  data_ = nullptr;
  descriptor_ = -1;
}

namespace {
void on_bus_error(int) {
  // Only async-signal-safe calls here.
  constexpr char kMessage[] = "carat: error: a mapped model file was truncated or became unreadable while in use\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  ::_exit(2);
}
}  // namespace

void install_truncation_handler() {
  struct sigaction action {};
  action.sa_handler = on_bus_error;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace carat
