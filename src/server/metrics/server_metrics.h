#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "server/metrics/histogram.h"

namespace carat::server {

// A word of the program. It can be made of nothing but constants, so that no text of a client becomes a label of a
// metric: the number of series stays bounded, and nobody's words are shown to whoever reads the metrics.
class MetricLabel {
 public:
  consteval MetricLabel(const char* text) : text_(text) {}
  constexpr std::string_view text() const { return text_; }
  auto operator<=>(const MetricLabel&) const = default;

 private:
  std::string_view text_;
};

enum class ServerState { kLoading, kReady, kDraining };
inline constexpr size_t kServerStates = 3;

// How one answer ended.
enum class AnswerOutcome { kStop, kLength, kContextFull, kToolCalls, kLoop, kCancelled, kFailed };
inline constexpr size_t kAnswerOutcomes = 7;

// What a request was doing when it was cancelled.
enum class RequestPhase { kQueued, kPrefill, kDecode };
inline constexpr size_t kRequestPhases = 3;

// Why tokens of a prompt that an earlier request had in common with it were run again, or could not be found.
enum class LostReason { kEvicted, kWindow, kRetokenised, kTemplate };
inline constexpr size_t kLostReasons = 4;
std::string_view lost_reason_name(LostReason reason);  // as metrics and answers have it: "window"

// Where the service holds requests besides the runner's queue: while they are rendered, tokenised and checked, and
// while their client reads more slowly than the model writes.
enum class ServiceStage { kPreparing, kPaused };
inline constexpr size_t kServiceStages = 2;

// One answer of a request: there are several with "n" or several prompts.
struct AnswerRecord {
  AnswerOutcome outcome = AnswerOutcome::kStop;
  uint64_t generated_tokens = 0;  // thoughts included
  uint64_t thought_tokens = 0;
  double decode_seconds = 0.0;  // of its passes after the first token
};

// A request for text that has ended, however it did: the service makes one for each that got as far as its queue.
struct GenerationRecord {
  std::vector<AnswerRecord> answers = {};
  std::optional<RequestPhase> cancelled_in = {};
  uint32_t choices = 1;                     // "n"
  std::optional<uint32_t> max_tokens = {};  // as the client gave it
  // Of the prompt: its length, how many tokens were known from an earlier request (SequenceFigures::prefix_shared), and
  // how many of these did not have to be run again (prefix_reused).
  uint64_t prompt_tokens = 0, known_tokens = 0, cached_tokens = 0;
  std::optional<LostReason> lost_reason = {};
  uint64_t lost_tokens = 0;
  double queue_seconds = 0.0;    // until it got its place in the executor
  double prefill_seconds = 0.0;  // of the passes that took part of the prompt
  double total_seconds = 0.0;    // from the arrival of the request to the end of its last answer
};

// What was counted, at one moment.
struct ServerFigures {
  struct Requests {
    std::string_view api, route;
    unsigned status = 0;
    uint64_t count = 0;
  };
  ServerState state = ServerState::kLoading;
  std::optional<double> startup_seconds;  // until it was ready the first time
  std::vector<Requests> requests;         // sorted by api, route, status
  std::array<uint64_t, kServiceStages> staged{};
  std::array<uint64_t, kAnswerOutcomes> answers{};
  std::array<uint64_t, kRequestPhases> cancelled{};
  std::array<uint64_t, kLostReasons> lost_tokens{};
  uint64_t prompt_tokens = 0, known_tokens = 0, cached_tokens = 0;  // of requests that have ended
  uint64_t generated_tokens = 0, thought_tokens = 0;                // of requests that have ended
  uint64_t longest_context = 0;                                     // most tokens a prompt and its answer had
  uint64_t bad_tool_calls = 0;

  HistogramCounts first_token, gap, seconds_per_token;
  HistogramCounts total, queue, prefill, decode, inference;
  HistogramCounts request_prompt_tokens, request_computed_tokens, request_max_tokens, request_choices;
  HistogramCounts answer_tokens, longest_answer_tokens;
};

// What the server counts of itself. The router and the service feed it from any thread; figures() may be read at any
// time and waits for nobody but a request that is being counted.
class ServerMetrics {
 public:
  ServerMetrics();

  // Every request that was answered, with the API it belongs to ("openai", "anthropic", "ollama", "carat"), its route
  // as the table of routes has it ("/v1/chat/completions"), or "none" for a path without one, and the status it got.
  void count_request(MetricLabel api, MetricLabel route, unsigned status);
  // Every request for text, once, when it has ended.
  void count_generation(const GenerationRecord& record);

  // The first token of a request, counted from its arrival, and every later moment at which tokens came for an answer,
  // counted from the one before. Two additions without a lock each: made to be called for every token.
  void observe_first_token(double seconds) { first_token_.observe(seconds); }
  void observe_gap(double seconds) { gap_.observe(seconds); }

  void count_bad_tool_call() { bad_tool_calls_.fetch_add(1, std::memory_order_relaxed); }
  void set_state(ServerState state);
  ServerState state() const { return state_.load(); }
  void enter(ServiceStage stage) { staged_[static_cast<size_t>(stage)].fetch_add(1, std::memory_order_relaxed); }
  void leave(ServiceStage stage) { staged_[static_cast<size_t>(stage)].fetch_sub(1, std::memory_order_relaxed); }

  ServerFigures figures() const;

 private:
  struct RequestKey {
    MetricLabel api, route;
    unsigned status;
    auto operator<=>(const RequestKey&) const = default;
  };
  // What is counted once for a request, under the mutex.
  struct Sums {
    std::map<RequestKey, uint64_t> requests;
    std::array<uint64_t, kAnswerOutcomes> answers{};
    std::array<uint64_t, kRequestPhases> cancelled{};
    std::array<uint64_t, kLostReasons> lost_tokens{};
    uint64_t prompt_tokens = 0, known_tokens = 0, cached_tokens = 0;
    uint64_t generated_tokens = 0, thought_tokens = 0;
    uint64_t longest_context = 0;
    std::optional<double> startup_seconds;
  };

  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::atomic<ServerState> state_{ServerState::kLoading};
  std::array<std::atomic<int64_t>, kServiceStages> staged_{};
  std::atomic<uint64_t> bad_tool_calls_{0};

  Histogram first_token_, gap_, seconds_per_token_;
  Histogram total_, queue_, prefill_, decode_, inference_;
  Histogram request_prompt_tokens_, request_computed_tokens_, request_max_tokens_, request_choices_;
  Histogram answer_tokens_, longest_answer_tokens_;

  mutable std::mutex mutex_;
  Sums sums_;
};

}  // namespace carat::server
