#include "hub/model_lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "hub/hub_cache.h"
#include "hub/synthetic_cache.h"
#include "support/raised_error.h"

namespace carat::test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

hub::Environment environment_of(const std::map<std::string, std::string>& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

class ModelLookup : public testing::Test {
 protected:
  ModelLookup() : cache(folder.path() / "hub") {
    fs::create_directories(folder.path() / "models");
    places.model_folders = {folder.path() / "models", folder.path() / "installed"};
    places.cache_folders = {folder.path() / "other-hub", cache.root()};
    repo = cache.repo("maker", "gemma-GGUF");
  }

  hub::FoundModel find(const std::string& text) const { return hub::find_model(text, places); }

  TemporaryDirectory folder;
  MadeUpCache cache;
  hub::LookupPlaces places;
  fs::path repo;
};

TEST_F(ModelLookup, CacheFoldersComeFromTheEnvironmentInOrder) {
  EXPECT_THAT(hub::cache_folders(environment_of({{"HF_HUB_CACHE", "/a"},
                                                 {"HUGGINGFACE_HUB_CACHE", "/b"},
                                                 {"HF_HOME", "/c"},
                                                 {"XDG_CACHE_HOME", "/d"},
                                                 {"HOME", "/e"}})),
              ElementsAre("/a", "/b", "/c/hub", "/d/huggingface/hub", "/e/.cache/huggingface/hub"));
  EXPECT_THAT(hub::cache_folders(environment_of({{"HOME", "/e"}, {"XDG_CACHE_HOME", "/e/.cache"}})),
              ElementsAre("/e/.cache/huggingface/hub"));
  EXPECT_TRUE(hub::cache_folders(environment_of({})).empty());
}

TEST_F(ModelLookup, AFileIsAFile) {
  write_text(folder.file("x.gguf"), "x");
  EXPECT_EQ(find(folder.file("x.gguf")).path, folder.file("x.gguf"));
  const RaisedError missing = error_of([&] { find(folder.file("missing.gguf")); });
  EXPECT_EQ(missing.code, ErrorCode::kIo);
  EXPECT_THAT(missing.message, HasSubstr("missing.gguf"));
  EXPECT_THAT(error_of([&] { find(folder.path().string()); }).message, HasSubstr("is a directory"));
}

TEST_F(ModelLookup, FindsNamesInModelFolders) {
  write_text((folder.path() / "models" / "one-q8_0.gguf").string(), "x");
  const std::string expected = (folder.path() / "models" / "one-q8_0.gguf").string();
  EXPECT_EQ(find("one-q8_0").path, expected);
  EXPECT_EQ(find("one-q8_0.gguf").path, expected);
  fs::create_directories(folder.path() / "installed");
  write_text((folder.path() / "installed" / "one-q8_0.gguf").string(), "x");
  write_text((folder.path() / "installed" / "two-00001-of-00002.gguf").string(), "x");
  write_text((folder.path() / "installed" / "two-00002-of-00002.gguf").string(), "x");
  EXPECT_EQ(find("one-q8_0").path, expected);
  EXPECT_EQ(find("two").path, (folder.path() / "installed" / "two-00001-of-00002.gguf").string());
  const RaisedError error = error_of([&] { find("three"); });
  EXPECT_EQ(error.code, ErrorCode::kIo);
  EXPECT_THAT(error.message, HasSubstr((folder.path() / "models").string()));
  EXPECT_THAT(error.message, HasSubstr((folder.path() / "installed").string()));
  EXPECT_THAT(error.message, HasSubstr("carat ls"));
}

TEST_F(ModelLookup, AFileWinsOverANameAndANameOverAFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  write_text("models/same", "model");
  write_text("same", "file");
  const std::string as_file = find("same").path;
  fs::remove("same");
  fs::create_directory("same");
  const std::string as_name = find("same").path;
  write_text("hf:maker", "file");
  const std::string odd = find("hf:maker").path;
  fs::current_path(before);
  EXPECT_EQ(as_file, "same");
  EXPECT_EQ(as_name, (folder.path() / "models" / "same").string());
  EXPECT_EQ(odd, "hf:maker");
}

TEST_F(ModelLookup, FindsTheSnapshotMainPointsAt) {
  cache.add(repo, "aaa", "g-Q8_0.gguf");
  const std::string current = cache.add(repo, "bbb", "g-Q8_0.gguf");
  cache.add(repo, "ccc", "g-Q8_0.gguf");
  cache.set_main(repo, "bbb");
  EXPECT_EQ(find("hf:maker/gemma-GGUF:q8_0").path, current);
  EXPECT_EQ(find("hf:maker/gemma-GGUF").path, current);
}

TEST_F(ModelLookup, WithoutMainTheNewestSnapshotCounts) {
  const std::string old_link = cache.add(repo, "aaa", "g-Q8_0.gguf");
  const std::string new_link = cache.add(repo, "bbb", "g-Q8_0.gguf");
  const auto now = fs::file_time_type::clock::now();
  fs::last_write_time(repo / "snapshots" / "aaa", now);
  fs::last_write_time(repo / "snapshots" / "bbb", now - std::chrono::hours(1));
  EXPECT_EQ(find("hf:maker/gemma-GGUF").path, old_link);
  fs::last_write_time(repo / "snapshots" / "bbb", now + std::chrono::hours(1));
  EXPECT_EQ(find("hf:maker/gemma-GGUF").path, new_link);
}

TEST_F(ModelLookup, OtherSnapshotsAddWhatMainLacks) {
  cache.add(repo, "aaa", "g-Q8_0.gguf");
  const std::string elsewhere = cache.add(repo, "aaa", "g-BF16.gguf");
  const std::string current = cache.add(repo, "bbb", "g-Q8_0.gguf");
  cache.set_main(repo, "bbb");
  EXPECT_EQ(find("hf:maker/gemma-GGUF:BF16").path, elsewhere);
  EXPECT_EQ(find("hf:maker/gemma-GGUF:Q8_0").path, current);
}

// Where links are not possible, llama.cpp and others put the file itself there.
TEST_F(ModelLookup, ASnapshotMayHoldFiles) {
  fs::create_directories(repo / "snapshots" / "aaa" / "sub");
  const std::string path = (repo / "snapshots" / "aaa" / "sub" / "g-Q4_0.gguf").string();
  write_text(path, "x");
  EXPECT_EQ(find("hf:maker/gemma-GGUF:q4_0").path, path);
}

TEST_F(ModelLookup, SplitModelsNeedAllParts) {
  const std::string first = cache.add(repo, "aaa", "BF16/g-BF16-00001-of-00003.gguf");
  cache.add(repo, "aaa", "BF16/g-BF16-00002-of-00003.gguf");
  const RaisedError error = error_of([&] { find("hf:maker/gemma-GGUF"); });
  EXPECT_EQ(error.code, ErrorCode::kIo);
  EXPECT_THAT(error.message, HasSubstr("lacks part 3 of 3"));
  EXPECT_THAT(error.message, HasSubstr("`carat pull hf:maker/gemma-GGUF:BF16`"));
  cache.add(repo, "aaa", "BF16/g-BF16-00003-of-00003.gguf");
  EXPECT_EQ(find("hf:maker/gemma-GGUF").path, first);
}

TEST_F(ModelLookup, ALinkToNothingIsSaid) {
  cache.link(repo, "aaa", "g-Q8_0.gguf", "gone");
  const RaisedError error = error_of([&] { find("hf:maker/gemma-GGUF"); });
  EXPECT_EQ(error.code, ErrorCode::kIo);
  EXPECT_THAT(error.message, HasSubstr("link to a file that is not there"));
  // The same model in an older snapshot will do.
  const std::string older = cache.add(repo, "bbb", "g-Q8_0.gguf");
  cache.set_main(repo, "aaa");
  EXPECT_EQ(find("hf:maker/gemma-GGUF").path, older);
}

TEST_F(ModelLookup, WhatIsNotHereSaysWhereWasLookedAndHowToGetIt) {
  cache.add(repo, "aaa", "g-Q8_0.gguf");
  const RaisedError error = error_of([&] { find("hf:maker/gemma-GGUF:Q4_K_M"); });
  EXPECT_EQ(error.code, ErrorCode::kIo);
  for (const fs::path& place : places.cache_folders) EXPECT_THAT(error.message, HasSubstr(place.string()));
  EXPECT_THAT(error.message, HasSubstr("has Q8_0 (7 B)"));
  EXPECT_THAT(error.message, HasSubstr("`carat pull hf:maker/gemma-GGUF:Q4_K_M` downloads it"));
  EXPECT_THAT(error_of([&] { find("maker/gemma"); }).message, HasSubstr("hf:maker/gemma"));
}

TEST_F(ModelLookup, TheFirstCacheThatHasItCounts) {
  cache.add(repo, "aaa", "g-Q8_0.gguf");
  MadeUpCache other(folder.path() / "other-hub");
  const std::string first = other.add(other.repo("maker", "gemma-GGUF"), "aaa", "g-Q8_0.gguf");
  EXPECT_EQ(find("hf:maker/gemma-GGUF").path, first);
}

}  // namespace
}  // namespace carat::test
