// The parts of the command line that can be tested without starting a process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "cli/arguments.h"
#include "cli/exit_codes.h"
#include "cli/flags/sampling_flags.h"
#include "cli/reports/bench_report.h"
#include "cli/reports/divergence.h"
#include "cli/reports/kl_base.h"
#include "cli/reports/machine_limits.h"
#include "gguf/reader.h"
#include "support/files.h"
#include "support/random.h"
#include "text/tokenizer/tokenizer.h"

namespace carat::cli {
namespace {

using testing::ElementsAre;

TEST(Arguments, ShortFlagsOfSeveralLettersBecomeLong) {
  const char* values[] = {"carat", "run", "-ngl", "9", "-ub=4", "-n", "-1", "-ctk", "f16", "--", "-fa"};
  EXPECT_THAT(normalise_arguments(11, values),
              ElementsAre("run", "--ngl", "9", "--ub=4", "-n", "-1", "--ctk", "f16", "--", "-fa"));
}

TEST(LogitBias, IsAnIdAndANumber) {
  EXPECT_EQ(parse_logit_bias("42+1.5").token, 42);
  EXPECT_EQ(parse_logit_bias("42+1.5").bias, 1.5f);
  EXPECT_EQ(parse_logit_bias("7-2").bias, -2.0f);
  EXPECT_EQ(parse_logit_bias("7=-0.5").bias, -0.5f);
  EXPECT_EQ(parse_logit_bias("7=-inf").bias, -INFINITY);
  EXPECT_EQ(parse_logit_bias("7-inf").bias, -INFINITY);
  for (const char* text : {"", "7", "+1", "7+", "7=x", "7*2", "a=1", "7=1x", "99999999999=1"}) {
    EXPECT_THROW(parse_logit_bias(text), Error) << text;
  }
}

TEST(Divergence, AgreesWithHandComputedValues) {
  const std::vector<float> even = {0.0f, 0.0f};
  const std::vector<float> skewed = {std::log(3.0f), 0.0f};  // 3/4 and 1/4
  EXPECT_NEAR(negative_log_likelihood(even, 0), std::log(2.0), 1e-12);
  EXPECT_NEAR(negative_log_likelihood(skewed, 1), std::log(4.0), 1e-7);
  EXPECT_EQ(kl_divergence(even, even), 0.0);
  EXPECT_NEAR(kl_divergence(even, skewed), 0.5 * std::log(0.5 / 0.75) + 0.5 * std::log(0.5 / 0.25), 1e-7);
  EXPECT_EQ(best_token(std::vector<float>{1.0f, 5.0f, 5.0f}), 1);
}

TEST(Divergence, SummarisesByNearestRank) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  const Summary summary = summarise(values);
  EXPECT_DOUBLE_EQ(summary.mean, 50.5);
  EXPECT_EQ(summary.median, 50);
  EXPECT_EQ(summary.p99, 99);
  EXPECT_EQ(summary.largest, 100);
  EXPECT_NEAR(summary.standard_error, std::sqrt(841.6667 / 100), 1e-4);
}

class KlBaseFile : public testing::Test {
 protected:
  void write() const {
    test::Random random(5);
    KlBaseWriter writer(path, shape, tokens);
    for (uint64_t i = 0; i < shape.scored(); ++i) {
      std::vector<float> logits = random.normals(shape.vocabulary, 5.0f);
      writer.add(logits);
    }
    writer.finish();
  }
  test::TemporaryDirectory folder;
  std::string path = folder.file("base");
  KlBaseShape shape{50, 6, 2, 3};
  std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
};

TEST_F(KlBaseFile, KeepsLogitsWithinHalfAStep) {
  write();
  const KlBaseReader reader(path);
  EXPECT_EQ(reader.tokens(), tokens);
  EXPECT_EQ(reader.shape().scored(), 4u);
  test::Random random(5);
  std::vector<float> kept;
  for (uint64_t i = 0; i < 4; ++i) {
    const std::vector<float> logits = random.normals(50, 5.0f);
    EXPECT_EQ(reader.read(i, kept), best_token(logits));
    for (size_t t = 0; t < logits.size(); ++t) EXPECT_NEAR(kept[t], logits[t], 4e-4f);
    EXPECT_LT(kl_divergence(logits, kept), 1e-7);
  }
}

TEST_F(KlBaseFile, AnUnfinishedFileLeavesNothingBehind) {
  {
    KlBaseWriter writer(path, shape, tokens);
    writer.add(std::vector<float>(50, 1.0f));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST_F(KlBaseFile, TruncationAndDamageAreNoticed) {
  write();
  const std::vector<std::byte> good = test::read_bytes(path);
  for (size_t size = 0; size < good.size(); ++size) {
    test::write_bytes(path, std::span(good).first(size));
    EXPECT_THROW(KlBaseReader{path}, Error) << "cut at " << size;
  }
  for (size_t at = 0; at < 24; ++at) {  // every byte of the header matters
    std::vector<std::byte> bad = good;
    bad[at] ^= std::byte{0x80};
    test::write_bytes(path, bad);
    EXPECT_THROW(KlBaseReader{path}, Error) << "byte " << at;
  }
}

TEST(BenchReport, NamesTestsAndAverages) {
  BenchResult result;
  result.n_prompt = 512;
  result.samples_ns = {1'000'000'000, 2'000'000'000};
  EXPECT_EQ(result.test(), "pp512");
  EXPECT_DOUBLE_EQ(result.avg_ts(), 384.0);
  EXPECT_NEAR(result.stddev_ts(), 256.0 / std::sqrt(2.0), 1e-9);
  EXPECT_FALSE(result.limit_share().has_value());
  result.n_gen = 128;
  result.n_depth = 1024;
  EXPECT_EQ(result.test(), "pp512+tg128 @ d1024");
  result.n_prompt = 0;
  EXPECT_EQ(result.test(), "tg128 @ d1024");
  result.bytes_per_token = 1e6;
  result.limit_bytes_per_second = 192e6;
  EXPECT_DOUBLE_EQ(*result.limit_share(), 0.5);  // 96 tokens a second on average
}

TEST(MachineLimits, ReadsWithinReason) {
  const double bandwidth = read_bandwidth(1, 1 << 20);
  EXPECT_GT(bandwidth, 1e8);
  EXPECT_LT(bandwidth, 1e13);
}

TEST(ExitCodes, AreDistinct) {
  std::set<int> codes;
  for (const ErrorCode code :
       {ErrorCode::kBadArgument, ErrorCode::kBadFile, ErrorCode::kIo, ErrorCode::kUnsupported, ErrorCode::kOutOfMemory,
        ErrorCode::kDevice, ErrorCode::kInterrupted, ErrorCode::kNonFinite}) {
    codes.insert(exit_code(code));
  }
  EXPECT_EQ(codes.size(), 8u);
  EXPECT_EQ(codes.count(0), 0u);
}

}  // namespace
}  // namespace carat::cli
