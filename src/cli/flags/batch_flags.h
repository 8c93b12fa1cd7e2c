#pragma once

#include <CLI/CLI.hpp>

#include <string>

#include "cli/flags/answer_flags.h"
#include "cli/flags/draft_flags.h"
#include "cli/flags/model_flags.h"
#include "cli/flags/sampling_flags.h"

namespace carat::cli {

// Everything `carat batch` takes.
struct BatchFlags {
  std::string input, output;
  std::string errors;  // empty: beside the output
  std::string shard = "1/1";
  ModelFlags model;
  DeviceFlags device;
  SizeFlags size;
  SamplingFlags sampling;
  DraftFlags drafts;
  AnswerFlags answers;

  BatchFlags();
  void add_to(CLI::App& command);
};

}  // namespace carat::cli
