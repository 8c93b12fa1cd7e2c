#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"

namespace carat::batch {

// A part of a batch: the `index`-th of `count`, from one.
struct Shard {
  uint64_t index = 1;
  uint64_t count = 1;

  std::string text() const;  // "2/4"
};
// Reads "2/4". Throws kBadArgument for a text that does not name a part.
Shard parse_shard(const std::string& text);

// The lines of a batch's file that one shard has. Shards are pieces of the file of about the same number of bytes, in
// its order: their outputs, one after the other, are the output of the whole.
class BatchInput {
 public:
  // Reads the whole file once. Throws kIo where it cannot be read, kBadFile where there is nothing in it.
  BatchInput(const std::string& path, Shard shard);

  struct Line {
    uint64_t offset = 0;
    uint64_t number = 0;  // of all lines of the file, from one; empty lines count
  };
  const std::vector<Line>& lines() const { return lines_; }  // those that are not empty
  std::string_view text(const Line& line) const;             // without its line break

  const std::string& path() const { return file_.path(); }
  Shard shard() const { return shard_; }
  uint64_t bytes() const { return file_.bytes().size(); }
  // Of the whole file: two shards of one file have the same one.
  uint64_t hash() const { return hash_; }

 private:
  std::string_view all() const;

  MappedFile file_;
  Shard shard_;
  std::vector<Line> lines_;
  uint64_t hash_ = 0;
};

}  // namespace carat::batch
