// An answer that is JSON of a given shape: the model fills in a schema, and what comes back can be parsed without
// doubt.
//   g++ -std=c++20 grammar.cc $(pkg-config --cflags --libs carat) -o grammar && ./grammar [model.gguf]
#include <carat/carat.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace {

using nlohmann::json;

struct Closer {
  void operator()(carat_engine* engine) const { carat_close(engine); }
  void operator()(carat_request* request) const { carat_release(request); }
  void operator()(char* text) const { carat_free(text); }
};
using Engine = std::unique_ptr<carat_engine, Closer>;
using Request = std::unique_ptr<carat_request, Closer>;
using Text = std::unique_ptr<char, Closer>;

[[noreturn]] void fail(carat_error* error) {
  const std::string text = carat_error_text(error);
  carat_error_free(error);
  throw std::runtime_error(text);
}

Engine open(const char* model) {
  carat_error* error = nullptr;
  Engine engine(carat_open(model, nullptr, nullptr, &error));
  if (!engine) fail(error);
  return engine;
}

// The whole answer of a request without a stream.
json ask(carat_engine* engine, const json& request) {
  carat_error* error = nullptr;
  const Request running(carat_chat(engine, request.dump().c_str(), nullptr, nullptr, &error));
  if (!running) fail(error);
  const Text answer(carat_next(running.get(), -1.0));
  const json whole = json::parse(answer.get());
  if (whole.contains("error")) throw std::runtime_error(whole["error"]["message"].get<std::string>());
  return whole;
}

}  // namespace

int main(int count, char** words) try {
  const Engine engine = open(count > 1 ? words[1] : nullptr);
  const json schema = {{"type", "object"},
                       {"properties",
                        {{"package", {{"type", "string"}, {"maxLength", 20}}},
                         {"kind", {{"enum", {"server", "editor", "library", "other"}}}},
                         {"useful", {{"type", "boolean"}}}}},
                       {"required", {"package", "kind", "useful"}},
                       {"additionalProperties", false}};
  const json answer =
      ask(engine.get(), {{"messages", {{{"role", "user"}, {"content", "What is nginx?"}}}},
                         {"temperature", 0},
                         {"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}}}});
  const json filled = json::parse(answer["choices"][0]["message"]["content"].get<std::string>());
  std::printf("%s\n", filled.dump(2).c_str());
  return filled.contains("package") && filled["useful"].is_boolean() ? EXIT_SUCCESS : EXIT_FAILURE;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return EXIT_FAILURE;
}
