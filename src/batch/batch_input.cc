#include "batch/batch_input.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace carat::batch {

namespace {

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r") == std::string_view::npos; }

// FNV-1a over the lengths and eight bytes at a time, so that hashing keeps up with a disk. It tells files apart that
// were mistaken for each other, not forgeries.
uint64_t hash_on(uint64_t hash, std::string_view bytes) {
  constexpr uint64_t kPrime = 0x100000001b3;
  hash = (hash ^ bytes.size()) * kPrime;
  for (size_t i = 0; i < bytes.size(); i += 8) {
    uint64_t word = 0;
    bytes.substr(i, 8).copy(reinterpret_cast<char*>(&word), 8);
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

std::string Shard::text() const { return fmt::format("{}/{}", index, count); }

Shard parse_shard(const std::string& text) {
  Shard shard;
  const char* const end = text.data() + text.size();
  const auto [slash, first_error] = std::from_chars(text.data(), end, shard.index);
  const bool has_slash = first_error == std::errc() && slash != end && *slash == '/';
  const auto [rest, second_error] = std::from_chars(has_slash ? slash + 1 : end, end, shard.count);
  if (!has_slash || second_error != std::errc() || rest != end || shard.index < 1 || shard.index > shard.count ||
      shard.count > (uint64_t{1} << 20)) {
    fail(ErrorCode::kBadArgument, "--shard {}: give which part of how many, from 1/{} on, such as 2/4", text,
         shard.count > 0 && second_error == std::errc() && has_slash ? std::to_string(shard.count) : "4");
  }
  return shard;
}

BatchInput::BatchInput(const std::string& path, Shard shard) : file_(path), shard_(shard) {
  const std::string_view bytes = all();
  hash_ = 0xcbf29ce484222325;
  uint64_t number = 0;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', begin), bytes.size());
    const std::string_view line = bytes.substr(begin, end - begin);
    ++number;
    hash_ = hash_on(hash_, line);
    const uint64_t part = begin * shard.count / bytes.size();  // count is at most 2^20, files are below 2^44 bytes
    if (part + 1 == shard.index && !is_blank(line)) lines_.push_back({begin, number});
    begin = end + 1;
  }
}

std::string_view BatchInput::all() const {
  return {reinterpret_cast<const char*>(file_.bytes().data()), file_.bytes().size()};
}

std::string_view BatchInput::text(const Line& line) const {
  const std::string_view rest = all().substr(line.offset);
  return rest.substr(0, rest.find('\n'));
}

}  // namespace carat::batch
