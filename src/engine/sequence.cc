#include "engine/sequence.h"

#include <algorithm>

namespace carat::engine {

std::string_view ending_name(Ending ending) {
  switch (ending) {
    case Ending::kNone:
      return "running";
    case Ending::kStopToken:
      return "complete";
    case Ending::kLength:
      return "token limit reached";
    case Ending::kContextFull:
      return "context full";
    case Ending::kCancelled:
      return "cancelled";
    case Ending::kInterrupted:
      return "interrupted";
    case Ending::kFailed:
      return "failed";
  }
  return "unknown";
}

Sequence::Sequence(Request request, const text::Vocab& vocab)
    : request_(std::move(request)),
      sampler_(request_.sampling, static_cast<uint32_t>(vocab.size()), vocab.suppressed()),
      tokens_(request_.prompt) {
  sampler_.accept(tokens_);
}

SequenceFigures Sequence::figures() const {
  return {.prompt_tokens = static_cast<uint32_t>(request_.prompt.size()),
          .prefix_shared = prefix_shared_,
          .prefix_reused = prefix_reused_,
          .prefix_loss = prefix_loss_,
          .generated = static_cast<uint32_t>(generated().size()),
          .processed = processed_,
          .decode_passes = decode_passes_,
          .decode_tokens = decode_tokens_,
          .queue_seconds = queue_seconds_,
          .prompt_seconds = prompt_seconds_,
          .decode_seconds = decode_seconds_,
          .mask_seconds = mask_seconds_,
          .drafts = drafts_};
}

void Sequence::fail(Failure failure) {
  ending_ = Ending::kFailed;
  failure_ = std::move(failure);
}

void Sequence::draft_from_ngrams(const DraftOptions& options) {
  if (options.mode != DraftMode::kOff && wants_token()) {
    index_.emplace(DraftOptions::kShortestNgram, options.max_ngram);
  }
}

void Sequence::index(uint32_t tokens) {
  if (index_ && tokens > index_->indexed()) index_->extend(std::span(tokens_).first(tokens));
}

void Sequence::make_draft(const text::Vocab& vocab, uint32_t most, uint32_t context) {
  draft_.clear();
  if (!index_) return;
  index(static_cast<uint32_t>(tokens_.size()));
  const auto match = index_->match();
  if (!match) return;
  // The pass itself gives one token; the last one of an answer or of the context is never run.
  const size_t room = std::min<size_t>(request_.max_tokens - generated().size() - 1, context - tokens_.size());
  draft_from(tokens_, *match, static_cast<uint32_t>(std::min<size_t>(most, room)), draft_);
  draft_.erase(std::find_if(draft_.begin(), draft_.end(), [&](text::TokenId token) { return is_stop(token, vocab); }),
               draft_.end());
}

text::TokenId Sequence::choose(exec::Executor& executor, uint32_t output, const std::function<double()>& clock) {
  const uint64_t draw = generated().size();
  Guide* guide = request_.guide.get();
  if (guide == nullptr) return sampler_.sample(executor, output, draw);
  const std::optional<text::TokenId> forced = guide->forced();
  text::TokenId token = forced.value_or(-1);
  if (!forced) {
    const double start = clock();
    const std::span<const uint64_t> allowed = guide->allowed();
    mask_seconds_ += clock() - start;
    token = sampler_.sample(executor, output, draw, allowed);
  }
  guide->accept(token);
  return token;
}

bool Sequence::is_stop(text::TokenId token, const text::Vocab& vocab) const {
  const auto& own = request_.stop_tokens;
  return (vocab.is_stop(token) && !request_.ignore_stops) || std::find(own.begin(), own.end(), token) != own.end();
}

bool Sequence::append(text::TokenId token, const text::Vocab& vocab, uint32_t context) {
  if (is_stop(token, vocab)) {
    stop_token_ = token;
    ending_ = Ending::kStopToken;
    return false;
  }
  tokens_.push_back(token);
  sampler_.accept(token);
  if (generated().size() >= request_.max_tokens) {
    ending_ = Ending::kLength;
  } else if (tokens_.size() > context) {  // the new token has no position to be run at
    ending_ = Ending::kContextFull;
  }
  return true;
}

}  // namespace carat::engine
