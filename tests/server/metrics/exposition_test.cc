// The text format, character by character.
#include "server/metrics/exposition.h"

#include <gtest/gtest.h>

#include <limits>

#include "server/metrics/exposition_check.h"

namespace carat::server {
namespace {

TEST(Exposition, WritesFamilies) {
  std::string out;
  Exposition text(out, "a_");
  text.counter("b_total", "What b is.").sample(3u).sample(0.25, {{"x", "1"}, {"y", "two"}});
  EXPECT_EQ(out,
            "# HELP a_b_total What b is.\n"
            "# TYPE a_b_total counter\n"
            "a_b_total 3\n"
            "a_b_total{x=\"1\",y=\"two\"} 0.25\n");
}

TEST(Exposition, EscapesLabelsAndHelp) {
  std::string out;
  Exposition text(out, "", {{"model", "a\\b\"c\nd{},="}});
  text.gauge("g", "back\\slash and\nline and \"quotes\"").sample(1u, {{"x", "{"}});
  EXPECT_EQ(out,
            "# HELP g back\\\\slash and\\nline and \"quotes\"\n"
            "# TYPE g gauge\n"
            "g{model=\"a\\\\b\\\"c\\nd{},=\",x=\"{\"} 1\n");
  EXPECT_TRUE(test::check_exposition(out).problems.empty());
}

TEST(Exposition, WritesNumbersThatCannotBeWrittenAsDigits) {
  std::string out;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Exposition(out, "")
      .gauge("g", "h")
      .sample(kInfinity)
      .sample(-kInfinity)
      .sample(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(out, "# HELP g h\n# TYPE g gauge\ng +Inf\ng -Inf\ng NaN\n");
}

TEST(Exposition, HistogramsAreCumulative) {
  std::string out;
  constexpr std::array kBounds = {.0005, 1., 2560.};
  Exposition(out, "", {{"m", "x"}}).histogram("h_seconds", "h").samples({kBounds, {1, 0, 2, 3}, 1.5}, {{"mix", "a"}});
  EXPECT_EQ(out,
            "# HELP h_seconds h\n"
            "# TYPE h_seconds histogram\n"
            "h_seconds_bucket{m=\"x\",mix=\"a\",le=\"0.0005\"} 1\n"
            "h_seconds_bucket{m=\"x\",mix=\"a\",le=\"1\"} 1\n"
            "h_seconds_bucket{m=\"x\",mix=\"a\",le=\"2560\"} 3\n"
            "h_seconds_bucket{m=\"x\",mix=\"a\",le=\"+Inf\"} 6\n"
            "h_seconds_sum{m=\"x\",mix=\"a\"} 1.5\n"
            "h_seconds_count{m=\"x\",mix=\"a\"} 6\n");
  EXPECT_TRUE(test::check_exposition(out).problems.empty());
}

// The checker that the other tests rely on must see what is wrong.
TEST(ExpositionCheck, SeesMistakes) {
  const auto has_problem = [](std::string_view text) { return !test::check_exposition(text).problems.empty(); };
  const std::string head = "# HELP a b\n# TYPE a counter\n";
  EXPECT_FALSE(has_problem(head + "a 1\n"));
  EXPECT_TRUE(has_problem(head + "a 1")) << "no end of line";
  EXPECT_TRUE(has_problem("a 1\n")) << "no TYPE";
  EXPECT_TRUE(has_problem(head + "b 1\n")) << "another name";
  EXPECT_TRUE(has_problem(head + "a 1\na 2\n")) << "twice";
  EXPECT_TRUE(has_problem(head + "a one\n"));
  EXPECT_TRUE(has_problem(head + "a -1\n"));
  EXPECT_TRUE(has_problem(head + head + "a 1\n")) << "a family twice";
  EXPECT_TRUE(has_problem(head + "a{x=\"1\",x=\"2\"} 1\n"));
  EXPECT_TRUE(has_problem(head + "a{x=\"\\q\"} 1\n")) << "an escape there is not";
  EXPECT_TRUE(has_problem(head + "a{x=\"1\"y=\"2\"} 1\n"));
  EXPECT_TRUE(has_problem(head + "a{x=\"1\n\"} 1\n"));
  const std::string histogram = "# HELP h b\n# TYPE h histogram\n";
  EXPECT_FALSE(has_problem(histogram + "h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n"));
  EXPECT_TRUE(has_problem(histogram + "h_bucket{le=\"1\"} 3\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n"));
  EXPECT_TRUE(has_problem(histogram + "h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 3\n"));
  EXPECT_TRUE(has_problem(histogram + "h_bucket{le=\"1\"} 1\nh_sum 3\nh_count 1\n"));
  EXPECT_TRUE(
      has_problem(histogram + "h_bucket{le=\"2\"} 1\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\n"));
}

}  // namespace
}  // namespace carat::server
