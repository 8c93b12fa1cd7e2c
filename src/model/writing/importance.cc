#include "model/writing/importance.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "gguf/printable.h"
#include "gguf/reader.h"
#include "gguf/writer.h"

namespace carat::model {

namespace {

constexpr std::string_view kSums = ".in_sum2";
constexpr std::string_view kCounts = ".counts";
constexpr uint32_t kF32 = 0;

std::span<const float> floats_of(const gguf::ModelFile& file, const gguf::TensorView& tensor) {
  if (tensor.info.type != kF32) {
    fail(ErrorCode::kBadFile, "{}: tensor {} is not F32, as an importance matrix has them", file.path(),
         tensor.info.name);
  }
  return {reinterpret_cast<const float*>(tensor.data.data()), tensor.data.size() / sizeof(float)};
}

void check_values(const std::string& path, std::string_view tensor, std::span<const float> values) {
  for (const float value : values) {
    if (!std::isfinite(value) || value < 0.0f) {
      fail(ErrorCode::kBadFile, "{}: the importance of {} has a value that is negative or not finite", path,
           gguf::printable(tensor));
    }
  }
}

// Reads the binary files of before GGUF, whose numbers are 32-bit.
class LegacyReader {
 public:
  explicit LegacyReader(const std::string& path) : path_(path), in_(path, std::ios::binary) {
    if (!in_) fail(ErrorCode::kIo, "{}: cannot be opened", path);
    left_ = std::filesystem::file_size(path);
  }
  int32_t number(std::string_view what, int32_t least, int32_t most) {
    int32_t value = 0;
    bytes(what, &value, sizeof value);
    if (value < least || value > most) {
      fail(ErrorCode::kBadFile, "{}: {} is {}; this is not an importance matrix, or it is damaged", path_, what, value);
    }
    return value;
  }
  void bytes(std::string_view what, void* to, uint64_t count) {
    if (count > left_ || !in_.read(static_cast<char*>(to), static_cast<std::streamsize>(count))) {
      fail(ErrorCode::kBadFile, "{}: the file ends within {}; this is not an importance matrix, or it is damaged",
           path_, what);
    }
    left_ -= count;
  }
  uint64_t left() const { return left_; }

 private:
  const std::string& path_;
  std::ifstream in_;
  uint64_t left_ = 0;
};

}  // namespace

ImportanceMatrix ImportanceMatrix::load(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  char magic[4] = {};
  if (!in || !in.read(magic, sizeof magic)) fail(ErrorCode::kIo, "{}: cannot be read", path);
  return std::string_view(magic, sizeof magic) == "GGUF" ? load_gguf(path) : load_legacy(path);
}

ImportanceMatrix ImportanceMatrix::load_gguf(const std::string& path) {
  const auto file = gguf::ModelFile::open(path);
  ImportanceMatrix matrix;
  for (const gguf::TensorView& sums : file->tensors()) {
    if (!sums.info.name.ends_with(kSums)) continue;
    const auto name = std::string(sums.info.name.substr(0, sums.info.name.size() - kSums.size()));
    const gguf::TensorView* counts = file->find(name + std::string(kCounts));
    if (counts == nullptr)
      fail(ErrorCode::kBadFile, "{}: there is {} but no {}{}", path, sums.info.name, name, kCounts);
    const std::span<const float> squares = floats_of(*file, sums), rows = floats_of(*file, *counts);
    if (squares.size() % rows.size() != 0) {
      fail(ErrorCode::kBadFile, "{}: {} values of {} for {} counts", path, squares.size(), sums.info.name, rows.size());
    }
    check_values(path, name, squares);
    check_values(path, name, rows);
    const size_t columns = squares.size() / rows.size();
    std::vector<float>& means = matrix.means_[name];
    means.resize(squares.size());
    for (size_t i = 0; i < means.size(); ++i) {
      const float count = rows[i / columns];
      means[i] = count > 0.0f ? squares[i] / count : 1.0f;
    }
  }
  if (matrix.means_.empty()) {
    fail(ErrorCode::kBadFile,
         "{}: no tensor of it ends with {}; an importance matrix is needed, as `carat imatrix` makes "
         "one",
         path, kSums);
  }
  return matrix;
}

ImportanceMatrix ImportanceMatrix::load_legacy(const std::string& path) {
  LegacyReader reader(path);
  const int32_t entries = reader.number("the number of entries", 1, 1 << 20);
  ImportanceMatrix matrix;
  for (int32_t n = 0; n < entries; ++n) {
    std::string name(static_cast<size_t>(reader.number("the length of a name", 1, 1 << 12)), '\0');
    reader.bytes("a name", name.data(), name.size());
    const int32_t calls = reader.number("a number of calls", 0, INT32_MAX);
    const auto count = static_cast<uint64_t>(reader.number("a number of values", 1, INT32_MAX));
    if (count * sizeof(float) > reader.left()) {
      fail(ErrorCode::kBadFile, "{}: the file ends within the values of {}", path, gguf::printable(name));
    }
    std::vector<float> values(count);
    reader.bytes("values", values.data(), values.size() * sizeof(float));
    check_values(path, name, values);
    // How often it was called is a factor of all values of the tensor; it is divided out so that figures compare.
    for (float& value : values) value = calls > 0 ? value / static_cast<float>(calls) : value;
    matrix.means_[name] = std::move(values);
  }
  return matrix;
}

std::span<const float> ImportanceMatrix::find(std::string_view tensor) const {
  const auto found = means_.find(tensor);
  return found == means_.end() ? std::span<const float>() : found->second;
}

void ImportanceCollector::add(std::string_view tensor, uint64_t slice, uint64_t slices, std::span<const float> row) {
  auto found = sums_.find(tensor);
  if (found == sums_.end()) found = sums_.emplace(tensor, Sums{}).first;
  Sums& sums = found->second;
  if (sums.rows.empty()) {
    sums.rows.resize(slices);
    sums.squares.resize(slices * row.size());
  }
  CARAT_CHECK(sums.rows.size() == slices && sums.squares.size() == slices * row.size() && slice < slices);
  double* squares = sums.squares.data() + slice * row.size();
  for (size_t i = 0; i < row.size(); ++i) squares[i] += double{row[i]} * row[i];
  ++sums.rows[slice];
}

uint64_t ImportanceCollector::unused_slices() const {
  uint64_t unused = 0;
  for (const auto& [name, sums] : sums_) {
    for (const uint64_t rows : sums.rows) unused += rows == 0 ? 1 : 0;
  }
  return unused;
}

void ImportanceCollector::save(const std::string& path, const std::string& dataset, uint32_t chunks,
                               uint32_t chunk_size) const {
  gguf::Writer writer(path);
  writer.add_string("general.type", "imatrix");
  writer.add_strings("imatrix.datasets", std::vector<std::string>{dataset});
  writer.add_u32("imatrix.chunk_count", chunks);
  writer.add_u32("imatrix.chunk_size", chunk_size);
  for (const auto& [name, sums] : sums_) {
    const uint64_t slices = sums.rows.size();
    writer.declare_tensor(name + std::string(kSums), kF32, std::vector<uint64_t>{sums.squares.size() / slices, slices});
    writer.declare_tensor(name + std::string(kCounts), kF32, std::vector<uint64_t>{1, slices});
  }
  writer.begin_data();
  for (const auto& [name, sums] : sums_) {
    const std::vector<float> squares(sums.squares.begin(), sums.squares.end());
    std::vector<float> rows;
    for (const uint64_t count : sums.rows) rows.push_back(static_cast<float>(count));
    writer.write(std::as_bytes(std::span(squares)));
    writer.write(std::as_bytes(std::span(rows)));
  }
  writer.finish();
}

}  // namespace carat::model
