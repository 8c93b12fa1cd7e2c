#include "server/metrics/exposition_check.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <set>
#include <utility>

namespace carat::server::test {

namespace {

bool is_name(std::string_view text, bool colons) {
  if (text.empty() || (text[0] >= '0' && text[0] <= '9')) return false;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= '0' && c <= '9');
    if (!letter && !(colons && c == ':')) return false;
  }
  return true;
}

std::optional<double> value_of(const std::string& text) {
  if (text == "+Inf") return std::numeric_limits<double>::infinity();
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return text.empty() || *end != '\0' ? std::nullopt : std::optional(value);
}

class Checker {
 public:
  explicit Checker(std::string_view text) : text_(text) {}

  CheckedExposition run() {
    if (!text_.empty() && text_.back() != '\n') complain("the last line does not end");
    while (!text_.empty()) {
      const size_t end = text_.find('\n');
      line_ = text_.substr(0, end);
      text_ = end == std::string_view::npos ? std::string_view() : text_.substr(end + 1);
      read_line();
    }
    close_family();
    return std::move(result_);
  }

 private:
  using Labels = std::vector<std::pair<std::string, std::string>>;
  struct Buckets {
    std::vector<std::pair<double, double>> counts;  // by bound
    std::optional<double> sum, count;
  };

  void complain(std::string_view what) { result_.problems.push_back(fmt::format("{}: {}", what, line_)); }

  void read_line() {
    if (line_.starts_with("# HELP ") || line_.starts_with("# TYPE ")) {
      const bool is_help = line_[2] == 'H';
      const std::string_view rest = line_.substr(7);
      const size_t space = rest.find(' ');
      if (space == std::string_view::npos) return complain("a comment without a text");
      const std::string name(rest.substr(0, space));
      is_help ? begin_family(name) : set_type(name, std::string(rest.substr(space + 1)));
    } else if (line_.starts_with('#') || line_.empty()) {
      complain("neither a sample nor HELP nor TYPE");
    } else {
      read_sample();
    }
  }

  void begin_family(const std::string& name) {
    close_family();
    if (!is_name(name, true)) complain("not a name");
    if (!families_.insert(name).second) complain("a family that was already there");
    family_ = name;
    type_.clear();
  }

  void set_type(const std::string& name, std::string type) {
    if (name != family_) complain("TYPE of another family than HELP");
    if (!type_.empty()) complain("a second TYPE");
    if (type != "counter" && type != "gauge" && type != "histogram") complain("an unknown type");
    result_.types[name] = type;
    type_ = std::move(type);
  }

  void read_sample() {
    const size_t name_end = line_.find_first_of("{ ");
    if (name_end == std::string_view::npos) return complain("a sample without a value");
    const std::string name(line_.substr(0, name_end));
    size_t at = name_end;
    Labels labels;
    if (line_[at] == '{' && !read_labels(at, labels)) return complain("labels that cannot be read");
    if (at >= line_.size() || line_[at] != ' ') return complain("no space before the value");
    const auto value = value_of(std::string(line_.substr(at + 1)));
    if (!value) return complain("not a number");
    if (type_.empty()) return complain("a sample before its TYPE");
    if (!result_.samples.emplace(std::string(line_.substr(0, at)), *value).second) complain("a series twice");
    if (type_ == "counter" && !(*value >= 0)) complain("a counter below zero");
    type_ == "histogram" ? add_to_histogram(name, std::move(labels), *value) : expect_name(name);
  }

  void expect_name(const std::string& name) {
    if (name != family_) complain("a sample of another family");
  }

  // From the opening brace to behind the closing one.
  bool read_labels(size_t& at, Labels& labels) {
    std::set<std::string> names;
    while (true) {
      const size_t equals = line_.find("=\"", ++at);
      if (equals == std::string_view::npos) return false;
      std::string name(line_.substr(at, equals - at)), value;
      if (!is_name(name, false) || !names.insert(name).second) return false;
      for (at = equals + 2; at < line_.size() && line_[at] != '"'; ++at) {
        if (line_[at] == '\\') {
          if (++at >= line_.size()) return false;
          if (line_[at] != '\\' && line_[at] != '"' && line_[at] != 'n') return false;
          value += line_[at] == 'n' ? '\n' : line_[at];
        } else {
          value += line_[at];
        }
      }
      if (++at >= line_.size()) return false;
      labels.emplace_back(std::move(name), std::move(value));
      if (line_[at] == '}') return ++at, true;
      if (line_[at] != ',') return false;
    }
  }

  void add_to_histogram(const std::string& name, Labels labels, double value) {
    std::optional<double> bound;
    if (name == family_ + "_bucket") {
      if (labels.empty() || labels.back().first != "le") return complain("a bucket without a bound");
      bound = value_of(labels.back().second);
      if (!bound) return complain("a bound that is not a number");
      labels.pop_back();
    }
    Buckets& buckets = histograms_[labels];
    if (bound) {
      if (!buckets.counts.empty() && buckets.counts.back().first >= *bound) complain("bounds do not ascend");
      if (!buckets.counts.empty() && buckets.counts.back().second > value) complain("buckets are not cumulative");
      buckets.counts.emplace_back(*bound, value);
    } else if (name == family_ + "_sum") {
      buckets.sum = value;
    } else if (name == family_ + "_count") {
      buckets.count = value;
    } else {
      complain("not a sample of a histogram");
    }
  }

  void close_family() {
    for (const auto& [labels, buckets] : histograms_) {
      if (!buckets.sum || !buckets.count) {
        complain("a histogram without sum or count ended before");
      } else if (buckets.counts.empty() || !std::isinf(buckets.counts.back().first)) {
        complain("a histogram without +Inf ended before");
      } else if (buckets.counts.back().second != *buckets.count) {
        complain("a histogram whose +Inf is not its count ended before");
      }
    }
    histograms_.clear();
  }

  std::string_view text_, line_;
  std::string family_, type_;
  std::set<std::string> families_;
  std::map<Labels, Buckets> histograms_;
  CheckedExposition result_;
};

}  // namespace

CheckedExposition check_exposition(std::string_view text) { return Checker(text).run(); }

}  // namespace carat::server::test
