#include "engine/lookup_options.h"

#include "base/error.h"

namespace carat::engine {

LookupMode parse_lookup_mode(std::string_view name) {
  if (name == "auto") return LookupMode::kAuto;
  if (name == "on") return LookupMode::kOn;
  if (name == "off") return LookupMode::kOff;
  fail(ErrorCode::kBadArgument, "--lookup {}: known are auto (while it pays), on and off", name);
}

void LookupOptions::check() const {
  if (max_ngram < kShortestNgram || max_ngram > kLongestNgram) {
    fail(ErrorCode::kBadArgument, "--lookup-ngram {}: give {} to {} tokens", max_ngram, kShortestNgram, kLongestNgram);
  }
  if (max_draft < 1 || max_draft > kLongestDraft) {
    fail(ErrorCode::kBadArgument, "--lookup-draft {}: give 1 to {} tokens", max_draft, kLongestDraft);
  }
}

}  // namespace carat::engine
