#include "cli/shell/input_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "support/files.h"

namespace carat::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class InputHistoryTest : public testing::Test {
 protected:
  InputHistory open(const std::string& file) {
    return InputHistory(file, [this](std::string_view text) { warnings_.emplace_back(text); });
  }

  test::TemporaryDirectory folder_;
  std::string file_ = folder_.file("state/carat/history");
  std::vector<std::string> warnings_;
};

mode_t mode_of(const std::string& path) {
  struct stat status = {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 0777;
}

TEST_F(InputHistoryTest, KeepsEntriesWhole) {
  {
    InputHistory history = open(file_);
    EXPECT_TRUE(history.entries().empty());
    EXPECT_TRUE(history.add("hello"));
    EXPECT_TRUE(history.add("\"\"\"several\nlines\n\nand a \\n of text\"\"\""));
    EXPECT_TRUE(history.add("C:\\new"));
  }
  EXPECT_THAT(open(file_).entries(),
              ElementsAre("hello", "\"\"\"several\nlines\n\nand a \\n of text\"\"\"", "C:\\new"));
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(InputHistoryTest, IsForItsOwnerOnly) {
  open(file_).add("secret");
  EXPECT_EQ(mode_of(file_), 0600u);
  EXPECT_EQ(mode_of(folder_.file("state/carat")), 0700u);
  ::chmod(file_.c_str(), 0644);
  open(file_).add("another");
  EXPECT_EQ(mode_of(file_), 0600u);
}

TEST_F(InputHistoryTest, SkipsRepetitions) {
  InputHistory history = open(file_);
  EXPECT_TRUE(history.add("a"));
  EXPECT_FALSE(history.add("a"));
  EXPECT_FALSE(history.add(""));
  EXPECT_TRUE(history.add("b"));
  EXPECT_TRUE(history.add("a"));
  EXPECT_THAT(open(file_).entries(), ElementsAre("a", "b", "a"));
}

TEST_F(InputHistoryTest, StaysSmall) {
  std::filesystem::create_directories(folder_.file("state/carat"));
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "entry " + std::to_string(i) + "\n";
  test::write_text(file_, text);
  InputHistory history = open(file_);
  EXPECT_EQ(history.entries().size(), 1000u);
  EXPECT_EQ(history.entries().back(), "entry 4999");
  EXPECT_LT(std::filesystem::file_size(file_), 20'000u);
  EXPECT_EQ(open(file_).entries(), history.entries());

  test::write_text(file_, std::string(3 << 20, 'x') + "\nlast\n");
  EXPECT_THAT(open(file_).entries(), ElementsAre("last"));
  EXPECT_LT(std::filesystem::file_size(file_), 100u);

  // A pasted book is there in this chat, but not in the file.
  InputHistory large = open(file_);
  EXPECT_TRUE(large.add(std::string(1 << 20, 'y')));
  EXPECT_EQ(large.entries().size(), 2u);
  EXPECT_LT(std::filesystem::file_size(file_), 100u);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(InputHistoryTest, AFailureIsOneWarning) {
  const std::string directory = folder_.file("is_a_folder");
  std::filesystem::create_directory(directory);
  InputHistory history = open(directory);
  EXPECT_TRUE(history.add("a"));
  EXPECT_TRUE(history.add("b"));
  EXPECT_THAT(history.entries(), ElementsAre("a", "b"));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr(directory)));
}

TEST_F(InputHistoryTest, AFolderThatCannotBeMadeIsOneWarning) {
  test::write_text(folder_.file("state"), "a file where a folder should be");
  InputHistory history = open(file_);
  history.add("a");
  history.add("b");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr(file_)));
}

TEST_F(InputHistoryTest, APipeIsNoHistory) {
  const std::string pipe = folder_.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  InputHistory history = open(pipe);  // must not wait for a writer
  history.add("a");
  EXPECT_EQ(warnings_.size(), 1u);
}

TEST_F(InputHistoryTest, NoFileIsNoHistory) {
  InputHistory history = open("");
  EXPECT_TRUE(history.add("a"));
  EXPECT_TRUE(warnings_.empty());
}

TEST(DefaultHistoryFile, FollowsTheEnvironment) {
  ::setenv("HOME", "/home/someone", 1);
  ::setenv("XDG_STATE_HOME", "/state", 1);
  EXPECT_EQ(default_history_file(), "/state/carat/history");
  ::setenv("XDG_STATE_HOME", "relative", 1);
  EXPECT_EQ(default_history_file(), "/home/someone/.local/state/carat/history");
  ::unsetenv("XDG_STATE_HOME");
  EXPECT_EQ(default_history_file(), "/home/someone/.local/state/carat/history");
  ::unsetenv("HOME");
  EXPECT_EQ(default_history_file(), "");
}

}  // namespace
}  // namespace carat::cli
