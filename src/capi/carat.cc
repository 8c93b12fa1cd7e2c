// The functions of include/carat/carat.h: what they are given is checked here, and no exception gets further.
#include "carat/carat.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "capi/engine.h"
#include "server/api/api_error.h"
#include "text/tokenizer/detokenizer.h"

using carat::Error;
using carat::ErrorCode;
using carat::capi::EmbeddedEngine;
using carat::capi::RequestEvents;

struct carat_error {
  int code;
  std::string text;
};
struct carat_engine {
  carat_engine(const char* model, const char* options, const carat_hooks& hooks) : engine(model, options, hooks) {}
  EmbeddedEngine engine;
};
struct carat_request {
  std::shared_ptr<RequestEvents> events;
};

namespace {

int code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kBadArgument:
      return CARAT_BAD_ARGUMENT;
    case ErrorCode::kIo:
      return CARAT_FILE_ACCESS;
    case ErrorCode::kBadFile:
      return CARAT_DAMAGED_FILE;
    case ErrorCode::kUnsupported:
      return CARAT_NOT_SUPPORTED;
    case ErrorCode::kOutOfMemory:
      return CARAT_NO_MEMORY;
    case ErrorCode::kDevice:
      return CARAT_DEVICE_FAILURE;
    case ErrorCode::kNonFinite:
      return CARAT_NON_FINITE;
    case ErrorCode::kInterrupted:
      return CARAT_INTERRUPTED;
  }
  return CARAT_INTERNAL_ERROR;
}

// Returns a fixed text when there is not enough memory for the error's own.
carat_error kNoMemory{CARAT_NO_MEMORY, "out of memory"};

void report(carat_error** error, int code, const char* text) noexcept {
  if (error == nullptr) return;
  try {
    *error = new carat_error{code, text};
  } catch (...) {
    *error = &kNoMemory;
  }
}

// Calls `work`, and turns what it throws into an error and `otherwise`.
template <typename Result, typename Work>
Result guarded(carat_error** error, Result otherwise, Work work) noexcept {
  if (error != nullptr) *error = nullptr;
  try {
    return work();
  } catch (const Error& failure) {
    report(error, code_of(failure.code()), failure.what());
  } catch (const std::bad_alloc&) {
    if (error != nullptr) *error = &kNoMemory;
  } catch (const std::exception& failure) {
    report(error, CARAT_INTERNAL_ERROR, failure.what());
  } catch (...) {
    report(error, CARAT_INTERNAL_ERROR, "an unknown exception");
  }
  return otherwise;
}

// The caller's own copy.
char* copied(const std::string& text) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

template <typename Pointer>
void require(Pointer pointer, const char* what) {
  if (pointer == nullptr) carat::fail(ErrorCode::kBadArgument, "{} is NULL", what);
}

carat_request* begin(carat_engine* engine, const char* path, const char* request, carat_event_fn on_event, void* user,
                     carat_error** error) noexcept {
  return guarded<carat_request*>(error, nullptr, [&] {
    require(engine, "engine");
    require(request, "request");
    auto made = std::make_unique<carat_request>();
    made->events = engine->engine.generate(path, request, on_event, user);
    return made.release();
  });
}

}  // namespace

int carat_error_code(const carat_error* error) { return error == nullptr ? 0 : error->code; }
const char* carat_error_text(const carat_error* error) { return error == nullptr ? "" : error->text.c_str(); }
void carat_error_free(carat_error* error) {
  if (error != &kNoMemory) delete error;
}
void carat_free(void* memory) { std::free(memory); }
const char* carat_version(void) { return CARAT_VERSION; }

carat_engine* carat_open(const char* model, const char* options, const carat_hooks* hooks, carat_error** error) {
  return guarded<carat_engine*>(error, nullptr, [&] {
    carat_hooks known = {};
    // A program built with an older header has fewer members.
    if (hooks != nullptr) std::memcpy(&known, hooks, std::min(hooks->size, sizeof known));
    return new carat_engine(model, options == nullptr ? "" : options, known);
  });
}

void carat_close(carat_engine* engine) {
  guarded<int>(nullptr, 0, [&] {
    delete engine;
    return 0;
  });
}

char* carat_model_info(carat_engine* engine, carat_error** error) {
  return guarded<char*>(error, nullptr, [&] {
    require(engine, "engine");
    return copied(engine->engine.model_info());
  });
}

char* carat_metrics(carat_engine* engine, carat_error** error) {
  return guarded<char*>(error, nullptr, [&] {
    require(engine, "engine");
    return copied(engine->engine.metrics());
  });
}

int carat_tokenize(carat_engine* engine, const char* text, size_t bytes, int special, int32_t** tokens, size_t* count,
                   carat_error** error) {
  return guarded<int>(error, -1, [&] {
    using Specials = carat::text::Tokenizer::Specials;
    require(engine, "engine");
    require(tokens, "tokens");
    require(count, "count");
    if (bytes > 0) require(text, "text");
    const auto made = engine->engine.prompts().tokenizer().encode(
        std::string_view(text, bytes), special != 0 ? Specials::kParse : Specials::kPlainText);
    auto* copy = static_cast<int32_t*>(std::malloc(std::max<size_t>(made.size(), 1) * sizeof(int32_t)));
    if (copy == nullptr) throw std::bad_alloc();
    std::copy(made.begin(), made.end(), copy);
    *tokens = copy;
    *count = made.size();
    return 0;
  });
}

char* carat_detokenize(carat_engine* engine, const int32_t* tokens, size_t count, size_t* bytes, carat_error** error) {
  return guarded<char*>(error, nullptr, [&] {
    require(engine, "engine");
    if (count > 0) require(tokens, "tokens");
    const auto vocab = engine->engine.prompts().vocab();
    for (size_t i = 0; i < count; ++i) {
      if (!vocab->contains(tokens[i])) {
        carat::fail(ErrorCode::kBadArgument, "tokens[{}] is {}; ids go from 0 to {}", i, tokens[i], vocab->size() - 1);
      }
    }
    const std::string text = carat::text::decode(vocab, {tokens, count}, true);
    if (bytes != nullptr) *bytes = text.size();
    return copied(text);
  });
}

carat_request* carat_chat(carat_engine* engine, const char* request, carat_event_fn on_event, void* user,
                          carat_error** error) {
  return begin(engine, "/v1/chat/completions", request, on_event, user, error);
}

carat_request* carat_complete(carat_engine* engine, const char* request, carat_event_fn on_event, void* user,
                              carat_error** error) {
  return begin(engine, "/v1/completions", request, on_event, user, error);
}

char* carat_next(carat_request* request, double seconds) {
  return guarded<char*>(nullptr, nullptr,
                        [&]() -> char* { return request == nullptr ? nullptr : request->events->next(seconds); });
}

int carat_wait(carat_request* request, double seconds) {
  return guarded<int>(nullptr, 0, [&] { return request == nullptr || request->events->wait(seconds) ? 1 : 0; });
}

int carat_is_done(const carat_request* request) {
  return guarded<int>(nullptr, 1, [&] { return request == nullptr || request->events->is_done() ? 1 : 0; });
}

void carat_cancel(carat_request* request) {
  guarded<int>(nullptr, 0, [&] {
    if (request != nullptr) request->events->cancel();
    return 0;
  });
}

void carat_release(carat_request* request) {
  guarded<int>(nullptr, 0, [&] {
    if (request == nullptr) return 0;
    request->events->cancel();
    request->events->wait(-1.0);  // for a callback that is running
    delete request;
    return 0;
  });
}
