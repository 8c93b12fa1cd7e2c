#pragma once

#include <memory>
#include <vector>

#include "engine/engine.h"
#include "exec/reference/reference_executor.h"
#include "support/random.h"
#include "support/tiny_model.h"

namespace carat::test {

using Tokens = std::vector<text::TokenId>;

inline std::shared_ptr<const text::Vocab> vocab_of(const model::Model& model) {
  return text::Vocab::from_metadata(model.file().metadata());
}

inline exec::ExecutorOptions small_options(uint32_t sequences = 1) {
  exec::ExecutorOptions options;
  options.context = 96;
  options.sequences = sequences;
  options.chunk = 7;
  options.outputs = 4;
  options.threads = 1;
  return options;
}

inline engine::Engine make_engine(const std::shared_ptr<const model::Model>& model,
                                  const exec::ExecutorOptions& options) {
  return engine::Engine(exec::make_reference_executor(model, options), vocab_of(*model));
}

inline engine::Engine make_engine(const std::shared_ptr<const model::Model>& model, uint32_t sequences = 1) {
  return make_engine(model, small_options(sequences));
}

inline Tokens random_prompt(const model::Model& model, size_t count, uint64_t seed) {
  Random random(seed);
  Tokens tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(static_cast<text::TokenId>(random.below(model.config().V)));
  return tokens;
}

// Greedy for an even seed, drawn for an odd one.
inline engine::Request make_request(const model::Model& model, size_t prompt, uint32_t max_tokens, uint64_t seed) {
  engine::Request request;
  request.prompt = random_prompt(model, prompt, seed);
  request.max_tokens = max_tokens;
  request.ignore_stops = true;
  request.sampling.temperature = seed % 2 == 0 ? 0.0f : 1.0f;
  request.sampling.presence_penalty = 0.3f;
  request.sampling.seed = seed;
  return request;
}

inline Tokens generated(const engine::Sequence& sequence) {
  return {sequence.generated().begin(), sequence.generated().end()};
}

inline Tokens run_alone(const std::shared_ptr<const model::Model>& model, const engine::Request& request,
                        const exec::ExecutorOptions& options = small_options()) {
  engine::Engine engine = make_engine(model, options);
  const auto sequence = engine.submit(request);
  engine.run();
  return generated(*sequence);
}

}  // namespace carat::test
