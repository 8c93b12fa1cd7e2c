#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace carat {

// A regular file mapped read-only. Move-only; the view lives as long as the object. If another process truncates the
// file while it is mapped, a read beyond the new end ends the process with a message that names the file (see
// install_truncation_handler), never with wrong data.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Copies the bytes from `offset` on. Throws kIo where reading bytes() would end the process: the file became shorter,
  // or its disk fails. Any number of threads at a time. Installs the truncation handler.
  void read(size_t offset, std::span<std::byte> to) const;

  // Throws kIo when the file on disk is now shorter than what was mapped.
  void check_unchanged() const;

 private:
  void release() noexcept;
  [[noreturn]] void fail_shorter() const;

  std::string path_;
  int descriptor_ = -1;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Turns the SIGBUS of a truncated mapping into an error of MappedFile::read where that caused it, and otherwise into a
// one-line message and exit status 2. The command line installs it.
void install_truncation_handler();

}  // namespace carat
