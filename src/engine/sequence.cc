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
    case Ending::kInterrupted:
      return "interrupted";
    case Ending::kFailed:
      return "failed";
  }
  return "unknown";
}

Sequence::Sequence(Request request, const text::Vocab& vocab, const LookupOptions& lookup)
    : request_(std::move(request)),
      sampler_(request_.sampling, static_cast<uint32_t>(vocab.size()), vocab.suppressed()),
      tokens_(request_.prompt) {
  sampler_.accept(tokens_);
  if (lookup.mode != LookupMode::kOff && wants_token()) {
    index_.emplace(LookupOptions::kShortestNgram, lookup.max_ngram);
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
  if (request_.ignore_stops) return;
  draft_.erase(std::find_if(draft_.begin(), draft_.end(), [&](text::TokenId token) { return vocab.is_stop(token); }),
               draft_.end());
}

text::TokenId Sequence::choose(exec::Executor& executor, uint32_t output) {
  const uint64_t draw = generated().size();
  Guide* guide = request_.guide.get();
  if (guide == nullptr) return sampler_.sample(executor, output, draw);
  const std::optional<text::TokenId> forced = guide->forced();
  const text::TokenId token = forced ? *forced : sampler_.sample(executor, output, draw, guide->allowed());
  guide->accept(token);
  return token;
}

bool Sequence::append(text::TokenId token, bool is_stop, uint32_t context) {
  if (is_stop && !request_.ignore_stops) {
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
