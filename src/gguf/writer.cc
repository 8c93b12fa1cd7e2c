#include "gguf/writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <concepts>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "gguf/limits.h"
#include "gguf/printable.h"
#include "gguf/tensor_type.h"

namespace carat::gguf {

namespace {

// Large enough that the cost of a system call disappears, small enough to stay in the cache.
constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr std::string_view kAlignmentKey = "general.alignment";

void append(std::vector<std::byte>& out, std::span<const std::byte> bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

template <typename T>
requires std::is_arithmetic_v<T>
void append(std::vector<std::byte>& out, T value) { append(out, std::as_bytes(std::span(&value, 1))); }

void append_string(std::vector<std::byte>& out, std::string_view text) {
  append(out, uint64_t{text.size()});
  append(out, std::as_bytes(std::span(text)));
}

// The value in its stored width. A value that does not fit its type is a bug of the caller.
template <std::integral Stored, std::integral Kept>
void append_integer(std::vector<std::byte>& out, const Value& value) {
  const Kept kept = std::get<Kept>(value.data);
  CARAT_CHECK(std::in_range<Stored>(kept));
  append(out, static_cast<Stored>(kept));
}

void append_array(std::vector<std::byte>& out, const Array& array) {
  CARAT_CHECK(array.element != ValueType::kArray);
  append(out, static_cast<uint32_t>(array.element));
  append(out, array.count);
  if (array.element == ValueType::kString) {
    CARAT_CHECK(array.strings.size() == array.count);
    for (const std::string_view text : array.strings) append_string(out, text);
  } else {
    CARAT_CHECK(array.bytes.size() == array.count * value_type_bytes(array.element));
    append(out, array.bytes);
  }
}

void append_value(std::vector<std::byte>& out, const Value& value) {
  switch (value.type) {
    case ValueType::kU8:
      return append_integer<uint8_t, uint64_t>(out, value);
    case ValueType::kU16:
      return append_integer<uint16_t, uint64_t>(out, value);
    case ValueType::kU32:
      return append_integer<uint32_t, uint64_t>(out, value);
    case ValueType::kU64:
      return append_integer<uint64_t, uint64_t>(out, value);
    case ValueType::kI8:
      return append_integer<int8_t, int64_t>(out, value);
    case ValueType::kI16:
      return append_integer<int16_t, int64_t>(out, value);
    case ValueType::kI32:
      return append_integer<int32_t, int64_t>(out, value);
    case ValueType::kI64:
      return append_integer<int64_t, int64_t>(out, value);
    case ValueType::kF32:
      return append(out, static_cast<float>(std::get<double>(value.data)));
    case ValueType::kF64:
      return append(out, std::get<double>(value.data));
    case ValueType::kBool:
      return append(out, static_cast<uint8_t>(std::get<bool>(value.data)));
    case ValueType::kString:
      return append_string(out, std::get<std::string_view>(value.data));
    case ValueType::kArray:
      return append_array(out, std::get<Array>(value.data));
  }
  CARAT_CHECK(false);
}

}  // namespace

Writer::Writer(std::string path, uint32_t alignment)
    : path_(std::move(path)), partial_path_(path_ + ".partial"), alignment_(alignment) {
  if (!std::has_single_bit(alignment) || alignment < limits::kMinAlignment || alignment > limits::kMaxAlignment) {
    fail(ErrorCode::kBadArgument, "{}: the alignment is {}, but must be a power of two from {} to {}", path_, alignment,
         limits::kMinAlignment, limits::kMaxAlignment);
  }
  descriptor_ = ::open(partial_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail(ErrorCode::kIo, "cannot create {}: {}", partial_path_, std::strerror(errno));
  buffer_.reserve(kBufferBytes);
}

Writer::~Writer() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!finished_) ::unlink(partial_path_.c_str());
}

void Writer::begin_key(std::string_view key, ValueType type) {
  CARAT_CHECK(!in_data_);
  if (key.empty() || key.size() > limits::kMaxKeyBytes) {
    fail(ErrorCode::kBadArgument, "{}: a key of {} bytes, but 1 to {} are allowed", path_, key.size(),
         limits::kMaxKeyBytes);
  }
  if (!keys_.emplace(key).second) fail(ErrorCode::kBadArgument, "{}: key {} is added twice", path_, printable(key));
  append_string(metadata_, key);
  append(metadata_, static_cast<uint32_t>(type));
}

void Writer::add(std::string_view key, const Value& value) {
  if (key == kAlignmentKey) {
    const auto* alignment = std::get_if<uint64_t>(&value.data);
    if (alignment == nullptr || *alignment != alignment_) {
      fail(ErrorCode::kBadArgument, "{}: general.alignment differs from the alignment {} that the file is written with",
           path_, alignment_);
    }
  }
  begin_key(key, value.type);
  append_value(metadata_, value);
}

void Writer::add_array(std::string_view key, ValueType element, uint64_t count, std::span<const std::byte> bytes) {
  add(key, {ValueType::kArray, Array{element, count, bytes, {}}});
}

void Writer::add_u32(std::string_view key, uint32_t value) { add(key, {ValueType::kU32, uint64_t{value}}); }
void Writer::add_i32(std::string_view key, int32_t value) { add(key, {ValueType::kI32, int64_t{value}}); }
void Writer::add_f32(std::string_view key, float value) { add(key, {ValueType::kF32, double{value}}); }
void Writer::add_bool(std::string_view key, bool value) { add(key, {ValueType::kBool, value}); }
void Writer::add_string(std::string_view key, std::string_view value) { add(key, {ValueType::kString, value}); }

void Writer::add_strings(std::string_view key, std::span<const std::string> values) {
  add(key, {ValueType::kArray, Array{ValueType::kString, values.size(), {}, {values.begin(), values.end()}}});
}
void Writer::add_u32s(std::string_view key, std::span<const uint32_t> values) {
  add_array(key, ValueType::kU32, values.size(), std::as_bytes(values));
}
void Writer::add_i32s(std::string_view key, std::span<const int32_t> values) {
  add_array(key, ValueType::kI32, values.size(), std::as_bytes(values));
}
void Writer::add_f32s(std::string_view key, std::span<const float> values) {
  add_array(key, ValueType::kF32, values.size(), std::as_bytes(values));
}
void Writer::add_bools(std::string_view key, const std::vector<bool>& values) {
  const std::vector<uint8_t> bytes(values.begin(), values.end());
  add_array(key, ValueType::kBool, bytes.size(), std::as_bytes(std::span(bytes)));
}

void Writer::declare_tensor(std::string_view name, uint32_t type, std::span<const uint64_t> ne) {
  CARAT_CHECK(!in_data_);
  if (name.empty() || name.size() > limits::kMaxTensorNameBytes) {
    fail(ErrorCode::kBadArgument, "{}: the name of tensor {} has {} bytes, but 1 to {} are allowed", path_,
         printable(name), name.size(), limits::kMaxTensorNameBytes);
  }
  const TensorTypeInfo* info = find_tensor_type(type);
  if (info == nullptr)
    fail(ErrorCode::kBadArgument, "{}: tensor {} has the unknown type {}", path_, printable(name), type);
  uint64_t bytes = 0;
  try {
    bytes = tensor_bytes(*info, ne);
  } catch (const Error& error) {
    fail(ErrorCode::kBadArgument, "{}: tensor {}: {}", path_, printable(name), error.what());
  }
  if (!names_.emplace(name).second) {
    fail(ErrorCode::kBadArgument, "{}: tensor {} is declared twice", path_, printable(name));
  }
  tensors_.push_back({std::string(name), type, {ne.begin(), ne.end()}, bytes});
}

void Writer::place_tensors() {
  for (Declared& tensor : tensors_) {
    tensor.offset = data_bytes_;
    const auto padded = checked_round_up<uint64_t>(tensor.bytes, alignment_);
    const auto next = padded ? checked_add(data_bytes_, *padded) : std::nullopt;
    if (!next) fail(ErrorCode::kBadArgument, "{}: the tensors have more bytes than can be counted", path_);
    data_bytes_ = *next;
  }
}

std::vector<std::byte> Writer::encode_tensor_infos() const {
  std::vector<std::byte> infos;
  for (const Declared& tensor : tensors_) {
    append_string(infos, tensor.name);
    append(infos, static_cast<uint32_t>(tensor.ne.size()));
    for (const uint64_t dimension : tensor.ne) append(infos, dimension);
    append(infos, tensor.type);
    append(infos, tensor.offset);
  }
  return infos;
}

void Writer::begin_data() {
  CARAT_CHECK(!in_data_);
  if (alignment_ != limits::kDefaultAlignment && !keys_.contains(kAlignmentKey)) add_u32(kAlignmentKey, alignment_);
  place_tensors();
  const std::vector<std::byte> infos = encode_tensor_infos();
  std::vector<std::byte> start;
  append(start, std::as_bytes(std::span(std::string_view("GGUF"))));
  append(start, uint32_t{3});
  append(start, uint64_t{tensors_.size()});
  append(start, uint64_t{keys_.size()});
  put(start);
  put(metadata_);
  put(infos);
  pad();
  flush();
  std::vector<std::byte>().swap(metadata_);
  data_start_ = written_;
  in_data_ = true;
}

void Writer::write(std::span<const std::byte> bytes) {
  CARAT_CHECK(in_data_ && !finished_ && placed_ == 0);
  while (!bytes.empty()) {
    CARAT_CHECK(current_ < tensors_.size());  // more data than was declared
    const uint64_t missing = tensors_[current_].bytes - current_bytes_;
    const auto piece = bytes.first(static_cast<size_t>(std::min<uint64_t>(missing, bytes.size())));
    put(piece);
    current_bytes_ += piece.size();
    bytes = bytes.subspan(piece.size());
    if (piece.size() == missing) {
      pad();
      ++current_;
      current_bytes_ = 0;
    }
  }
}

void Writer::write_at(size_t tensor, uint64_t offset, std::span<const std::byte> bytes) {
  CARAT_CHECK(in_data_ && !finished_ && current_ == 0 && current_bytes_ == 0);
  CARAT_CHECK(tensor < tensors_.size());
  const Declared& declared = tensors_[tensor];
  CARAT_CHECK(offset <= declared.bytes && bytes.size() <= declared.bytes - offset);
  placed_.fetch_add(bytes.size(), std::memory_order_relaxed);
  uint64_t position = data_start_ + declared.offset + offset;
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(position));
    if (count < 0) {
      if (errno == EINTR) continue;
      fail_to_write();
    }
    position += static_cast<uint64_t>(count);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void Writer::leave_zeros(size_t tensor) {
  CARAT_CHECK(in_data_ && !finished_ && current_ == 0 && current_bytes_ == 0 && tensor < tensors_.size());
  placed_.fetch_add(tensors_[tensor].bytes, std::memory_order_relaxed);
}

void Writer::finish() {
  CARAT_CHECK(in_data_ && !finished_);
  // Every declared tensor has all its data.
  if (placed_ == 0) {
    CARAT_CHECK(current_ == tensors_.size());
  } else {
    uint64_t declared = 0;
    for (const Declared& tensor : tensors_) declared += tensor.bytes;
    CARAT_CHECK(placed_ == declared);
    // Gaps between tensors read as zeros; the padding of the last one has to be made.
    if (::ftruncate(descriptor_, static_cast<off_t>(data_start_ + data_bytes_)) != 0) fail_to_write();
  }
  flush();
  // Some file systems report a full disk only here.
  if (::close(std::exchange(descriptor_, -1)) != 0) fail_to_write();
  if (std::rename(partial_path_.c_str(), path_.c_str()) != 0) {
    fail(ErrorCode::kIo, "cannot rename {} to {}: {}", partial_path_, path_, std::strerror(errno));
  }
  finished_ = true;
}

void Writer::put(std::span<const std::byte> bytes) {
  written_ += bytes.size();
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() >= kBufferBytes) {
    write_through(bytes);
  } else {
    append(buffer_, bytes);
  }
}

void Writer::pad() {
  const uint64_t aligned = checked_round_up<uint64_t>(written_, alignment_).value();
  const std::vector<std::byte> zeros(static_cast<size_t>(aligned - written_));
  put(zeros);
}

void Writer::flush() {
  write_through(buffer_);
  buffer_.clear();
}

void Writer::write_through(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0) {
      if (errno == EINTR) continue;
      fail_to_write();
    }
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void Writer::fail_to_write() const { fail(ErrorCode::kIo, "cannot write {}: {}", partial_path_, std::strerror(errno)); }

}  // namespace carat::gguf
