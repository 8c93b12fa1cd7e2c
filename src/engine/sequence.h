#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/cache/prefix_tree.h"
#include "engine/drafts/draft_governor.h"
#include "engine/drafts/draft_options.h"
#include "engine/drafts/ngram_index.h"
#include "engine/failure.h"
#include "engine/guides/guide.h"
#include "engine/sampling/sampler.h"
#include "text/tokenizer/vocab.h"

namespace carat::engine {

// Why a sequence got no more tokens.
enum class Ending {
  kNone,         // it is still waiting or running
  kStopToken,    // the model said it is done
  kLength,       // max_tokens were generated
  kContextFull,  // the context holds no further position
  kCancelled,    // its caller ended it, and nothing else
  kInterrupted,  // everything was ended at once
  kFailed,       // Sequence::failure() says why
};
inline constexpr size_t kEndings = 7;
std::string_view ending_name(Ending ending);  // in words, for people

// A position of a prompt that later prompts will go on from.
struct ResumePoint {
  uint32_t position = 0;
  MarkKind kind = MarkKind::kTurn;
};

struct Request {
  static constexpr uint32_t kUnlimited = std::numeric_limits<uint32_t>::max();

  std::vector<text::TokenId> prompt;
  uint32_t max_tokens = kUnlimited;        // 0: only fills the cache with the prompt
  bool ignore_stops = false;               // stop tokens are handed out like any other
  std::vector<text::TokenId> stop_tokens;  // that end this request besides those of the vocabulary
  SamplingOptions sampling;
  std::shared_ptr<Guide> guide;  // null: the model is free
  // How many of the most probable tokens are told with every token, with their log-probabilities and that of the token
  // itself; 0: only the latter. None: nothing is told.
  std::optional<uint32_t> logprobs;
  bool cache_prompt = true;  // false: nothing that is cached is reused for this prompt; it is kept all the same
  // A prompt shares what is cached with requests of the same salt only, so that tenants cannot find out by the time
  // what others have asked.
  std::string cache_salt = {};
  std::vector<ResumePoint> resume_points = {};  // in any order; those beyond the prompt mean nothing
  // Whose turn it is (scheduling/queue_order.h): lower priorities first, and clients get the same share each.
  int32_t priority = 0;
  std::string client = {};
};

// What drafts did for a sequence.
struct DraftFigures {
  uint32_t drafted = 0;   // tokens that were run before they were chosen
  uint32_t accepted = 0;  // of them, those that were chosen
};

// What a request was and took, in numbers.
struct SequenceFigures {
  uint32_t prompt_tokens = 0;
  uint32_t prefix_shared = 0;  // of the prompt: as of the accessors of a sequence, like all that follows
  uint32_t prefix_reused = 0;
  PrefixLoss prefix_loss = PrefixLoss::kNone;
  uint32_t generated = 0;
  uint32_t processed = 0;
  uint32_t decode_passes = 0;
  uint32_t decode_tokens = 0;
  double queue_seconds = 0.0;
  double prompt_seconds = 0.0;
  double decode_seconds = 0.0;
  double mask_seconds = 0.0;
  DraftFigures drafts;
};

// One request on its way: its tokens, the sampler's state, and in the end why it ended. Changed only by the engine.
class Sequence {
 public:
  // Throws kBadArgument when a sampling option is out of range.
  Sequence(Request request, const text::Vocab& vocab);

  const Request& request() const { return request_; }
  std::span<const text::TokenId> prompt() const { return std::span(tokens_).first(request_.prompt.size()); }
  // Without the stop token that ended it.
  std::span<const text::TokenId> generated() const { return std::span(tokens_).subspan(request_.prompt.size()); }
  std::span<const text::TokenId> tokens() const { return tokens_; }
  uint32_t processed() const { return processed_; }  // tokens whose keys and values are in the cache

  bool has_started() const { return has_started_; }  // it got a slot of the executor

  Ending ending() const { return ending_; }
  bool ended() const { return ending_ != Ending::kNone; }
  const std::optional<Failure>& failure() const { return failure_; }  // there is one where the ending is kFailed
  text::TokenId stop_token() const { return stop_token_; }            // -1 unless the ending is kStopToken

  // Of the prompt: how many tokens were known from earlier sequences, how many of these did not have to be run again,
  // and why they are fewer.
  uint32_t prefix_shared() const { return prefix_shared_; }
  uint32_t prefix_reused() const { return prefix_reused_; }
  PrefixLoss prefix_loss() const { return prefix_loss_; }

  double queue_seconds() const { return queue_seconds_; }  // from submission until it got a slot of the executor
  // Wall time of the passes that took part of the prompt, and of those that went on from generated tokens: with what
  // was done meanwhile, where passes run in the background. How many of the latter there were, and how many tokens they
  // chose: one each, and the accepted ones of a draft.
  double prompt_seconds() const { return prompt_seconds_; }
  double decode_seconds() const { return decode_seconds_; }
  uint32_t decode_passes() const { return decode_passes_; }
  uint32_t decode_tokens() const { return decode_tokens_; }
  // Of these times, what the guide took to say what is allowed.
  double mask_seconds() const { return mask_seconds_; }
  const DraftFigures& drafts() const { return drafts_; }
  SequenceFigures figures() const;

 private:
  friend class Engine;

  uint32_t pending() const { return static_cast<uint32_t>(tokens_.size()) - processed_; }
  // More is to be run than the token that was chosen last: the prompt, or what was given up for want of memory.
  bool is_reading() const { return processed_ < request_.prompt.size() || pending() > 1; }
  bool wants_token() const { return request_.max_tokens > 0; }
  // The guide's token or the sampler's choice from an output of the pass just run.
  text::TokenId choose(exec::Executor& executor, uint32_t output, const std::function<double()>& clock);
  bool is_stop(text::TokenId token, const text::Vocab& vocab) const;
  // Takes the choice; returns true when it is a token to hand out, false when it is a stop.
  bool append(text::TokenId token, const text::Vocab& vocab, uint32_t context);

  void end(Ending ending) { ending_ = ending; }
  void fail(Failure failure);
  // Before the first pass: drafts are made from now on.
  void draft_from_ngrams(const DraftOptions& options);
  // Notes the first `tokens` tokens for later drafts. Nothing without n-gram drafts.
  void index(uint32_t tokens);
  // Drafts what may follow the last token: no more than the answer and the context have room for, and nothing that
  // comes after a stop.
  void make_draft(const text::Vocab& vocab, uint32_t most, uint32_t context);

  Request request_;
  Sampler sampler_;
  std::vector<text::TokenId> tokens_;  // prompt and generated
  uint32_t processed_ = 0;
  bool is_paused_ = false;
  bool has_started_ = false;
  Ending ending_ = Ending::kNone;
  std::optional<Failure> failure_;
  text::TokenId stop_token_ = -1;
  uint32_t prefix_shared_ = 0;
  uint32_t prefix_reused_ = 0;
  PrefixLoss prefix_loss_ = PrefixLoss::kNone;
  double queue_seconds_ = 0.0;
  double prompt_seconds_ = 0.0;
  double decode_seconds_ = 0.0;
  uint32_t decode_passes_ = 0;
  uint32_t decode_tokens_ = 0;
  double mask_seconds_ = 0.0;

  std::optional<NgramIndex> index_;   // none without n-gram drafts
  std::vector<text::TokenId> draft_;  // of the pass being built; some or all of it are run
  DraftAcceptance acceptance_;
  DraftFigures drafts_;
};

}  // namespace carat::engine
