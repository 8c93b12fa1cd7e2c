#include "cli/reports/profile_report.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/byte_size.h"
#include "cli/reports/plan_report.h"

namespace carat::cli {

namespace {

std::string percent(double share) { return fmt::format("{:.1f}%", 100.0 * share); }

double share_of(double part, double whole) { return whole > 0.0 ? part / whole : 0.0; }

std::string family_row(const exec::ProfileReport& report, const exec::ProfilePhase& phase,
                       const exec::ProfileFamily& family) {
  return fmt::format("  {:<22} {:>9} {:>7} {:>10} {:>9.0f} {:>10.4g} {:>9.1f} {:>9} {}\n", family.name,
                     duration_text(family.seconds), percent(share_of(family.seconds, phase.seconds)),
                     byte_size(static_cast<uint64_t>(std::llround(family.bytes))), family.bytes_per_second() / 1e9,
                     family.flops / 1e9, family.flops_per_second() / 1e12, percent(report.ceilings.share(family)),
                     report.ceilings.memory_bound(family) ? "memory" : "compute");
}

std::string phase_section(const exec::ProfileReport& report, const exec::ProfilePhase& phase) {
  std::string text = fmt::format("{}: {}, {:.1f} tokens/s\n", phase_title(phase), duration_text(phase.seconds),
                                 phase.tokens_per_second());
  if (phase.graph_seconds > 0.0) {
    text += fmt::format("  one graph; the GPU alone needs {} for it\n", duration_text(phase.graph_seconds));
  }
  text += fmt::format("  {:<22} {:>9} {:>7} {:>10} {:>9} {:>10} {:>9} {:>9}\n", "family", "time", "share", "bytes",
                      "GB/s", "GFLOP", "TFLOP/s", "of limit");
  for (const exec::ProfileFamily& family : phase.families) text += family_row(report, phase, family);
  text += family_row(report, phase, phase.total());
  text += fmt::format("  {:<22} {:>9} {:>7} {}\n", phase.gap_seconds() >= 0.0 ? "gaps" : "overlap",
                      duration_text(phase.gap_seconds()), percent(share_of(phase.gap_seconds(), phase.seconds)),
                      gap_text(phase));
  return text;
}

nlohmann::ordered_json family_json(const exec::ProfileReport& report, const exec::ProfileFamily& family) {
  return {{"name", family.name},
          {"steps", family.steps},
          {"seconds", family.seconds},
          {"bytes", family.bytes},
          {"flops", family.flops},
          {"bytes_per_second", family.bytes_per_second()},
          {"flops_per_second", family.flops_per_second()},
          {"limit_share", report.ceilings.share(family)},
          {"bound_by", report.ceilings.memory_bound(family) ? "memory" : "compute"}};
}

}  // namespace

std::string duration_text(double seconds) {
  const double size = std::fabs(seconds);
  const auto scaled = [&](double factor, std::string_view unit) {
    const double value = seconds * factor, digits = size * factor;
    return fmt::format("{:.{}f} {}", value, digits < 9.995 ? 2 : digits < 99.95 ? 1 : 0, unit);
  };
  if (size >= 0.9995) return scaled(1.0, "s");
  if (size >= 0.9995e-3) return scaled(1e3, "ms");
  return scaled(1e6, "µs");
}

std::string phase_title(const exec::ProfilePhase& phase) {
  std::string title = fmt::format("{} of {} token{}", phase.name, grouped(phase.tokens), phase.tokens == 1 ? "" : "s");
  if (phase.depth > 0) title += fmt::format(" after {}", grouped(phase.depth));
  return title;
}

std::string gap_text(const exec::ProfilePhase& phase) {
  if (phase.gap_seconds() >= 0.0) return "no family at work: launches, waits for the host, the way back of results";
  return "saved by kernels that overlap, which they may not while they are timed; marks cost something too";
}

std::string profile_text(const exec::ProfileReport& report) {
  std::string text = fmt::format(
      "{}\n  on {}, compute capability {}: reads {}/s, bf16 products {:.0f} TFLOP/s (both measured now)\n"
      "  context {}, passes of up to {} tokens",
      report.model, report.gpu, capability_text(report.capability),
      byte_size(static_cast<uint64_t>(std::llround(report.ceilings.bytes_per_second))),
      report.ceilings.flops_per_second / 1e12, grouped(report.context), grouped(report.chunk));
  for (const exec::ProfileReport::Decision& made : report.kernels) text += fmt::format(", {}={}", made.slot, made.name);
  text += "\n";
  for (const exec::ProfilePhase& phase : report.phases) text += "\n" + phase_section(report, phase);
  text +=
      "\nBytes and FLOPs are the least the shapes call for. The limit of a family is the larger of bytes by the read "
      "speed\nand FLOPs by the speed of products; families are timed one after the other.\n";
  return text;
}

nlohmann::ordered_json profile_json(const exec::ProfileReport& report) {
  using nlohmann::ordered_json;
  ordered_json phases = ordered_json::array();
  for (const exec::ProfilePhase& phase : report.phases) {
    ordered_json families = ordered_json::array();
    for (const exec::ProfileFamily& family : phase.families) families.push_back(family_json(report, family));
    phases.push_back({{"name", phase.name},
                      {"tokens", phase.tokens},
                      {"depth", phase.depth},
                      {"seconds", phase.seconds},
                      {"graph_seconds", phase.graph_seconds},
                      {"tokens_per_second", phase.tokens_per_second()},
                      {"kernel_seconds", phase.kernel_seconds()},
                      {"gap_seconds", phase.gap_seconds()},
                      {"families", families}});
  }
  ordered_json kernels = ordered_json::object();
  for (const exec::ProfileReport::Decision& made : report.kernels) kernels[made.slot] = made.name;
  return {{"model", report.model},
          {"gpu", report.gpu},
          {"capability", capability_text(report.capability)},
          {"context", report.context},
          {"chunk", report.chunk},
          {"kernels", kernels},
          {"read_bytes_per_second", report.ceilings.bytes_per_second},
          {"product_flops_per_second", report.ceilings.flops_per_second},
          {"phases", phases}};
}

}  // namespace carat::cli
