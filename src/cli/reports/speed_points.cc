#include "cli/reports/speed_points.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace carat::cli {

namespace {

using nlohmann::json;

// Lines of comma-separated values, quoted where they hold commas or quotes. Each becomes an object by the first line's
// names; numbers are numbers, quoted or not, as both programs write them.
class CsvReader {
 public:
  CsvReader(std::string_view text, std::string_view file) : rest_(text), file_(file) {}

  std::vector<json> read() {
    std::vector<json> rows;
    const std::vector<std::string> names = line();
    while (!rest_.empty()) {
      const std::vector<std::string> values = line();
      if (values.size() == 1 && values.front().empty()) continue;
      if (values.size() != names.size()) {
        fail(ErrorCode::kBadFile, "{}: line {} has {} values but the first line names {}", file_, number_,
             values.size(), names.size());
      }
      json row = json::object();
      for (size_t i = 0; i < names.size(); ++i) row[names[i]] = value(values[i]);
      rows.push_back(std::move(row));
    }
    return rows;
  }

 private:
  static json value(const std::string& text) {
    if (text.empty()) return nullptr;
    double number = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) return number;
    return text;
  }

  std::vector<std::string> line() {
    ++number_;
    std::vector<std::string> values(1);
    bool is_quoted = false;
    while (!rest_.empty()) {
      const char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == '"') {
        // Two quotes inside of quotes are one that is meant.
        if (is_quoted && rest_.starts_with('"')) {
          values.back() += c;
          rest_.remove_prefix(1);
        } else {
          is_quoted = !is_quoted;
        }
      } else if (c == ',' && !is_quoted) {
        values.emplace_back();
      } else if (c == '\n' && !is_quoted) {
        return values;
      } else if (c != '\r') {
        values.back() += c;
      }
    }
    if (is_quoted) fail(ErrorCode::kBadFile, "{}: line {} ends inside of quotes", file_, number_);
    return values;
  }

  std::string_view rest_;
  std::string_view file_;
  size_t number_ = 0;
};

std::vector<json> read_rows(std::string_view text, std::string_view file) {
  const size_t start = text.find_first_not_of(" \t\r\n");
  if (start == text.npos) fail(ErrorCode::kBadFile, "{} is empty", file);
  try {
    if (text[start] == '[') return json::parse(text).get<std::vector<json>>();
    if (text[start] != '{') return CsvReader(text.substr(start), file).read();
    std::vector<json> rows;
    for (std::string_view rest = text; !rest.empty();) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      if (line.find_first_not_of(" \t\r") != line.npos) rows.push_back(json::parse(line));
    }
    return rows;
  } catch (const json::exception& error) {
    fail(ErrorCode::kBadFile, "{}: neither JSON, lines of JSON nor comma-separated values: {}", file, error.what());
  }
}

// One line of a benchmark.
class Row {
 public:
  Row(const json& fields, std::string_view file, size_t number) : fields_(fields), file_(file), number_(number) {
    if (!fields.is_object()) fail(ErrorCode::kBadFile, "{}: result {} is no object with fields", file, number);
  }

  bool is_given(const char* name) const { return fields_.contains(name) && !fields_[name].is_null(); }

  double number(const char* name, double at_least) const {
    const json& value = fields_[name];
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < at_least) {
      fail(ErrorCode::kBadFile, "{}: {} of result {} is {}; it must be a number of {} or more", file_, name, number_,
           value.dump(-1, ' ', true, json::error_handler_t::replace), at_least);
    }
    return value.get<double>();
  }
  double number_or(const char* name, double otherwise) const { return is_given(name) ? number(name, 0.0) : otherwise; }

  std::string words(const char* name) const {
    if (!is_given(name) || !fields_[name].is_string()) {
      fail(ErrorCode::kBadFile, "{}: result {} has no {}; give the model's name as ENGINE:MODEL=FILE", file_, number_,
           name);
    }
    return fields_[name].get<std::string>();
  }

  void require(const char* name) const {
    if (!is_given(name)) {
      fail(ErrorCode::kBadFile, "{}: result {} has no {}; `carat bench -o json` writes such files", file_, number_,
           name);
    }
  }

 private:
  const json& fields_;
  std::string_view file_;
  size_t number_;
};

}  // namespace

std::vector<SpeedPoint> read_speed_points(std::string_view text, std::string_view file, std::string_view engine,
                                          std::string_view model) {
  std::vector<SpeedPoint> points;
  size_t number = 0;
  for (const json& fields : read_rows(text, file)) {
    const Row row(fields, file, ++number);
    row.require("n_gen");
    row.require("avg_ts");
    const bool is_drafted = row.is_given("lookup") && row.words("lookup") != "off";
    if (row.number("n_gen", 0.0) == 0.0 || row.number_or("n_prompt", 0.0) > 0.0 ||
        row.number_or("n_sequences", 1.0) > 1.0 || is_drafted) {
      continue;
    }
    const double depth = row.number_or("n_depth", 0.0);
    if (depth > UINT32_MAX || depth != std::floor(depth)) {
      fail(ErrorCode::kBadFile, "{}: n_depth of result {} is {}; it must be a number of tokens", file, number, depth);
    }
    points.push_back({std::string(engine), model.empty() ? row.words("model_type") : std::string(model),
                      static_cast<uint32_t>(depth), row.number("avg_ts", 0.0), row.number_or("stddev_ts", 0.0)});
  }
  if (points.empty()) {
    fail(ErrorCode::kBadFile, "{}: none of its {} results is the speed of generation alone (n_gen without n_prompt)",
         file, number);
  }
  return points;
}

}  // namespace carat::cli
