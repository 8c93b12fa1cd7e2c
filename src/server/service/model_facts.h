#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/api/facts.h"
#include "server/service/turn_maker.h"
#include "text/chat/chat_template.h"

namespace carat::server {

// What is not in the model's file.
struct FactsOptions {
  std::string version = {};               // of carat
  std::vector<std::string> aliases = {};  // the first one is what the model is called; none: its file's name
  bool thinks = false;
};

// What answers tell about the model that `engine` runs.
ServerFacts facts_of(const engine::Engine& engine, const text::ChatTemplate& chat_template,
                     const TurnDefaults& defaults, const FactsOptions& options);

}  // namespace carat::server
