#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace carat::serve_bench {

enum class Backend { kCompletions, kChat };

// Who is asked, and how.
struct TargetOptions {
  std::string base_url = "http://127.0.0.1:8080";
  Backend backend = Backend::kCompletions;
  std::string endpoint = {};  // empty: the backend's usual one
  std::string model = {};     // empty: the first of /v1/models
  std::string api_key = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string session_header = {};  // empty: none; otherwise each request names its conversation in it
  std::string extra_body = {};      // a JSON object whose members are added to each request
  bool ignore_eos = false;
  double temperature = 0.0;
  double timeout = 600.0;  // seconds without a byte

  std::string path() const;
};

enum class Dataset { kRandom, kPrefixRepetition, kSharedPrefix, kAgent, kRoundRobin, kIntruder, kCustom };
enum class Lengths { kUniform, kLogNormal };

// What is asked. Lengths are in tokens; a word counts as one.
struct DatasetOptions {
  Dataset dataset = Dataset::kRandom;
  std::string path = {};  // of the file of kCustom
  uint32_t num_prompts = 1000;
  uint64_t seed = 0;
  bool token_ids = false;  // prompts are lists of token ids instead of words

  uint32_t input_len = 1024, output_len = 128;
  double range_ratio = 0.0;  // lengths are drawn from [len * (1 - ratio), len * (1 + ratio)]
  Lengths lengths = Lengths::kUniform;
  uint32_t prefix_len = 0;  // of kRandom: that all prompts share, before their own tokens

  uint32_t num_prefixes = 10, repeated_prefix_len = 256, suffix_len = 256;  // of kPrefixRepetition

  // Of the datasets with conversations (kSharedPrefix, kAgent, kRoundRobin): what conversations share as system
  // instructions, their first message, and their later turns.
  uint32_t num_sessions = 16, turns = 5;
  uint32_t system_prompts = 1, system_len = 0;
  uint32_t first_len = 200, turn_len = 200, turn_output_len = 200;

  uint32_t intruder_len = 65536;  // of kIntruder, and after how many seconds it comes
  double intruder_delay = 3.0;
};

struct LoadOptions {
  double request_rate = std::numeric_limits<double>::infinity();  // per second
  double burstiness = 1.0;       // 1: a Poisson process; shape of the gamma distribution
  uint32_t max_concurrency = 0;  // 0: no limit
  uint32_t num_warmups = 1;
};

struct ReportOptions {
  std::map<std::string, double> goodput = {};  // milliseconds by "ttft", "tpot", "e2el"
  std::vector<double> percentiles = {50, 90, 99};
  std::string save_path = {}, compare_path = {};
  bool detailed = false;
  std::vector<std::pair<std::string, std::string>> metadata = {};
};

struct BenchOptions {
  std::string scenario = {};
  TargetOptions target = {};
  DatasetOptions dataset = {};
  LoadOptions load = {};
  ReportOptions report = {};
};

// Of the command line. Nothing: help was asked for and shown, or a mistake reported, and `status` is the exit status.
std::optional<BenchOptions> parse_options(int argc, const char* const* argv, int& status);

std::string dataset_name(Dataset dataset);

// Throws carat::Error naming the flag whose value cannot be.
void check_options(const BenchOptions& options);

}  // namespace carat::serve_bench
