#include "batch/batch_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "support/files.h"

namespace carat::batch {
namespace {

using testing::ElementsAre;

struct Read {
  std::vector<std::string> texts;
  std::vector<uint64_t> numbers;
};

Read read(const std::string& path, Shard shard) {
  const BatchInput input(path, shard);
  Read read;
  for (const BatchInput::Line& line : input.lines()) {
    read.texts.emplace_back(input.text(line));
    read.numbers.push_back(line.number);
  }
  return read;
}

TEST(BatchInput, EmptyLinesAreCountedAndLeftOut) {
  const test::TemporaryDirectory folder;
  test::write_text(folder.file("in"), "one\n\n  \r\ntwo\r\nthree");
  const Read all = read(folder.file("in"), {});
  EXPECT_THAT(all.texts, ElementsAre("one", "two\r", "three"));
  EXPECT_THAT(all.numbers, ElementsAre(1, 4, 5));
}

TEST(BatchInput, ShardsAfterOneAnotherAreTheWhole) {
  const test::TemporaryDirectory folder;
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    std::string text;
    for (uint64_t i = 0, lines = 1 + random() % 40; i < lines; ++i) text += std::string(random() % 50, 'x') + "\n";
    test::write_text(folder.file("in"), text);
    const Read all = read(folder.file("in"), {});
    for (const uint64_t count : {1, 2, 3, 7, 64}) {
      Read joined;
      for (uint64_t index = 1; index <= count; ++index) {
        const Read part = read(folder.file("in"), {index, count});
        joined.texts.insert(joined.texts.end(), part.texts.begin(), part.texts.end());
        joined.numbers.insert(joined.numbers.end(), part.numbers.begin(), part.numbers.end());
      }
      EXPECT_EQ(joined.texts, all.texts);
      EXPECT_EQ(joined.numbers, all.numbers);
    }
  }
}

TEST(BatchInput, ShardsHaveAboutTheSameNumberOfBytes) {
  const test::TemporaryDirectory folder;
  std::string text;  // sorted by length, as batches often are
  for (int i = 0; i < 1000; ++i) text += std::string(static_cast<size_t>(i), 'x') + "\n";
  test::write_text(folder.file("in"), text);
  for (uint64_t index = 1; index <= 4; ++index) {
    size_t bytes = 0;
    for (const std::string& line : read(folder.file("in"), {index, 4}).texts) bytes += line.size() + 1;
    EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(text.size()) / 4, 1000.0);
  }
}

TEST(BatchInput, FilesAreToldApart) {
  const test::TemporaryDirectory folder;
  const auto hash_of = [&](const char* text) {
    test::write_text(folder.file("in"), text);
    return BatchInput(folder.file("in"), {}).hash();
  };
  EXPECT_EQ(hash_of("abc\ndef\n"), hash_of("abc\ndef\n"));
  EXPECT_NE(hash_of("abc\ndef\n"), hash_of("abc\ndeg\n"));
  EXPECT_NE(hash_of("abc\ndef\n"), hash_of("abcd\nef\n"));
  EXPECT_NE(hash_of("abc\n\ndef\n"), hash_of("abc\ndef\n"));
}

TEST(BatchInput, PartsAreCountedFromOne) {
  const Shard shard = parse_shard("2/4");
  EXPECT_EQ(shard.index, 2u);
  EXPECT_EQ(shard.count, 4u);
  for (const char* wrong : {"", "2", "/4", "2/", "0/4", "5/4", "2/4x", "a/4", "-1/4", "2 /4", "1/9999999999"}) {
    EXPECT_THROW(parse_shard(wrong), Error) << wrong;
  }
}

}  // namespace
}  // namespace carat::batch
