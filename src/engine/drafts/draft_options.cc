#include "engine/drafts/draft_options.h"

#include "base/error.h"

namespace carat::engine {

DraftMode parse_draft_mode(std::string_view name) {
  if (name == "auto") return DraftMode::kAuto;
  if (name == "on") return DraftMode::kOn;
  if (name == "off") return DraftMode::kOff;
  fail(ErrorCode::kBadArgument, "--lookup {}: known are auto (while it pays), on and off", name);
}

void DraftOptions::check() const {
  if (max_ngram < kShortestNgram || max_ngram > kLongestNgram) {
    fail(ErrorCode::kBadArgument, "--lookup-ngram {}: give {} to {} tokens", max_ngram, kShortestNgram, kLongestNgram);
  }
  if (max_draft < 1 || max_draft > kLongestDraft) {
    fail(ErrorCode::kBadArgument, "--lookup-draft {}: give 1 to {} tokens", max_draft, kLongestDraft);
  }
}

}  // namespace carat::engine
