#include "base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "base/byte_reader.h"
#include "base/error.h"
#include "support/files.h"

namespace carat {
namespace {

using test::TemporaryDirectory;
using testing::HasSubstr;

std::string refusal(const std::string& path, ErrorCode code) {
  try {
    const MappedFile file(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_THAT(error.what(), HasSubstr(path));
    return error.what();
  }
  return "accepted";
}

// How many files this process has open: a refused file must not stay among them.
size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

TEST(MappedFile, ShowsTheContent) {
  const TemporaryDirectory folder;
  test::write_text(folder.file("f"), "content");
  const MappedFile file(folder.file("f"));
  EXPECT_EQ(as_text(file.bytes()), "content");
  EXPECT_EQ(file.path(), folder.file("f"));
}

TEST(MappedFile, MovesWithoutMovingTheBytes) {
  const TemporaryDirectory folder;
  test::write_text(folder.file("f"), "first");
  test::write_text(folder.file("g"), "second");
  MappedFile file(folder.file("f"));
  const std::byte* before = file.bytes().data();
  MappedFile moved(std::move(file));
  EXPECT_EQ(moved.bytes().data(), before);
  moved = MappedFile(folder.file("g"));
  EXPECT_EQ(as_text(moved.bytes()), "second");
  MappedFile& itself = moved;
  moved = std::move(itself);
  EXPECT_EQ(as_text(moved.bytes()), "second");
}

TEST(MappedFile, OutlivesItsName) {
  const TemporaryDirectory folder;
  test::write_text(folder.file("f"), "still here");
  const MappedFile file(folder.file("f"));
  std::filesystem::remove(folder.file("f"));
  EXPECT_EQ(as_text(file.bytes()), "still here");
  file.check_unchanged();
}

TEST(MappedFile, RefusesWhatIsNoFile) {
  const TemporaryDirectory folder;
  const size_t before = open_descriptors();
  EXPECT_THAT(refusal(folder.file("none"), ErrorCode::kIo), HasSubstr("No such file"));
  EXPECT_THAT(refusal(folder.path(), ErrorCode::kIo), HasSubstr("a directory"));
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal(folder.file("pipe"), ErrorCode::kIo), HasSubstr("not a regular file"));
  EXPECT_THAT(refusal("/dev/zero", ErrorCode::kIo), HasSubstr("not a regular file"));
  test::write_text(folder.file("empty"), "");
  EXPECT_THAT(refusal(folder.file("empty"), ErrorCode::kBadFile), HasSubstr("is empty"));
  EXPECT_EQ(open_descriptors(), before);
}

TEST(MappedFile, NoticesThatTheFileBecameShorter) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("f");
  test::write_text(path, "0123456789");
  const MappedFile file(path);
  file.check_unchanged();
  std::filesystem::resize_file(path, 4);
  try {
    file.check_unchanged();
    FAIL() << "truncation went unnoticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr(path));
  }
}

TEST(MappedFile, ReadsAnyPart) {
  const TemporaryDirectory folder;
  test::write_text(folder.file("f"), "0123456789");
  const MappedFile file(folder.file("f"));
  std::vector<std::byte> to(4);
  file.read(3, to);
  EXPECT_EQ(as_text(to), "3456");
  file.read(6, to);
  EXPECT_EQ(as_text(to), "6789");
  file.read(10, {});
  EXPECT_THROW(file.read(7, to), std::logic_error);
  EXPECT_THROW(file.read(SIZE_MAX, to), std::logic_error);
}

// Within the page of the new end, where zeros would be read, and in pages that are gone; the process goes on.
TEST(MappedFile, ReadingATruncatedFileIsAnError) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("f");
  test::write_text(path, std::string(100000, 'x'));
  const MappedFile file(path);
  std::filesystem::resize_file(path, 5);
  const auto refused = [&](size_t offset) {
    std::vector<std::byte> to(50);
    try {
      file.read(offset, to);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      EXPECT_THAT(error.what(), HasSubstr(path + " became shorter"));
      return true;
    }
    return false;
  };
  for (const size_t offset : {0u, 100u, 4090u, 4096u, 90000u, 99950u}) EXPECT_TRUE(refused(offset)) << offset;
  std::vector<std::thread> threads;
  std::atomic<int> refusals{0};
  for (size_t i = 0; i < 4; ++i) threads.emplace_back([&, i] { refusals += refused(20000 * (i + 1)) ? 1 : 0; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refusals, 4);
}

// A file of 100,000 bytes that became ten bytes long after it was mapped.
struct CutFile {
  TemporaryDirectory folder;
  std::string path = folder.file("f");
  MappedFile file{written(path)};
  CutFile() { std::filesystem::resize_file(path, 10); }

 private:
  static const std::string& written(const std::string& at) {
    test::write_text(at, std::string(100000, 'x'));
    return at;
  }
};

TEST(MappedFileDeathTest, AnErrorOfReadLeavesTheHandlerAsItWas) {
  const CutFile cut;
  const MappedFile& file = cut.file;
  EXPECT_EXIT(
      {
        std::vector<std::byte> to(10);
        EXPECT_THROW(file.read(90000, to), Error);
        const volatile std::byte* bytes = file.bytes().data();
        [[maybe_unused]] const std::byte value = bytes[90000];
      },
      testing::ExitedWithCode(2), "truncated");
}

TEST(MappedFileDeathTest, ReadingATruncatedMappingEndsWithAMessage) {
  const CutFile cut;
  const MappedFile& file = cut.file;
  EXPECT_EXIT(
      {
        install_truncation_handler();
        const volatile std::byte* bytes = file.bytes().data();
        [[maybe_unused]] const std::byte value = bytes[90000];
      },
      testing::ExitedWithCode(2), "truncated");
}

}  // namespace
}  // namespace carat
