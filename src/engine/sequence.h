#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/guide.h"
#include "engine/lookup_governor.h"
#include "engine/lookup_options.h"
#include "engine/ngram_index.h"
#include "engine/sampler.h"
#include "text/vocab.h"

namespace carat::engine {

// Why a sequence got no more tokens.
enum class Ending {
  kNone,         // it is still waiting or running
  kStopToken,    // the model said it is done
  kLength,       // max_tokens were generated
  kContextFull,  // the context holds no further position
  kInterrupted,  // the user or the caller stopped it
  kFailed,       // a pass threw; the exception went to the caller of the engine
};
std::string_view ending_name(Ending ending);  // in words, for people

struct Request {
  static constexpr uint32_t kUnlimited = std::numeric_limits<uint32_t>::max();

  std::vector<text::TokenId> prompt;
  uint32_t max_tokens = kUnlimited;  // 0: only fills the cache with the prompt
  bool ignore_stops = false;         // stop tokens are handed out like any other
  SamplingOptions sampling;
  std::shared_ptr<Guide> guide;  // null: the model is free
};

// What prompt lookup did for a sequence.
struct LookupFigures {
  uint32_t drafted = 0;   // tokens that were run before they were chosen
  uint32_t accepted = 0;  // of them, those that were chosen
};

// One request on its way: its tokens, the sampler's state, and in the end why it ended. Changed only by the engine.
class Sequence {
 public:
  Sequence(Request request, const text::Vocab& vocab, const LookupOptions& lookup = {});

  const Request& request() const { return request_; }
  std::span<const text::TokenId> prompt() const { return std::span(tokens_).first(request_.prompt.size()); }
  // Without the stop token that ended it.
  std::span<const text::TokenId> generated() const { return std::span(tokens_).subspan(request_.prompt.size()); }
  std::span<const text::TokenId> tokens() const { return tokens_; }
  uint32_t processed() const { return processed_; }  // tokens whose keys and values are in the cache

  Ending ending() const { return ending_; }
  bool ended() const { return ending_ != Ending::kNone; }
  text::TokenId stop_token() const { return stop_token_; }  // -1 unless the ending is kStopToken

  // Of the prompt: how many tokens an earlier sequence in the same cache shared, and how many of these did not have to
  // be run again. Fewer when the sliding window of the place where they part was already overwritten.
  uint32_t prefix_shared() const { return prefix_shared_; }
  uint32_t prefix_reused() const { return prefix_reused_; }

  // Wall time of the passes that took part of the prompt, and of those that went on from generated tokens: with what
  // was done meanwhile, where passes run in the background. How many of the latter there were, and how many tokens they
  // chose: one each, and the accepted ones of a draft.
  double prompt_seconds() const { return prompt_seconds_; }
  double decode_seconds() const { return decode_seconds_; }
  uint32_t decode_passes() const { return decode_passes_; }
  uint32_t decode_tokens() const { return decode_tokens_; }
  const LookupFigures& lookup() const { return lookup_; }

 private:
  friend class Engine;

  uint32_t pending() const { return static_cast<uint32_t>(tokens_.size()) - processed_; }
  bool in_prompt() const { return processed_ < request_.prompt.size(); }
  bool wants_token() const { return request_.max_tokens > 0; }
  // The guide's token or the sampler's choice from an output of the pass just run.
  text::TokenId choose(exec::Executor& executor, uint32_t output);
  // Takes the choice; returns true when it is a token to hand out, false when it is a stop.
  bool append(text::TokenId token, bool is_stop, uint32_t context);

  // Notes the first `tokens` tokens for later drafts. Nothing without lookup.
  void index(uint32_t tokens);
  // Drafts what may follow the last token: no more than the answer and the context have room for, and nothing that
  // comes after a stop.
  void make_draft(const text::Vocab& vocab, uint32_t most, uint32_t context);

  Request request_;
  Sampler sampler_;
  std::vector<text::TokenId> tokens_;  // prompt and generated
  uint32_t processed_ = 0;
  Ending ending_ = Ending::kNone;
  text::TokenId stop_token_ = -1;
  uint32_t prefix_shared_ = 0;
  uint32_t prefix_reused_ = 0;
  double prompt_seconds_ = 0.0;
  double decode_seconds_ = 0.0;
  uint32_t decode_passes_ = 0;
  uint32_t decode_tokens_ = 0;

  std::optional<NgramIndex> index_;   // none without lookup
  std::vector<text::TokenId> draft_;  // of the pass being built; some or all of it are run
  DraftAcceptance acceptance_;
  LookupFigures lookup_;
};

}  // namespace carat::engine
