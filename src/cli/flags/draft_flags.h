#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>

#include "engine/drafts/draft_options.h"
#include "exec/executor.h"

namespace carat::cli {

// Drafts from n-grams (prompt lookup): of what comes next from what the text says already (docs/speculation.md).
struct DraftFlags {
  // Empty: auto, where a text cannot depend on it. Elsewhere a row's logits differ in their last bits with the rows
  // beside it, and what auto does depends on the time passes take: the text of a seed would not be the same twice.
  std::string mode;
  uint32_t max_ngram = engine::DraftOptions{}.max_ngram;
  uint32_t max_draft = engine::DraftOptions{}.max_draft;

  void add_to(CLI::App& command);
  // Makes room for the logits of drafted rows. Throws kBadArgument on a flag that is out of range.
  void apply(exec::ExecutorOptions& options) const;
  // For an engine with this executor; says in the log what was chosen.
  engine::DraftOptions options(const exec::Executor& executor, const Logger& log) const;
};

}  // namespace carat::cli
