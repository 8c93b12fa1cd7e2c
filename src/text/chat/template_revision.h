#pragma once

namespace carat::text {

// The revisions of the official template that files in the wild embed (docs/gemma4.md 5.7).
enum class TemplateRevision {
  kLaunch = 1,        // 2 April 2026: no folding of tool messages, no newline after <|think|>
  kApril = 2,         // 10 April to May: what llama.cpp bundles
  kCanonical = 3,     // 9 July, "canonical": the one carat uses where it has the choice
  kEmptyThoughts = 4  // of the 12B: as 3, with the empty thought block on earlier model turns too
};

}  // namespace carat::text
