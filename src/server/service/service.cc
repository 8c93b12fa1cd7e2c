#include "server/service/service.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <new>
#include <thread>
#include <utility>

namespace carat::server {

namespace {

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// What is told of an exception while a request is prepared. What is no Error is a mistake of ours or a want of memory:
// clients get no details of it.
Problem problem_of_current_exception() {
  try {
    throw;
  } catch (const ApiError& error) {
    return error.problem();
  } catch (const Error& error) {
    const bool is_clients = error.code() == ErrorCode::kBadArgument;
    return {.refusal = is_clients ? Refusal::kBadRequest : Refusal::kFailed, .message = error.what()};
  } catch (const std::bad_alloc&) {
    return {.refusal = Refusal::kFailed, .message = "out of memory while the request was prepared"};
  } catch (const std::exception&) {
    return {.refusal = Refusal::kFailed, .message = "internal error while the request was prepared"};
  }
}

// Headers by which clients say whose conversation a request belongs to, in the order they count.
std::string affinity_of(const HttpRequest& request) {
  for (const char* name : {"x-session-affinity", "x-session-id", "x-claude-code-session-id", "session-id"}) {
    if (request.has_header(name)) return std::string(request.header(name));
  }
  return {};
}

}  // namespace

Service::Service(engine::Engine engine, text::ChatTemplate chat_template, ServerFacts facts, ServiceOptions options,
                 ServerMetrics& metrics, const ServerLog& log)
    : facts_(std::move(facts)),
      options_(std::move(options)),
      metrics_(metrics),
      log_(log),
      prompts_(std::make_shared<PromptMaker>(engine.shared_vocab(), std::move(chat_template),
                                             engine.executor().options().context, facts_.thinks)),
      turns_(prompts_, std::make_shared<GrammarStore>(engine.shared_vocab()), options_.turns),
      delivery_([this](const Generation& generation) { ended(generation); }, facts_.context),
      runner_(std::make_unique<engine::Runner>(
          std::move(engine),
          engine::RunnerOptions{.after_updates = [this] { delivery_.wake(); }, .cancelled = options_.cancelled})),
      // The queue of the pool is bounded by that of requests; other work is little.
      pool_(options_.pool_threads, options_.max_queue + 1024) {}

// Delivery asks the runner for its vocabulary as long as it makes text of tokens, so the runner goes last; what its
// thread still hands over is kept by nobody.
Service::~Service() {
  pool_.stop();
  runner_->stop();
  delivery_.stop();
  runner_.reset();
}

void Service::generate(std::shared_ptr<Exchange> exchange, const GenerationRoute& route) {
  const double arrived = Delivery::seconds();
  if (const auto problem = refusal()) return refuse(*exchange, route, *problem, arrived);
  enter_queue(0);
  metrics_.enter(ServiceStage::kPreparing);
  bool is_taken = false;
  try {
    is_taken = waiting_ <= options_.max_queue && pool_.post([this, exchange, &route, arrived] {
      metrics_.leave(ServiceStage::kPreparing);
      prepare(exchange, route, arrived);
    });
  } catch (...) {  // no memory to put it into a queue
    metrics_.leave(ServiceStage::kPreparing);
    left_queue(0);
    throw;
  }
  if (is_taken) return;
  metrics_.leave(ServiceStage::kPreparing);
  left_queue(0);
  refuse(*exchange, route,
         {.refusal = Refusal::kQueueFull,
          .message = fmt::format("{} requests are waiting already", options_.max_queue),
          .retry_after = retry_seconds()},
         arrived);
}

void Service::prepare(const std::shared_ptr<Exchange>& exchange, const GenerationRoute& route, double arrived) {
  // Whatever leaves this function early has not left the queue yet.
  try {
    // Since it was taken the server may have begun to go away.
    if (auto problem = refusal()) throw ApiError(*std::move(problem));
    if (exchange->is_gone()) {
      say(*exchange, route, 499, Delivery::seconds() - arrived);
      return left_queue(0);
    }
    start(exchange, route, route.read(exchange->request().body), arrived);
  } catch (...) {
    left_queue(0);
    refuse_for_exception(*exchange, route, arrived);
  }
}

void Service::start(const std::shared_ptr<Exchange>& exchange, const GenerationRoute& route, ParsedRequest request,
                    double arrived) {
  GenerationRequest& wishes = request.generation;
  if (request.answer_at_once) {
    const ReplyIdentity identity{random_id(route.id_prefix), unix_seconds(), exchange->request().id};
    Response response = request.answer_at_once(facts_, identity);
    const unsigned status = response.status;
    exchange->respond(std::move(response));
    say(*exchange, route, status, Delivery::seconds() - arrived);
    return left_queue(0);
  }
  if (options_.strict_model && !matches_model(wishes.model, facts_)) {
    throw ApiError(
        {.refusal = Refusal::kModelNotFound,
         .message = fmt::format("there is no model \"{}\" here; this server has \"{}\"", wishes.model, facts_.model_id),
         .param = "model"});
  }
  if (wishes.affinity.empty()) wishes.affinity = affinity_of(exchange->request());
  Generation::Setup setup{.exchange = exchange,
                          .route = &route,
                          .id = random_id(route.id_prefix),
                          .call_id_prefix = request.call_id_prefix,
                          .number = ++requests_,
                          .arrived = arrived,
                          .ping_seconds = wishes.ping_seconds.value_or(options_.ping_seconds),
                          .queue_seconds = options_.queue_timeout};
  setup.reply =
      request.make_reply(facts_, {.id = setup.id, .created = unix_seconds(), .request_id = exchange->request().id});
  try {
    setup.turns = turns_.prepare(wishes);
  } catch (const ApiError& error) {
    if (!setup.reply->is_streamed() || !setup.reply->streams_failure(error.problem())) throw;
    std::string bytes;
    setup.reply->on(Failed{error.problem()}, bytes);
    exchange->begin_stream(setup.reply->stream_type());
    exchange->append(bytes);
    exchange->finish();
    say(*exchange, route, status_of(error.problem().refusal), Delivery::seconds() - arrived);
    return left_queue(0);
  }
  setup.request = std::move(wishes);
  const auto generation = std::make_shared<Generation>(static_cast<GenerationHost&>(*this), std::move(setup));

  const uint32_t tokens = generation->prompt_tokens();
  const uint64_t before = waiting_tokens_.fetch_add(tokens);
  if (before > 0 && before + tokens > options_.max_queue_tokens) {
    waiting_tokens_ -= tokens;
    throw ApiError({.refusal = Refusal::kQueueFull,
                    .message = fmt::format("prompts of {} tokens are waiting already", before),
                    .retry_after = retry_seconds()});
  }
  try {
    const std::weak_ptr<Generation> weak = generation;
    exchange->on_drained([weak] {
      if (const auto alive = weak.lock()) alive->resume();
    });
    exchange->on_gone([weak] {
      if (const auto alive = weak.lock()) alive->cancel();
    });
    delivery_.add(generation);
  } catch (...) {
    waiting_tokens_ -= tokens;
    throw;
  }
  generation->submit();
}

void Service::answer(std::shared_ptr<Exchange> exchange, const GenerationRoute& route, std::function<Response()> make) {
  const double arrived = Delivery::seconds();
  const bool is_taken = pool_.post([this, exchange, &route, arrived, make = std::move(make)] {
    try {
      Response response = make();
      const unsigned status = response.status;
      exchange->respond(std::move(response));
      say(*exchange, route, status, Delivery::seconds() - arrived);
    } catch (...) {
      refuse_for_exception(*exchange, route, arrived);
    }
  });
  if (is_taken) return;
  refuse(*exchange, route,
         {.refusal = Refusal::kQueueFull, .message = "too many requests are waiting", .retry_after = retry_seconds()},
         arrived);
}

bool Service::end_thoughts(const std::string& id) {
  const auto generation = delivery_.find(id);
  return generation && generation->end_thoughts();
}

std::vector<SlotFigures> Service::slots() const {
  std::vector<SlotFigures> slots = delivery_.slots();
  slots.resize(facts_.sequences, {.context = facts_.context});
  for (uint32_t i = 0; i < slots.size(); ++i) slots[i].id = i;
  return slots;
}

void Service::refuse_new(Problem problem) {
  const std::lock_guard lock(mutex_);
  refusal_ = std::move(problem);
}

std::optional<Problem> Service::refusal() const {
  const std::lock_guard lock(mutex_);
  return refusal_;
}

void Service::finish(double most_seconds) {
  constexpr double kMostSecondsToEnd = 10.0;
  const double begin = Delivery::seconds();
  const auto is_time_over = [&](double most) { return Delivery::seconds() - begin > most; };
  const auto is_idle = [this] { return waiting_ == 0 && delivery_.count() == 0; };
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  while (!is_idle() && !is_time_over(most_seconds)) pause();
  while (!is_idle() && !is_time_over(most_seconds + kMostSecondsToEnd)) {
    try {
      delivery_.fail_all({.refusal = Refusal::kDraining, .message = "the server is shutting down", .retry_after = 1.0});
    } catch (const std::bad_alloc&) {
      // It is said until all have ended.
    }
    pause();
  }
}

void Service::enter_queue(uint32_t prompt_tokens) {
  ++waiting_;
  waiting_tokens_ += prompt_tokens;
}

void Service::left_queue(uint32_t prompt_tokens) {
  --waiting_;
  waiting_tokens_ -= prompt_tokens;
}

// When a place may be free again: what waits, at the pace of the latest requests.
double Service::retry_seconds() const {
  const double rounds = static_cast<double>(waiting_) / std::max(1u, facts_.sequences);
  return std::clamp(std::ceil(rounds * usual_seconds_), 1.0, 120.0);
}

void Service::refuse(Exchange& exchange, const GenerationRoute& route, const Problem& problem, double arrived) {
  Response response = refusal_response(route.dialect, problem, exchange.request().id);
  const unsigned status = response.status;
  exchange.respond(std::move(response));
  say(exchange, route, status, Delivery::seconds() - arrived);
}

// In a handler. An exchange is always answered: where not even an error can be written, by its end.
void Service::refuse_for_exception(Exchange& exchange, const GenerationRoute& route, double arrived) {
  try {
    refuse(exchange, route, problem_of_current_exception(), arrived);
  } catch (...) {
    exchange.abandon();
  }
}

void Service::say(const Exchange& exchange, const GenerationRoute& route, unsigned status, double seconds) {
  metrics_.count_request(route.api, route.route, status);
  log_.request({.method = exchange.request().method,
                .route = route.route.text(),
                .status = status,
                .seconds = seconds,
                .request_id = exchange.request().id});
}

void Service::ended(const Generation& generation) {
  const GenerationSummary summary = generation.summary();
  const GenerationRoute& route = generation.route();
  usual_seconds_ = 0.9 * usual_seconds_ + 0.1 * summary.total_seconds;
  metrics_.count_generation(generation.record());
  metrics_.count_request(route.api, route.route, summary.status);
  if (!summary.failure.empty()) {
    log_.error(fmt::format("request {}: {}", generation.exchange().request().id, summary.failure));
  }
  log_.request({.method = generation.exchange().request().method,
                .route = route.route.text(),
                .status = summary.status,
                .seconds = summary.total_seconds,
                .request_id = generation.exchange().request().id,
                .is_generation = true,
                .prompt_tokens = summary.prompt_tokens,
                .cached_tokens = summary.cached_tokens,
                .generated_tokens = summary.generated_tokens,
                .first_token_seconds = summary.first_token_seconds});
}

}  // namespace carat::server
