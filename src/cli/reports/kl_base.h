#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"

namespace carat::cli {

// The logits one executor gave for a text, kept in a file so that others can be compared with them. Little-endian:
//   char[8]  "CARATKL1"
//   u32      vocabulary V
//   u32      window: tokens of one window
//   u32      windows
//   u32      first: the first scored position of a window; the last is window - 2
//   i32      tokens[windows * window]
//   windows * (window - 1 - first) records, in order of window and position:
//     f32 largest, f32 step, i32 best token, u16 codes[V]      logit = largest - step * code
// 16 bits over the whole range of a position leave a step of at most 60 / 65535 (the soft-cap bounds logits to +-30):
// the rounding shows up in a KL divergence as about step^2 / 24, below 4e-8.
struct KlBaseShape {
  uint32_t vocabulary = 0;
  uint32_t window = 0;
  uint32_t windows = 0;
  uint32_t first = 0;

  uint64_t scored() const { return uint64_t{windows} * (window - 1 - first); }
  uint64_t record_bytes() const { return 12 + uint64_t{2} * vocabulary; }
};

// Writes PATH.partial and gives it its name when complete; an unfinished file is removed. Throws kIo.
class KlBaseWriter {
 public:
  KlBaseWriter(std::string path, const KlBaseShape& shape, std::span<const int32_t> tokens);
  ~KlBaseWriter();
  KlBaseWriter(const KlBaseWriter&) = delete;
  KlBaseWriter& operator=(const KlBaseWriter&) = delete;

  void add(std::span<const float> logits);  // [V], the next scored position
  void finish();

 private:
  void write(const void* data, size_t bytes);

  std::string path_;
  std::string partial_path_;
  KlBaseShape shape_;
  uint64_t written_ = 0;
  std::vector<std::byte> record_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

// Throws kIo or kBadFile naming the file when it is not complete and consistent.
class KlBaseReader {
 public:
  explicit KlBaseReader(const std::string& path);

  const KlBaseShape& shape() const { return shape_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  // Fills [V] logits of scored position `index` and returns the token that was best.
  int32_t read(uint64_t index, std::vector<float>& logits) const;

 private:
  MappedFile file_;
  KlBaseShape shape_;
  std::vector<int32_t> tokens_;
  std::span<const std::byte> records_;
};

}  // namespace carat::cli
