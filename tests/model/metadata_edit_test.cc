#include "model/metadata_edit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/error.h"
#include "support/files.h"

namespace carat::model {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

void expect_refused(const std::function<void()>& action, const std::string& named) {
  try {
    action();
    ADD_FAILURE() << "accepted instead of: " << named;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
    EXPECT_THAT(error.what(), HasSubstr(named));
  }
}

// The key after the edit, as a reader sees it, where it held `before`.
gguf::Value edited(const std::string& edit, const gguf::Value* before) {
  const test::TemporaryDirectory folder;
  {
    gguf::Writer writer(folder.file("edited.gguf"));
    MetadataEdit::parse(edit).write(before, writer);
    writer.begin_data();
    writer.finish();
  }
  const auto file = gguf::ModelFile::open(folder.file("edited.gguf"));
  gguf::Value value = file->metadata().entries()[0].value;
  // The text of a string lies in the file, which is about to go.
  if (auto* text = std::get_if<std::string_view>(&value.data)) *text = *text == "two words" ? "two words" : "?";
  return value;
}

gguf::Value edited(const std::string& edit, const gguf::Value& before) { return edited(edit, &before); }

TEST(MetadataEdit, NewKeysGetTheTypesOfConverters) {
  EXPECT_EQ(edited("a.b=int:-7", nullptr).type, gguf::ValueType::kI32);
  EXPECT_EQ(std::get<int64_t>(edited("a.b=int:-7", nullptr).data), -7);
  EXPECT_EQ(edited("a.b=int:5000000000", nullptr).type, gguf::ValueType::kI64);
  EXPECT_EQ(edited("a.b=float:0.25", nullptr).type, gguf::ValueType::kF32);
  EXPECT_EQ(std::get<double>(edited("a.b=float:0.25", nullptr).data), 0.25);
  EXPECT_TRUE(std::get<bool>(edited("a.b=bool:true", nullptr).data));
  EXPECT_EQ(std::get<std::string_view>(edited("a.b=str:two words", nullptr).data), "two words");
}

TEST(MetadataEdit, KeysKeepTheirStoredType) {
  const gguf::Value narrow = edited("a=int:255", {gguf::ValueType::kU8, uint64_t{1}});
  EXPECT_EQ(narrow.type, gguf::ValueType::kU8);
  EXPECT_EQ(std::get<uint64_t>(narrow.data), 255u);
  const gguf::Value wide = edited("a=float:0.1", {gguf::ValueType::kF64, 1.0});
  EXPECT_EQ(wide.type, gguf::ValueType::kF64);
  EXPECT_EQ(std::get<double>(wide.data), 0.1);
  const int64_t least = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(std::get<int64_t>(edited(fmt::format("a=int:{}", least), {gguf::ValueType::kI64, int64_t{0}}).data), least);
}

TEST(MetadataEdit, ValuesThatDoNotFitAreRefused) {
  const gguf::Value byte{gguf::ValueType::kU8, uint64_t{1}}, small{gguf::ValueType::kI16, int64_t{1}},
      large{gguf::ValueType::kU64, uint64_t{1}}, text{gguf::ValueType::kString, std::string_view("x")},
      truth{gguf::ValueType::kBool, true}, number{gguf::ValueType::kF32, 1.0},
      array{gguf::ValueType::kArray, gguf::Array{}};
  expect_refused([&] { edited("a=int:256", byte); }, "a is stored as u8, which 256 does not fit");
  expect_refused([&] { edited("a=int:-1", byte); }, "-1");
  expect_refused([&] { edited("a=int:-32769", small); }, "-32769");
  expect_refused([&] { edited("a=int:-1", large); }, "-1");
  expect_refused([&] { edited("a=int:1", text); }, "a holds a value of type string");
  expect_refused([&] { edited("a=int:1", number); }, "type f32");
  expect_refused([&] { edited("a=int:1", truth); }, "type bool");
  expect_refused([&] { edited("a=float:1", byte); }, "type u8");
  expect_refused([&] { edited("a=str:1", truth); }, "type bool");
  expect_refused([&] { edited("a=bool:true", array); }, "type array");
}

TEST(MetadataEdit, TextsThatAreNotEditsAreRefused) {
  for (const std::string text :
       {"", "key", "key=", "key=5", "=int:5", "key:int=5", "key=int:", "key=int:5x", "key=int:99999999999999999999",
        "key=float:nan", "key=float:1e60", "key=float:hot", "key=bool:yes", "key=u32:5"}) {
    SCOPED_TRACE(text);
    expect_refused([&] { MetadataEdit::parse(text); }, text + ": ");
  }
  expect_refused([] { MetadataEdit::parse("general.alignment=int:64"); }, "where data lies");
  expect_refused([] { MetadataEdit::parse("split.count=int:2"); }, "where data lies");
}

TEST(MetadataEdit, ATextMayHoldTheSeparators) {
  EXPECT_EQ(std::get<std::string>(MetadataEdit::parse("a=str:b=c:d").value), "b=c:d");
}

}  // namespace
}  // namespace carat::model
