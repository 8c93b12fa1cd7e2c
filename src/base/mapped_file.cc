#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace carat {

namespace {

// Set while this thread copies out of a mapping: where it goes on when a page cannot be had. volatile, because nothing
// but the signal handler reads it.
thread_local sigjmp_buf* volatile way_out_of_copy = nullptr;

void on_bus_error(int) {
  if (way_out_of_copy != nullptr) siglongjmp(*way_out_of_copy, 1);
  // Only async-signal-safe calls here.
  constexpr char kMessage[] = "carat: error: a mapped model file was truncated or became unreadable while in use\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  ::_exit(2);
}

// memcpy that a missing page ends with `false`. Not pread, which needs no such care: for each page of a file that was
// written or read but once before it takes a lock that all threads share (28 instead of 58 GB/s with twelve of them).
bool copy_from_mapping(std::byte* to, const std::byte* from, size_t bytes) {
  sigjmp_buf way_out;
  if (sigsetjmp(way_out, 1) != 0) {
    way_out_of_copy = nullptr;
    return false;
  }
  way_out_of_copy = &way_out;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::memcpy(to, from, bytes);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  way_out_of_copy = nullptr;
  return true;
}

}  // namespace

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
  static const bool installed = (install_truncation_handler(), true);
  const bool copied = installed && copy_from_mapping(to.data(), data_ + offset, to.size());
  // Also when every page was there: what follows the new end in its page reads as zeros.
  check_unchanged();
  if (!copied) fail(ErrorCode::kIo, "cannot read {} near byte {}: its disk reports an error", path_, offset);
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

void install_truncation_handler() {
  struct sigaction action {};
  action.sa_handler = on_bus_error;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace carat
