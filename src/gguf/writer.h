#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/limits.h"
#include "gguf/reader.h"

namespace carat::gguf {

// Writes a GGUF v3 file without holding tensor data: first metadata and tensor declarations, then the data of each
// tensor, either front to back in pieces of any size (write) or anywhere from many threads (write_at). The file appears
// under its name only when finish() succeeded (it is written as NAME.partial before). Errors carry the path: kIo when
// the machine refuses, kBadArgument when what is added could not be read back (duplicate keys or tensors, impossible
// shapes, an alignment that is no power of two). Calls in the wrong order are bugs of the caller and throw
// std::logic_error.
class Writer {
 public:
  explicit Writer(std::string path, uint32_t alignment = limits::kDefaultAlignment);
  ~Writer();  // removes the unfinished file
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Copies what it needs. The key general.alignment, as found in a file whose metadata is copied, must agree with the
  // constructor's alignment; without it the writer adds the key where it is needed.
  void add(std::string_view key, const Value& value);
  void add_u32(std::string_view key, uint32_t value);
  void add_i32(std::string_view key, int32_t value);
  void add_f32(std::string_view key, float value);
  void add_bool(std::string_view key, bool value);
  void add_string(std::string_view key, std::string_view value);
  void add_strings(std::string_view key, std::span<const std::string> values);
  void add_u32s(std::string_view key, std::span<const uint32_t> values);
  void add_i32s(std::string_view key, std::span<const int32_t> values);
  void add_f32s(std::string_view key, std::span<const float> values);
  void add_bools(std::string_view key, const std::vector<bool>& values);

  // ne without trailing ones; `type` as in find_tensor_type.
  void declare_tensor(std::string_view name, uint32_t type, std::span<const uint64_t> ne);

  void begin_data();                             // writes the header; no add or declare after this
  void write(std::span<const std::byte> bytes);  // continues the current tensor, moves to the next when it is full
  // Bytes [offset, offset + bytes.size()) of the tensor declared as number `tensor`. May be called from several threads
  // at a time; each byte of each tensor is to be written exactly once. One file uses write() or write_at(), not both.
  void write_at(size_t tensor, uint64_t offset, std::span<const std::byte> bytes);
  // Instead of write_at for a whole tensor: its bytes are zeros that take no room on the disk.
  void leave_zeros(size_t tensor);
  void finish();  // checks that every tensor is complete, flushes, renames

 private:
  struct Declared {
    std::string name;
    uint32_t type;
    std::vector<uint64_t> ne;
    uint64_t bytes;
    uint64_t offset = 0;  // in the data section; known from begin_data on
  };

  void begin_key(std::string_view key, ValueType type);
  void add_array(std::string_view key, ValueType element, uint64_t count, std::span<const std::byte> bytes);
  void place_tensors();
  std::vector<std::byte> encode_tensor_infos() const;
  void put(std::span<const std::byte> bytes);
  void pad();
  void flush();
  void write_through(std::span<const std::byte> bytes);
  [[noreturn]] void fail_to_write() const;

  std::string path_;
  std::string partial_path_;
  uint32_t alignment_;
  int descriptor_ = -1;
  std::vector<std::byte> metadata_;  // encoded key-value pairs
  std::set<std::string, std::less<>> keys_;
  std::set<std::string, std::less<>> names_;
  std::vector<Declared> tensors_;
  std::vector<std::byte> buffer_;     // small pieces on their way to the file
  uint64_t written_ = 0;              // bytes of the file so far, including the buffer
  size_t current_ = 0;                // tensor that write() continues
  uint64_t current_bytes_ = 0;        // how much of it is written
  uint64_t data_start_ = 0;           // where the data section begins in the file
  uint64_t data_bytes_ = 0;           // its size with the padding of every tensor
  std::atomic<uint64_t> placed_ = 0;  // bytes written by write_at() or left as zeros
  bool in_data_ = false;
  bool finished_ = false;
};

}  // namespace carat::gguf
