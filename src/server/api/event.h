#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/api/api_error.h"
#include "text/tokenizer/vocab.h"

namespace carat::server {

// What happens to a request, in the order it happens. The scheduler makes these, a dialect's reply turns them into
// bytes. `choice` numbers the answers of one request: with n answers to each of several prompts, prompt * n + i.
// `tokens` are filled where the request wants tokens (return_tokens), `so_far` where it wants timings for each token.

// A prompt is read: how long it is, and how much of it was already in the cache. Sent before the reading begins, once
// for each prompt of the request.
struct Started {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  std::vector<text::TokenId> prompt = {};  // where the request wants tokens
  uint32_t index = 0;                      // which of the request's prompts
  std::string text = {};                   // of a raw prompt that came as tokens, where the answer repeats it (echo)
  // Wishes that are not fulfilled to the letter: "tools[2]: its schema is not enforced, because ...".
  std::vector<std::string> notes = {};
};

struct Progress {
  uint32_t total = 0, cached = 0, processed = 0;  // tokens of the prompt
  double milliseconds = 0.0;
};

// Of the whole request: all its prompts and choices.
struct Usage {
  uint32_t prompt_tokens = 0, cached_tokens = 0;
  uint32_t completion_tokens = 0, thought_tokens = 0;
  double queue_seconds = 0.0, prompt_seconds = 0.0, decode_seconds = 0.0;
  uint32_t drafted = 0, accepted = 0;
  std::string lost_reason = {};  // why a part of the prompt that was known had to be read again
  uint32_t lost_tokens = 0;
};
struct TokenLogprob {
  text::TokenId token = 0;
  std::string bytes;  // what the token spells, perhaps a part of a character
  double logprob = 0.0;
};
struct ChosenLogprob : TokenLogprob {
  std::vector<TokenLogprob> top;
};

struct ThoughtText {
  uint32_t choice = 0;
  std::string text;
  std::vector<text::TokenId> tokens = {};
  std::optional<Usage> so_far = {};
};
struct AnswerText {
  uint32_t choice = 0;
  std::string text;
  std::vector<ChosenLogprob> logprobs = {};
  std::vector<text::TokenId> tokens = {};
  std::optional<Usage> so_far = {};
};
struct CallMade {
  uint32_t choice = 0;
  std::string id, name;
  std::string arguments;  // JSON text of an object
  std::vector<text::TokenId> tokens = {};
};
struct BadCall {
  uint32_t choice = 0;
  std::string text, problem;
  std::vector<text::TokenId> tokens = {};
};

enum class Finish {
  kStop,         // the model was done
  kStopString,   // a stop of the request; `stopped_by` says which
  kStopToken,    // a token of stop_token_ids
  kToolCalls,    // the model waits for results
  kLength,       // max_tokens
  kContextFull,  // the context holds no further position
  kLoop,         // the model repeated itself without end
};

struct ChoiceEnded {
  uint32_t choice = 0;
  Finish finish = Finish::kStop;
  std::string stopped_by = {};
  text::TokenId stop_token = -1;
  std::vector<text::TokenId> tokens = {};  // the last ones, which are part of no text: the end of the turn
  uint32_t completion_tokens = 0;          // of this choice
};

// After all choices ended.
struct Ended {
  Usage usage;
};

// Instead of Ended: nothing follows.
struct Failed {
  Problem problem;
};

using Event = std::variant<Started, Progress, ThoughtText, AnswerText, CallMade, BadCall, ChoiceEnded, Ended, Failed>;

}  // namespace carat::server
