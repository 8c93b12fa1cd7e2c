#include "gguf/reader.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/byte_reader.h"
#include "base/checked.h"
#include "base/error.h"
#include "gguf/limits.h"
#include "gguf/printable.h"
#include "gguf/tensor_type.h"

namespace carat::gguf {

namespace {

uint32_t read_version(ByteReader& reader) {
  if (as_text(reader.take(4, "magic number")) != "GGUF") {
    fail(ErrorCode::kBadFile, "the file does not begin with \"GGUF\": it is no GGUF file");
  }
  const auto version = reader.read<uint32_t>("version");
  // 2 and 3 have the same layout; a number of only high bytes is a small one in the other byte order.
  if (version == 2 || version == 3) return version;
  if ((version & 0xffffu) == 0) {
    fail(ErrorCode::kUnsupported, "version {:#010x} in the wrong byte order: big-endian GGUF files are not supported",
         version);
  }
  fail(ErrorCode::kUnsupported, "GGUF version {}: only versions 2 and 3 are supported; convert the model again",
       version);
}

// A count is believed only if that many items of the least possible size fit into what is left of the file.
uint64_t read_count(ByteReader& reader, std::string_view what, uint64_t limit, uint64_t min_bytes) {
  const auto count = reader.read<uint64_t>(what);
  if (count > limit) fail(ErrorCode::kBadFile, "{} is {}, more than the {} allowed", what, count, limit);
  if (count > reader.remaining() / min_bytes) {
    fail(ErrorCode::kBadFile, "{} is {}, but only {} bytes follow: the file is truncated or damaged", what, count,
         reader.remaining());
  }
  return count;
}

std::string_view read_string(ByteReader& reader, std::string_view what, uint64_t limit = limits::kMaxStringBytes) {
  const auto length = reader.read<uint64_t>(what);
  if (length > limit) fail(ErrorCode::kBadFile, "{} claims {} bytes, more than the {} allowed", what, length, limit);
  return as_text(reader.take(length, what));
}

class MetadataReader {
 public:
  explicit MetadataReader(ByteReader& reader) : reader_(reader) {}

  Metadata read(uint64_t count) {
    Metadata metadata;
    for (uint64_t i = 0; i < count; ++i) {
      const std::string_view key = read_key(i, count);
      Value value;
      try {
        value = read_value();
      } catch (const Error& error) {
        fail(error.code(), "key {} ({} of {}): {}", printable(key), i + 1, count, error.what());
      }
      metadata.add(key, std::move(value));
    }
    return metadata;
  }

 private:
  std::string_view read_key(uint64_t i, uint64_t count) {
    std::string_view key;
    try {
      key = read_string(reader_, "the key's name", limits::kMaxKeyBytes);
    } catch (const Error& error) {
      fail(error.code(), "key {} of {}: {}", i + 1, count, error.what());
    }
    if (key.empty()) fail(ErrorCode::kBadFile, "key {} of {} has an empty name", i + 1, count);
    return key;
  }

  ValueType read_type(std::string_view what) {
    const auto id = reader_.read<uint32_t>(what);
    if (id > static_cast<uint32_t>(ValueType::kF64)) {
      fail(ErrorCode::kBadFile, "{} {} is unknown: the file is damaged", what, id);
    }
    return static_cast<ValueType>(id);
  }

  template <typename Stored, typename Kept>
  Value scalar(ValueType type) {
    return {type, Kept{reader_.read<Stored>("value")}};
  }

  Value read_value() {
    const ValueType type = read_type("value type");
    switch (type) {
      case ValueType::kU8:
        return scalar<uint8_t, uint64_t>(type);
      case ValueType::kU16:
        return scalar<uint16_t, uint64_t>(type);
      case ValueType::kU32:
        return scalar<uint32_t, uint64_t>(type);
      case ValueType::kU64:
        return scalar<uint64_t, uint64_t>(type);
      case ValueType::kI8:
        return scalar<int8_t, int64_t>(type);
      case ValueType::kI16:
        return scalar<int16_t, int64_t>(type);
      case ValueType::kI32:
        return scalar<int32_t, int64_t>(type);
      case ValueType::kI64:
        return scalar<int64_t, int64_t>(type);
      case ValueType::kF32:
        return scalar<float, double>(type);
      case ValueType::kF64:
        return scalar<double, double>(type);
      case ValueType::kBool: {
        const auto truth = reader_.read<uint8_t>("value");
        check_bool(truth);
        return {type, truth == 1};
      }
      case ValueType::kString:
        return {type, read_string(reader_, "value")};
      case ValueType::kArray:
        return {type, read_array()};
    }
    CARAT_CHECK(false);
  }

  static void check_bool(uint8_t value) {
    if (value > 1) fail(ErrorCode::kBadFile, "a bool is {}, but must be 0 or 1", value);
  }

  Array read_array() {
    Array array;
    array.element = read_type("array element type");
    if (array.element == ValueType::kArray) fail(ErrorCode::kBadFile, "arrays of arrays are not supported");
    const size_t element_bytes = value_type_bytes(array.element);
    array.count = read_count(reader_, "array length", limits::kMaxArrayElements - elements_,
                             element_bytes == 0 ? sizeof(uint64_t) : element_bytes);
    elements_ += array.count;
    if (array.element == ValueType::kString) {
      array.strings.reserve(static_cast<size_t>(array.count));
      for (uint64_t i = 0; i < array.count; ++i) array.strings.push_back(read_string(reader_, "array element"));
    } else {
      array.bytes = reader_.take(array.count * element_bytes, "array elements");
      if (array.element == ValueType::kBool) {
        for (const std::byte value : array.bytes) check_bool(std::to_integer<uint8_t>(value));
      }
    }
    return array;
  }

  ByteReader& reader_;
  uint64_t elements_ = 0;  // of all arrays so far
};

uint32_t alignment_of(const Metadata& metadata) {
  const uint64_t alignment = metadata.unsigned_integer("general.alignment").value_or(limits::kDefaultAlignment);
  if (!std::has_single_bit(alignment) || alignment < limits::kMinAlignment || alignment > limits::kMaxAlignment) {
    fail(ErrorCode::kBadFile, "general.alignment is {}, but must be a power of two from {} to {}", alignment,
         limits::kMinAlignment, limits::kMaxAlignment);
  }
  return static_cast<uint32_t>(alignment);
}

// Everything about one tensor that does not depend on where the data section begins or ends.
void read_shape_and_place(ByteReader& reader, uint32_t alignment, TensorInfo& info) {
  info.dimensions = reader.read<uint32_t>("number of dimensions");
  if (info.dimensions == 0 || info.dimensions > limits::kMaxDimensions) {
    fail(ErrorCode::kBadFile, "{} dimensions, but a tensor has 1 to {}", info.dimensions, limits::kMaxDimensions);
  }
  for (uint32_t d = 0; d < info.dimensions; ++d) info.ne[d] = reader.read<uint64_t>("dimension");
  info.type = reader.read<uint32_t>("type");
  const TensorTypeInfo* type = find_tensor_type(info.type);
  if (type == nullptr) {
    fail(ErrorCode::kBadFile, "type {} is unknown: the file is damaged or needs a newer version of carat", info.type);
  }
  info.bytes = tensor_bytes(*type, std::span(info.ne).first(info.dimensions));
  info.offset = reader.read<uint64_t>("offset");
  if (info.offset % alignment != 0) {
    fail(ErrorCode::kBadFile, "offset {} is no multiple of the alignment {}", info.offset, alignment);
  }
}

std::vector<TensorInfo> read_tensors(ByteReader& reader, uint64_t count, uint32_t alignment) {
  std::vector<TensorInfo> tensors(static_cast<size_t>(count));
  for (uint64_t i = 0; i < count; ++i) {
    TensorInfo& info = tensors[i];
    try {
      info.name = read_string(reader, "the tensor's name", limits::kMaxTensorNameBytes);
      if (info.name.empty()) fail(ErrorCode::kBadFile, "the name is empty");
      read_shape_and_place(reader, alignment, info);
    } catch (const Error& error) {
      fail(error.code(), "tensor {} ({} of {}): {}", printable(info.name), i + 1, count, error.what());
    }
  }
  return tensors;
}

void check_unique_names(std::span<const TensorInfo> tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorInfo& info : tensors) names.push_back(info.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fail(ErrorCode::kBadFile, "tensor {} appears twice", printable(*twice));
}

// Each tensor lies within the data section and shares no byte with another one.
void check_places(std::span<const TensorInfo> tensors, uint64_t data_bytes) {
  std::vector<const TensorInfo*> by_offset;
  by_offset.reserve(tensors.size());
  for (const TensorInfo& info : tensors) {
    if (info.bytes > data_bytes || info.offset > data_bytes - info.bytes) {
      fail(ErrorCode::kBadFile,
           "tensor {} of {} bytes at offset {} ends beyond the {} bytes of tensor data: the file is truncated or "
           "damaged",
           printable(info.name), info.bytes, info.offset, data_bytes);
    }
    by_offset.push_back(&info);
  }
  std::sort(by_offset.begin(), by_offset.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const TensorInfo& before = *by_offset[i - 1];
    if (by_offset[i]->offset < before.offset + before.bytes) {
      fail(ErrorCode::kBadFile, "tensors {} and {} overlap at offset {}", printable(before.name),
           printable(by_offset[i]->name), by_offset[i]->offset);
    }
  }
}

}  // namespace

Header parse(std::span<const std::byte> file) {
  ByteReader reader(file);
  Header header;
  header.version = read_version(reader);
  const uint64_t tensor_count =
      read_count(reader, "the number of tensors", limits::kMaxTensors, limits::kMinTensorInfoBytes);
  const uint64_t key_count = read_count(reader, "the number of keys", limits::kMaxKeys, limits::kMinKeyValueBytes);
  header.metadata = MetadataReader(reader).read(key_count);
  header.alignment = alignment_of(header.metadata);
  header.tensors = read_tensors(reader, tensor_count, header.alignment);
  check_unique_names(header.tensors);

  // A position in memory is far below 2^64 minus the largest alignment, so rounding up cannot overflow. A file without
  // tensors may end before its padding.
  header.data_start = checked_round_up<uint64_t>(reader.position(), header.alignment).value();
  check_places(header.tensors, file.size() - std::min<uint64_t>(file.size(), header.data_start));
  return header;
}

}  // namespace carat::gguf
