#include "server/metrics/server_metrics.h"

#include <algorithm>

namespace carat::server {

namespace {
constexpr double kNanosecond = 1e-9;
constexpr double kToken = 1.0;
}  // namespace

std::string_view lost_reason_name(LostReason reason) {
  static constexpr std::array<std::string_view, kLostReasons> kNames = {"evicted", "window", "retokenised", "template"};
  return kNames[static_cast<size_t>(reason)];
}

ServerMetrics::ServerMetrics()
    : first_token_(bounds::kFirstToken, kNanosecond),
      gap_(bounds::kGap, kNanosecond),
      seconds_per_token_(bounds::kGap, kNanosecond),
      total_(bounds::kDuration, kNanosecond),
      queue_(bounds::kDuration, kNanosecond),
      prefill_(bounds::kDuration, kNanosecond),
      decode_(bounds::kDuration, kNanosecond),
      inference_(bounds::kDuration, kNanosecond),
      request_prompt_tokens_(bounds::kTokens, kToken),
      request_computed_tokens_(bounds::kTokens, kToken),
      request_max_tokens_(bounds::kTokens, kToken),
      request_choices_(bounds::kChoices, kToken),
      answer_tokens_(bounds::kTokens, kToken),
      longest_answer_tokens_(bounds::kTokens, kToken) {}

void ServerMetrics::count_request(MetricLabel api, MetricLabel route, unsigned status) {
  const std::lock_guard lock(mutex_);
  ++sums_.requests[{api, route, status}];
}

void ServerMetrics::count_generation(const GenerationRecord& record) {
  const uint64_t computed = record.prompt_tokens - std::min(record.cached_tokens, record.prompt_tokens);
  total_.observe(record.total_seconds);
  queue_.observe(record.queue_seconds);
  prefill_.observe(record.prefill_seconds);
  request_prompt_tokens_.observe(static_cast<double>(record.prompt_tokens));
  request_computed_tokens_.observe(static_cast<double>(computed));
  request_choices_.observe(record.choices);
  if (record.max_tokens) request_max_tokens_.observe(*record.max_tokens);

  uint64_t generated = 0, thoughts = 0, longest = 0;
  for (const AnswerRecord& answer : record.answers) {
    generated += answer.generated_tokens;
    thoughts += answer.thought_tokens;
    longest = std::max(longest, answer.generated_tokens);
    answer_tokens_.observe(static_cast<double>(answer.generated_tokens));
    decode_.observe(answer.decode_seconds);
    inference_.observe(record.prefill_seconds + answer.decode_seconds);
    if (answer.generated_tokens > 1) {
      seconds_per_token_.observe(answer.decode_seconds / static_cast<double>(answer.generated_tokens - 1));
    }
  }
  longest_answer_tokens_.observe(static_cast<double>(longest));

  const std::lock_guard lock(mutex_);
  for (const AnswerRecord& answer : record.answers) ++sums_.answers[static_cast<size_t>(answer.outcome)];
  if (record.cancelled_in) ++sums_.cancelled[static_cast<size_t>(*record.cancelled_in)];
  if (record.lost_reason) sums_.lost_tokens[static_cast<size_t>(*record.lost_reason)] += record.lost_tokens;
  sums_.prompt_tokens += record.prompt_tokens;
  sums_.known_tokens += record.known_tokens;
  sums_.cached_tokens += record.cached_tokens;
  sums_.generated_tokens += generated;
  sums_.thought_tokens += thoughts;
  sums_.longest_context = std::max(sums_.longest_context, record.prompt_tokens + longest);
}

void ServerMetrics::set_state(ServerState state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
  if (state == ServerState::kReady && !sums_.startup_seconds) {
    sums_.startup_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  }
}

ServerFigures ServerMetrics::figures() const {
  ServerFigures figures;
  figures.state = state_;
  for (size_t i = 0; i < kServiceStages; ++i) {
    figures.staged[i] = static_cast<uint64_t>(std::max<int64_t>(0, staged_[i].load(std::memory_order_relaxed)));
  }
  figures.bad_tool_calls = bad_tool_calls_.load(std::memory_order_relaxed);
  figures.first_token = first_token_.counts();
  figures.gap = gap_.counts();
  figures.seconds_per_token = seconds_per_token_.counts();
  figures.total = total_.counts();
  figures.queue = queue_.counts();
  figures.prefill = prefill_.counts();
  figures.decode = decode_.counts();
  figures.inference = inference_.counts();
  figures.request_prompt_tokens = request_prompt_tokens_.counts();
  figures.request_computed_tokens = request_computed_tokens_.counts();
  figures.request_max_tokens = request_max_tokens_.counts();
  figures.request_choices = request_choices_.counts();
  figures.answer_tokens = answer_tokens_.counts();
  figures.longest_answer_tokens = longest_answer_tokens_.counts();

  const std::lock_guard lock(mutex_);
  for (const auto& [key, count] : sums_.requests) {
    figures.requests.push_back({key.api.text(), key.route.text(), key.status, count});
  }
  figures.startup_seconds = sums_.startup_seconds;
  figures.answers = sums_.answers;
  figures.cancelled = sums_.cancelled;
  figures.lost_tokens = sums_.lost_tokens;
  figures.prompt_tokens = sums_.prompt_tokens;
  figures.known_tokens = sums_.known_tokens;
  figures.cached_tokens = sums_.cached_tokens;
  figures.generated_tokens = sums_.generated_tokens;
  figures.thought_tokens = sums_.thought_tokens;
  figures.longest_context = sums_.longest_context;
  return figures;
}

}  // namespace carat::server
