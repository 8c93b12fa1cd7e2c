#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

#include "server/metrics/histogram.h"

namespace carat::server {

// Writes Prometheus's text format 0.0.4: families of samples, each with its help and its type before it.
class Exposition {
 public:
  struct Label {
    std::string_view name, value;
  };
  using Labels = std::initializer_list<Label>;
  using Number = std::variant<uint64_t, double>;

  // The labels that every sample carries, before its own. Names of families begin with `prefix`.
  Exposition(std::string& out, std::string_view prefix, Labels common = {});

  // Begins a family; what follows are its samples.
  Exposition& counter(std::string_view name, std::string_view help) { return family(name, "counter", help); }
  Exposition& gauge(std::string_view name, std::string_view help) { return family(name, "gauge", help); }
  Exposition& histogram(std::string_view name, std::string_view help) { return family(name, "histogram", help); }

  Exposition& sample(Number value, Labels labels = {});
  // Of a family of histograms.
  Exposition& samples(const HistogramCounts& counts, Labels labels = {});

 private:
  Exposition& family(std::string_view name, std::string_view type, std::string_view help);
  void line(std::string_view suffix, Labels labels, std::string_view bound, Number value);

  std::string& out_;
  std::string_view prefix_;
  std::string common_;  // as text, without braces
  std::string name_;    // of the family, with the prefix
};

}  // namespace carat::server
