#include "server/service/turn_maker.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "server/api/api_error.h"
#include "text/grammar/compiled_grammar.h"
#include "text/grammar/regex.h"

namespace carat::server {

namespace {

using text::grammar::Grammar;

constexpr std::string_view kAnyObject = R"({"type":"object"})";  // JSON mode

// A double of the request as the engine's options hold it.
void set(float& option, const std::optional<double>& wish) {
  if (wish) option = static_cast<float>(*wish);
}

std::string gbnf_literal(std::string_view text) {
  std::string literal = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      literal += '\\';
      literal += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      literal += fmt::format("\\x{:02x}", byte);
    } else {
      literal += c;
    }
  }
  return literal + "\"";
}

std::string gbnf_of_choices(const std::vector<std::string>& choices) {
  std::string source = "root ::= ";
  for (const std::string& choice : choices) source += (source.back() == ' ' ? "" : " | ") + gbnf_literal(choice);
  return source;
}

bool is_strict(const text::Tool& tool) {
  const auto json = nlohmann::json::parse(tool.json);
  const auto& function = json.contains("function") ? json["function"] : json;
  return function.contains("strict") && function["strict"] == true;
}

// The same tool, with any arguments.
text::Tool without_schema(const text::Tool& tool) {
  const nlohmann::json any = {{"type", "object"}, {"additionalProperties", true}};
  const nlohmann::json json = {{"type", "function"}, {"function", {{"name", tool.name}, {"parameters", any}}}};
  return {tool.name, json.dump()};
}

}  // namespace

TurnMaker::TurnMaker(std::shared_ptr<const PromptMaker> prompts, std::shared_ptr<GrammarStore> grammars,
                     TurnDefaults defaults)
    : prompts_(std::move(prompts)), grammars_(std::move(grammars)), defaults_(std::move(defaults)) {}

PreparedTurns TurnMaker::prepare(const GenerationRequest& request) const {
  if (request.choices > defaults_.max_choices) {
    refuse("n", "n is {}; this server gives at most {} answers to a prompt (--max-n)", request.choices,
           defaults_.max_choices);
  }
  PreparedTurns turns;
  turns.notes = request.notes;
  engine::TurnOptions& options = turns.options;
  options.sampling = sampling(request.sampling);
  turns.has_seed = request.sampling.seed.has_value();
  options.max_tokens = request.max_tokens.value_or(defaults_.max_tokens.value_or(engine::Request::kUnlimited));
  options.min_tokens = request.min_tokens;
  options.ignore_stops = request.ignore_eos;
  options.loop_guard = defaults_.loop_guard && !request.ignore_eos;
  options.stops = request.stops;
  options.stop_tokens = request.stop_tokens;
  options.is_raw = !request.conversation.has_value();
  options.may_think = request.conversation && prompts_->thinks(request);
  if (request.logprobs.wanted) options.logprobs = request.logprobs.top;
  if (request.conversation && prompts_->thinks(request)) {
    options.think_budget = request.thinking.budget ? request.thinking.budget : defaults_.think_budget;
    options.can_end_thoughts = request.stream;
  }
  add_grammar(request, turns);
  if (request.conversation) add_calls(request, turns);
  turns.prompts = prompts_->prompts(request);
  return turns;
}

engine::SamplingOptions TurnMaker::sampling(const SamplingWishes& wishes) const {
  engine::SamplingOptions options = defaults_.sampling;
  set(options.temperature, wishes.temperature);
  set(options.top_p, wishes.top_p);
  set(options.min_p, wishes.min_p);
  set(options.repeat_penalty, wishes.repeat_penalty);
  set(options.presence_penalty, wishes.presence_penalty);
  set(options.frequency_penalty, wishes.frequency_penalty);
  if (wishes.top_k) options.top_k = *wishes.top_k;
  if (wishes.repeat_last_n) options.repeat_last_n = *wishes.repeat_last_n;
  if (wishes.seed) options.seed = *wishes.seed;
  const auto vocabulary = static_cast<uint32_t>(prompts_->vocab()->size());
  for (const auto& [what, bias] : wishes.bias) {
    if (const auto* token = std::get_if<text::TokenId>(&what)) {
      if (!prompts_->vocab()->contains(*token)) {
        refuse("logit_bias", "logit_bias has the token {}; ids go from 0 to {}", *token, vocabulary - 1);
      }
      options.bias.push_back({*token, bias});
      continue;
    }
    for (const text::TokenId token : prompts_->tokenizer().encode(std::get<std::string>(what))) {
      options.bias.push_back({token, bias});
    }
  }
  try {
    options.check(vocabulary);
  } catch (const Error& error) {
    refuse("", "{}", error.what());
  }
  return options;
}

void TurnMaker::add_grammar(const GenerationRequest& request, PreparedTurns& turns) const {
  const AnswerFormat& format = request.format;
  if (format.kind == AnswerFormat::Kind::kText) return;
  if (request.ignore_eos) {
    refuse(format.param, "ignore_eos goes on after a complete answer, which {} forbids", format.param);
  }
  const auto json_schema = [&](std::string_view source) {
    return text::grammar::grammar_from_json_schema(source, defaults_.json_style);
  };
  const auto compile = [&](std::string_view kind, std::string_view source,
                           const std::function<Grammar(std::string_view)>& make) {
    try {
      turns.options.grammar = grammars_->grammar(kind, source, make);
    } catch (const Error& error) {
      refuse(format.param, "{}: {}", format.param, error.what());
    }
  };
  switch (format.kind) {
    case AnswerFormat::Kind::kText:
      return;
    case AnswerFormat::Kind::kJsonObject:
      return compile("schema", kAnyObject, json_schema);
    case AnswerFormat::Kind::kJsonSchema:
      compile(defaults_.json_style == text::grammar::JsonStyle::kFree ? "schema" : "schema in order", format.source,
              json_schema);
      for (const std::string& note : turns.options.grammar->notes()) {
        turns.notes.push_back(fmt::format("{}: {}", format.param, note));
      }
      return;
    case AnswerFormat::Kind::kGbnf:
      return compile("gbnf", format.source, text::grammar::parse_gbnf);
    case AnswerFormat::Kind::kChoice:
      return compile("gbnf", gbnf_of_choices(format.choices), text::grammar::parse_gbnf);
    case AnswerFormat::Kind::kRegex:
      return compile("regex", format.source, text::grammar::grammar_from_regex);
  }
}

void TurnMaker::add_calls(const GenerationRequest& request, PreparedTurns& turns) const {
  const ToolChoice& choice = request.tool_choice;
  const std::vector<text::Tool>& tools = request.conversation->tools;
  engine::CallRules& rules = turns.options.calls;
  if (tools.empty()) return;
  rules.is_parallel = choice.is_parallel;
  if (choice.mode == ToolChoice::Mode::kNone) {
    rules.mode = engine::CallRules::Mode::kForbidden;
    return;
  }
  const bool is_required = choice.mode == ToolChoice::Mode::kRequired;
  if (is_required) rules.mode = engine::CallRules::Mode::kRequired;
  std::vector<const text::Tool*> allowed;
  bool is_held = is_required || !choice.allowed.empty();
  for (const text::Tool& tool : tools) {
    const auto& names = choice.allowed;
    if (!names.empty() && std::find(names.begin(), names.end(), tool.name) == names.end()) continue;
    allowed.push_back(&tool);
    is_held = is_held || is_strict(tool);
  }
  // Where nobody asks for it, calls are whatever the model writes: a grammar beside every token is not free.
  if (!is_held) return;
  for (const text::Tool* tool : allowed) {
    const bool is_enforced = is_required || !choice.allowed.empty() || is_strict(*tool);
    const auto callable = grammars_->tool(is_enforced ? *tool : without_schema(*tool));
    if (!callable->problem.empty()) {
      turns.notes.push_back(fmt::format("tools: the schema of {} is not enforced: {}", tool->name, callable->problem));
    } else if (is_enforced && callable->arguments) {
      for (const std::string& note : callable->arguments->notes()) {
        turns.notes.push_back(fmt::format("tools: {}: {}", tool->name, note));
      }
    }
    if (callable->arguments) rules.tools.push_back(*callable);
  }
  if (rules.tools.empty())
    refuse("tools", "tools: none of the functions that may be called has a name that a call can have");
}

uint64_t seed_of(const PreparedTurns& turns, uint32_t index) {
  if (turns.has_seed) return turns.options.sampling.seed + index;
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace carat::server
