#include "server/scripted/scripted_model.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "text/tokenizer/detokenizer.h"

namespace carat::test {

namespace {

// Of the next word, so that temperatures up to 2 change nothing.
constexpr float kSure = 40.0f;

// What closes something, the most urgent first: in a text everything else that closes is an ordinary character.
constexpr std::string_view kClosers[] = {"<|\"|>", "\"", "}", "]", "<tool_call|>", "<channel|>", "<turn|>"};

}  // namespace

ScriptedModel::ScriptedModel(std::shared_ptr<const model::Model> model, std::shared_ptr<const text::Vocab> vocab,
                             const exec::ExecutorOptions& options, Script script)
    : model_(std::move(model)),
      vocab_(std::move(vocab)),
      options_(options),
      script_(std::move(script)),
      tokenizer_(vocab_),
      marks_(*vocab_),
      table_(model_->config(), options),
      states_(options.sequences) {
  float urgency = 0.5f * kSure;
  for (const std::string_view text : kClosers) {
    if (const auto token = vocab_->find(text)) closers_.emplace_back(*token, urgency);
    urgency -= 1.5f;
  }
}

// Where the newest part of the prompt begins: what a user or tools have said last.
size_t ScriptedModel::tail_begin(const std::vector<text::TokenId>& prompt) const {
  for (size_t i = prompt.size(); i > 0; --i) {
    const auto mark = marks_.mark_of(prompt[i - 1]);
    if (mark == text::Mark::kCallClose) return i;
    if (mark != text::Mark::kTurnOpen) continue;
    const size_t most = std::min<size_t>(prompt.size() - i, 5);
    if (text::decode(vocab_, std::span(prompt).subspan(i, most), true).starts_with("user\n")) return i;
  }
  return 0;
}

ScriptedModel::Speech ScriptedModel::begin_speech(const std::vector<text::TokenId>& prompt) const {
  const std::string tail = text::decode(vocab_, std::span(prompt).subspan(tail_begin(prompt)), true);
  const std::string whole = text::decode(vocab_, prompt, true);
  Speech speech{.begin = prompt.size()};
  if (const Rule* rule = script_.find(whole, tail)) {
    speech.words = rule->say;
    if (rule->says_tail) tokenizer_.encode(tail, text::Tokenizer::Specials::kPlainText, speech.words);
    if (rule->says_prompt) tokenizer_.encode(whole, text::Tokenizer::Specials::kPlainText, speech.words);
    speech.afterwards = rule->afterwards;
    speech.token_seconds = rule->token_seconds;
  } else {
    tokenizer_.encode("The script has no rule for this.", text::Tokenizer::Specials::kPlainText, speech.words);
  }
  if (speech.afterwards == Afterwards::kStop) {
    const bool has_called = !speech.words.empty() && speech.words.back() == marks_[text::Mark::kCallClose];
    speech.words.push_back(marks_[has_called ? text::Mark::kResponseOpen : text::Mark::kTurnClose]);
  }
  return speech;
}

// The token is part of the answer now, whether it is the next word or not.
void ScriptedModel::hear(Speech& speech, text::TokenId token) const {
  if (!speech.is_lost && speech.next < speech.words.size() && speech.words[speech.next] == token) {
    ++speech.next;
    return;
  }
  speech.is_lost = true;
  if (!marks_.mark_of(token)) return;
  const auto rest = speech.words.begin() + static_cast<std::ptrdiff_t>(speech.next);
  const auto found = std::find(rest, speech.words.end(), token);
  if (found == speech.words.end()) return;
  speech.next = static_cast<size_t>(found - speech.words.begin()) + 1;
  speech.is_lost = false;
}

ScriptedModel::Output ScriptedModel::answer(const Speech& speech) const {
  if (speech.is_lost) return {};
  if (speech.next < speech.words.size()) return {.word = speech.words[speech.next]};
  switch (speech.afterwards) {
    case Afterwards::kStop:
      return {};
    case Afterwards::kNonFinite:
      return {.is_finite = false};
    case Afterwards::kFail:
      fail(ErrorCode::kOutOfMemory, "the script wants this pass to fail");
    case Afterwards::kLose:
      fail(ErrorCode::kDevice, "the script wants the device to be lost");
  }
  return {};
}

void ScriptedModel::forward(std::span<const exec::Row> rows) {
  table_.check(rows);
  double seconds = 0.0;
  outputs_.clear();
  try {
    for (const exec::Row& row : rows) {
      State& state = states_[row.sequence];
      state.tokens.push_back(row.token);
      if (!row.wants_logits) {
        state.speech.reset();
        seconds += script_.prompt_row_seconds;
        continue;
      }
      if (state.speech) {
        hear(*state.speech, row.token);
      } else {
        state.speech = begin_speech(state.tokens);
      }
      seconds = std::max(seconds, state.speech->token_seconds);
      outputs_.push_back(answer(*state.speech));
    }
  } catch (...) {
    for (const exec::Row& row : rows) {
      states_[row.sequence].tokens.resize(table_.length(row.sequence));
      states_[row.sequence].speech.reset();
    }
    throw;
  }
  table_.begin(rows);
  table_.commit(rows);
  if (seconds > 0.0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

std::span<const float> ScriptedModel::logits(uint32_t output) {
  const Output& wanted = outputs_.at(output);
  logits_.assign(model_->config().V, 0.0f);
  for (const auto& [token, urgency] : closers_) logits_[static_cast<size_t>(token)] = urgency;
  if (wanted.word >= 0) logits_[static_cast<size_t>(wanted.word)] = kSure;
  return logits_;
}

void ScriptedModel::best(uint32_t output, uint32_t k, std::vector<exec::Candidate>& out) {
  exec::select_best(logits(output), k, out);
}

void ScriptedModel::logits_of(uint32_t output, std::span<const int32_t> tokens, std::vector<float>& out) {
  const std::span<const float> all = logits(output);
  out.clear();
  for (const int32_t token : tokens) out.push_back(all[static_cast<size_t>(token)]);
}

uint32_t ScriptedModel::truncate(uint32_t sequence, uint32_t n) {
  const uint32_t kept = table_.truncate(sequence, n);
  State& state = states_[sequence];
  const bool keeps_speech = state.speech && kept >= state.speech->begin;
  state.tokens.resize(kept);
  if (!keeps_speech) {
    state.speech.reset();
    return kept;
  }
  Speech& speech = *state.speech;
  speech.next = 0;
  speech.is_lost = false;
  for (size_t i = speech.begin; i < state.tokens.size(); ++i) hear(speech, state.tokens[i]);
  return kept;
}

}  // namespace carat::test
