#include "cli/reports/depth_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "base/error.h"
#include "cli/help/markup.h"

namespace carat::cli {

namespace {

constexpr double kWidth = 960.0, kPlotHeight = 400.0;
constexpr double kLeft = 76.0, kRight = 28.0, kBottom = 58.0;
constexpr double kLegendTop = 58.0, kLegendRow = 22.0;
constexpr size_t kLegendColumns = 2;
constexpr size_t kMostModels = 6, kMostEngines = 3;

// Without variables, which some programs that show SVG do not know; those that know no media queries show the light
// one.
constexpr std::string_view kStyle = R"(
text { font: 14px system-ui, sans-serif; fill: #1b1f24; } .title { font-size: 19px; font-weight: 600; }
.soft { fill: #5b6470; } .back { fill: #ffffff; } .grid { stroke: #d5dae0; } .axis { stroke: #5b6470; }
.line { fill: none; stroke-width: 2; } .bar { stroke-width: 1.2; } .point { stroke: none; }
.e1 { stroke-dasharray: 7 5; } .e2 { stroke-dasharray: 2 4; }
.m0 { stroke: #2563c9; } .m1 { stroke: #c8501e; } .m2 { stroke: #1f7f4c; } .m3 { stroke: #7d44b8; }
.m4 { stroke: #94700a; } .m5 { stroke: #b3336c; }
.f0 { fill: #2563c9; } .f1 { fill: #c8501e; } .f2 { fill: #1f7f4c; } .f3 { fill: #7d44b8; }
.f4 { fill: #94700a; } .f5 { fill: #b3336c; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e9ed; } .soft { fill: #a3adb8; } .back { fill: #14171b; } .grid { stroke: #333b45; }
  .axis { stroke: #a3adb8; }
  .m0 { stroke: #7aaaf5; } .m1 { stroke: #f08a5c; } .m2 { stroke: #5cc48d; } .m3 { stroke: #bd94ee; }
  .m4 { stroke: #d9b44a; } .m5 { stroke: #ee82b0; }
  .f0 { fill: #7aaaf5; } .f1 { fill: #f08a5c; } .f2 { fill: #5cc48d; } .f3 { fill: #bd94ee; }
  .f4 { fill: #d9b44a; } .f5 { fill: #ee82b0; } }
)";

// The index of a name in the order names came in.
size_t place_of(std::vector<std::string>& names, const std::string& name) {
  const auto place = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
  if (place == names.size()) names.push_back(name);
  return place;
}

struct Line {
  size_t model, engine;
  std::string label;
  std::map<uint32_t, const SpeedPoint*> points;  // by depth
};

std::vector<Line> sorted_lines(std::span<const SpeedPoint> points) {
  std::vector<std::string> models, engines;
  std::vector<Line> lines;
  for (const SpeedPoint& point : points) {
    const size_t model = place_of(models, point.model), engine = place_of(engines, point.engine);
    auto line = std::find_if(lines.begin(), lines.end(),
                             [&](const Line& other) { return other.model == model && other.engine == engine; });
    if (line == lines.end()) {
      line = lines.insert(line, {model, engine, fmt::format("{}, {}", point.engine, point.model), {}});
    }
    if (!line->points.emplace(point.depth, &point).second) {
      fail(ErrorCode::kBadArgument,
           "there are two speeds of {} at depth {}; give files of other models or engines a name, as ENGINE:MODEL=FILE",
           line->label, point.depth);
    }
  }
  if (lines.empty()) fail(ErrorCode::kBadArgument, "there is nothing to plot");
  if (models.size() > kMostModels || engines.size() > kMostEngines) {
    fail(ErrorCode::kBadArgument, "{} models and {} engines cannot be told apart in one plot; {} and {} can",
         models.size(), engines.size(), kMostModels, kMostEngines);
  }
  return lines;
}

// 1, 2 or 5 times a power of ten, so that there are at most eight steps up to the largest.
double tick_step(double largest) {
  const double power = std::pow(10.0, std::floor(std::log10(largest / 8.0)));
  for (const double step : {power, 2 * power, 5 * power}) {
    if (largest / step <= 8.0) return step;
  }
  return 10.0 * power;
}

std::string depth_text(uint32_t depth) {
  return depth >= 1024 && depth % 1024 == 0 ? fmt::format("{}K", depth / 1024) : fmt::format("{}", depth);
}

class DepthPlot {
 public:
  DepthPlot(std::vector<Line> lines, std::string_view title) : lines_(std::move(lines)), title_(title) {
    double largest = 0.0;
    uint32_t deepest = 0, shallowest = UINT32_MAX;
    for (const Line& line : lines_) {
      for (const auto& [depth, point] : line.points) {
        largest = std::max(largest, point->speed + point->deviation);
        has_zero_ |= depth == 0;
        if (depth == 0) continue;
        deepest = std::max(deepest, depth);
        shallowest = std::min(shallowest, depth);
      }
    }
    if (deepest > 0) {
      first_octave_ = std::log2(shallowest);
      last_octave_ = std::max(std::log2(deepest), first_octave_ + 1.0);
    }
    step_ = tick_step(std::max(largest, 1e-3));
    top_speed_ = step_ * std::max(1.0, std::ceil(largest / step_));
    const size_t rows = (lines_.size() + kLegendColumns - 1) / kLegendColumns;
    top_ = kLegendTop + kLegendRow * static_cast<double>(rows) + 10.0;
    height_ = top_ + kPlotHeight + kBottom;
  }

  std::string svg() {
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
        "aria-label=\"{2}\">\n<title>{2}</title>\n<style>{3}</style>\n<rect class=\"back\" width=\"{0}\" "
        "height=\"{1}\"/>\n",
        kWidth, height_, markup_text(title_), kStyle);
    text(kLeft, 32.0, "start", "title", title_);
    legend();
    speed_axis();
    depth_axis();
    for (const Line& line : lines_) curve(line);
    return std::move(out_) + "</svg>\n";
  }

 private:
  // Depth 0 has no logarithm: it stands one octave to the left of the first that has.
  double x(uint32_t depth) const {
    const double octaves = (last_octave_ - first_octave_) + (has_zero_ ? 1.0 : 0.0);
    const double at = depth == 0 ? 0.0 : std::log2(depth) - first_octave_ + (has_zero_ ? 1.0 : 0.0);
    return kLeft + (octaves > 0.0 ? at / octaves : 0.5) * (kWidth - kLeft - kRight);
  }
  double y(double speed) const { return top_ + kPlotHeight * (1.0 - speed / top_speed_); }

  void text(double at_x, double at_y, std::string_view anchor, std::string_view style, std::string_view words) {
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n", at_x, at_y,
                        anchor, style, markup_text(words));
  }
  void segment(std::string_view style, double x1, double y1, double x2, double y2) {
    out_ += fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", style, x1, y1,
                        x2, y2);
  }

  void legend() {
    for (size_t i = 0; i < lines_.size(); ++i) {
      const double at_x = kLeft + static_cast<double>(i % kLegendColumns) * (kWidth - kLeft - kRight) / kLegendColumns;
      const double at_y = kLegendTop + kLegendRow * static_cast<double>(i / kLegendColumns);
      segment(fmt::format("line m{} e{}", lines_[i].model, lines_[i].engine), at_x, at_y - 5.0, at_x + 34.0,
              at_y - 5.0);
      text(at_x + 42.0, at_y, "start", "key", lines_[i].label);
    }
  }

  void speed_axis() {
    for (int i = 0; step_ * i <= top_speed_ * 1.0001; ++i) {
      const double at_y = y(step_ * i);
      segment(i == 0 ? "axis" : "grid", kLeft, at_y, kWidth - kRight, at_y);
      text(kLeft - 8.0, at_y + 5.0, "end", "soft", fmt::format("{:.6g}", step_ * i));
    }
    const double middle = top_ + kPlotHeight / 2.0;
    out_ += fmt::format(
        "<text transform=\"translate(20 {:.1f}) rotate(-90)\" text-anchor=\"middle\" class=\"soft\">tokens per "
        "second</text>\n",
        middle);
  }

  void depth_axis() {
    const double bottom = top_ + kPlotHeight;
    const auto tick = [&](uint32_t depth) {
      segment("axis", x(depth), bottom, x(depth), bottom + 5.0);
      text(x(depth), bottom + 21.0, "middle", "soft", depth_text(depth));
    };
    if (has_zero_) tick(0);
    // A measurement just beside a power of two still gets its tick.
    const double slack = 0.01;
    for (double k = std::ceil(first_octave_ - slack); last_octave_ > 0.0 && k <= last_octave_ + slack; ++k) {
      tick(static_cast<uint32_t>(std::exp2(std::min(k, 31.0))));
    }
    // The axis is broken between 0 and the first octave.
    if (has_zero_ && last_octave_ > 0.0) {
      const double middle = (x(0) + x(static_cast<uint32_t>(std::llround(std::exp2(first_octave_))))) / 2.0;
      for (const double shift : {-3.0, 3.0})
        segment("axis", middle + shift - 3.0, bottom + 6.0, middle + shift + 3.0, bottom - 6.0);
    }
    text((kLeft + kWidth - kRight) / 2.0, bottom + 46.0, "middle", "soft",
         "depth: tokens already in the context, on a logarithmic scale (1K = 1,024)");
  }

  void curve(const Line& line) {
    std::string path;
    for (const auto& [depth, point] : line.points) path += fmt::format("{:.2f},{:.2f} ", x(depth), y(point->speed));
    out_ += fmt::format("<polyline class=\"line m{} e{}\" points=\"{}\"/>\n", line.model, line.engine, path);
    for (const auto& [depth, point] : line.points) {
      const double low = y(std::max(0.0, point->speed - point->deviation)), high = y(point->speed + point->deviation);
      if (low - high > 6.0) segment(fmt::format("bar m{}", line.model), x(depth), low, x(depth), high);
      out_ += fmt::format(
          "<circle class=\"point f{}\" cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"3\"><title>{}: {:.1f} ± {:.1f} t/s at depth "
          "{}</title></circle>\n",
          line.model, x(depth), y(point->speed), markup_text(line.label), point->speed, point->deviation, depth);
    }
  }

  std::vector<Line> lines_;
  std::string_view title_;
  bool has_zero_ = false;
  double first_octave_ = 0.0, last_octave_ = 0.0;  // equal when there is no depth but 0
  double step_ = 1.0, top_speed_ = 1.0;
  double top_ = 0.0, height_ = 0.0;
  std::string out_;
};

}  // namespace

std::string depth_plot_svg(std::span<const SpeedPoint> points, std::string_view title) {
  return DepthPlot(sorted_lines(points), title).svg();
}

}  // namespace carat::cli
