#include "server/metrics/exposition.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

namespace carat::server {

namespace {

void append_escaped(std::string_view text, bool quotes, std::string& out) {
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (quotes && c == '"') {
      out += "\\\"";
    } else {
      out += c;
    }
  }
}

void append_label(std::string_view name, std::string_view value, std::string& out) {
  if (!out.empty() && out.back() != '{') out += ',';
  out += name;
  out += "=\"";
  append_escaped(value, true, out);
  out += '"';
}

std::string text_of(Exposition::Number number) {
  if (const uint64_t* whole = std::get_if<uint64_t>(&number)) return fmt::format("{}", *whole);
  const double value = std::get<double>(number);
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

}  // namespace

Exposition::Exposition(std::string& out, std::string_view prefix, Labels common) : out_(out), prefix_(prefix) {
  for (const Label& label : common) append_label(label.name, label.value, common_);
}

Exposition& Exposition::family(std::string_view name, std::string_view type, std::string_view help) {
  name_ = fmt::format("{}{}", prefix_, name);
  fmt::format_to(std::back_inserter(out_), "# HELP {} ", name_);
  append_escaped(help, false, out_);
  fmt::format_to(std::back_inserter(out_), "\n# TYPE {} {}\n", name_, type);
  return *this;
}

void Exposition::line(std::string_view suffix, Labels labels, std::string_view bound, Number value) {
  out_ += name_;
  out_ += suffix;
  if (!common_.empty() || labels.size() > 0 || !bound.empty()) {
    out_ += '{';
    out_ += common_;
    for (const Label& label : labels) append_label(label.name, label.value, out_);
    if (!bound.empty()) append_label("le", bound, out_);
    out_ += '}';
  }
  out_ += ' ';
  out_ += text_of(value);
  out_ += '\n';
}

Exposition& Exposition::sample(Number value, Labels labels) {
  line("", labels, "", value);
  return *this;
}

Exposition& Exposition::samples(const HistogramCounts& counts, Labels labels) {
  uint64_t cumulative = 0;
  for (size_t i = 0; i < counts.bounds.size(); ++i) {
    cumulative += counts.counts[i];
    line("_bucket", labels, text_of(counts.bounds[i]), cumulative);
  }
  const uint64_t total = counts.total();
  line("_bucket", labels, "+Inf", total);
  line("_sum", labels, "", counts.sum);
  line("_count", labels, "", total);
  return *this;
}

}  // namespace carat::server
