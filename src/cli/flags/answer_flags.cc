#include "cli/flags/answer_flags.h"

#include "base/error.h"
#include "engine/engine.h"
#include "text/grammar/schema/json_schema.h"

namespace carat::cli {

void AnswerFlags::add_to(CLI::App& command) {
  command
      .add_option("--np,--parallel", parallel, "(-np) requests that run at the same time, each with a whole context")
      ->check(CLI::Range(1u, 1024u))
      ->capture_default_str();
  command
      .add_option("--cache-tokens", cache_tokens,
                  "tokens that the cache holds of all requests and of what is kept for later ones; 0: as many as -np "
                  "requests of -c tokens have")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 40))
      ->capture_default_str();
  command.add_option("--max-n", max_n, "most answers to one prompt")
      ->check(CLI::Range(1u, 128u))
      ->capture_default_str();
  command
      .add_option("-n,--predict", max_tokens,
                  "most tokens of an answer whose request does not say; -1: as much as the context holds")
      ->capture_default_str();
  command.add_flag("--think", think, "let the model think first where a request does not say");
  command.add_option("--think-budget", think_budget, "most tokens to think where a request does not say");
  command
      .add_option("--json-style", json_style,
                  "under a JSON schema: members in any order, or in the schema's order and no others")
      ->type_name("free|schema")
      ->capture_default_str();
  command.add_flag("--no-loop-guard", no_loop_guard, "do not stop an answer that repeats itself");
  command.add_option("--chat-template", chat_template, "the file's own, the built-in one, or whichever is right")
      ->type_name("auto|embedded|builtin")
      ->capture_default_str();
}

server::TurnDefaults AnswerFlags::turn_defaults(const SamplingFlags& sampling, const model::Config& config) const {
  server::TurnDefaults defaults;
  defaults.sampling = sampling.options(config);
  if (max_tokens < -1 || max_tokens >= int64_t{engine::Request::kUnlimited}) {
    fail(ErrorCode::kBadArgument, "-n {}: give a number of tokens, or -1 for no limit", max_tokens);
  }
  if (max_tokens >= 0) defaults.max_tokens = static_cast<uint32_t>(max_tokens);
  defaults.think_budget = think_budget;
  defaults.loop_guard = !no_loop_guard;
  defaults.json_style = text::grammar::parse_json_style(json_style, "--json-style");
  defaults.max_choices = max_n;
  return defaults;
}

}  // namespace carat::cli
