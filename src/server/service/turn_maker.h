#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/chat_turn.h"
#include "server/api/facts.h"
#include "server/api/generation.h"
#include "server/service/grammar_store.h"
#include "server/service/prompt_maker.h"
#include "text/grammar/schema/json_schema.h"

namespace carat::server {

// What a request gets where it does not say otherwise.
struct TurnDefaults {
  engine::SamplingOptions sampling;
  std::optional<uint32_t> max_tokens;    // none: as much as the context holds
  std::optional<uint64_t> think_budget;  // of requests that think without a budget of their own
  bool loop_guard = true;
  uint32_t max_choices = 8;  // answers to one prompt
  text::grammar::JsonStyle json_style = text::grammar::JsonStyle::kFree;
};

// A request made ready: what its turns begin with and the rules they follow.
struct PreparedTurns {
  std::vector<std::vector<text::TokenId>> prompts;
  engine::TurnOptions options;     // of every turn; each has a seed of its own (seed_of)
  bool has_seed = false;           // the client's; otherwise every turn draws a random one
  std::vector<std::string> notes;  // wishes that are not fulfilled to the letter
};

// From the wishes of a request to the engine's options. Thread-safe.
class TurnMaker {
 public:
  TurnMaker(std::shared_ptr<const PromptMaker> prompts, std::shared_ptr<GrammarStore> grammars, TurnDefaults defaults);

  // Throws ApiError naming the field.
  PreparedTurns prepare(const GenerationRequest& request) const;
  const TurnDefaults& defaults() const { return defaults_; }

 private:
  engine::SamplingOptions sampling(const SamplingWishes& wishes) const;
  void add_grammar(const GenerationRequest& request, PreparedTurns& turns) const;
  void add_calls(const GenerationRequest& request, PreparedTurns& turns) const;

  std::shared_ptr<const PromptMaker> prompts_;
  std::shared_ptr<GrammarStore> grammars_;
  TurnDefaults defaults_;
};

// The seed of choice `index` of a request: the client's own for the first one, others from it, so that the same request
// gives the same answers. Random where the client gave none.
uint64_t seed_of(const PreparedTurns& turns, uint32_t index);

}  // namespace carat::server
