#include "hub/inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "hub/synthetic_cache.h"
#include "support/gguf_sketch.h"
#include "support/tiny_model.h"

namespace carat::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class InventoryTest : public testing::Test {
 protected:
  InventoryTest() : cache(folder.path() / "hub"), models(folder.path() / "models") {
    fs::create_directories(models);
    tiny_draft(tiny_shape(TinyKind::kE2B)).write(folder.file("tiny.gguf"));
    tiny = read_text(folder.file("tiny.gguf"));
    fs::remove(folder.file("tiny.gguf"));
    places = {{models, folder.path() / "not-there"}, {cache.root()}};
    repo = cache.repo("maker", "tiny-GGUF");
  }

  // The one entry of that name; fails when there is none.
  hub::InventoryEntry entry(const std::string& name) const {
    const hub::Inventory inventory = hub::take_inventory(places);
    const auto found = std::find_if(inventory.models.begin(), inventory.models.end(),
                                    [&](const hub::InventoryEntry& candidate) { return candidate.name == name; });
    if (found != inventory.models.end()) return *found;
    ADD_FAILURE() << "there is no entry " << name;
    return {};
  }

  TemporaryDirectory folder;
  MadeUpCache cache;
  fs::path models;
  std::string tiny;
  hub::LookupPlaces places;
  fs::path repo;
};

TEST_F(InventoryTest, ListsModelsByTheNamesThatFindThem) {
  write_text((models / "tiny-f32.gguf").string(), tiny);
  cache.add(repo, "aaa", "t-F32.gguf", tiny);
  const hub::Inventory inventory = hub::take_inventory(places);
  ASSERT_EQ(inventory.models.size(), 2u);
  EXPECT_EQ(inventory.others, 0u);
  EXPECT_EQ(inventory.models[0].name, "tiny-f32");
  EXPECT_EQ(inventory.models[1].name, "hf:maker/tiny-GGUF:F32");
  for (const hub::InventoryEntry& found : inventory.models) {
    EXPECT_EQ(found.architecture, "gemma4");
    EXPECT_EQ(found.format, "F32");
    EXPECT_EQ(found.bytes, tiny.size());
    EXPECT_EQ(found.problem, "");
    EXPECT_EQ(hub::find_model(found.name, places).path, found.path);
  }
  EXPECT_EQ(inventory.models[1].where, cache.root().string());
}

TEST_F(InventoryTest, AmbiguousNamesAreMadeLonger) {
  cache.add(repo, "aaa", "one-F32.gguf", tiny);
  cache.add(repo, "aaa", "two-F32.gguf", tiny);
  EXPECT_EQ(entry("hf:maker/tiny-GGUF:one-F32").problem, "");
  EXPECT_EQ(entry("hf:maker/tiny-GGUF:two-F32").problem, "");
}

TEST_F(InventoryTest, AHiddenModelIsNamedByItsPath) {
  const fs::path second = folder.path() / "second";
  fs::create_directories(second);
  places.model_folders.push_back(second);
  write_text((models / "tiny.gguf").string(), tiny);
  write_text((second / "tiny.gguf").string(), tiny);
  EXPECT_EQ(entry("tiny").path, (models / "tiny.gguf").string());
  EXPECT_EQ(entry((second / "tiny.gguf").string()).where, second.string());
}

TEST_F(InventoryTest, OneFolderUnderTwoNamesIsListedOnce) {
  fs::create_directory_symlink(models, folder.path() / "also-models");
  places.model_folders.push_back(folder.path() / "also-models");
  write_text((models / "tiny.gguf").string(), tiny);
  EXPECT_EQ(hub::take_inventory(places).models.size(), 1u);
}

TEST_F(InventoryTest, OtherKindsAreOnlyCounted) {
  write_bytes((models / "other.gguf").string(), tiny_gguf().encode());
  cache.add(repo, "aaa", "mmproj-f16.gguf", "whatever");
  cache.add(repo, "aaa", "README.md", "words");
  const hub::Inventory inventory = hub::take_inventory(places);
  EXPECT_TRUE(inventory.models.empty());
  EXPECT_EQ(inventory.others, 2u);
}

TEST_F(InventoryTest, BrokenFilesAreShownAsSuch) {
  write_text((models / "cut.gguf").string(), tiny.substr(0, tiny.size() / 2));
  write_text((models / "noise.gguf").string(), "no model at all");
  write_text((models / "empty.gguf").string(), "");
  cache.link(repo, "aaa", "gone-Q8_0.gguf", "gone");
  cache.add(repo, "aaa", "split-BF16-00001-of-00002.gguf", tiny);
  EXPECT_NE(entry("cut").problem, "");
  EXPECT_THAT(entry("cut").problem, testing::Not(HasSubstr("cut.gguf")));
  EXPECT_NE(entry("noise").problem, "");
  EXPECT_THAT(entry("empty").problem, HasSubstr("empty"));
  EXPECT_THAT(entry("hf:maker/tiny-GGUF:Q8_0").problem, HasSubstr("not there"));
  EXPECT_THAT(entry("hf:maker/tiny-GGUF:BF16").problem, HasSubstr("part 2 of 2 is missing"));
}

TEST_F(InventoryTest, UnfinishedDownloadsAreShown) {
  fs::create_directories(repo / "blobs");
  write_text((repo / "blobs" / "abc.incomplete").string(), tiny.substr(0, 1000));
  write_text((repo / "blobs" / "def.incomplete").string(), "weights of another format");
  const hub::Inventory inventory = hub::take_inventory(places);
  ASSERT_EQ(inventory.models.size(), 1u);
  EXPECT_EQ(inventory.models[0].name, "hf:maker/tiny-GGUF");
  EXPECT_EQ(inventory.models[0].bytes, 1000u);
  EXPECT_THAT(inventory.models[0].problem, HasSubstr("carat pull"));
}

}  // namespace
}  // namespace carat::test
