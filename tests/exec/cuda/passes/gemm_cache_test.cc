#include "exec/cuda/passes/gemm_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "exec/cuda/plan/gemm_rows.h"
#include "support/files.h"

namespace carat::cuda {
namespace {

namespace fs = std::filesystem;

const GemmMachine kMachine{"NVIDIA H200", 13000, 130100, uint64_t{64} << 20};

GemmAlgorithms some_algorithms() {
  GemmAlgorithms algorithms;
  algorithms[{4096, 20480, 2560, GemmElement::kBF16, GemmElement::kBF16}] = {1, 2, 3, 4, 5, 6, 7, UINT64_MAX};
  algorithms[{64, 262144, 2560, GemmElement::kBF16, GemmElement::kF32}] = {0xdeadbeef};
  algorithms[{512, 2560, 10240, GemmElement::kE4M3, GemmElement::kBF16}] = {};
  return algorithms;
}

class GemmCacheTest : public testing::Test {
 protected:
  fs::path file(const GemmMachine& machine = kMachine) const {
    return gemm_cache_path(folder_.path() / "a/b", machine);
  }
  std::string written() const {
    EXPECT_EQ(write_gemm_cache(file(), kMachine, some_algorithms()), "");
    return test::read_text(file().string());
  }
  void expect_ignored(const std::string& why) const {
    const GemmCacheContent content = read_gemm_cache(file(), kMachine);
    EXPECT_TRUE(content.algorithms.empty());
    EXPECT_THAT(content.problem, testing::HasSubstr(why));
  }

  test::TemporaryDirectory folder_;
};

TEST_F(GemmCacheTest, KeepsWhatIsWritten) {
  written();
  const GemmCacheContent content = read_gemm_cache(file(), kMachine);
  EXPECT_EQ(content.problem, "");
  EXPECT_EQ(content.algorithms, some_algorithms());
  // Nothing but the file itself stays behind.
  EXPECT_EQ(std::distance(fs::directory_iterator(file().parent_path()), fs::directory_iterator()), 1);
  EXPECT_EQ(write_gemm_cache(file(), kMachine, {}), "");
  EXPECT_TRUE(read_gemm_cache(file(), kMachine).algorithms.empty());
}

TEST_F(GemmCacheTest, NothingThereIsNoProblem) {
  const GemmCacheContent content = read_gemm_cache(file(), kMachine);
  EXPECT_TRUE(content.algorithms.empty());
  EXPECT_EQ(content.problem, "");
}

// Every prefix, and every byte changed: nothing of it is believed.
TEST_F(GemmCacheTest, DamageIsNoticed) {
  const std::string text = written();
  for (size_t length = 0; length < text.size(); ++length) {
    test::write_text(file().string(), text.substr(0, length));
    expect_ignored("");
    EXPECT_FALSE(read_gemm_cache(file(), kMachine).problem.empty()) << length;
  }
  for (size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    test::write_text(file().string(), changed);
    EXPECT_TRUE(read_gemm_cache(file(), kMachine).algorithms.empty()) << at;
  }
  test::write_text(file().string(), text + "more\n");
  expect_ignored("damaged");
  test::write_text(file().string(), "anything");
  expect_ignored("damaged");
}

// A file whose checksum is right and whose lines make no sense.
TEST_F(GemmCacheTest, LinesThatMakeNoSenseAreNoticed) {
  const auto with_check = [](const std::string& text) {
    uint64_t sum = 0xcbf29ce484222325u;
    for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    char line[32];
    std::snprintf(line, sizeof line, "check %016lx\n", static_cast<unsigned long>(sum));
    return text + line;
  };
  EXPECT_EQ(write_gemm_cache(file(), kMachine, {}), "");
  std::string head = test::read_text(file().string());
  head.resize(head.rfind("check "));
  test::write_text(file().string(), with_check(head));
  EXPECT_EQ(read_gemm_cache(file(), kMachine).problem, "");
  const std::string words = " 0 0 0 0 0 0 0 0";
  for (const std::string& line :
       {"product 1 2 3 bf16 bf16" + words + " 0", std::string("product 1 2 3 bf16 bf16 0 0 0 0 0 0 0"),
        "product 1 2 3 bf16 int4" + words, "product 1 2 x bf16 bf16" + words, "product -1 2 3 bf16 bf16" + words,
        "product 1 2 99999999999 bf16 bf16" + words, "sum 1 2 3 bf16 bf16" + words,
        "product 1 2 3 bf16 bf16" + words + "\nproduct 1 2 3 bf16 bf16" + words, std::string()}) {
    test::write_text(file().string(), with_check(head + line + "\n"));
    expect_ignored("damaged");
  }
}

TEST_F(GemmCacheTest, OtherMachinesAreForeign) {
  const std::string text = written();
  GemmMachine gpu = kMachine, driver = kMachine, library = kMachine, workspace = kMachine;
  gpu.gpu = "NVIDIA H100";
  driver.driver += 10;
  library.library += 1;
  workspace.workspace_bytes /= 2;
  for (const GemmMachine& other : {gpu, driver, library, workspace}) {
    EXPECT_NE(file(other), file());
    // Even where the file of one machine lies under the name of another.
    test::write_text(file(other).string(), text);
    const GemmCacheContent content = read_gemm_cache(file(other), other);
    EXPECT_TRUE(content.algorithms.empty());
    EXPECT_THAT(content.problem, testing::HasSubstr("another"));
  }
}

TEST_F(GemmCacheTest, PlacesThatCannotBeUsedAreSaid) {
  test::write_text(folder_.file("a"), "a file where a folder should be");
  EXPECT_NE(write_gemm_cache(file(), kMachine, some_algorithms()), "");
  EXPECT_TRUE(read_gemm_cache(file(), kMachine).algorithms.empty());
  fs::remove(folder_.file("a"));
  fs::create_directories(file());  // a folder where the file should be
  EXPECT_NE(write_gemm_cache(file(), kMachine, some_algorithms()), "");
  expect_ignored("no file");
  EXPECT_EQ(std::distance(fs::directory_iterator(file().parent_path()), fs::directory_iterator()), 1);
  fs::remove(file());
  if (geteuid() == 0) return;  // root may write anywhere
  fs::permissions(file().parent_path(), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_NE(write_gemm_cache(file(), kMachine, some_algorithms()), "");
  fs::permissions(file().parent_path(), fs::perms::owner_all);
}

TEST(GemmRows, AreThoseProductsHave) {
  EXPECT_THAT(searched_rows(4096), testing::ElementsAre(4096, 2048, 1024, 512));
  EXPECT_THAT(searched_rows(2048), testing::ElementsAre(2048, 1024, 512));
  EXPECT_THAT(searched_rows(512), testing::ElementsAre(512));
  EXPECT_THAT(searched_rows(100), testing::ElementsAre(100));
  for (const uint32_t rows : searched_rows(512)) EXPECT_EQ(prompt_bucket(rows, 512), rows);
}

}  // namespace
}  // namespace carat::cuda
