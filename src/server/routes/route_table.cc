#include "server/routes/route_table.h"

#include <utility>

#include "server/api/anthropic/common.h"
#include "server/api/anthropic/request.h"
#include "server/api/llama/completion.h"
#include "server/api/llama/info.h"
#include "server/api/llama/tokens.h"
#include "server/api/ollama/common.h"
#include "server/api/ollama/models.h"
#include "server/api/ollama/request.h"
#include "server/api/openai/chat.h"
#include "server/api/openai/completions.h"
#include "server/api/openai/models.h"
#include "server/api/responses/request.h"

namespace carat::server {

namespace {

using Work = Route::Work;

bool matches(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with('*')) return pattern == path;
  pattern.remove_suffix(1);
  return path.size() > pattern.size() && path.starts_with(pattern);
}

GenerationRoute openai(MetricLabel route) { return {.dialect = Dialect::kOpenAi, .api = "openai", .route = route}; }
GenerationRoute anthropic(MetricLabel route) {
  return {.dialect = Dialect::kAnthropic, .api = "anthropic", .route = route};
}
GenerationRoute ollama(MetricLabel route) { return {.dialect = Dialect::kOllama, .api = "ollama", .route = route}; }
// llama-server's own routes and carat's.
GenerationRoute own(MetricLabel route) { return {.dialect = Dialect::kOpenAi, .api = "carat", .route = route}; }

// How many tokens the prompts of a request have.
uint64_t prompt_tokens(const Service& service, const GenerationRequest& request) {
  uint64_t count = 0;
  for (const auto& prompt : service.prompts().unbounded_prompts(request)) count += prompt.size();
  return count;
}

Route::Make refusing(Problem problem) {
  return [problem = std::move(problem)](Service&, const HttpRequest&) -> Response { throw ApiError(problem); };
}

bool is_anthropic(const HttpRequest& request) { return request.has_header("anthropic-version"); }

Response models(Service& service, const HttpRequest& request) {
  return is_anthropic(request) ? anthropic_models(service.facts(), request.id) : openai_models(service.facts());
}

Response model(Service& service, const HttpRequest& request) {
  const std::string_view path = request.path;
  const std::string_view id = path.substr(path.find("/models/") + std::string_view("/models/").size());
  if (!is_anthropic(request)) return openai_model(service.facts(), id);
  if (!matches_model(id, service.facts())) {
    throw ApiError({.refusal = Refusal::kModelNotFound, .message = fmt::format("there is no model \"{}\" here", id)});
  }
  return anthropic_model(service.facts(), request.id);
}

// Any name is this server's model, as for requests for text; but a body without an object is not a question.
Response show(Service& service, const HttpRequest& request) {
  read_ollama_model(request.body);
  return ollama_show(service.facts());
}

Response control(Service& service, const HttpRequest& request) {
  const ChatControl control = read_chat_control(request.body);
  if (service.end_thoughts(control.id)) return chat_control_done();
  throw ApiError({.refusal = Refusal::kNotFound,
                  .message = "there is no answer of this id being written whose thoughts could be ended",
                  .param = "id"});
}

}  // namespace

RouteTable::RouteTable(std::shared_ptr<ResponseStore> responses) {
  add_server();
  add_openai(std::move(responses));
  add_anthropic();
  add_ollama();
  add_llama();
  add_unsupported();
}

void RouteTable::add(Route route) { routes_.push_back(std::make_unique<Route>(std::move(route))); }

void RouteTable::add_both(Route route) {
  Route bare = route;
  bare.path = route.path.substr(std::string_view("/v1").size());
  add(std::move(route));
  add(std::move(bare));
}

void RouteTable::add_server() {
  for (const char* path : {"/health", "/v1/health", "/livez", "/"}) {
    add({.method = "GET", .path = path, .text = own("/health"), .work = Work::kServer, .is_public = true});
  }
  add({.method = "GET", .path = "/page/*", .text = own("/page"), .work = Work::kServer, .is_public = true});
  add({.method = "GET", .path = "/metrics", .text = own("/metrics"), .work = Work::kServer});
}

void RouteTable::add_openai(std::shared_ptr<ResponseStore> responses) {
  GenerationRoute chat = openai("/v1/chat/completions");
  chat.read = read_openai_chat;
  chat.id_prefix = "chatcmpl-";
  add_both({.method = "POST", .path = "/v1/chat/completions", .text = chat, .work = Work::kGenerate});
  GenerationRoute completions = openai("/v1/completions");
  completions.read = read_openai_completions;
  completions.id_prefix = "cmpl-";
  add({.method = "POST", .path = "/v1/completions", .text = completions, .work = Work::kGenerate});
  GenerationRoute response = openai("/v1/responses");
  response.read = [responses](std::string_view body) { return read_openai_responses(body, responses); };
  response.id_prefix = "resp_";
  add_both({.method = "POST", .path = "/v1/responses", .text = response, .work = Work::kGenerate});

  add_both({.method = "POST",
            .path = "/v1/chat/completions/input_tokens",
            .text = openai("/v1/chat/completions/input_tokens"),
            .work = Work::kPool,
            .make = [](Service& service, const HttpRequest& request) {
              return openai_input_tokens(prompt_tokens(service, read_openai_chat(request.body).generation));
            }});
  add_both({.method = "POST",
            .path = "/v1/responses/input_tokens",
            .text = openai("/v1/responses/input_tokens"),
            .work = Work::kPool,
            .make = [responses](Service& service, const HttpRequest& request) {
              const ParsedRequest parsed = read_openai_responses(request.body, responses);
              return openai_input_tokens(prompt_tokens(service, parsed.generation));
            }});
  add_both({.method = "GET", .path = "/v1/models", .text = openai("/v1/models"), .make = models});
  add_both({.method = "GET", .path = "/v1/models/*", .text = openai("/v1/models/{id}"), .make = model});
}

void RouteTable::add_llama() {
  add_both({.method = "POST",
            .path = "/v1/chat/completions/control",
            .text = own("/v1/chat/completions/control"),
            .make = control});
  GenerationRoute completion = own("/completion");
  completion.read = read_llama_completion;
  completion.id_prefix = "cmpl-";
  for (const char* path : {"/completion", "/completions"}) {
    add({.method = "POST", .path = path, .text = completion, .work = Work::kGenerate});
  }
  add({.method = "GET", .path = "/props", .text = own("/props"), .make = [](Service& service, const HttpRequest&) {
         return llama_props(service.facts());
       }});
  add({.method = "GET",
       .path = "/slots",
       .text = own("/slots"),
       .make = [](Service& service, const HttpRequest& request) {
         return llama_slots(service.slots(), request.parameter("fail_on_no_slot").value_or("0") == "1");
       }});
  add({.method = "POST",
       .path = "/tokenize",
       .text = own("/tokenize"),
       .work = Work::kPool,
       .make = [](Service& service, const HttpRequest& request) {
         return llama_tokenize(request.body, service.prompts().tokenizer());
       }});
  add({.method = "POST",
       .path = "/detokenize",
       .text = own("/detokenize"),
       .work = Work::kPool,
       .make = [](Service& service, const HttpRequest& request) {
         return llama_detokenize(request.body, *service.prompts().vocab());
       }});
  add({.method = "POST",
       .path = "/apply-template",
       .text = own("/apply-template"),
       .work = Work::kPool,
       .make = [](Service& service, const HttpRequest& request) {
         return llama_apply_template(service.prompts().rendered(read_llama_apply_template(request.body)));
       }});
}

void RouteTable::add_anthropic() {
  GenerationRoute messages = anthropic("/v1/messages");
  messages.read = read_anthropic_messages;
  messages.id_prefix = "msg_";
  add({.method = "POST", .path = "/v1/messages", .text = messages, .work = Work::kGenerate});
  add({.method = "POST",
       .path = "/v1/messages/count_tokens",
       .text = anthropic("/v1/messages/count_tokens"),
       .work = Work::kPool,
       .make = [](Service& service, const HttpRequest& request) {
         const uint64_t tokens = prompt_tokens(service, read_anthropic_count(request.body));
         return anthropic_token_count(tokens, request.id);
       }});
}

void RouteTable::add_ollama() {
  GenerationRoute chat = ollama("/api/chat");
  chat.read = read_ollama_chat;
  chat.id_prefix = "ollama-";
  add({.method = "POST", .path = "/api/chat", .text = chat, .work = Work::kGenerate});
  GenerationRoute generate = ollama("/api/generate");
  generate.read = read_ollama_generate;
  generate.id_prefix = "ollama-";
  add({.method = "POST", .path = "/api/generate", .text = generate, .work = Work::kGenerate});
  const auto ask = [this](const char* path, MetricLabel label, Response (*make)(const ServerFacts&)) {
    add({.method = "GET", .path = path, .text = ollama(label), .make = [make](Service& service, const HttpRequest&) {
           return make(service.facts());
         }});
  };
  ask("/api/tags", "/api/tags", ollama_tags);
  ask("/api/ps", "/api/ps", ollama_running);
  add({.method = "GET",
       .path = "/api/version",
       .text = ollama("/api/version"),
       .make = [](Service&, const HttpRequest&) { return ollama_version(); }});
  add({.method = "POST", .path = "/api/show", .text = ollama("/api/show"), .make = show});

  const auto refuse = [this](const char* method, const char* path, MetricLabel label, Problem problem) {
    add({.method = method, .path = path, .text = ollama(label), .make = refusing(std::move(problem))});
  };
  refuse("POST", "/api/pull", "/api/pull", ollama_change_problem("pull"));
  refuse("POST", "/api/create", "/api/create", ollama_change_problem("create"));
  refuse("POST", "/api/push", "/api/push", ollama_change_problem("push"));
  refuse("POST", "/api/copy", "/api/copy", ollama_change_problem("copy"));
  refuse("DELETE", "/api/delete", "/api/delete", ollama_change_problem("delete"));
  refuse("POST", "/api/embed", "/api/embed", ollama_embedding_problem());
  refuse("POST", "/api/embeddings", "/api/embeddings", ollama_embedding_problem());
}

// What carat does not serve, on purpose: clients learn why instead of looking for a mistake of theirs.
void RouteTable::add_unsupported() {
  const auto refuse = [this](const char* method, const char* path, GenerationRoute text, Problem problem) {
    add({.method = method, .path = path, .text = std::move(text), .make = refusing(std::move(problem))});
  };
  const Problem embeddings{.refusal = Refusal::kNotSupported,
                           .message = "Gemma 4 has no trained embedding head, so carat serves no embeddings"};
  for (const char* path : {"/v1/embeddings", "/embeddings", "/embedding"}) {
    refuse("POST", path, openai("/v1/embeddings"), embeddings);
  }
  const Problem ranking{.refusal = Refusal::kNotSupported, .message = "carat does not rank documents"};
  for (const char* path : {"/v1/rerank", "/rerank", "/v1/reranking", "/reranking"}) {
    refuse("POST", path, own("/rerank"), ranking);
  }
  refuse("POST", "/infill", own("/infill"),
         {.refusal = Refusal::kNotSupported, .message = "Gemma 4 has no tokens to fill in the middle of a text"});
  for (const char* method : {"GET", "POST"}) {
    refuse(method, "/lora-adapters", own("/lora-adapters"),
           {.refusal = Refusal::kNotSupported, .message = "carat has no adapters"});
  }
}

const Route* RouteTable::find(std::string_view method, std::string_view path) const {
  for (const auto& route : routes_) {
    if (route->method == method && matches(route->path, path)) return route.get();
  }
  return nullptr;
}

std::string RouteTable::allowed(std::string_view path) const {
  std::string methods;
  for (const auto& route : routes_) {
    if (!matches(route->path, path)) continue;
    if (methods.find(route->method) != std::string::npos) continue;
    methods += (methods.empty() ? "" : ", ") + std::string(route->method) + (route->method == "GET" ? ", HEAD" : "");
  }
  return methods;
}

Dialect dialect_of(std::string_view path) {
  if (path.starts_with("/v1/messages")) return Dialect::kAnthropic;
  if (path.starts_with("/api/")) return Dialect::kOllama;
  return Dialect::kOpenAi;
}

}  // namespace carat::server
