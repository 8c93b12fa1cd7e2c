#include "serve/options.h"

#include <CLI/CLI.hpp>
#include <cmath>

#include "base/error.h"
#include "serve/scenarios.h"

namespace carat::serve_bench {

namespace {

const std::map<std::string, Backend> kBackends = {{"openai", Backend::kCompletions}, {"openai-chat", Backend::kChat}};
const std::map<std::string, Dataset> kDatasets = {{"random", Dataset::kRandom},
                                                  {"prefix-repetition", Dataset::kPrefixRepetition},
                                                  {"prefix_repetition", Dataset::kPrefixRepetition},
                                                  {"shared-prefix", Dataset::kSharedPrefix},
                                                  {"agent", Dataset::kAgent},
                                                  {"round-robin", Dataset::kRoundRobin},
                                                  {"intruder", Dataset::kIntruder},
                                                  {"custom", Dataset::kCustom}};
const std::map<std::string, Lengths> kLengths = {{"uniform", Lengths::kUniform}, {"lognormal", Lengths::kLogNormal}};

// Flags whose values need more than a conversion, as they were written.
struct RawFlags {
  std::vector<std::string> goodput, headers, metadata;
};

std::pair<std::string, std::string> split_at(const std::string& text, char mark, std::string_view flag,
                                             std::string_view form) {
  const size_t at = text.find(mark);
  if (at == 0 || at == std::string::npos) {
    fail(ErrorCode::kBadArgument, "{} {}: expected {}", flag, text, form);
  }
  return {text.substr(0, at), text.substr(at + 1)};
}

void add_target(CLI::App& app, TargetOptions& target, RawFlags& raw) {
  app.add_option("--base-url", target.base_url, "Where the server listens")->capture_default_str();
  app.add_option("--backend", target.backend, "openai (completions) or openai-chat")
      ->transform(CLI::CheckedTransformer(kBackends).description(""))
      ->type_name("NAME");
  app.add_option("--endpoint", target.endpoint, "Path of the requests; default: the backend's");
  app.add_option("--model", target.model, "Name of the model; default: the first of /v1/models");
  app.add_option("--api-key", target.api_key, "Sent as a bearer token")->envname("OPENAI_API_KEY");
  app.add_option("--header", raw.headers, "KEY=VALUE, sent with each request");
  app.add_option("--session-header", target.session_header,
                 "Header that names a request's conversation, for balancers that keep conversations together")
      ->type_name("NAME");
  app.add_option("--extra-body", target.extra_body, "JSON object whose members are added to each request");
  app.add_flag("--ignore-eos,!--no-ignore-eos", target.ignore_eos, "Answers have exactly the wanted length");
  app.add_option("--temperature", target.temperature, "0: greedy")->capture_default_str();
  app.add_option("--timeout", target.timeout, "Seconds without a byte until a request counts as failed")
      ->capture_default_str();
}

void add_dataset(CLI::App& app, DatasetOptions& data) {
  app.add_option("--dataset,--dataset-name", data.dataset,
                 "random, prefix-repetition, shared-prefix, agent, round-robin, intruder or custom")
      ->transform(CLI::CheckedTransformer(kDatasets).description(""))
      ->type_name("NAME");
  app.add_option("--dataset-path", data.path, "Of --dataset custom: a file of JSON lines with prompt or messages");
  app.add_option("--num-prompts", data.num_prompts, "Requests of datasets without conversations")
      ->capture_default_str();
  app.add_option("--seed", data.seed, "Of prompts, lengths and arrivals")->capture_default_str();
  app.add_flag("--token-ids", data.token_ids, "Prompts are lists of token ids: exact lengths (backend openai)");
  app.add_option("--random-input-len,--input-len", data.input_len, "Tokens of a prompt")->capture_default_str();
  app.add_option("--random-output-len,--output-len,--custom-output-len", data.output_len, "Tokens of an answer")
      ->capture_default_str();
  app.add_option("--random-range-ratio", data.range_ratio, "Lengths vary by this part to both sides")
      ->capture_default_str();
  app.add_option("--random-distribution", data.lengths, "uniform, or lognormal with these means")
      ->transform(CLI::CheckedTransformer(kLengths).description(""))
      ->type_name("NAME");
  app.add_option("--random-prefix-len", data.prefix_len, "Tokens that all prompts share")->capture_default_str();
  app.add_option("--prefix-repetition-num-prefixes", data.num_prefixes, "Prefixes that prompts begin with")
      ->capture_default_str();
  app.add_option("--prefix-repetition-prefix-len", data.repeated_prefix_len, "Tokens of a prefix")
      ->capture_default_str();
  app.add_option("--prefix-repetition-suffix-len", data.suffix_len, "Tokens behind it")->capture_default_str();
  app.add_option("--prefix-repetition-output-len", data.output_len, "As --random-output-len");
  app.add_option("--num-sessions", data.num_sessions, "Conversations, or streams beside an intruder")
      ->capture_default_str();
  app.add_option("--turns", data.turns, "Of a conversation")->capture_default_str();
  app.add_option("--system-prompts", data.system_prompts, "Different system instructions")->capture_default_str();
  app.add_option("--system-len", data.system_len, "Tokens of system instructions")->capture_default_str();
  app.add_option("--first-len", data.first_len, "Tokens of a conversation's first message")->capture_default_str();
  app.add_option("--turn-len", data.turn_len, "Tokens of later messages")->capture_default_str();
  app.add_option("--turn-output-len", data.turn_output_len, "Tokens of a conversation's answers")
      ->capture_default_str();
  app.add_option("--intruder-len", data.intruder_len, "Tokens of the prompt that arrives late")->capture_default_str();
  app.add_option("--intruder-delay", data.intruder_delay, "Seconds until it does")->capture_default_str();
}

void add_load(CLI::App& app, LoadOptions& load) {
  app.add_option("--request-rate", load.request_rate, "Requests (conversations) per second; default: all at once");
  app.add_option("--burstiness", load.burstiness, "1: Poisson; lower: in bursts; higher: evenly")
      ->capture_default_str();
  app.add_option("--max-concurrency", load.max_concurrency, "Requests at the same time; 0: no limit")
      ->capture_default_str();
  app.add_option("--num-warmups", load.num_warmups, "Short requests that are not counted")->capture_default_str();
}

void add_report(CLI::App& app, ReportOptions& report, RawFlags& raw) {
  app.add_option("--goodput", raw.goodput, "Limits a good request meets, in ms: ttft:500,tpot:50,e2el:9000")
      ->delimiter(',');
  app.add_option("--percentiles,--metric-percentiles", report.percentiles, "Comma-separated")->delimiter(',');
  app.add_option("--save-result", report.save_path, "Writes a JSON file with vllm bench serve's fields");
  app.add_flag("--save-detailed", report.detailed, "The file has each request, too");
  app.add_option("--compare", report.compare_path, "An earlier result to show beside this one");
  app.add_option("--metadata", raw.metadata, "KEY=VALUE, kept in the saved result");
}

void take_raw(const RawFlags& raw, BenchOptions& options) {
  for (const std::string& text : raw.goodput) {
    const auto [name, value] = split_at(text, ':', "--goodput", "NAME:MILLISECONDS");
    char* end = nullptr;
    const double limit = std::strtod(value.c_str(), &end);
    if ((name != "ttft" && name != "tpot" && name != "e2el") || value.empty() || *end != '\0' || !(limit >= 0)) {
      fail(ErrorCode::kBadArgument, "--goodput {}: expected ttft, tpot or e2el with milliseconds", text);
    }
    options.report.goodput[name] = limit;
  }
  for (const std::string& text : raw.headers) {
    options.target.headers.push_back(split_at(text, '=', "--header", "KEY=VALUE"));
  }
  for (const std::string& text : raw.metadata) {
    options.report.metadata.push_back(split_at(text, '=', "--metadata", "KEY=VALUE"));
  }
}

// A scenario is a set of defaults, so it is applied before the other flags are read.
std::string scenario_in(int argc, const char* const* argv) {
  const std::string_view flag = "--scenario";
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == flag && i + 1 < argc) return argv[i + 1];
    if (word.starts_with("--scenario=")) return std::string(word.substr(flag.size() + 1));
  }
  return "";
}

}  // namespace

std::string TargetOptions::path() const {
  if (!endpoint.empty()) return endpoint;
  return backend == Backend::kChat ? "/v1/chat/completions" : "/v1/completions";
}

std::string dataset_name(Dataset dataset) {
  for (const auto& [name, value] : kDatasets) {
    if (value == dataset) return name;
  }
  return "";
}

std::optional<BenchOptions> parse_options(int argc, const char* const* argv, int& status) {
  BenchOptions options;
  options.scenario = scenario_in(argc, argv);
  if (!options.scenario.empty()) apply_scenario(options.scenario, options);
  CLI::App app("Measures a server that speaks OpenAI's API, as vllm bench serve does.");
  app.footer(scenario_help());
  RawFlags raw;
  app.add_option("--scenario", options.scenario, "A named set of defaults for the flags below");
  add_target(app, options.target, raw);
  add_dataset(app, options.dataset);
  add_load(app, options.load);
  add_report(app, options.report, raw);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    status = app.exit(error);
    return std::nullopt;
  }
  take_raw(raw, options);
  check_options(options);
  return options;
}

void check_options(const BenchOptions& options) {
  const DatasetOptions& data = options.dataset;
  const auto require = [](bool holds, std::string_view message) {
    if (!holds) fail(ErrorCode::kBadArgument, "{}", message);
  };
  require(data.range_ratio >= 0 && data.range_ratio <= 1, "--random-range-ratio must be from 0 to 1");
  require(data.num_prompts > 0, "--num-prompts must be at least 1");
  require(data.output_len > 0 && data.turn_output_len > 0, "an answer must have at least one token");
  require(data.num_sessions > 0 && data.turns > 0, "--num-sessions and --turns must be at least 1");
  require(data.system_prompts > 0 && data.num_prefixes > 0, "there must be at least one prefix");
  require(data.dataset != Dataset::kCustom || !data.path.empty(), "--dataset custom needs --dataset-path FILE");
  require(options.load.request_rate > 0, "--request-rate must be above 0");
  require(options.load.burstiness > 0, "--burstiness must be above 0");
  require(options.target.timeout > 0, "--timeout must be above 0");
  for (const double percentile : options.report.percentiles) {
    require(percentile >= 0 && percentile <= 100, "--percentiles must be from 0 to 100");
  }
  if (data.token_ids) {
    require(options.target.backend == Backend::kCompletions, "--token-ids needs --backend openai");
    require(data.dataset == Dataset::kRandom || data.dataset == Dataset::kPrefixRepetition ||
                data.dataset == Dataset::kIntruder,
            "--token-ids works with random, prefix-repetition and intruder");
  }
}

}  // namespace carat::serve_bench
