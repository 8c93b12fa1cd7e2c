#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace carat::cli {

// One line of a benchmark: names and meanings as in llama-bench, then what carat adds.
struct BenchResult {
  std::string model_filename;
  std::string model_type;
  uint64_t model_size = 0;
  uint64_t model_n_params = 0;
  std::string backend;
  std::string cpu_info;
  uint32_t n_batch = 0;
  uint32_t n_ubatch = 0;
  unsigned n_threads = 0;
  std::string type_k, type_v;
  uint32_t n_prompt = 0;
  uint32_t n_gen = 0;
  uint32_t n_depth = 0;
  uint32_t n_sequences = 1;  // that run together; each has n_prompt, n_gen and n_depth tokens
  std::string test_time;     // ISO 8601, UTC
  std::vector<uint64_t> samples_ns;
  // Only for pure generation on a CPU: what each token must read, and what the machine can read.
  std::optional<double> bytes_per_token;
  std::optional<double> limit_bytes_per_second;

  // Only for answers to a text: how drafts were made for them, and what came of it.
  std::string lookup;  // "off", "auto" or "on"; empty: another test
  std::optional<double> tokens_per_pass;
  std::optional<double> drafts_accepted;  // of 1

  std::string test() const;  // "pp512", "tg128 @ d1024", "tg128 @ d512 x 32"
  std::vector<double> samples_ts() const;
  double avg_ns() const;
  double stddev_ns() const;
  double avg_ts() const;
  double stddev_ts() const;
  std::optional<double> limit_share() const;  // of 1
};

// Prints results as they come; begin() before the first and end() after the last.
class BenchPrinter {
 public:
  virtual ~BenchPrinter() = default;
  virtual void begin() {}
  virtual void add(const BenchResult& result) = 0;
  virtual void end() {}
};

// "md", "csv", "json" or "jsonl"; throws kBadArgument otherwise. In Markdown the last column tells how far a test is
// from the limit, or what drafts came to.
std::unique_ptr<BenchPrinter> make_bench_printer(std::string_view format, bool is_of_drafts = false);

}  // namespace carat::cli
