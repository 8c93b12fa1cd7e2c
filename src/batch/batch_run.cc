#include "batch/batch_run.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "batch/batch_line.h"

namespace carat::batch {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{100};
constexpr int kLinesAtOnce = 1000;
constexpr std::chrono::seconds kBetweenSyncs{5};
// By when an engine that was lost has said so, where an answer failed because of that.
constexpr std::chrono::milliseconds kUntilLossIsKnown{500};

// In place of an answer that never came whole.
constexpr std::string_view kNoAnswer =
    R"({"error":{"message":"internal error: there was no whole answer","type":"server_error","param":null,"code":null}})";

struct Answer {
  size_t line = 0;
  std::string custom_id;
  unsigned status = 0;
  std::string body;
};

// Answers as the service's threads bring them. Outlives the run where a thread is still about to.
class Inbox {
 public:
  void put(Answer answer) {
    {
      const std::lock_guard lock(mutex_);
      answers_.push_back(std::move(answer));
    }
    has_news_.notify_one();
  }
  // What came until now; where that is nothing, what comes within the time.
  std::vector<Answer> take(std::chrono::milliseconds most) {
    std::unique_lock lock(mutex_);
    has_news_.wait_for(lock, most, [this] { return !answers_.empty(); });
    return std::exchange(answers_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable has_news_;
  std::vector<Answer> answers_;
};

// An exchange without a connection: its whole answer goes to the inbox. It holds itself until then.
class Asked : public std::enable_shared_from_this<Asked> {
 public:
  Asked(std::shared_ptr<Inbox> inbox, size_t line, std::string custom_id)
      : inbox_(std::move(inbox)), answer_{line, std::move(custom_id), 0, {}} {}

  std::shared_ptr<server::Exchange> open(server::HttpRequest request) {
    constexpr size_t kNoStream = 0;
    auto exchange = std::make_shared<server::Exchange>(std::move(request), kNoStream,
                                                       [self = shared_from_this()] { self->answered(); });
    exchange_ = exchange;
    return exchange;
  }

 private:
  void answered() {
    const auto exchange = exchange_.lock();
    if (!exchange) return;
    server::Exchange::Output output = exchange->take_output();
    if (output.phase == server::Exchange::Phase::kOpen) return;
    if (is_done_.exchange(true)) return;
    const bool is_whole = output.phase == server::Exchange::Phase::kWhole;
    answer_.status = is_whole ? output.head.status : 500;
    answer_.body = is_whole ? std::move(output.head.body) : std::string(kNoAnswer);
    inbox_->put(std::move(answer_));
  }

  const std::shared_ptr<Inbox> inbox_;
  Answer answer_;
  std::weak_ptr<server::Exchange> exchange_;
  std::atomic<bool> is_done_{false};
};

class BatchRun {
 public:
  BatchRun(server::Service& service, const BatchInput& input, BatchOutput& output, const BatchRunOptions& options)
      : service_(service), input_(input), output_(output), options_(options) {}

  void run(const std::function<void(const BatchProgress&)>& progress) {
    progress(figures());
    while (output_.done() < input_.lines().size()) {
      check();
      const bool has_more = ask_more();
      for (Answer& answer : inbox_->take(has_more ? std::chrono::milliseconds(0) : kTick)) take(std::move(answer));
      record_failures();
      if (Clock::now() - synced_ > kBetweenSyncs) sync();
      progress(figures());
    }
    output_.finish();
  }

 private:
  void check() const {
    if (options_.interrupted != nullptr && *options_.interrupted) {
      output_.sync();
      fail(ErrorCode::kInterrupted, "the batch was stopped");
    }
    const engine::RunnerSnapshot now = service_.snapshot();
    if (now.state != engine::RunnerState::kLost) return;
    fail(ErrorCode::kDevice, "the engine is lost: {}", now.lost ? now.lost->text : "");
  }

  // Hands lines over until there are enough. False: nothing is left to do before an answer comes; otherwise it was
  // time to look at other things, because many lines needed no answer.
  bool ask_more() {
    for (int asked = 0; asked < kLinesAtOnce; ++asked) {
      if (running_ >= options_.at_a_time) return false;
      size_t line = 0;
      if (!again_.empty()) {
        line = again_.front();
        again_.pop_front();
      } else {
        while (next_ < input_.lines().size() && output_.is_done(next_)) ++next_;
        if (next_ == input_.lines().size()) return false;
        line = next_++;
      }
      ask(line);
    }
    return true;
  }

  void ask(size_t line) {
    const BatchInput::Line& place = input_.lines()[line];
    BatchLine read;
    LineProblem problem;
    if (!read_line(input_.text(place), read, problem)) {
      return output_.add(line, true, refused_line(place.number, problem));
    }
    const server::Route* route = routes_.find("POST", read.url);
    CARAT_CHECK(route != nullptr);
    server::HttpRequest request;
    request.method = "POST";
    request.path = read.url;
    request.id = line_id(place.number);
    request.body = std::move(read.body);
    ++running_;
    const auto asked = std::make_shared<Asked>(inbox_, line, std::move(read.custom_id));
    service_.generate(asked->open(std::move(request)), route->text);
  }

  void take(Answer answer) {
    --running_;
    // It says that it has no room, or is going away: the line is not to blame.
    if (answer.status == 429 || answer.status == 503) return again_.push_back(answer.line);
    if (answer.status >= 500) return failures_.push_back({Clock::now(), std::move(answer)});
    record(answer);
  }

  // Only once it is known that they are failures of their own: what fails because the engine is lost is not done.
  void record_failures() {
    while (!failures_.empty() && Clock::now() - failures_.front().first > kUntilLossIsKnown) {
      check();
      record(failures_.front().second);
      failures_.pop_front();
    }
  }

  void record(const Answer& answer) {
    const uint64_t number = input_.lines()[answer.line].number;
    output_.add(answer.line, answer.status != 200, answered_line(number, answer.custom_id, answer.status, answer.body));
  }

  void sync() {
    output_.sync();
    synced_ = Clock::now();
  }

  BatchProgress figures() const {
    return {.total = input_.lines().size(),
            .done = output_.done(),
            .failed = output_.failed(),
            .tokens_per_second = service_.snapshot().generated_tokens_per_second};
  }

  server::Service& service_;
  const BatchInput& input_;
  BatchOutput& output_;
  const BatchRunOptions& options_;
  const server::RouteTable routes_{nullptr};
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  size_t next_ = 0;
  size_t running_ = 0;
  std::deque<size_t> again_;
  std::deque<std::pair<Clock::time_point, Answer>> failures_;
  Clock::time_point synced_ = Clock::now();
};

}  // namespace

server::ServiceOptions options_for_batch(server::ServiceOptions options, size_t at_a_time) {
  options.max_queue = at_a_time;
  options.max_queue_tokens = std::numeric_limits<uint64_t>::max() / 2;
  options.queue_timeout = 0.0;
  return options;
}

void run_batch(server::Service& service, const BatchInput& input, BatchOutput& output, const BatchRunOptions& options,
               const std::function<void(const BatchProgress&)>& progress) {
  BatchRun(service, input, output, options).run(progress);
}

}  // namespace carat::batch
