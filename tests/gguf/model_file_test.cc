#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "gguf/reader.h"
#include "gguf/writer.h"
#include "support/files.h"
#include "support/gguf_sketch.h"

namespace carat::gguf {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string refusal(const std::string& path, ErrorCode code = ErrorCode::kBadFile) {
  try {
    ModelFile::open(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "accepted";
}

TEST(ModelFile, OpensTheDemoModels) {
  const auto file = ModelFile::open(test::model_path("demo-e-q8_0.gguf"));
  EXPECT_EQ(file->metadata().string("general.architecture"), "gemma4");
  EXPECT_EQ(file->parts(), 1u);
  EXPECT_EQ(file->file_bytes(), fs::file_size(file->path()));
  ASSERT_NE(file->find("token_embd.weight"), nullptr);
  EXPECT_EQ(file->find("token_embd.weight")->info.dimensions, 2u);
  EXPECT_EQ(file->find("no such tensor"), nullptr);
  for (const TensorView& tensor : file->tensors()) EXPECT_EQ(file->find(tensor.info.name), &tensor);
  file->check_unchanged();
}

TEST(ModelFile, DataIsWhatTheFileHolds) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("tiny.gguf");
  test::write_bytes(path, test::tiny_gguf().encode());
  const auto file = ModelFile::open(path);
  const TensorView& second = *file->find("second.weight");
  ASSERT_EQ(second.data.size(), 68u);
  for (size_t i = 0; i < second.data.size(); ++i) EXPECT_EQ(second.data[i], static_cast<std::byte>((32 + i) % 251));
}

TEST(ModelFile, ErrorsBeginWithThePath) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("bad.gguf");
  test::write_text(path, "GGUFxxxxxxxxxxxxxxxxxxxxxxxx");
  EXPECT_THAT(refusal(path, ErrorCode::kUnsupported), StartsWith(path + ": GGUF version"));
}

TEST(ModelFile, ThingsThatAreNoFiles) {
  const TemporaryDirectory folder;
  EXPECT_THAT(refusal(folder.file("missing.gguf"), ErrorCode::kIo),
              AllOf(HasSubstr("missing.gguf"), HasSubstr("No such file")));
  EXPECT_THAT(refusal(folder.path(), ErrorCode::kIo), HasSubstr("is a directory"));
  const std::string pipe = folder.file("pipe.gguf");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(refusal(pipe, ErrorCode::kIo), HasSubstr("not a regular file"));
  const std::string empty = folder.file("empty.gguf");
  test::write_text(empty, "");
  EXPECT_THAT(refusal(empty), HasSubstr("empty.gguf is empty"));
}

TEST(ModelFile, AnUnreadableFile) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("secret.gguf");
  test::write_bytes(path, test::tiny_gguf().encode());
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  // The administrator may read everything, so become nobody for a moment.
  const uid_t user = ::geteuid();
  ASSERT_EQ(::seteuid(user == 0 ? 65534 : user), 0);
  const std::string message = refusal(path, ErrorCode::kIo);
  ASSERT_EQ(::seteuid(user), 0);
  EXPECT_THAT(message, AllOf(HasSubstr("secret.gguf"), HasSubstr("Permission denied")));
}

TEST(ModelFile, ATruncatedModel) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("cut.gguf");
  fs::copy(test::model_path("demo-e-assistant-q8_0.gguf"), path);
  fs::resize_file(path, fs::file_size(path) - 40000);
  EXPECT_THAT(refusal(path), AllOf(StartsWith(path), HasSubstr("ends beyond"), HasSubstr("truncated")));
}

TEST(ModelFile, NoticesTruncationAfterOpening) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("m.gguf");
  test::write_bytes(path, test::tiny_gguf().encode());
  const auto file = ModelFile::open(path);
  file->check_unchanged();
  fs::resize_file(path, 100);
  EXPECT_THROW(file->check_unchanged(), Error);
}

TEST(ModelFile, ReadsWhatAViewShows) {
  const auto file = ModelFile::open(test::model_path("demo-e-q8_0.gguf"));
  for (const TensorView& tensor : file->tensors()) {
    std::vector<std::byte> copy(tensor.data.size());
    file->read(tensor.data, copy.data());
    EXPECT_TRUE(std::equal(copy.begin(), copy.end(), tensor.data.begin())) << tensor.info.name;
  }
  const std::vector<std::byte> elsewhere(8);
  std::vector<std::byte> copy(8);
  EXPECT_THROW(file->read(elsewhere, copy.data()), std::logic_error);
}

// What one part of a split model says about itself; nullopt leaves the key out.
struct Part {
  std::optional<uint64_t> number;
  std::optional<uint64_t> count;
  std::optional<int64_t> tensors;
  std::vector<std::string> names;
};

void write_part(const std::string& path, const Part& part) {
  Writer writer(path);
  if (part.number) writer.add("split.no", {ValueType::kU16, *part.number});
  if (part.count) writer.add("split.count", {ValueType::kU16, *part.count});
  if (part.tensors) writer.add("split.tensors.count", {ValueType::kI32, *part.tensors});
  writer.add_string("general.name", fs::path(path).filename().string());
  for (const std::string& name : part.names) writer.declare_tensor(name, 24, std::vector<uint64_t>{4});
  writer.begin_data();
  for (const std::string& name : part.names) writer.write(std::vector<std::byte>(4, static_cast<std::byte>(name[0])));
  writer.finish();
}

class SplitModel : public testing::Test {
 protected:
  SplitModel() {
    write_part(path(1), parts_[0]);
    write_part(path(2), parts_[1]);
    write_part(path(3), parts_[2]);
  }
  std::string path(int number) const { return folder_.file(fmt::format("big-0000{}-of-00003.gguf", number)); }

  TemporaryDirectory folder_;
  Part parts_[3] = {{0, 3, 3, {}}, {1, 3, 3, {"a", "b"}}, {2, 3, 3, {"c"}}};
};

TEST_F(SplitModel, OpensFromAnyPart) {
  for (int given = 1; given <= 3; ++given) {
    const auto file = ModelFile::open(path(given));
    EXPECT_EQ(file->parts(), 3u);
    EXPECT_EQ(file->path(), path(given));
    EXPECT_EQ(file->metadata().string("general.name"), "big-00001-of-00003.gguf");
    ASSERT_EQ(file->tensors().size(), 3u);
    for (const char* name : {"a", "b", "c"}) {
      ASSERT_NE(file->find(name), nullptr);
      EXPECT_EQ(file->find(name)->data[3], static_cast<std::byte>(name[0]));
      std::vector<std::byte> copy(4);
      file->read(file->find(name)->data, copy.data());
      EXPECT_EQ(copy, std::vector<std::byte>(4, static_cast<std::byte>(name[0])));
    }
    EXPECT_EQ(file->file_bytes(), fs::file_size(path(1)) + fs::file_size(path(2)) + fs::file_size(path(3)));
  }
}

TEST_F(SplitModel, AMissingPartIsNamed) {
  for (int missing = 1; missing <= 3; ++missing) {
    fs::rename(path(missing), folder_.file("away"));
    const int given = missing == 1 ? 2 : 1;
    EXPECT_THAT(refusal(path(given), ErrorCode::kIo),
                AllOf(HasSubstr(path(missing)), HasSubstr("No such file"), HasSubstr("the model has 3 parts")));
    fs::rename(folder_.file("away"), path(missing));
  }
}

TEST_F(SplitModel, ADamagedPartIsNamed) {
  fs::resize_file(path(3), 30);
  EXPECT_THAT(refusal(path(1)), StartsWith(path(3) + ": "));
}

TEST_F(SplitModel, SwappedParts) {
  fs::rename(path(2), folder_.file("x"));
  fs::rename(path(3), path(2));
  fs::rename(folder_.file("x"), path(3));
  EXPECT_EQ(refusal(path(1)), path(2) + ": split.no is 2, but the name says part 2 of 3 (split.no 1)");
}

TEST_F(SplitModel, APartOfAnotherModel) {
  write_part(path(2), {1, 4, 3, {"a", "b"}});
  EXPECT_EQ(refusal(path(1)), path(2) + ": split.count is 4, but the other parts say 3");
  write_part(path(2), {1, std::nullopt, 3, {"a", "b"}});
  EXPECT_EQ(refusal(path(1)), path(2) + ": split.count is missing, but the other parts say 3");
  write_part(path(2), {std::nullopt, 3, 3, {"a", "b"}});
  EXPECT_THAT(refusal(path(1)), StartsWith(path(2) + ": the key split.no is missing"));
}

TEST_F(SplitModel, ATensorInTwoParts) {
  write_part(path(3), {2, 3, 3, {"b"}});
  EXPECT_THAT(refusal(path(1)), HasSubstr("tensor 'b' is in two parts"));
}

TEST_F(SplitModel, AWrongNumberOfTensors) {
  write_part(path(3), {2, 3, 3, {"c", "d"}});
  EXPECT_THAT(refusal(path(1)), HasSubstr("split.tensors.count is 3, but the 3 parts hold 4 tensors"));
}

TEST_F(SplitModel, NamesAndCountsMustAgree) {
  fs::copy(path(2), folder_.file("renamed.gguf"));
  EXPECT_THAT(refusal(folder_.file("renamed.gguf")), HasSubstr("split.count is 3, but the name does not end in"));
  fs::copy(path(2), folder_.file("big-00002-of-00004.gguf"));
  EXPECT_THAT(refusal(folder_.file("big-00002-of-00004.gguf")), HasSubstr("split.count is 3, but the name"));
  fs::copy(path(2), folder_.file("big-00004-of-00003.gguf"));
  EXPECT_THAT(refusal(folder_.file("big-00004-of-00003.gguf")), HasSubstr("split.count is 3, but the name"));
  write_part(folder_.file("whole-00002-of-00003.gguf"), {std::nullopt, std::nullopt, std::nullopt, {"a"}});
  EXPECT_THAT(refusal(folder_.file("whole-00002-of-00003.gguf")), HasSubstr("the file holds a whole model"));
  for (const uint64_t count : {0, 1025, 65535}) {
    write_part(path(1), {0, count, 3, {}});
    EXPECT_THAT(refusal(path(1)), HasSubstr(fmt::format("split.count is {}, but must be 1 to 1024", count)));
  }
}

TEST_F(SplitModel, ASplitIntoOnePartIsAWholeModel) {
  write_part(folder_.file("one-00001-of-00001.gguf"), {0, 1, 1, {"a"}});
  EXPECT_EQ(ModelFile::open(folder_.file("one-00001-of-00001.gguf"))->tensors().size(), 1u);
}

}  // namespace
}  // namespace carat::gguf
