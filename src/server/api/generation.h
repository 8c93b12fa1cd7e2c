#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/chat/conversation.h"
#include "text/tokenizer/vocab.h"

namespace carat::server {

// What every dialect's request for text becomes. Nothing here knows HTTP, and nothing knows the engine: the dialects
// fill it (pure functions, tested and fuzzed without sockets), the scheduler carries it out.

// Fields that were not given are the server's or the model's default.
struct SamplingWishes {
  std::optional<double> temperature, top_p, min_p;
  std::optional<uint32_t> top_k;
  std::optional<double> repeat_penalty, presence_penalty, frequency_penalty;
  std::optional<uint32_t> repeat_last_n;
  std::optional<uint64_t> seed;  // none: random
  // A token by its id, or all tokens of a text; minus infinity bans it.
  std::vector<std::pair<std::variant<text::TokenId, std::string>, float>> bias;
};

// Whether the model thinks before it answers.
struct ThinkingWishes {
  std::optional<bool> is_on = {};       // none: the server's default
  std::optional<uint64_t> budget = {};  // most tokens of thoughts
};

struct ToolChoice {
  enum class Mode { kAuto, kNone, kRequired };
  Mode mode = Mode::kAuto;
  std::vector<std::string> allowed;  // names; empty: every tool of the request
  bool is_parallel = true;           // several calls in one answer
};

// What the answer must match.
struct AnswerFormat {
  enum class Kind { kText, kJsonObject, kJsonSchema, kGbnf, kRegex, kChoice };
  Kind kind = Kind::kText;
  std::string source = {};                // the schema, grammar or pattern
  std::vector<std::string> choices = {};  // of kChoice
  std::string param = {};                 // the field it came in, for complaints about it
};

struct LogprobWishes {
  bool wanted = false;
  uint32_t top = 0;  // alternatives of each token
};

using RawPrompt = std::variant<std::string, std::vector<text::TokenId>>;

struct GenerationRequest {
  std::string model;  // as the client called it

  // Exactly one of these two: a conversation that the model's template renders, or texts without a template.
  std::optional<text::Conversation> conversation;
  std::vector<RawPrompt> prompts;
  bool parse_special = false;   // control-token texts in a raw prompt become their tokens
  bool continue_final = false;  // the model goes on in the conversation's last message
  bool echo = false;            // a raw prompt is part of the answer

  ThinkingWishes thinking;
  bool thoughts_in_answer = false;  // events have them as AnswerText, with their marks
  ToolChoice tool_choice;
  AnswerFormat format;

  SamplingWishes sampling;
  std::optional<uint32_t> max_tokens;  // none: as much as the context holds
  uint32_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<std::string> stops;  // matched in the answer only
  std::vector<text::TokenId> stop_tokens;
  uint32_t choices = 1;  // answers to each prompt
  LogprobWishes logprobs;
  std::string prediction;  // what the client expects much of the answer to be

  bool stream = false;
  bool include_usage = false;
  bool return_progress = false;
  bool return_tokens = false;
  bool timings_per_token = false;
  std::optional<double> ping_seconds;  // of keep-alives; negative: none; not given: the server's

  bool cache_prompt = true;
  std::string cache_salt;  // prompts with different ones never share a cache
  std::string affinity;    // whose conversation it is; a hint
  int priority = 0;        // lower first

  // Wishes that reading the request found it cannot fulfil to the letter. The service puts them before its own in
  // Started::notes.
  std::vector<std::string> notes;
};

inline constexpr size_t kMaxStops = 16;
inline constexpr size_t kMaxPrompts = 256;  // of one request
inline constexpr size_t kMaxTools = 4096;
inline constexpr uint32_t kMaxTopLogprobs = 20;

}  // namespace carat::server
