#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "exec/executor.h"
#include "exec/sequence_table.h"
#include "server/scripted/script.h"
#include "text/chat/marks.h"
#include "text/tokenizer/vocab.h"

namespace carat::test {

// An executor whose model plays a part: it reads prompts as any other does, and its answers are those of a script. It
// keeps the rules of all executors for rows and for taking them back, so reuse of prefixes is what the model's file and
// the options make it.
//
// Where a grammar or a budget does not let it say its next word, it goes on after the next mark that the script has,
// too. Until there is one it wants to be done: it closes what is open, so that every grammar comes to an end.
class ScriptedModel : public exec::Executor {
 public:
  ScriptedModel(std::shared_ptr<const model::Model> model, std::shared_ptr<const text::Vocab> vocab,
                const exec::ExecutorOptions& options, Script script);

  std::string_view name() const override { return "scripted"; }
  const model::Model& model() const override { return *model_; }
  const exec::ExecutorOptions& options() const override { return options_; }
  bool rows_are_independent() const override { return true; }
  void forward(std::span<const exec::Row> rows) override;
  uint32_t outputs() const override { return static_cast<uint32_t>(outputs_.size()); }
  bool is_finite(uint32_t output) const override { return outputs_.at(output).is_finite; }
  std::span<const float> logits(uint32_t output) override;
  void best(uint32_t output, uint32_t k, std::vector<exec::Candidate>& out) override;
  void logits_of(uint32_t output, std::span<const int32_t> tokens, std::vector<float>& out) override;
  double log_sum_exp(uint32_t output) override { return exec::log_sum_exp(logits(output)); }
  uint32_t length(uint32_t sequence) const override { return table_.length(sequence); }
  uint32_t truncate(uint32_t sequence, uint32_t n) override;
  uint32_t resumable(uint32_t sequence, uint32_t n) const override { return table_.resumable(sequence, n); }

 private:
  // What a sequence is saying.
  struct Speech {
    size_t begin = 0;  // the position of its first token
    std::vector<text::TokenId> words = {};
    size_t next = 0;  // of them
    bool is_lost = false;
    Afterwards afterwards = Afterwards::kStop;
    double token_seconds = 0.0;
  };
  struct State {
    std::vector<text::TokenId> tokens;
    std::optional<Speech> speech;  // none while a prompt is read
  };
  struct Output {
    text::TokenId word = -1;  // none: it wants to be done
    bool is_finite = true;
  };

  Speech begin_speech(const std::vector<text::TokenId>& prompt) const;
  size_t tail_begin(const std::vector<text::TokenId>& prompt) const;
  void hear(Speech& speech, text::TokenId token) const;
  Output answer(const Speech& speech) const;

  std::shared_ptr<const model::Model> model_;
  std::shared_ptr<const text::Vocab> vocab_;
  exec::ExecutorOptions options_;
  Script script_;
  text::Tokenizer tokenizer_;
  text::MarkTokens marks_;
  std::vector<std::pair<text::TokenId, float>> closers_;
  exec::SequenceTable table_;
  std::vector<State> states_;
  std::vector<Output> outputs_;
  std::vector<float> logits_;
};

}  // namespace carat::test
