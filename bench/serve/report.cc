#include "serve/report.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"

namespace carat::serve_bench {

using Json = nlohmann::ordered_json;

namespace {

constexpr size_t kWidth = 50;

// "99", "99.9": as in the names of fields.
std::string percent_text(double percent) { return fmt::format("{}", percent); }

void add_statistics(std::string_view name, const Statistics& statistics, const std::vector<double>& percentiles,
                    Json& json) {
  json[fmt::format("mean_{}_ms", name)] = statistics.mean;
  json[fmt::format("median_{}_ms", name)] = statistics.median;
  json[fmt::format("std_{}_ms", name)] = statistics.deviation;
  for (size_t i = 0; i < percentiles.size(); ++i) {
    json[fmt::format("p{}_{}_ms", percent_text(percentiles[i]), name)] = statistics.percentiles.at(i);
  }
}

void add_requests(const LoadResult& load, Json& json) {
  for (const char* name : {"input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors"}) {
    json[name] = Json::array();
  }
  for (const RequestResult& request : load.requests) {
    json["input_lens"].push_back(request.prompt_tokens);
    json["output_lens"].push_back(request.is_complete ? request.output_tokens : 0);
    json["ttfts"].push_back(request.first_token);
    json["itls"].push_back(request.gaps);
    const Json text = Json::parse("\"" + request.answer + "\"", nullptr, false);
    json["generated_texts"].push_back(text.is_string() ? text : Json(""));
    json["errors"].push_back(request.error);
  }
}

Json own_part(const BenchOptions& options, const Figures& figures) {
  Json own;
  own["scenario"] = options.scenario.empty() ? Json() : Json(options.scenario);
  own["dataset"] = dataset_name(options.dataset.dataset);
  own["seed"] = options.dataset.seed;
  own["total_cached_tokens"] = figures.cached_tokens;
  own["requests_without_usage"] = figures.without_usage;
  own["client_cpu_seconds"] = figures.cpu_seconds;
  own["errors_by_kind"] = Json::object();
  for (const auto& [kind, failures] : figures.errors) {
    own["errors_by_kind"][kind] = {{"count", failures.count}, {"example", failures.example}};
  }
  const auto& percentiles = options.report.percentiles;
  if (figures.later_turns) {
    add_statistics("first_turn_ttft", *figures.first_turn, percentiles, own);
    add_statistics("later_turns_ttft", *figures.later_turns, percentiles, own);
  }
  if (figures.intrusion) {
    own["intruder_ttft_ms"] = figures.intrusion->first_token;
    add_statistics("itl_before_intruder", figures.intrusion->gap_before, percentiles, own);
    add_statistics("itl_beside_intruder", figures.intrusion->gap_during, percentiles, own);
  }
  return own;
}

// Lines of the table: what is shown, and where it is in the result.
class Table {
 public:
  Table(const Json& result, const Json& earlier) : result_(result), earlier_(earlier) {}

  void headline(std::string_view text, char fill) {
    const size_t width = kWidth + (earlier_.is_object() ? 24 : 0);
    text_ += fmt::format("{}\n", fmt::format(fmt::runtime(fmt::format("{{:{}^{}}}", fill, width)), text));
  }
  // Nothing where the result has no such number.
  void line(std::string_view label, const Json::json_pointer& field) {
    const auto value = number(result_, field);
    if (!value) return;
    text_ += fmt::format("{:<40} {:<10}", label, value_text(result_, field));
    if (const auto before = number(earlier_, field)) {
      text_ += fmt::format(" {:<12}", value_text(earlier_, field));
      if (*before != 0.0) text_ += fmt::format("{:+.1f}%", (*value / *before - 1.0) * 100.0);
    }
    text_ += '\n';
  }
  void statistics(std::string_view headline_text, std::string_view label, const std::string& parent,
                  const std::string& name) {
    const Json& object = parent.empty() ? result_ : result_.at(parent);
    if (!object.contains("mean_" + name + "_ms")) return;
    headline(headline_text, '-');
    for (const auto& [key, value] : object.items()) {
      const size_t mark = key.find('_');
      if (mark == std::string::npos || key.substr(mark + 1) != name + "_ms") continue;
      std::string what = key.substr(0, mark);
      what[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(what[0])));
      line(fmt::format("{} {} (ms):", what, label),
           Json::json_pointer((parent.empty() ? "" : "/" + parent) + "/" + key));
    }
  }
  std::string& text() { return text_; }

 private:
  static std::optional<double> number(const Json& json, const Json::json_pointer& field) {
    if (!json.is_object() || !json.contains(field) || !json.at(field).is_number()) return std::nullopt;
    return json.at(field).get<double>();
  }
  static std::string value_text(const Json& json, const Json::json_pointer& field) {
    const Json& value = json.at(field);
    return value.is_number_float() ? fmt::format("{:.2f}", value.get<double>()) : value.dump();
  }

  const Json& result_;
  const Json& earlier_;
  std::string text_;
};

}  // namespace

Json result_json(const BenchOptions& options, const std::string& model, const Figures& figures, const LoadResult& load,
                 const std::string& date) {
  Json json;
  json["date"] = date;
  const char* backend = options.target.backend == Backend::kChat ? "openai-chat" : "openai";
  json["endpoint_type"] = backend;
  json["backend"] = backend;
  json["label"] = nullptr;
  json["model_id"] = model;
  json["tokenizer_id"] = model;
  json["num_prompts"] = load.requests.size();
  for (const auto& [key, value] : options.report.metadata) json[key] = value;
  json["request_rate"] = std::isinf(options.load.request_rate) ? Json("inf") : Json(options.load.request_rate);
  json["burstiness"] = options.load.burstiness;
  json["max_concurrency"] = options.load.max_concurrency == 0 ? Json() : Json(options.load.max_concurrency);
  json["duration"] = figures.seconds;
  json["completed"] = figures.completed;
  json["failed"] = figures.failed;
  json["total_input_tokens"] = figures.input_tokens;
  json["total_output_tokens"] = figures.output_tokens;
  json["request_throughput"] = figures.request_throughput;
  json["request_goodput"] = figures.goodput ? Json(*figures.goodput) : Json();
  json["output_throughput"] = figures.output_throughput;
  json["total_token_throughput"] = figures.total_throughput;
  if (options.report.detailed) add_requests(load, json);
  json["max_output_tokens_per_s"] = figures.most_output_per_second;
  json["max_concurrent_requests"] = figures.most_at_once;
  add_statistics("ttft", figures.first_token, options.report.percentiles, json);
  add_statistics("tpot", figures.per_token, options.report.percentiles, json);
  add_statistics("itl", figures.gap, options.report.percentiles, json);
  add_statistics("e2el", figures.latency, options.report.percentiles, json);
  json["carat"] = own_part(options, figures);
  return json;
}

std::string result_table(const Json& result, const Json& earlier) {
  struct Row {
    const char *label, *field;
  };
  constexpr std::array kRows = {Row{"Successful requests:", "/completed"},
                                Row{"Failed requests:", "/failed"},
                                Row{"Maximum request concurrency:", "/max_concurrency"},
                                Row{"Request rate configured (RPS):", "/request_rate"},
                                Row{"Benchmark duration (s):", "/duration"},
                                Row{"Total input tokens:", "/total_input_tokens"},
                                Row{"Of these, cached:", "/carat/total_cached_tokens"},
                                Row{"Total generated tokens:", "/total_output_tokens"},
                                Row{"Request throughput (req/s):", "/request_throughput"},
                                Row{"Request goodput (req/s):", "/request_goodput"},
                                Row{"Output token throughput (tok/s):", "/output_throughput"},
                                Row{"Peak output token throughput (tok/s):", "/max_output_tokens_per_s"},
                                Row{"Peak concurrent requests:", "/max_concurrent_requests"},
                                Row{"Total token throughput (tok/s):", "/total_token_throughput"},
                                Row{"CPU time of this client (s):", "/carat/client_cpu_seconds"}};
  Table table(result, earlier);
  table.headline(" Serving Benchmark Result ", '=');
  for (const auto& [label, field] : kRows) table.line(label, Json::json_pointer(field));
  for (const auto& [kind, failures] : result.at("carat").at("errors_by_kind").items()) {
    table.text() += fmt::format("{:<40} {:<10} {}\n", fmt::format("Failed, {}:", kind), failures.at("count").dump(),
                                failures.at("example").get<std::string>());
  }
  if (result.at("carat").at("requests_without_usage") > 0) {
    table.text() += "Some answers had no usage: their tokens are counted by chunks.\n";
  }
  table.statistics("Time to First Token", "TTFT", "", "ttft");
  table.statistics("Time per Output Token (excl. 1st token)", "TPOT", "", "tpot");
  table.statistics("Inter-token Latency", "ITL", "", "itl");
  table.statistics("End-to-end Latency", "E2EL", "", "e2el");
  table.statistics("First turns of conversations", "TTFT", "carat", "first_turn_ttft");
  table.statistics("Later turns of conversations", "TTFT", "carat", "later_turns_ttft");
  table.statistics("Before the intruder", "ITL", "carat", "itl_before_intruder");
  table.statistics("While the intruder's prompt is read", "ITL", "carat", "itl_beside_intruder");
  table.line("TTFT of the intruder (ms):", Json::json_pointer("/carat/intruder_ttft_ms"));
  table.headline("", '=');
  return std::move(table.text());
}

Json load_result(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail(ErrorCode::kIo, "--compare {}: cannot be opened", path);
  const Json json = Json::parse(file, nullptr, false);
  if (!json.is_object()) fail(ErrorCode::kBadFile, "--compare {}: not a result", path);
  return json;
}

void save_result(const Json& result, const std::string& path) {
  std::ofstream file(path);
  file << result.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  if (!file.flush()) fail(ErrorCode::kIo, "--save-result {}: cannot be written", path);
}

}  // namespace carat::serve_bench
