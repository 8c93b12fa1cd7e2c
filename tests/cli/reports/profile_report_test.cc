#include "cli/reports/profile_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

namespace carat::cli {
namespace {

using exec::ProfileFamily;
using exec::ProfilePhase;
using exec::ProfileReport;
using testing::HasSubstr;
using testing::Not;

// Round numbers: a GPU of 1 TB/s and 100 TFLOP/s.
ProfileReport made_up_report() {
  ProfileReport report;
  report.gpu = "made-up <GPU>";
  report.capability = 89;
  report.model = "a&b.gguf";
  report.context = 4096;
  report.chunk = 2048;
  report.ceilings = {.bytes_per_second = 1e12, .flops_per_second = 1e14};
  report.kernels = {{"decode", "matvec", "because"}};
  ProfilePhase prefill;
  prefill.name = "prefill";
  prefill.tokens = 2000;
  prefill.seconds = 10e-3;
  prefill.families = {{"QKV", 10, 4e-3, 1e9, 2e11}, {"norms and rotation", 20, 2e-3, 5e8, 0.0}};
  ProfilePhase decode;
  decode.name = "decode";
  decode.tokens = 1;
  decode.depth = 2000;
  decode.seconds = 5e-3;
  decode.graph_seconds = 4.5e-3;
  decode.families = {{"QKV", 10, 4e-3, 2e9, 4e9}, {"LM head", 1, 2e-3, 1e9, 2e9}};
  report.phases = {prefill, decode};
  return report;
}

TEST(ProfileReport, ArithmeticOfAFamily) {
  const ProfileReport report = made_up_report();
  const ProfileFamily& qkv = report.phases[0].families[0];
  EXPECT_DOUBLE_EQ(qkv.bytes_per_second(), 250e9);
  EXPECT_DOUBLE_EQ(qkv.flops_per_second(), 50e12);
  EXPECT_DOUBLE_EQ(report.ceilings.least_seconds(qkv), 2e-3);  // 2e11 by 1e14, more than 1e9 by 1e12
  EXPECT_FALSE(report.ceilings.memory_bound(qkv));
  EXPECT_DOUBLE_EQ(report.ceilings.share(qkv), 0.5);
  const ProfileFamily& norms = report.phases[0].families[1];
  EXPECT_TRUE(report.ceilings.memory_bound(norms));
  EXPECT_DOUBLE_EQ(report.ceilings.share(norms), 0.25);
  EXPECT_EQ(report.ceilings.share(ProfileFamily{}), 0.0);
  EXPECT_EQ(ProfileFamily{}.bytes_per_second(), 0.0);
}

TEST(ProfileReport, ArithmeticOfAPhase) {
  const ProfileReport report = made_up_report();
  EXPECT_DOUBLE_EQ(report.phases[0].kernel_seconds(), 6e-3);
  EXPECT_DOUBLE_EQ(report.phases[0].gap_seconds(), 4e-3);
  EXPECT_DOUBLE_EQ(report.phases[0].tokens_per_second(), 200'000.0);
  EXPECT_DOUBLE_EQ(report.phases[1].gap_seconds(), -1e-3);  // the families overlapped
  EXPECT_EQ(report.phases[0].total().steps, 30u);
  EXPECT_DOUBLE_EQ(report.phases[1].total().bytes, 3e9);
}

TEST(ProfileReport, DurationsHaveThreeDigits) {
  EXPECT_EQ(duration_text(1.5), "1.50 s");
  EXPECT_EQ(duration_text(12.34e-3), "12.3 ms");
  EXPECT_EQ(duration_text(999.6e-6), "1.00 ms");
  EXPECT_EQ(duration_text(456e-6), "456 µs");
  EXPECT_EQ(duration_text(-2.5e-6), "-2.50 µs");
  EXPECT_EQ(duration_text(0.0), "0.00 µs");
}

TEST(ProfileReport, TextHasEveryFigure) {
  const std::string text = profile_text(made_up_report());
  EXPECT_THAT(text, HasSubstr("reads 1.00 TB/s, bf16 products 100 TFLOP/s"));
  EXPECT_THAT(text, HasSubstr("prefill of 2,000 tokens: 10.0 ms, 200000.0 tokens/s"));
  EXPECT_THAT(text, HasSubstr("decode of 1 token after 2,000: 5.00 ms, 200.0 tokens/s"));
  EXPECT_THAT(text, HasSubstr("the GPU alone needs 4.50 ms"));
  EXPECT_TRUE(std::regex_search(text, std::regex("QKV +4.00 ms +40.0% +1.00 GB +250 +200 +50.0 +50.0% compute\n")))
      << text;
  EXPECT_TRUE(std::regex_search(text, std::regex("gaps +4.00 ms +40.0%"))) << text;
  EXPECT_TRUE(std::regex_search(text, std::regex("overlap +-1.00 ms +-20.0%"))) << text;
}

TEST(ProfileReport, JsonHasTheNumbersThemselves) {
  const nlohmann::ordered_json json = profile_json(made_up_report());
  EXPECT_EQ(json["kernels"]["decode"], "matvec");
  EXPECT_EQ(json["read_bytes_per_second"], 1e12);
  ASSERT_EQ(json["phases"].size(), 2u);
  EXPECT_EQ(json["phases"][0]["families"][0]["limit_share"], 0.5);
  EXPECT_EQ(json["phases"][0]["families"][1]["bound_by"], "memory");
  EXPECT_EQ(json["phases"][1]["depth"], 2000);
}

size_t count_of(const std::string& text, std::string_view what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(ProfileReport, PageIsSelfContained) {
  const std::string page = profile_html(made_up_report());
  EXPECT_THAT(page, testing::StartsWith("<!doctype html>"));
  for (const char* foreign : {"http:", "https:", "src=", "url(", "<script", "<link", "@import"}) {
    EXPECT_THAT(page, Not(HasSubstr(foreign)));
  }
  EXPECT_THAT(page, HasSubstr("a&amp;b.gguf"));
  EXPECT_THAT(page, HasSubstr("made-up &lt;GPU&gt;"));
  EXPECT_THAT(page, Not(HasSubstr("<GPU>")));
  for (const char* tag : {"svg", "table", "style", "ul", "h2", "div"}) {
    const std::string name(tag);
    EXPECT_EQ(count_of(page, "<" + name + ">") + count_of(page, "<" + name + " "), count_of(page, "</" + name + ">"))
        << tag;
  }
}

TEST(ProfileReport, PageDrawsBarsAndRoofline) {
  const ProfileReport report = made_up_report();
  const std::string page = profile_html(report);
  EXPECT_EQ(count_of(page, "<svg"), 3u);
  EXPECT_EQ(count_of(page, "<rect class=\"bar\""), 4u);
  EXPECT_EQ(count_of(page, "<rect class=\"gap\""), 2u);
  // The longest bar has the full width, the others their share of it.
  EXPECT_THAT(page, HasSubstr("width=\"500.0\""));
  EXPECT_THAT(page, HasSubstr("width=\"250.0\""));
  EXPECT_EQ(count_of(page, "class=\"roof\""), 1u);
  // One point for every family with arithmetic, and one in the legend for each phase.
  EXPECT_EQ(count_of(page, "<circle"), 3u + 2u);
  EXPECT_THAT(page, HasSubstr("QKV: 200 FLOP per byte, 50 TFLOP/s, 50% of its limit"));
}

TEST(ProfileReport, PointsLieUnderTheRoof) {
  // A family at its limit on either side of the ridge lies on the roof: the same height as the roof has there.
  ProfileReport report = made_up_report();
  report.phases.resize(1);
  report.phases[0].families = {{"at the peak", 1, 1e-3, 1e8, 1e11}};  // 1000 FLOP per byte, 100 TFLOP/s
  const std::string page = profile_html(report);
  std::smatch roof, point;
  ASSERT_TRUE(std::regex_search(page, roof, std::regex("class=\"roof\" points=\"[0-9.]+,[0-9.]+ [0-9.]+,([0-9.]+) ")));
  ASSERT_TRUE(std::regex_search(page, point, std::regex("cy=\"([0-9.]+)\" r=\"5\"><title>at the peak")));
  EXPECT_EQ(roof[1], point[1]);
}

TEST(ProfileReport, PageOfAnEmptyPhase) {
  ProfileReport report = made_up_report();
  report.phases[0].families.clear();
  report.phases.pop_back();
  const std::string page = profile_html(report);
  EXPECT_THAT(page, Not(HasSubstr("nan")));
  EXPECT_THAT(page, Not(HasSubstr("inf\"")));
}

}  // namespace
}  // namespace carat::cli
