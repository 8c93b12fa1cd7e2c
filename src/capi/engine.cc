#include "capi/engine.h"

#include <dlfcn.h>
#include <spdlog/sinks/base_sink.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <new>
#include <set>
#include <utility>

#include "base/thread_pool.h"
#include "hub/carat_cache.h"
#include "runtime/executor_factory.h"
#include "runtime/model_loader.h"
#include "server/api/fields.h"
#include "server/api/openai/models.h"
#include "server/metrics/metrics_text.h"
#include "server/service/model_facts.h"

namespace carat::capi {

namespace {

constexpr uint32_t kDefaultContext = 4096;
constexpr uint32_t kDefaultParallel = 4;

// Hands what is logged to a function of the program.
class HookSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit HookSink(const carat_hooks& hooks) : hooks_(hooks) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const int level = message.level >= spdlog::level::err ? 2 : message.level >= spdlog::level::warn ? 1 : 0;
    hooks_.log(level, std::string(message.payload.data(), message.payload.size()).c_str(), hooks_.user);
  }
  void flush_() override {}

 private:
  const carat_hooks hooks_;
};

Logger logger_of(const carat_hooks& hooks) {
  if (hooks.log == nullptr) return nullptr;
  return std::make_shared<spdlog::logger>("carat", std::make_shared<HookSink>(hooks));
}

// What "options" says.
struct Options {
  runtime::Device device = runtime::Device::kAuto;
  exec::ExecutorOptions executor;
  engine::EngineOptions engine;
  server::ServiceOptions service;
  server::FactsOptions facts;
};

void refuse_unknown(const server::Fields& fields) {
  static const std::set<std::string_view> kKnown = {"alias",      "cache_type", "context", "device",
                                                    "gpu_layers", "itl_target", "kernels", "max_queue",
                                                    "parallel",   "think",      "threads"};
  for (const auto& [key, value] : fields.value().as_map().entries()) {
    if (!kKnown.contains(key.text())) server::refuse(key.text(), "options: there is no option \"{}\"", key.text());
  }
}

Options read_options(std::string_view json, const model::Config& config) {
  constexpr int64_t kMost = INT32_MAX;
  Options options;
  const server::Fields fields = server::parse_body(json.empty() ? "{}" : json);
  refuse_unknown(fields);
  exec::ExecutorOptions& executor = options.executor;
  executor.context = static_cast<uint32_t>(
      fields.integer("context", 0, kMost).value_or(std::min(config.context_length, kDefaultContext)));
  if (executor.context == 0) executor.context = config.context_length;
  executor.sequences = static_cast<uint32_t>(fields.integer("parallel", 1, 1024).value_or(kDefaultParallel));
  executor.threads = static_cast<unsigned>(fields.integer("threads", 0, 4096).value_or(0));
  if (executor.threads == 0) executor.threads = usable_threads();
  executor.chunk = 0;
  executor.outputs = std::max(executor.outputs, executor.sequences);
  if (const auto device = fields.text("device")) options.device = runtime::parse_device(*device);
  if (const auto layers = fields.integer("gpu_layers", 0, kMost)) executor.gpu_layers = static_cast<uint32_t>(*layers);
  executor.kernels = exec::KernelChoices::parse(fields.text("kernels").value_or(""));
  if (const auto type = fields.text("cache_type")) {
    const quant::FormatInfo* format = quant::find_format(*type);
    if (format == nullptr) server::refuse("cache_type", "cache_type: there is no type \"{}\"; f16 and q8_0 are", *type);
    executor.kv_format = format->format;
  }
  executor.cache_folder = hub::carat_cache_folder(hub::process_environment());
  options.engine.itl_target = 1e-3 * fields.number("itl_target", 0.0, 10000.0).value_or(25.0);
  options.service.max_queue = static_cast<size_t>(fields.integer("max_queue", 0, kMost).value_or(512));
  options.service.turns.sampling = engine::SamplingOptions::recommended(config);
  options.facts.version = CARAT_VERSION;
  options.facts.thinks = fields.flag("think").value_or(false);
  if (const auto alias = fields.text("alias")) options.facts.aliases = {*alias};
  return options;
}

// Adds the models that were installed with the library, which may be elsewhere than the program it is part of.
void add_installed_models(hub::LookupPlaces& places) {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&carat_open), &info) == 0 || info.dli_fname == nullptr) return;
  std::error_code ignored;
  const auto library = std::filesystem::weakly_canonical(info.dli_fname, ignored);
  places.model_folders.push_back((library.parent_path() / CARAT_MODELS_FROM_LIBRARY).lexically_normal());
}

std::string path_of(const char* model) {
  hub::LookupPlaces places = runtime::lookup_places();
  add_installed_models(places);
  return model == nullptr ? runtime::demo_model(places) : hub::find_model(model, places).path;
}

}  // namespace

EmbeddedEngine::EmbeddedEngine(const char* model, std::string_view json, const carat_hooks& hooks)
    : log_(logger_of(hooks), false, false) {
  const runtime::LoadedModel loaded = runtime::load_model(path_of(model));
  Options options = read_options(json, loaded.model->config());
  options.executor.log = logger_of(hooks);
  options.executor.cancelled = &cancelled_;
  options.service.cancelled = &cancelled_;
  runtime::LoadProgress progress;
  if (hooks.progress != nullptr) {
    progress = [hooks](uint64_t done, uint64_t total) { hooks.progress(done, total, hooks.user); };
  }
  auto chat = text::ChatTemplate::from_vocab(*loaded.vocab, loaded.model->config().is_large());
  if (!chat.warning().empty()) log_.warn(chat.warning());
  engine::Engine engine(runtime::make_executor(options.device, loaded.model, options.executor, progress), loaded.vocab,
                        options.engine);
  server::ServerFacts facts = server::facts_of(engine, chat, options.service.turns, options.facts);
  service_ = std::make_unique<server::Service>(std::move(engine), std::move(chat), std::move(facts), options.service,
                                               metrics_, log_);
  metrics_.set_state(server::ServerState::kReady);
}

EmbeddedEngine::~EmbeddedEngine() {
  try {
    service_->refuse_new({.refusal = server::Refusal::kDraining, .message = "the engine was closed"});
  } catch (const std::bad_alloc&) {
    // The engine takes no new requests, and there is not enough memory for an error that says so.
  }
  service_->finish(0.0);
}

std::shared_ptr<RequestEvents> EmbeddedEngine::generate(std::string_view path, std::string body,
                                                        carat_event_fn on_event, void* user) {
  const server::Route* route = routes_.find("POST", path);
  CARAT_CHECK(route != nullptr);
  auto events = std::make_shared<RequestEvents>(on_event, user);
  server::HttpRequest request;
  request.method = "POST";
  request.path = path;
  request.body = std::move(body);
  service_->generate(events->open(std::move(request)), route->text);
  return events;
}

std::string EmbeddedEngine::model_info() const {
  return server::openai_model(service_->facts(), service_->facts().model_id).body;
}

std::string EmbeddedEngine::metrics() const {
  const server::ServerFigures figures = metrics_.figures();
  const server::HttpFigures no_connections;
  const server::MetricsSources sources{.version = CARAT_VERSION,
                                       .executor = service_->engine_runner().executor_name(),
                                       .server = figures,
                                       .http = no_connections,
                                       .runner = service_->snapshot(),
                                       .facts = &service_->facts()};
  return server::metrics_text(sources, {.vllm = false, .llamacpp = false});
}

}  // namespace carat::capi
