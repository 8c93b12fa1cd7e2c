#include "cli/reports/depth_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <regex>
#include <vector>

#include "base/error.h"
#include "cli/help/markup.h"
#include "cli/reports/speed_points.h"

namespace carat::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

// What an XML reader insists on, for the part of XML such pictures use; empty: well-formed.
std::string xml_problem(const std::string& text) {
  static const std::regex tag(R"(<(/?)([a-zA-Z]+)((?:\s+[a-zA-Z0-9:-]+="[^"<]*")*)\s*(/?)>)");
  static const std::regex stray(R"([<>]|&(?!(?:amp|lt|gt|quot);))");
  std::vector<std::string> open;
  size_t roots = 0;
  auto at = text.cbegin();
  for (std::smatch found; std::regex_search(at, text.cend(), found, tag); at = found.suffix().first) {
    const std::string between(at, found[0].first);
    if (std::regex_search(between, stray)) return "stray mark in: " + between;
    if (std::regex_search(found[3].first, found[3].second, std::regex("&(?!(?:amp|lt|gt|quot);)"))) {
      return "stray & in: " + found.str();
    }
    if (found[1].length() > 0) {
      if (open.empty() || open.back() != found[2]) return "closes what is not open: " + found.str();
      open.pop_back();
      continue;
    }
    if (open.empty() && ++roots > 1) return "a second root: " + found.str();
    if (found[4].length() == 0) open.push_back(found[2]);
  }
  if (!open.empty()) return "not closed: " + open.back();
  return roots == 1 && std::string(at, text.cend()) == "\n" ? "" : "text after the root";
}

struct Circle {
  double x, y;
};

// By what their tooltips say.
std::map<std::string, Circle> circles(const std::string& svg) {
  static const std::regex circle(R"re(<circle [^>]*cx="([0-9.]+)" cy="([0-9.]+)"[^>]*><title>([^<]*)</title>)re");
  std::map<std::string, Circle> found;
  for (std::sregex_iterator next(svg.begin(), svg.end(), circle), end; next != end; ++next) {
    found[(*next)[3]] = {std::stod((*next)[1]), std::stod((*next)[2])};
  }
  return found;
}

std::string error_of(const std::function<void()>& action, ErrorCode code) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

std::vector<SpeedPoint> ordinary_points() {
  return {{"carat", "A", 0, 400.0, 1.0},   {"carat", "A", 1024, 300.0, 0.0},    {"carat", "A", 2048, 200.0, 0.0},
          {"carat", "A", 8192, 100.0, 40}, {"llama.cpp", "A", 1024, 50.0, 0.0}, {"carat", "B", 2048, 75.0, 0.0}};
}

TEST(DepthPlot, PointsAreWhereTheyBelong) {
  const std::string svg = depth_plot_svg(ordinary_points(), "Speeds");
  EXPECT_EQ(xml_problem(svg), "");
  const auto found = circles(svg);
  ASSERT_EQ(found.size(), 6u);
  const Circle zero = found.at("carat, A: 400.0 ± 1.0 t/s at depth 0");
  const Circle first = found.at("carat, A: 300.0 ± 0.0 t/s at depth 1024");
  const Circle second = found.at("carat, A: 200.0 ± 0.0 t/s at depth 2048");
  const Circle last = found.at("carat, A: 100.0 ± 40.0 t/s at depth 8192");
  // An octave is as wide as the next, and 0 is one to the left of the first.
  EXPECT_NEAR(second.x - first.x, first.x - zero.x, 0.02);
  EXPECT_NEAR(last.x - second.x, 2.0 * (second.x - first.x), 0.02);
  EXPECT_NEAR(found.at("llama.cpp, A: 50.0 ± 0.0 t/s at depth 1024").x, first.x, 0.0);
  // Speeds are linear and begin at 0, where the axis is.
  EXPECT_NEAR(first.y - zero.y, second.y - first.y, 0.02);
  const double per_token = (last.y - zero.y) / 300.0;
  EXPECT_NEAR(found.at("carat, B: 75.0 ± 0.0 t/s at depth 2048").y, zero.y + 325.0 * per_token, 0.02);
  EXPECT_THAT(svg, HasSubstr(fmt::format("<line class=\"axis\" x1=\"76.0\" y1=\"{:.1f}\"", zero.y + 400 * per_token)));
  EXPECT_LT(zero.y, last.y);
}

TEST(DepthPlot, TellsModelsByColourAndEnginesByLine) {
  const std::string svg = depth_plot_svg(ordinary_points(), "Speeds");
  EXPECT_THAT(svg, HasSubstr("<polyline class=\"line m0 e0\""));
  EXPECT_THAT(svg, HasSubstr("<polyline class=\"line m0 e1\""));
  EXPECT_THAT(svg, HasSubstr("<polyline class=\"line m1 e0\""));
  for (const char* label : {">carat, A<", ">llama.cpp, A<", ">carat, B<", ">Speeds<", ">tokens per second<", ">1K<"}) {
    EXPECT_THAT(svg, HasSubstr(label));
  }
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(svg, Not(HasSubstr("href")));
  EXPECT_THAT(svg, HasSubstr("<line class=\"bar m0\""));  // the one deviation that can be seen
}

TEST(DepthPlot, NamesCannotBreakThePicture) {
  const SpeedPoint point{"a<b>&\"c\"", "\x01\xff </svg>", 5, 1.5, 0.0};
  const std::string svg = depth_plot_svg({&point, 1}, "<script>");
  EXPECT_EQ(xml_problem(svg), "");
  EXPECT_THAT(svg, HasSubstr("a&lt;b&gt;&amp;&quot;c&quot;, \uFFFD\uFFFD &lt;/svg&gt;"));
}

TEST(DepthPlot, FewPointsAreAPlotToo) {
  for (const uint32_t depth : {0u, 1u, 1023u, 1u << 31}) {
    const SpeedPoint point{"carat", "A", depth, 0.0, 0.0};
    const std::string svg = depth_plot_svg({&point, 1}, "One");
    EXPECT_EQ(xml_problem(svg), "");
    EXPECT_EQ(circles(svg).size(), 1u);
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
  }
}

TEST(DepthPlot, SaysWhatItCannotShow) {
  EXPECT_THAT(error_of([] { depth_plot_svg({}, ""); }, ErrorCode::kBadArgument), HasSubstr("nothing to plot"));
  std::vector<SpeedPoint> twice = ordinary_points();
  twice.push_back(twice.front());
  EXPECT_THAT(error_of([&] { depth_plot_svg(twice, ""); }, ErrorCode::kBadArgument),
              HasSubstr("two speeds of carat, A at depth 0"));
  std::vector<SpeedPoint> many;
  for (int i = 0; i < 7; ++i) many.push_back({"carat", std::to_string(i), 0, 1.0, 0.0});
  EXPECT_THAT(error_of([&] { depth_plot_svg(many, ""); }, ErrorCode::kBadArgument), HasSubstr("7 models"));
}

TEST(SpeedPoints, AreReadFromAllFormsOfABenchmark) {
  const std::string array = R"([{"model_type":"A \"x\", y","n_prompt":0,"n_gen":64,"n_depth":1023,"avg_ts":12.5,
      "stddev_ts":0.5,"lookup":null},{"model_type":"A","n_prompt":512,"n_gen":0,"n_depth":0,"avg_ts":1e4}])";
  const std::string lines =
      "{\"model_type\":\"A \\\"x\\\", "
      "y\",\"n_prompt\":0,\"n_gen\":64,\"n_depth\":1023,\"avg_ts\":12.5,\"stddev_ts\":0.5}\n"
      "{\"model_type\":\"A\",\"n_prompt\":0,\"n_gen\":64,\"avg_ts\":9,\"n_sequences\":8}\n\n"
      "{\"model_type\":\"A\",\"n_prompt\":0,\"n_gen\":64,\"avg_ts\":9,\"lookup\":\"on\"}\n";
  const std::string csv =
      "model_type,n_prompt,n_gen,n_depth,avg_ts,stddev_ts\r\n"
      "\"A \"\"x\"\", y\",\"0\",\"64\",\"1023\",\"12.5\",\"0.5\"\r\n"
      "A,512,0,0,10000,1\r\n";
  for (const std::string& text : {array, lines, csv}) {
    const auto points = read_speed_points(text, "file", "carat");
    ASSERT_EQ(points.size(), 1u) << text;
    EXPECT_EQ(points[0].engine, "carat");
    EXPECT_EQ(points[0].model, "A \"x\", y");
    EXPECT_EQ(points[0].depth, 1023u);
    EXPECT_EQ(points[0].speed, 12.5);
    EXPECT_EQ(points[0].deviation, 0.5);
    EXPECT_EQ(read_speed_points(text, "file", "peer", "E4B")[0].model, "E4B");
  }
}

TEST(SpeedPoints, ErrorsNameFileAndField) {
  const auto refusal = [](std::string_view text) {
    return error_of([&] { read_speed_points(text, "x.json", "carat"); }, ErrorCode::kBadFile);
  };
  EXPECT_THAT(refusal(" \n"), HasSubstr("x.json is empty"));
  EXPECT_THAT(refusal("[{\"n_gen\":1,"), HasSubstr("x.json: neither JSON"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("result 1 is no object"));
  EXPECT_THAT(refusal("[{\"avg_ts\":1}]"), HasSubstr("result 1 has no n_gen"));
  EXPECT_THAT(refusal("[{\"n_gen\":1,\"avg_ts\":1}]"), HasSubstr("no model_type"));
  EXPECT_THAT(refusal("[{\"n_gen\":1,\"avg_ts\":\"fast\",\"model_type\":\"A\"}]"), HasSubstr("avg_ts of result 1"));
  EXPECT_THAT(refusal("[{\"n_gen\":1,\"avg_ts\":-1,\"model_type\":\"A\"}]"), HasSubstr("0 or more"));
  EXPECT_THAT(refusal("[{\"n_gen\":1,\"avg_ts\":1,\"n_depth\":0.5,\"model_type\":\"A\"}]"), HasSubstr("n_depth"));
  EXPECT_THAT(refusal("[{\"n_gen\":0,\"n_prompt\":5,\"avg_ts\":1,\"model_type\":\"A\"}]"), HasSubstr("none of its 1"));
  EXPECT_THAT(refusal("n_gen,avg_ts\n1\n"), HasSubstr("line 2 has 1 values"));
  EXPECT_THAT(refusal("n_gen,avg_ts\n\"1,2\n"), HasSubstr("inside of quotes"));
}

}  // namespace
}  // namespace carat::cli
