#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/error.h"

namespace carat {

// Reads little-endian values from a span, front to back; every read is bounds-checked and an error says where it was.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }

  // `what` names the value for the error message.
  std::span<const std::byte> take(uint64_t size, std::string_view what) {
    if (size > remaining()) {
      fail(ErrorCode::kBadFile, "{} at byte {} needs {} bytes but only {} are left: the file is truncated or damaged",
           what, position_, size, remaining());
    }
    const auto taken = bytes_.subspan(position_, static_cast<size_t>(size));
    position_ += static_cast<size_t>(size);
    return taken;
  }

  template <typename T>
  requires std::is_arithmetic_v<T> T read(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t position_ = 0;
};

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace carat
