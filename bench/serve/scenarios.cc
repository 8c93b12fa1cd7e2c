#include "serve/scenarios.h"

#include <fmt/format.h>

#include <array>

#include "base/error.h"

namespace carat::serve_bench {

namespace {

void random_lengths(BenchOptions& options, uint32_t input, uint32_t output, double ratio = 0.0) {
  options.dataset.dataset = Dataset::kRandom;
  options.dataset.input_len = input;
  options.dataset.output_len = output;
  options.dataset.range_ratio = ratio;
  options.target.ignore_eos = true;
}
void load_of(BenchOptions& options, uint32_t concurrency, uint32_t prompts) {
  options.load.max_concurrency = concurrency;
  options.dataset.num_prompts = prompts;
}
void conversations(BenchOptions& options, Dataset dataset, uint32_t sessions, uint32_t turns) {
  options.dataset.dataset = dataset;
  options.dataset.num_sessions = sessions;
  options.dataset.turns = turns;
  options.target.backend = Backend::kChat;
  options.target.ignore_eos = true;
}

void chat_short(BenchOptions& options) {
  random_lengths(options, 128, 128);
  load_of(options, 16, 160);
}
void sharegpt_like(BenchOptions& options) {
  random_lengths(options, 230, 203);
  options.dataset.lengths = Lengths::kLogNormal;
  load_of(options, 64, 1000);
}
void sglang_random(BenchOptions& options) {
  random_lengths(options, 512, 512, 1.0);
  load_of(options, 100, 1000);
}
void one_to_one(BenchOptions& options) {
  random_lengths(options, 1024, 1024);
  load_of(options, 64, 320);
}
void long_prompts(BenchOptions& options) {
  random_lengths(options, 8192, 1024);
  load_of(options, 64, 320);
}
void long_answers(BenchOptions& options) {
  random_lengths(options, 1024, 8192);
  load_of(options, 64, 128);
}
void prefix_repetition(BenchOptions& options) {
  random_lengths(options, 0, 128);
  options.dataset.dataset = Dataset::kPrefixRepetition;
  options.dataset.num_prefixes = 5;
  options.dataset.repeated_prefix_len = 512;
  options.dataset.suffix_len = 128;
  load_of(options, 32, 500);
}
void shared_10k(BenchOptions& options) {
  conversations(options, Dataset::kSharedPrefix, 100, 5);
  options.dataset.system_prompts = 2;
  options.dataset.system_len = 10000;
  options.load.max_concurrency = 16;
}
void agent(BenchOptions& options) {
  conversations(options, Dataset::kAgent, 8, 20);
  options.dataset.system_len = 12000;
  options.dataset.first_len = 8000;
  options.dataset.turn_len = 400;
  options.load.max_concurrency = 8;
}
// The mean step of the trace has 154k tokens of input, 6.4k of them new, and 523 of output.
void agent_trace(BenchOptions& options) {
  conversations(options, Dataset::kAgent, 4, 16);
  options.dataset.system_len = 20000;
  options.dataset.first_len = 85000;
  options.dataset.turn_len = 5900;
  options.dataset.turn_output_len = 523;
  options.load.max_concurrency = 4;
}
void round_robin(BenchOptions& options) {
  conversations(options, Dataset::kRoundRobin, 8, 4);
  options.dataset.first_len = 21000;
  options.dataset.turn_len = 200;
  options.dataset.turn_output_len = 50;
  options.load.max_concurrency = 1;
}
void intruder(BenchOptions& options) {
  options.dataset.dataset = Dataset::kIntruder;
  options.dataset.num_sessions = 16;
  options.dataset.input_len = 128;
  options.dataset.output_len = 4096;
  options.target.ignore_eos = true;
}

struct Scenario {
  std::string_view name, about;
  void (*apply)(BenchOptions&);
};
constexpr std::array kScenarios = {
    Scenario{"chat-short", "128 in, 128 out, 16 at a time", chat_short},
    Scenario{"sharegpt-like", "log-normal lengths, means 230 in and 203 out", sharegpt_like},
    Scenario{"sglang-random", "lengths uniform up to 1024, 100 at a time", sglang_random},
    Scenario{"1k1k", "1024 in, 1024 out", one_to_one},
    Scenario{"8k1k", "8192 in, 1024 out", long_prompts},
    Scenario{"1k8k", "1024 in, 8192 out", long_answers},
    Scenario{"prefix-repetition", "5 prefixes of 512, suffixes of 128, 128 out", prefix_repetition},
    Scenario{"shared-10k", "100 conversations of 5 turns below 2 system prompts of 10k", shared_10k},
    Scenario{"agent", "8 conversations of 20 steps from 20k on, +400 each", agent},
    Scenario{"agent-trace", "4 conversations of 16 steps around 154k, +6.4k each", agent_trace},
    Scenario{"round-robin", "8 conversations of 21k in turn, +200 each round", round_robin},
    Scenario{"intruder", "16 streams, and a prompt of 64k that arrives among them", intruder},
};

}  // namespace

void apply_scenario(std::string_view name, BenchOptions& options) {
  std::string known;
  for (const Scenario& scenario : kScenarios) {
    if (scenario.name == name) return scenario.apply(options);
    known += fmt::format("{}{}", known.empty() ? "" : ", ", scenario.name);
  }
  fail(ErrorCode::kBadArgument, "--scenario {} is not known; there are {}", name, known);
}

std::string scenario_help() {
  std::string text = "Scenarios, of which each flag changes a part:\n";
  for (const Scenario& scenario : kScenarios) text += fmt::format("  {:<18} {}\n", scenario.name, scenario.about);
  return text;
}

}  // namespace carat::serve_bench
