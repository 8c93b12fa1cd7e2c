#include "serve/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>

#include "base/error.h"
#include "serve/prompt_text.h"

namespace carat::serve_bench {

namespace {

using Json = nlohmann::json;

// Of a log-normal distribution; the lengths of real chats are about that wide.
constexpr double kLogWidth = 0.8;
constexpr uint32_t kIntruderOutput = 16;

uint32_t draw_length(const DatasetOptions& options, uint32_t mean, uint32_t least, std::mt19937_64& random) {
  if (options.lengths == Lengths::kLogNormal) {
    std::lognormal_distribution<double> lengths(std::log(std::max(1.0, double(mean))) - kLogWidth * kLogWidth / 2,
                                                kLogWidth);
    return std::max(least, static_cast<uint32_t>(std::min(lengths(random), 20.0 * mean)));
  }
  const auto low = static_cast<uint32_t>(std::floor(mean * (1.0 - options.range_ratio)));
  const auto high = static_cast<uint32_t>(std::ceil(mean * (1.0 + options.range_ratio)));
  return std::uniform_int_distribution<uint32_t>(std::max(low, least), std::max(high, least))(random);
}

void add_random(const DatasetOptions& options, PromptText& text, Workload& workload) {
  const std::string prefix = text.draw(options.prefix_len);
  for (uint32_t i = 0; i < options.num_prompts; ++i) {
    const uint32_t input = draw_length(options, options.input_len, options.prefix_len > 0 ? 0 : 1, text.random());
    const uint32_t output = draw_length(options, options.output_len, 1, text.random());
    const std::string own = text.draw(input);
    workload.sessions.push_back({.turns = {{.content = text.joined(prefix, own),
                                            .input_tokens = options.prefix_len + input,
                                            .output_tokens = output}}});
  }
}

void add_prefix_repetition(const DatasetOptions& options, PromptText& text, Workload& workload) {
  std::vector<std::string> prefixes;
  for (uint32_t i = 0; i < options.num_prefixes; ++i) prefixes.push_back(text.draw(options.repeated_prefix_len));
  for (uint32_t i = 0; i < options.num_prompts; ++i) {
    const std::string suffix = text.draw(options.suffix_len);
    workload.sessions.push_back({.turns = {{.content = text.joined(prefixes[i % options.num_prefixes], suffix),
                                            .input_tokens = options.repeated_prefix_len + options.suffix_len,
                                            .output_tokens = options.output_len}}});
  }
  std::shuffle(workload.sessions.begin(), workload.sessions.end(), text.random());
}

void add_conversations(const DatasetOptions& options, PromptText& text, Workload& workload) {
  std::vector<std::string> systems;
  for (uint32_t i = 0; i < options.system_prompts; ++i) systems.push_back(text.draw(options.system_len));
  for (uint32_t i = 0; i < options.num_sessions; ++i) {
    Session session{.system = systems[i % options.system_prompts], .system_tokens = options.system_len};
    for (uint32_t turn = 0; turn < options.turns; ++turn) {
      const uint32_t length = turn == 0 ? options.first_len : options.turn_len;
      session.turns.push_back(
          {.content = text.draw(length), .input_tokens = length, .output_tokens = options.turn_output_len});
    }
    workload.sessions.push_back(std::move(session));
  }
  workload.in_rounds = options.dataset == Dataset::kRoundRobin;
}

void add_intruder(const DatasetOptions& options, PromptText& text, Workload& workload) {
  for (uint32_t i = 0; i < options.num_sessions; ++i) {
    workload.sessions.push_back({.turns = {{.content = text.draw(options.input_len),
                                            .input_tokens = options.input_len,
                                            .output_tokens = options.output_len}}});
  }
  workload.sessions.push_back({.turns = {{.content = text.draw(options.intruder_len),
                                          .input_tokens = options.intruder_len,
                                          .output_tokens = kIntruderOutput}},
                               .start_seconds = options.intruder_delay,
                               .is_intruder = true});
}

std::string inside_of_json(const std::string& text) {
  const std::string quoted = Json(text).dump();
  return quoted.substr(1, quoted.size() - 2);
}

Turn turn_of_line(const std::string& line, std::string_view place, uint32_t output_len) {
  const Json entry = Json::parse(line, nullptr, false);
  if (!entry.is_object()) fail(ErrorCode::kBadFile, "{}: not a JSON object", place);
  Turn turn{.output_tokens = output_len};
  for (const char* name : {"output_tokens", "output_len", "max_tokens"}) {
    const auto found = entry.find(name);
    if (found == entry.end() || found->is_null()) continue;
    if (!found->is_number_unsigned() || *found == 0 || *found > 1'000'000'000) {
      fail(ErrorCode::kBadFile, "{}: {} must be a whole number above 0", place, name);
    }
    turn.output_tokens = *found;
  }
  if (const auto messages = entry.find("messages"); messages != entry.end()) {
    if (!messages->is_array() || messages->empty()) fail(ErrorCode::kBadFile, "{}: messages must be a list", place);
    turn.messages = messages->dump();
    turn.messages = turn.messages.substr(1, turn.messages.size() - 2);
  } else if (const auto prompt = entry.find("prompt"); prompt != entry.end() && prompt->is_string()) {
    turn.content = inside_of_json(*prompt);
  } else {
    fail(ErrorCode::kBadFile, "{}: neither a text \"prompt\" nor a list \"messages\"", place);
  }
  return turn;
}

void add_file(const DatasetOptions& options, Workload& workload) {
  std::ifstream file(options.path);
  if (!file) fail(ErrorCode::kIo, "--dataset-path {}: cannot be opened", options.path);
  std::string line;
  for (uint32_t number = 1; workload.sessions.size() < options.num_prompts && std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = fmt::format("{}, line {}", options.path, number);
    workload.sessions.push_back({.turns = {turn_of_line(line, place, options.output_len)}});
  }
  if (workload.sessions.empty()) fail(ErrorCode::kBadFile, "{}: no prompts", options.path);
}

}  // namespace

uint64_t Workload::requests() const {
  uint64_t count = 0;
  for (const Session& session : sessions) count += session.turns.size();
  return count;
}

Workload make_workload(const DatasetOptions& options, uint32_t vocabulary) {
  if (options.token_ids && vocabulary < 16) {
    fail(ErrorCode::kUnsupported,
         "--token-ids: the server does not say in /v1/models how many tokens it knows "
         "(meta.n_vocab); leave the flag out");
  }
  Workload workload;
  workload.has_token_ids = options.token_ids;
  PromptText text(options.seed, options.token_ids ? vocabulary : 0);
  switch (options.dataset) {
    case Dataset::kRandom:
      add_random(options, text, workload);
      break;
    case Dataset::kPrefixRepetition:
      add_prefix_repetition(options, text, workload);
      break;
    case Dataset::kSharedPrefix:
    case Dataset::kAgent:
    case Dataset::kRoundRobin:
      add_conversations(options, text, workload);
      break;
    case Dataset::kIntruder:
      add_intruder(options, text, workload);
      break;
    case Dataset::kCustom:
      add_file(options, workload);
      break;
  }
  for (size_t i = 0; i < workload.sessions.size(); ++i) {
    workload.sessions[i].name = fmt::format("{}-{}", options.seed, i);
  }
  return workload;
}

void set_arrivals(const LoadOptions& load, uint64_t seed, Workload& workload) {
  if (std::isinf(load.request_rate) || workload.sessions.empty()) return;
  std::mt19937_64 random(seed + 1);
  std::gamma_distribution<double> gaps(load.burstiness, 1.0 / (load.request_rate * load.burstiness));
  std::vector<double> starts;
  double sum = 0.0;
  for (size_t i = 0; i < workload.sessions.size(); ++i) starts.push_back(sum += gaps(random));
  // The sum of drawn gaps is a little off; without that, seeds would differ in their rates.
  const double scale = sum > 0 ? static_cast<double>(starts.size()) / load.request_rate / sum : 0.0;
  for (size_t i = 0; i < starts.size(); ++i) {
    if (!workload.sessions[i].is_intruder) workload.sessions[i].start_seconds = starts[i] * scale;
  }
}

}  // namespace carat::serve_bench
