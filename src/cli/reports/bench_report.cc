#include "cli/reports/bench_report.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "cli/terminal.h"

namespace carat::cli {

namespace {

template <typename T>
double mean(const std::vector<T>& values) {
  if (values.empty()) return 0.0;
  return static_cast<double>(std::accumulate(values.begin(), values.end(), T{0})) / static_cast<double>(values.size());
}

// Of a sample: divided by n - 1.
template <typename T>
double deviation(const std::vector<T>& values) {
  if (values.size() < 2) return 0.0;
  const double average = mean(values);
  double squares = 0.0;
  for (const T value : values)
    squares += (static_cast<double>(value) - average) * (static_cast<double>(value) - average);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

nlohmann::ordered_json as_json(const BenchResult& r) {
  nlohmann::ordered_json json = {
      {"model_filename", r.model_filename},
      {"model_type", r.model_type},
      {"model_size", r.model_size},
      {"model_n_params", r.model_n_params},
      {"backends", r.backend},
      {"cpu_info", r.cpu_info},
      {"n_batch", r.n_batch},
      {"n_ubatch", r.n_ubatch},
      {"n_threads", r.n_threads},
      {"type_k", r.type_k},
      {"type_v", r.type_v},
      {"n_prompt", r.n_prompt},
      {"n_gen", r.n_gen},
      {"n_depth", r.n_depth},
      {"n_sequences", r.n_sequences},
      {"test_time", r.test_time},
      {"avg_ns", std::llround(r.avg_ns())},
      {"stddev_ns", std::llround(r.stddev_ns())},
      {"avg_ts", r.avg_ts()},
      {"stddev_ts", r.stddev_ts()},
      {"samples_ns", r.samples_ns},
      {"samples_ts", r.samples_ts()},
  };
  const auto or_null = [](const std::optional<double>& value) -> nlohmann::ordered_json {
    if (value) return *value;
    return nullptr;
  };
  json["bytes_per_token"] = or_null(r.bytes_per_token);
  json["limit_bytes_per_second"] = or_null(r.limit_bytes_per_second);
  json["limit_share"] = or_null(r.limit_share());
  json["lookup"] = r.lookup.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(r.lookup);
  json["tokens_per_pass"] = or_null(r.tokens_per_pass);
  json["drafts_accepted"] = or_null(r.drafts_accepted);
  return json;
}

class MarkdownPrinter : public BenchPrinter {
 public:
  explicit MarkdownPrinter(bool is_of_drafts)
      : test_width_(is_of_drafts ? 26 : 15), last_column_(is_of_drafts ? "drafts" : "of the read limit") {}

  void begin() override {
    write_stdout(line("model", "size", "params", "backend", "threads", "ubatch", "test", "t/s", "ms", last_column_));
    write_stdout(fmt::format(
        "| {:-<30} | {:->10} | {:->10} | {:-<10} | {:->7} | {:->6} | {:->{}} | {:->18} | {:->16} | {:->20} |\n", "",
        ":", ":", "", ":", ":", ":", test_width_, ":", ":", ":"));
  }

  void add(const BenchResult& r) override {
    std::string last = "–";
    if (const auto share = r.limit_share()) {
      last = fmt::format("{:.0f}% of {:.1f} GB/s", 100.0 * *share, *r.limit_bytes_per_second / 1e9);
    } else if (r.tokens_per_pass && r.drafts_accepted) {
      last = fmt::format("{:.2f}/pass, {:.0f}% right", *r.tokens_per_pass, 100.0 * *r.drafts_accepted);
    }
    write_stdout(line(r.model_type, size(r.model_size), parameters(r.model_n_params), r.backend,
                      std::to_string(r.n_threads), std::to_string(r.n_ubatch), r.test(),
                      fmt::format("{:.2f} ± {:.2f}", r.avg_ts(), r.stddev_ts()),
                      fmt::format("{:.2f} ± {:.2f}", r.avg_ns() / 1e6, r.stddev_ns() / 1e6), last));
  }

 private:
  static std::string size(uint64_t bytes) {
    const double mebibytes = static_cast<double>(bytes) / 0x1p20;
    return mebibytes < 1024.0 ? fmt::format("{:.2f} MiB", mebibytes) : fmt::format("{:.2f} GiB", mebibytes / 1024.0);
  }
  static std::string parameters(uint64_t count) {
    const double millions = static_cast<double>(count) / 1e6;
    return millions < 1000.0 ? fmt::format("{:.2f} M", millions) : fmt::format("{:.2f} B", millions / 1000.0);
  }
  std::string line(std::string_view model, std::string_view size, std::string_view params, std::string_view backend,
                   std::string_view threads, std::string_view ubatch, std::string_view test, std::string_view speed,
                   std::string_view time, std::string_view last) const {
    return fmt::format("| {:<30} | {:>10} | {:>10} | {:<10} | {:>7} | {:>6} | {:>{}} | {:>18} | {:>16} | {:>20} |\n",
                       model, size, params, backend, threads, ubatch, test, test_width_, speed, time, last);
  }

  int test_width_;
  std::string_view last_column_;
};

class CsvPrinter : public BenchPrinter {
 public:
  void add(const BenchResult& result) override {
    const nlohmann::ordered_json json = as_json(result);
    std::string header, values;
    for (const auto& [name, value] : json.items()) {
      if (value.is_array()) continue;
      header += (header.empty() ? "" : ",") + name;
      values += (values.empty() ? "" : ",") + quoted(value);
    }
    if (first_) write_stdout(header + "\n");
    first_ = false;
    write_stdout(values + "\n");
  }

 private:
  static std::string quoted(const nlohmann::ordered_json& value) {
    std::string text = value.is_null() ? "" : value.is_string() ? value.get<std::string>() : value.dump();
    for (size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2) text.insert(at, 1, '"');
    return "\"" + text + "\"";
  }
  bool first_ = true;
};

class JsonLinesPrinter : public BenchPrinter {
 public:
  void add(const BenchResult& result) override { write_stdout(as_json(result).dump() + "\n"); }
};

class JsonPrinter : public BenchPrinter {
 public:
  void add(const BenchResult& result) override { results_.push_back(as_json(result)); }
  void end() override { write_stdout(results_.dump(2) + "\n"); }

 private:
  nlohmann::ordered_json results_ = nlohmann::ordered_json::array();
};

}  // namespace

std::string BenchResult::test() const {
  std::string name;
  if (n_prompt > 0) name = fmt::format("pp{}", n_prompt);
  if (n_gen > 0) name += fmt::format("{}tg{}", name.empty() ? "" : "+", n_gen);
  if (n_depth > 0) name += fmt::format(" @ d{}", n_depth);
  if (n_sequences > 1) name += fmt::format(" x {}", n_sequences);
  if (!lookup.empty()) name += fmt::format(" lookup {}", lookup);
  return name;
}

std::vector<double> BenchResult::samples_ts() const {
  std::vector<double> speeds;
  const double tokens = double{1} * n_sequences * (n_prompt + n_gen);
  for (const uint64_t ns : samples_ns) speeds.push_back(1e9 * tokens / static_cast<double>(ns));
  return speeds;
}

double BenchResult::avg_ns() const { return mean(samples_ns); }
double BenchResult::stddev_ns() const { return deviation(samples_ns); }
double BenchResult::avg_ts() const { return mean(samples_ts()); }
double BenchResult::stddev_ts() const { return deviation(samples_ts()); }

std::optional<double> BenchResult::limit_share() const {
  if (!bytes_per_token || !limit_bytes_per_second) return std::nullopt;
  return avg_ts() * *bytes_per_token / *limit_bytes_per_second;
}

std::unique_ptr<BenchPrinter> make_bench_printer(std::string_view format, bool is_of_drafts) {
  if (format == "md") return std::make_unique<MarkdownPrinter>(is_of_drafts);
  if (format == "csv") return std::make_unique<CsvPrinter>();
  if (format == "json") return std::make_unique<JsonPrinter>();
  if (format == "jsonl") return std::make_unique<JsonLinesPrinter>();
  fail(ErrorCode::kBadArgument, "-o {}: known are md, csv, json and jsonl", format);
}

}  // namespace carat::cli
