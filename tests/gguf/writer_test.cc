#include "gguf/writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <stdexcept>

#include "base/error.h"
#include "base/thread_pool.h"
#include "gguf/tensor_type.h"
#include "support/files.h"
#include "support/gguf_sketch.h"
#include "support/random.h"

namespace carat::gguf {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;
using testing::HasSubstr;

// The error of an action, or "accepted".
template <typename Action>
std::string refusal(ErrorCode code, Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "accepted";
}

void copy_metadata(const Metadata& metadata, Writer& writer) {
  for (const Metadata::Entry& entry : metadata.entries()) writer.add(entry.key, entry.value);
}

// Reads `bytes` and writes them again, the tensor data in pieces of `piece` bytes.
std::vector<std::byte> rewritten(std::span<const std::byte> bytes, size_t piece) {
  const TemporaryDirectory folder;
  const Header header = parse(bytes);
  Writer writer(folder.file("copy.gguf"), header.alignment);
  copy_metadata(header.metadata, writer);
  std::vector<std::byte> data;
  for (const TensorInfo& tensor : header.tensors) {
    writer.declare_tensor(tensor.name, tensor.type, std::span(tensor.ne).first(tensor.dimensions));
    const auto content = bytes.subspan(header.data_start + tensor.offset, tensor.bytes);
    data.insert(data.end(), content.begin(), content.end());
  }
  writer.begin_data();
  for (size_t at = 0; at < data.size(); at += piece) {
    writer.write(std::span(data).subspan(at, std::min(piece, data.size() - at)));
  }
  writer.finish();
  return test::read_bytes(folder.file("copy.gguf"));
}

TEST(Writer, ReproducesTheHandWrittenFile) {
  test::GgufSketch sketch = test::tiny_gguf();
  std::vector<std::byte> bytes = sketch.encode();
  // The writer fills the gaps between tensors with zeros.
  const Header header = parse(bytes);
  for (const auto& [from, to] : {std::pair{24, 32}, std::pair{100, 128}}) {
    std::fill(bytes.begin() + static_cast<long>(header.data_start) + from,
              bytes.begin() + static_cast<long>(header.data_start) + to, std::byte{0});
  }
  for (const size_t piece : {1, 7, 24, 1000}) EXPECT_EQ(rewritten(bytes, piece), bytes) << piece;
}

TEST(Writer, ReproducesTheDemoModels) {
  for (const char* name : {"demo-e-q8_0.gguf", "demo-moe-q8_0.gguf", "demo-e-assistant-q8_0.gguf"}) {
    const auto bytes = test::read_bytes(test::model_path(name));
    EXPECT_TRUE(rewritten(bytes, 3 << 20) == bytes) << name;
  }
}

TEST(Writer, ConvenienceFunctionsWriteTheirTypes) {
  const TemporaryDirectory folder;
  Writer writer(folder.file("m.gguf"));
  writer.add_u32("u32", 7);
  writer.add_i32("i32", -7);
  writer.add_f32("f32", 0.25f);
  writer.add_bool("bool", false);
  writer.add_string("string", "text");
  writer.add_strings("strings", std::vector<std::string>{"a", "b c"});
  writer.add_u32s("u32s", std::vector<uint32_t>{1, 4294967295});
  writer.add_i32s("i32s", std::vector<int32_t>{-1});
  writer.add_f32s("f32s", std::vector<float>{1.5f, -0.0f});
  writer.add_bools("bools", {true, false, true});
  writer.begin_data();
  writer.finish();

  const auto file = ModelFile::open(folder.file("m.gguf"));
  const Metadata& metadata = file->metadata();
  const auto type_of = [&](std::string_view key) { return metadata.find(key)->type; };
  EXPECT_EQ(type_of("u32"), ValueType::kU32);
  EXPECT_EQ(type_of("i32"), ValueType::kI32);
  EXPECT_EQ(type_of("f32"), ValueType::kF32);
  EXPECT_EQ(metadata.unsigned_integer("u32"), 7u);
  EXPECT_EQ(metadata.number("i32"), -7.0);
  EXPECT_EQ(metadata.number("f32"), 0.25);
  EXPECT_EQ(metadata.boolean("bool"), false);
  EXPECT_EQ(metadata.string("string"), "text");
  EXPECT_THAT(metadata.array("strings")->strings, testing::ElementsAre("a", "b c"));
  EXPECT_EQ(metadata.array("u32s")->integer(1), 4294967295);
  EXPECT_EQ(metadata.array("i32s")->element, ValueType::kI32);
  EXPECT_EQ(metadata.array("f32s")->number(0), 1.5);
  EXPECT_EQ(metadata.array("bools")->element, ValueType::kBool);
  EXPECT_EQ(metadata.array("bools")->integer(2), 1);
}

TEST(Writer, RandomModelsRoundTrip) {
  test::Random random(1);
  const TemporaryDirectory folder;
  for (int round = 0; round < 50; ++round) {
    const std::string path = folder.file("random.gguf");
    const uint32_t alignment = 8u << random.below(6);
    Writer writer(path, alignment);
    std::vector<std::vector<std::byte>> contents;
    std::vector<std::byte> all;
    for (uint64_t i = 0, count = random.below(20); i < count; ++i) {
      const TensorTypeInfo* type = nullptr;
      while (type == nullptr) type = find_tensor_type(static_cast<uint32_t>(random.below(43)));
      std::vector<uint64_t> ne = {type->block * (1 + random.below(4))};
      while (ne.size() < 1 + random.below(4)) ne.push_back(1 + random.below(5));
      writer.declare_tensor(fmt::format("t{}", i), type->id, ne);
      contents.push_back(random.bytes(tensor_bytes(*type, ne)));
      all.insert(all.end(), contents.back().begin(), contents.back().end());
    }
    writer.begin_data();
    for (size_t at = 0; at < all.size();) {
      const size_t piece = std::min<size_t>(all.size() - at, random.below(3000));
      writer.write(std::span(all).subspan(at, piece));
      at += piece;
    }
    writer.finish();

    const auto file = ModelFile::open(path);
    EXPECT_EQ(file->first_header().alignment, alignment);
    ASSERT_EQ(file->tensors().size(), contents.size());
    for (size_t i = 0; i < contents.size(); ++i) {
      EXPECT_TRUE(std::ranges::equal(file->tensors()[i].data, contents[i])) << i;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(file->tensors()[i].data.data()) % alignment, 0u);
    }
  }
}

TEST(Writer, TheFileAppearsOnlyWhenFinished) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("m.gguf");
  {
    Writer writer(path);
    writer.declare_tensor("t", 0, std::vector<uint64_t>{2});
    writer.begin_data();
    writer.write(std::vector<std::byte>(8));
    EXPECT_TRUE(fs::exists(path + ".partial"));
    EXPECT_FALSE(fs::exists(path));
    writer.finish();
    EXPECT_FALSE(fs::exists(path + ".partial"));
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_TRUE(fs::exists(path));
}

TEST(Writer, AnUnfinishedFileDisappearsAndTheOldOneStays) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("m.gguf");
  test::write_text(path, "old");
  {
    Writer writer(path);
    writer.add_u32("key", 1);
    writer.begin_data();
  }
  EXPECT_FALSE(fs::exists(path + ".partial"));
  EXPECT_EQ(test::read_text(path), "old");
}

TEST(Writer, RefusesWhatCouldNotBeReadBack) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("m.gguf");
  const std::vector<uint64_t> shape = {32};
  Writer writer(path);
  writer.add_u32("key", 1);
  writer.declare_tensor("t", 0, shape);
  const auto bad = [](auto&& action) { return refusal(ErrorCode::kBadArgument, action); };
  EXPECT_EQ(bad([&] { writer.add_u32("key", 2); }), path + ": key 'key' is added twice");
  EXPECT_THAT(bad([&] { writer.add_u32("", 2); }), HasSubstr("a key of 0 bytes"));
  EXPECT_THAT(bad([&] { writer.add_u32(std::string(65536, 'k'), 2); }), HasSubstr("a key of 65536 bytes"));
  EXPECT_EQ(bad([&] { writer.declare_tensor("t", 0, shape); }), path + ": tensor 't' is declared twice");
  EXPECT_THAT(bad([&] { writer.declare_tensor("", 0, shape); }), HasSubstr("0 bytes"));
  EXPECT_THAT(bad([&] { writer.declare_tensor(std::string(64, 'n'), 0, shape); }), HasSubstr("64 bytes"));
  EXPECT_THAT(bad([&] { writer.declare_tensor("u", 4, shape); }), HasSubstr("tensor 'u' has the unknown type 4"));
  EXPECT_THAT(bad([&] { writer.declare_tensor("u", 12, shape); }), HasSubstr("tensor 'u': rows of 32 elements"));
  EXPECT_THAT(bad([&] { writer.add_u32("general.alignment", 64); }), HasSubstr("differs from the alignment 32"));
  EXPECT_THAT(bad([&] { Writer(path, 3); }), HasSubstr("the alignment is 3"));
}

TEST(Writer, RefusesTensorsOfMoreBytesThanCanBeCounted) {
  const TemporaryDirectory folder;
  Writer writer(folder.file("m.gguf"));
  for (const char* name : {"a", "b", "c"}) writer.declare_tensor(name, 24, std::vector<uint64_t>{(1ull << 63) - 1});
  EXPECT_THAT(refusal(ErrorCode::kBadArgument, [&] { writer.begin_data(); }),
              HasSubstr("more bytes than can be counted"));
}

TEST(Writer, CallsInTheWrongOrderAreLogicErrors) {
  const TemporaryDirectory folder;
  Writer writer(folder.file("m.gguf"));
  const std::vector<std::byte> four(4);
  writer.declare_tensor("t", 0, std::vector<uint64_t>{1});
  EXPECT_THROW(writer.write(four), std::logic_error);
  EXPECT_THROW(writer.finish(), std::logic_error);
  writer.begin_data();
  EXPECT_THROW(writer.add_u32("late", 1), std::logic_error);
  EXPECT_THROW(writer.declare_tensor("late", 0, std::vector<uint64_t>{1}), std::logic_error);
  EXPECT_THROW(writer.finish(), std::logic_error) << "the tensor has no data yet";
  writer.write(four);
  EXPECT_THROW(writer.write(four), std::logic_error) << "more data than declared";
  writer.finish();
  EXPECT_THROW(writer.finish(), std::logic_error);
}

TEST(Writer, ValuesMustFitTheirType) {
  const TemporaryDirectory folder;
  Writer writer(folder.file("m.gguf"));
  EXPECT_THROW(writer.add("a", {ValueType::kU8, uint64_t{256}}), std::logic_error);
  EXPECT_THROW(writer.add("b", {ValueType::kI16, int64_t{-32769}}), std::logic_error);
  EXPECT_THROW(writer.add("c", {ValueType::kArray, Array{ValueType::kU32, 2, {}, {}}}), std::logic_error);
}

TEST(Writer, AFolderThatDoesNotExistIsNamed) {
  const TemporaryDirectory folder;
  EXPECT_THAT(refusal(ErrorCode::kIo, [&] { Writer(folder.file("no/m.gguf")); }),
              testing::AllOf(HasSubstr("no/m.gguf.partial"), HasSubstr("No such file or directory")));
}

TEST(Writer, AFullDiskIsReported) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("m.gguf");
  fs::create_symlink("/dev/full", path + ".partial");
  Writer writer(path);
  EXPECT_THAT(refusal(ErrorCode::kIo, [&] { writer.begin_data(); }),
              HasSubstr("m.gguf.partial: No space left on device"));
}

TEST(Writer, ThreadsMayFillTensorsInAnyOrder) {
  test::Random random(2);
  const TemporaryDirectory folder;
  const std::string path = folder.file("m.gguf");
  const std::vector<std::byte> contents[2] = {random.bytes(10001), random.bytes(7003)};
  Writer writer(path);
  for (const auto& content : contents) {
    writer.declare_tensor(fmt::format("t{}", content.size()), 24, std::vector<uint64_t>{content.size()});
  }
  writer.begin_data();
  ThreadPool pool(4);
  constexpr size_t kPiece = 100;
  for (const size_t tensor : {1, 0}) {
    const auto& content = contents[tensor];
    pool.parallel_for(content.size(), kPiece, [&](size_t begin, size_t end, unsigned) {
      writer.write_at(tensor, begin, std::span(content).subspan(begin, end - begin));
    });
  }
  writer.finish();
  const auto file = ModelFile::open(path);
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(std::ranges::equal(file->tensors()[i].data, contents[i]));
  EXPECT_EQ(fs::file_size(path) % 32, 0u) << "the last tensor is padded as well";
}

TEST(Writer, PlacedDataMustBeCompleteAndInside) {
  const TemporaryDirectory folder;
  Writer writer(folder.file("m.gguf"));
  writer.declare_tensor("t", 24, std::vector<uint64_t>{8});
  writer.begin_data();
  const std::vector<std::byte> four(4);
  EXPECT_THROW(writer.write_at(1, 0, four), std::logic_error);
  EXPECT_THROW(writer.write_at(0, 5, four), std::logic_error);
  EXPECT_THROW(writer.write_at(0, ~uint64_t{0}, four), std::logic_error);
  writer.write_at(0, 4, four);
  EXPECT_THROW(writer.finish(), std::logic_error) << "half of the tensor is missing";
  EXPECT_THROW(writer.write(four), std::logic_error) << "one file is written in one way";
  writer.write_at(0, 0, four);
  writer.finish();
}

TEST(Writer, ATargetThatCannotBeReplacedIsReported) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("m.gguf");
  fs::create_directory(path);
  Writer writer(path);
  writer.begin_data();
  EXPECT_THAT(refusal(ErrorCode::kIo, [&] { writer.finish(); }), HasSubstr("cannot rename"));
}

}  // namespace
}  // namespace carat::gguf
