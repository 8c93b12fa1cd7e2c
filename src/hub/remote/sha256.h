#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace carat::hub {

// SHA-256 (FIPS 180-4) of bytes given piece by piece. Uses the CPU's SHA instructions where it has them, so that the
// checksum of a download costs less than writing it to disk.
class Sha256 {
 public:
  enum class Way { kBest, kPortable };

  explicit Sha256(Way way = Way::kBest);
  void add(std::string_view bytes);
  // 64 lower-case hexadecimal digits. Nothing can be added afterwards.
  std::string hex_digest();

  static constexpr size_t kBlockBytes = 64;

 private:
  using Compress = void (*)(std::array<uint32_t, 8>& state, const unsigned char* blocks, size_t count);

  Compress compress_;
  std::array<uint32_t, 8> state_;
  std::array<unsigned char, kBlockBytes> pending_{};  // [0, pending_bytes_) wait for a whole block
  size_t pending_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

}  // namespace carat::hub
