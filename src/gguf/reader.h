#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/mapped_file.h"

namespace carat::gguf {

enum class ValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};
std::string_view value_type_name(ValueType type);
// Bytes of one encoded value; 0 for strings and arrays, whose size is in the file, and for unknown types.
size_t value_type_bytes(ValueType type);

// A flat array; numbers stay encoded in the file's bytes, strings are views into it.
struct Array {
  ValueType element = ValueType::kU8;
  uint64_t count = 0;
  std::span<const std::byte> bytes;       // encoded elements; empty for strings
  std::vector<std::string_view> strings;  // only for kString

  // Element i as a number, whatever the stored type (bool is 0 or 1). i < count, element is not kString.
  double number(uint64_t i) const;
  // The same for arrays of integers; throws kBadFile for floating-point elements and beyond 2^63 - 1.
  int64_t integer(uint64_t i) const;
};

struct Value {
  ValueType type = ValueType::kU8;
  std::variant<uint64_t, int64_t, double, bool, std::string_view, Array> data;
};

// Key-value pairs in file order with a lookup. Typed getters throw kBadFile naming the key when the type or range is
// wrong and return nullopt when the key is absent. Integers of any width and sign convert when the value fits.
class Metadata {
 public:
  struct Entry {
    std::string_view key;
    Value value;
  };

  void add(std::string_view key, Value value);  // throws kBadFile on a duplicate
  const Value* find(std::string_view key) const;
  std::span<const Entry> entries() const { return entries_; }

  std::optional<uint64_t> unsigned_integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> string(std::string_view key) const;
  const Array* array(std::string_view key) const;  // nullptr when absent; throws when it is no array

 private:
  std::vector<Entry> entries_;
  // Ordered, not hashed: a file could choose keys that all fall into one bucket.
  std::map<std::string_view, size_t> index_;
};

struct TensorInfo {
  std::string_view name;
  uint32_t type = 0;  // id of find_tensor_type
  uint32_t dimensions = 1;
  std::array<uint64_t, 4> ne = {1, 1, 1, 1};  // ne[0] runs fastest; unused dimensions are 1
  uint64_t offset = 0;                        // from the start of the data section
  uint64_t bytes = 0;
};

// The parsed header of one file. All views point into the bytes given to parse().
struct Header {
  uint32_t version = 3;
  uint32_t alignment = 32;
  uint64_t data_start = 0;  // byte offset of the data section in the file
  Metadata metadata;
  std::vector<TensorInfo> tensors;
};

// Pure function of the bytes of a whole file: every count, length, shape and offset is checked before it is used, in
// time linear in the header (but for sorting the tensors). Throws kBadFile, or kUnsupported for another version of the
// container; the message names the field but not the file (the caller adds that).
Header parse(std::span<const std::byte> file);

// A tensor found in an opened model.
struct TensorView {
  TensorInfo info;
  std::span<const std::byte> data;
};

// One model on disk: a single file, or all parts of NAME-00001-of-0000N.gguf (give any part). Metadata comes from the
// first part. Messages begin with the path of the file they are about. Immutable after construction, safe to share
// between threads.
class ModelFile {
 public:
  static std::shared_ptr<const ModelFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  const Metadata& metadata() const { return headers_.front().metadata; }
  const Header& first_header() const { return headers_.front(); }
  // All tensors of all parts, in file order.
  std::span<const TensorView> tensors() const { return tensors_; }
  const TensorView* find(std::string_view name) const;
  // Copies `view`, bytes of one of the parts (as TensorView::data is), with MappedFile::read.
  void read(std::span<const std::byte> view, std::byte* to) const;
  uint64_t file_bytes() const;
  size_t parts() const { return files_.size(); }
  void check_unchanged() const;

 private:
  ModelFile() = default;
  void add_file(const std::string& path);
  void index_tensors();

  std::string path_;
  std::vector<MappedFile> files_;
  std::vector<Header> headers_;
  std::vector<TensorView> tensors_;
  std::map<std::string_view, size_t> index_;
};

}  // namespace carat::gguf
