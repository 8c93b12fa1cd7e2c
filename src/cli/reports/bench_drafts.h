#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "model/model.h"

namespace carat::cli {

// The modes that are compared; the first is what the others are compared with.
inline constexpr std::array<std::string_view, 3> kDraftModes = {"off", "auto", "on"};

// A text as the question of a chat with this model.
std::vector<text::TokenId> question_tokens(const model::Model& model, const std::shared_ptr<const text::Vocab>& vocab,
                                           std::string question);

// Times answers to a question. Random tokens would tell nothing about drafts: how many are right depends on the text
// and on what the model says to it. The answer is greedy and goes on after stop tokens, so it is as long as asked for,
// and the same in every mode as far as the executor's logits are.
class DraftBench {
 public:
  struct Runs {
    std::vector<uint64_t> samples_ns;  // of generation without the prompt
    double tokens_per_pass = 0.0;
    std::optional<double> accepted;  // share of the drafted tokens; none where there were none
    uint32_t equal_tokens = 0;       // from the first on, compared with the first mode that was run
  };

  DraftBench(engine::Engine engine, std::vector<text::TokenId> prompt) : engine_(std::move(engine)), prompt_(prompt) {}

  const engine::Engine& engine() const { return engine_; }
  // `generated` tokens after the first, which the prompt gives. What auto has learnt in a warm-up it still knows, as in
  // a chat.
  Runs run(engine::DraftMode mode, uint32_t generated, uint32_t repetitions, bool with_warmup);

 private:
  std::shared_ptr<const engine::Sequence> answer(uint32_t generated);

  engine::Engine engine_;
  std::vector<text::TokenId> prompt_;
  std::vector<text::TokenId> first_;  // the answer of the first mode
};

}  // namespace carat::cli
