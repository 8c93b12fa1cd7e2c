// The profile as a page: no scripts, no fonts, no pictures from elsewhere; drawings are SVG within it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/byte_size.h"
#include "cli/help/markup.h"
#include "cli/reports/plan_report.h"
#include "cli/reports/profile_report.h"

namespace carat::cli {

namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5b6470; --line: #d5dae0; --back: #fff; --bar: #2f6fd0;
  --gap: #b8860b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --soft: #98a2ae; --line: #3a424c; --back: #14171b; --bar: #6ea3f0; --gap: #d9a93a; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); max-width: 64rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p, li { color: var(--soft); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .5rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } tr.sum td { font-weight: 600; }
.wide { overflow-x: auto; }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font-size: 12px; } svg text.soft { fill: var(--soft); }
.bar { fill: var(--bar); } .gap { fill: var(--gap); } .axis { stroke: var(--line); } .roof { stroke: var(--ink);
  stroke-width: 1.5; fill: none; } .p0 { fill: #2f6fd0; } .p1 { fill: #d0562f; }
)";

double share_of(double part, double whole) { return whole > 0.0 ? part / whole : 0.0; }

// A horizontal bar for each family and one for the gaps, all to one scale.
std::string bar_chart(const exec::ProfileReport& report, const exec::ProfilePhase& phase) {
  struct Bar {
    std::string name, note, style;
    double seconds;
  };
  std::vector<Bar> bars;
  for (const exec::ProfileFamily& family : phase.families) {
    bars.push_back({family.name,
                    fmt::format("{} · {:.0f}% · {:.0f}% of its limit", duration_text(family.seconds),
                                100.0 * share_of(family.seconds, phase.seconds), 100.0 * report.ceilings.share(family)),
                    "bar", family.seconds});
  }
  const bool gaps = phase.gap_seconds() >= 0.0;
  bars.push_back(
      {gaps ? "gaps" : "overlap", duration_text(phase.gap_seconds()), "gap", std::fabs(phase.gap_seconds())});
  double longest = 0.0;
  for (const Bar& bar : bars) longest = std::max(longest, bar.seconds);

  constexpr int kRow = 22, kLeft = 170, kWidth = 500;
  std::string svg = fmt::format("<svg viewBox=\"0 0 960 {}\" role=\"img\" aria-label=\"time by family, {}\">\n",
                                kRow * bars.size() + 6, markup_text(phase_title(phase)));
  for (size_t i = 0; i < bars.size(); ++i) {
    const double top = static_cast<double>(i) * kRow + 4;
    const double width = longest > 0.0 ? kWidth * bars[i].seconds / longest : 0.0;
    svg += fmt::format(
        "<text x=\"{}\" y=\"{:.0f}\" text-anchor=\"end\">{}</text><rect class=\"{}\" x=\"{}\" y=\"{:.0f}\" "
        "width=\"{:.1f}\" "
        "height=\"{}\"/><text class=\"soft\" x=\"{:.1f}\" y=\"{:.0f}\">{}</text>\n",
        kLeft - 8, top + 13, markup_text(bars[i].name), bars[i].style, kLeft, top, width, kRow - 6, kLeft + width + 6,
        top + 13, markup_text(bars[i].note));
  }
  return svg + "</svg>\n";
}

// Work per byte against work per second, both logarithmic, with the roof the two ceilings make.
class RooflinePlot {
 public:
  explicit RooflinePlot(const exec::ProfileReport& report) : report_(report) {
    const double ridge = report.ceilings.flops_per_second / report.ceilings.bytes_per_second;
    add_range(ridge, report.ceilings.flops_per_second);
    add_range(ridge / 100.0, report.ceilings.flops_per_second / 100.0);  // the slope is worth seeing
    for (const exec::ProfilePhase& phase : report.phases) {
      for (const exec::ProfileFamily& family : phase.families) {
        if (shown(family)) add_range(family.flops / family.bytes, family.flops_per_second());
      }
    }
    x_ = {std::floor(x_.low), std::ceil(x_.high + 0.3)};
    y_ = {std::floor(y_.low), std::ceil(y_.high)};
  }

  std::string draw() {
    std::string svg =
        fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"roofline\">\n", kWidth, kHeight);
    svg += grid() + roof();
    for (size_t p = 0; p < report_.phases.size(); ++p) {
      svg += fmt::format("<circle class=\"p{}\" cx=\"{}\" cy=\"{}\" r=\"5\"/><text x=\"{}\" y=\"{}\">{}</text>\n",
                         p % 2, kLeft + 16, kTop + 16 + 18 * p, kLeft + 26, kTop + 20 + 18 * p,
                         markup_text(phase_title(report_.phases[p])));
      for (const exec::ProfileFamily& family : report_.phases[p].families) svg += point(family, p);
    }
    return svg + "</svg>\n";
  }

 private:
  static constexpr int kWidth = 960, kHeight = 440, kLeft = 70, kRight = 20, kTop = 10, kBottom = 40;
  struct Range {
    double low = 1e9, high = -1e9;  // decimal logarithms
  };

  // Families without arithmetic have no place in the plot.
  static bool shown(const exec::ProfileFamily& family) {
    return family.flops > 0.0 && family.bytes > 0.0 && family.seconds > 0.0;
  }
  void add_range(double intensity, double speed) {
    const auto widen = [](Range& range, double value) {
      range.low = std::min(range.low, std::log10(value));
      range.high = std::max(range.high, std::log10(value));
    };
    widen(x_, intensity);
    widen(y_, speed);
  }
  double x_of(double intensity) const {
    return kLeft + (kWidth - kLeft - kRight) * (std::log10(intensity) - x_.low) / (x_.high - x_.low);
  }
  double y_of(double speed) const {
    return kTop + (kHeight - kTop - kBottom) * (y_.high - std::log10(speed)) / (y_.high - y_.low);
  }

  std::string grid() const {
    std::string svg;
    for (double power = x_.low; power <= x_.high; power += 1.0) {
      const double x = x_of(std::pow(10.0, power));
      svg += fmt::format(
          "<line class=\"axis\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/><text class=\"soft\" "
          "x=\"{0:.1f}\" "
          "y=\"{3}\" text-anchor=\"middle\">{4:g}</text>\n",
          x, kTop, kHeight - kBottom, kHeight - kBottom + 16, std::pow(10.0, power));
    }
    for (double power = y_.low; power <= y_.high; power += 1.0) {
      const double y = y_of(std::pow(10.0, power));
      svg += fmt::format(
          "<line class=\"axis\" x1=\"{1}\" x2=\"{2}\" y1=\"{0:.1f}\" y2=\"{0:.1f}\"/><text class=\"soft\" x=\"{3}\" "
          "y=\"{4:.1f}\" text-anchor=\"end\">{5:g}</text>\n",
          y, kLeft, kWidth - kRight, kLeft - 6, y + 4, std::pow(10.0, power - 12.0));
    }
    svg += fmt::format(
        "<text class=\"soft\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">FLOP per byte</text>"
        "<text class=\"soft\" x=\"14\" y=\"{}\" transform=\"rotate(-90 14 {})\" "
        "text-anchor=\"middle\">TFLOP/s</text>\n",
        (kLeft + kWidth - kRight) / 2, kHeight - 6, kHeight / 2, kHeight / 2);
    return svg;
  }

  std::string roof() const {
    const double bandwidth = report_.ceilings.bytes_per_second, peak = report_.ceilings.flops_per_second;
    // The slope may leave the plot at the bottom before it reaches the left edge.
    const double start = std::max(std::pow(10.0, x_.low), std::pow(10.0, y_.low) / bandwidth);
    return fmt::format("<polyline class=\"roof\" points=\"{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}\"/>\n", x_of(start),
                       y_of(start * bandwidth), x_of(peak / bandwidth), y_of(peak), x_of(std::pow(10.0, x_.high)),
                       y_of(peak));
  }

  // The height for a label at x that is not written over an earlier one.
  double free_height(double x, double y, size_t letters) {
    constexpr double kLetter = 6.8, kLine = 13.0;
    const Label label{x, x + kLetter * static_cast<double>(letters), y};
    const auto collides = [](const Label& a, const Label& b) {
      return a.left < b.right && b.left < a.right && std::fabs(a.y - b.y) < kLine;
    };
    Label placed = label;
    // Nearest first: 1 below, 1 above, 2 below, ...
    for (int step = 1; std::any_of(labels_.begin(), labels_.end(), [&](const Label& l) { return collides(l, placed); });
         ++step) {
      placed.y = y + (step % 2 == 1 ? (step + 1) / 2 : -step / 2);
    }
    labels_.push_back(placed);
    return placed.y;
  }

  std::string point(const exec::ProfileFamily& family, size_t phase) {
    if (!shown(family)) return {};
    const double x = x_of(family.flops / family.bytes), y = y_of(family.flops_per_second());
    return fmt::format(
        "<circle class=\"p{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\"><title>{}: {:.3g} FLOP per byte, {:.3g} TFLOP/s, "
        "{:.0f}% "
        "of its limit</title></circle><text class=\"soft\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
        phase % 2, x, y, markup_text(family.name), family.flops / family.bytes, family.flops_per_second() / 1e12,
        100.0 * report_.ceilings.share(family), x + 8, free_height(x + 8, y + 4, family.name.size()),
        markup_text(family.name));
  }

  struct Label {
    double left, right, y;
  };

  const exec::ProfileReport& report_;
  Range x_, y_;
  std::vector<Label> labels_;
};

std::string table_row(const exec::ProfileReport& report, const exec::ProfilePhase& phase,
                      const exec::ProfileFamily& family, std::string_view style) {
  return fmt::format(
      "<tr{}><td>{}</td><td>{}</td><td>{:.1f}%</td><td>{}</td><td>{:.0f}</td><td>{:.4g}</td><td>{:.1f}</td>"
      "<td>{:.1f}%</td><td>{}</td></tr>\n",
      style, markup_text(family.name), duration_text(family.seconds), 100.0 * share_of(family.seconds, phase.seconds),
      byte_size(static_cast<uint64_t>(std::llround(family.bytes))), family.bytes_per_second() / 1e9, family.flops / 1e9,
      family.flops_per_second() / 1e12, 100.0 * report.ceilings.share(family),
      report.ceilings.memory_bound(family) ? "memory" : "compute");
}

std::string phase_section(const exec::ProfileReport& report, const exec::ProfilePhase& phase) {
  std::string html = fmt::format("<h2>{}: {}, {:.1f} tokens/s</h2>\n", markup_text(phase_title(phase)),
                                 duration_text(phase.seconds), phase.tokens_per_second());
  if (phase.graph_seconds > 0.0) {
    html += fmt::format("<p>One graph; the GPU alone needs {} for it.</p>\n", duration_text(phase.graph_seconds));
  }
  html += bar_chart(report, phase);
  html +=
      "<div class=\"wide\"><table>\n<tr><th>family</th><th>time</th><th>share</th><th>bytes</th><th>GB/s</th>"
      "<th>GFLOP</th><th>TFLOP/s</th><th>of limit</th><th>bound by</th></tr>\n";
  for (const exec::ProfileFamily& family : phase.families) html += table_row(report, phase, family, "");
  html += table_row(report, phase, phase.total(), " class=\"sum\"");
  html += fmt::format("<tr><td>{}</td><td>{}</td><td>{:.1f}%</td><td colspan=\"6\">{}</td></tr>\n</table></div>\n",
                      phase.gap_seconds() >= 0.0 ? "gaps" : "overlap", duration_text(phase.gap_seconds()),
                      100.0 * share_of(phase.gap_seconds(), phase.seconds), markup_text(gap_text(phase)));
  return html;
}

}  // namespace

std::string profile_html(const exec::ProfileReport& report) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>Profile of {0}</title><style>{1}</style></head>\n<body>\n<h1>Profile of "
      "{0}</h1>\n<p>{2}, compute capability {3}: reads {4}/s, bf16 products {5:.0f} TFLOP/s, both measured just "
      "before. "
      "Context {6}, passes of up to {7} tokens.</p>\n<ul>\n",
      markup_text(report.model), kStyle, markup_text(report.gpu), capability_text(report.capability),
      byte_size(static_cast<uint64_t>(std::llround(report.ceilings.bytes_per_second))),
      report.ceilings.flops_per_second / 1e12, grouped(report.context), grouped(report.chunk));
  for (const exec::ProfileReport::Decision& made : report.kernels) {
    html +=
        fmt::format("<li>{}={}: {}</li>\n", markup_text(made.slot), markup_text(made.name), markup_text(made.reason));
  }
  html += "</ul>\n";
  for (const exec::ProfilePhase& phase : report.phases) html += phase_section(report, phase);
  html += "<h2>Roofline</h2>\n" + RooflinePlot(report).draw();
  html +=
      "<p>Bytes and FLOPs are the least the shapes call for. The limit of a family is the larger of bytes by the read "
      "speed "
      "and FLOPs by the speed of products; families are timed one after the other.</p>\n</body></html>\n";
  return html;
}

}  // namespace carat::cli
