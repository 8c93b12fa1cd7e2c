#include "cli/reports/kl_base.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/byte_reader.h"
#include "base/error.h"

namespace carat::cli {

namespace {
constexpr std::string_view kMagic = "CARATKL1";
constexpr float kCodes = 65535.0f;
constexpr uint32_t kMostTokens = 1u << 30;
constexpr uint32_t kLargestVocabulary = 1u << 24;
}  // namespace

KlBaseWriter::KlBaseWriter(std::string path, const KlBaseShape& shape, std::span<const int32_t> tokens)
    : path_(std::move(path)),
      partial_path_(path_ + ".partial"),
      shape_(shape),
      record_(shape.record_bytes()),
      file_(std::fopen(partial_path_.c_str(), "wb"), &std::fclose) {
  if (!file_) fail(ErrorCode::kIo, "cannot create {}: {}", partial_path_, std::strerror(errno));
  CARAT_CHECK(tokens.size() == size_t{shape.windows} * shape.window);
  write(kMagic.data(), kMagic.size());
  for (const uint32_t value : {shape.vocabulary, shape.window, shape.windows, shape.first}) write(&value, sizeof value);
  write(tokens.data(), tokens.size_bytes());
}

KlBaseWriter::~KlBaseWriter() {
  if (file_) {
    file_.reset();
    std::remove(partial_path_.c_str());
  }
}

void KlBaseWriter::write(const void* data, size_t bytes) {
  if (std::fwrite(data, 1, bytes, file_.get()) != bytes) {
    fail(ErrorCode::kIo, "cannot write {}: {}", partial_path_, std::strerror(errno));
  }
}

void KlBaseWriter::add(std::span<const float> logits) {
  CARAT_CHECK(logits.size() == shape_.vocabulary && written_ < shape_.scored());
  const auto [least, largest] = std::minmax_element(logits.begin(), logits.end());
  // max_element finds the first of equals, minmax_element the last; a tie goes to the lower id everywhere in carat.
  const auto best = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const float step = (*largest - *least) / kCodes;
  std::memcpy(record_.data(), &*largest, 4);
  std::memcpy(record_.data() + 4, &step, 4);
  std::memcpy(record_.data() + 8, &best, 4);
  for (size_t i = 0; i < logits.size(); ++i) {
    const float code = step > 0.0f ? std::min(kCodes, std::nearbyint((*largest - logits[i]) / step)) : 0.0f;
    const auto stored = static_cast<uint16_t>(code);
    std::memcpy(record_.data() + 12 + 2 * i, &stored, 2);
  }
  write(record_.data(), record_.size());
  ++written_;
}

void KlBaseWriter::finish() {
  CARAT_CHECK(written_ == shape_.scored());
  if (std::fclose(file_.release()) != 0 || std::rename(partial_path_.c_str(), path_.c_str()) != 0) {
    const int reason = errno;
    std::remove(partial_path_.c_str());
    fail(ErrorCode::kIo, "cannot finish {}: {}", path_, std::strerror(reason));
  }
}

KlBaseReader::KlBaseReader(const std::string& path) : file_(path) {
  const auto refuse = [&path](std::string_view why) {
    fail(ErrorCode::kBadFile, "{}: {}; it is not a complete file written by --kl-base", path, why);
  };
  if (file_.bytes().size() < kMagic.size() + 16) refuse("too short");
  ByteReader reader(file_.bytes());
  if (as_text(reader.take(kMagic.size(), "magic")) != kMagic) refuse("it does not begin with CARATKL1");
  shape_.vocabulary = reader.read<uint32_t>("vocabulary");
  shape_.window = reader.read<uint32_t>("window");
  shape_.windows = reader.read<uint32_t>("windows");
  shape_.first = reader.read<uint32_t>("first");
  if (shape_.vocabulary == 0 || shape_.vocabulary > kLargestVocabulary) refuse("impossible vocabulary size");
  if (shape_.window < 2 || shape_.first > shape_.window - 2) refuse("impossible window");
  const uint64_t count = uint64_t{shape_.window} * shape_.windows;
  if (shape_.windows == 0 || count > kMostTokens) refuse("impossible number of windows");
  // Neither product can overflow: fewer than 2^30 records of fewer than 2^26 bytes.
  if (reader.remaining() != 4 * count + shape_.scored() * shape_.record_bytes())
    refuse("its size does not fit its header");

  tokens_.resize(count);
  std::memcpy(tokens_.data(), reader.take(4 * count, "tokens").data(), 4 * count);
  for (const int32_t token : tokens_) {
    if (token < 0 || static_cast<uint32_t>(token) >= shape_.vocabulary) refuse("a token is outside the vocabulary");
  }
  records_ = reader.take(reader.remaining(), "records");
}

int32_t KlBaseReader::read(uint64_t index, std::vector<float>& logits) const {
  const std::byte* record = records_.subspan(index * shape_.record_bytes(), shape_.record_bytes()).data();
  float largest = 0.0f;
  float step = 0.0f;
  int32_t best = 0;
  std::memcpy(&largest, record, 4);
  std::memcpy(&step, record + 4, 4);
  std::memcpy(&best, record + 8, 4);
  if (!std::isfinite(largest) || !std::isfinite(step) || step < 0.0f || best < 0 ||
      static_cast<uint32_t>(best) >= shape_.vocabulary) {
    fail(ErrorCode::kBadFile, "{}: record {} is damaged", file_.path(), index);
  }
  logits.resize(shape_.vocabulary);
  for (size_t i = 0; i < logits.size(); ++i) {
    uint16_t code = 0;
    std::memcpy(&code, record + 12 + 2 * i, 2);
    logits[i] = largest - step * static_cast<float>(code);
  }
  return best;
}

}  // namespace carat::cli
