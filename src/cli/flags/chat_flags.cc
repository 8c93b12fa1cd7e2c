#include "cli/flags/chat_flags.h"

#include <utility>

#include "base/error.h"
#include "cli/flags/engine_flags.h"
#include "cli/interrupts.h"
#include "cli/terminal.h"
#include "cli/view/thought_view.h"
#include "runtime/model_loader.h"
#include "text/chat/conversation_json.h"
#include "text/grammar/compiled_grammar.h"
#include "text/grammar/grammar.h"
#include "text/grammar/schema/json_schema.h"

namespace carat::cli {

namespace {

// The text of a grammar or schema says in its errors what is wrong; the flag and the file are added here.
template <typename Read>
auto read_named(std::string_view flag, const std::string& path, Read read) {
  const std::string source = read_text_file(path);
  try {
    return read(source);
  } catch (const Error& error) {
    fail(error.code(), "{} {}: {}", flag, path, error.what());
  }
}

std::shared_ptr<const text::grammar::CompiledGrammar> make_grammar(const ChatFlags& flags,
                                                                   const std::shared_ptr<const text::Vocab>& vocab) {
  if (!flags.json_schema.empty() && !flags.grammar.empty()) {
    fail(ErrorCode::kBadArgument, "give either --json-schema or --grammar, not both");
  }
  if (!flags.json_schema.empty()) {
    return read_named("--json-schema", flags.json_schema, [&](const std::string& source) {
      const auto style = text::grammar::parse_json_style(flags.json_style, "--json-style");
      return text::grammar::compile(text::grammar::grammar_from_json_schema(source, style), vocab);
    });
  }
  if (!flags.grammar.empty()) {
    return read_named("--grammar", flags.grammar, [&](const std::string& source) {
      return text::grammar::compile(text::grammar::parse_gbnf(source), vocab);
    });
  }
  return nullptr;
}

engine::TurnOptions turn_options(const ChatFlags& flags, const runtime::LoadedModel& loaded) {
  engine::TurnOptions options;
  if (flags.max_tokens < -1 || flags.max_tokens >= int64_t{engine::Request::kUnlimited}) {
    fail(ErrorCode::kBadArgument, "-n {}: give a number of tokens, or -1 for no limit", flags.max_tokens);
  }
  if (flags.max_tokens >= 0) options.max_tokens = static_cast<uint32_t>(flags.max_tokens);
  options.ignore_stops = flags.ignore_stops;
  options.sampling = flags.sampling.options(loaded.model->config());
  options.think_budget = flags.think_budget;
  options.loop_guard = !flags.no_loop_guard;
  options.grammar = make_grammar(flags, loaded.vocab);
  if (options.grammar && flags.ignore_stops) {
    fail(ErrorCode::kBadArgument, "--ignore-eos goes on after a complete answer, which a grammar or schema forbids");
  }
  return options;
}

}  // namespace

text::ChatTemplate::Choice parse_template_choice(const std::string& text) {
  if (text == "auto") return text::ChatTemplate::Choice::kAuto;
  if (text == "embedded") return text::ChatTemplate::Choice::kEmbedded;
  if (text == "builtin") return text::ChatTemplate::Choice::kBuiltIn;
  fail(ErrorCode::kBadArgument, "--chat-template {}: known are auto, embedded (the file's own) and builtin", text);
}

void ChatFlags::add_to(CLI::App& command) {
  model.add_to(command);
  command.add_option("-n,--predict", max_tokens, "most tokens to generate in one answer; -1: until the model ends")
      ->capture_default_str();
  command.add_option("--system", system, "system instructions of the conversation");
  command.add_flag("--think", think, "let the model think first");
  command.add_option("--think-budget", think_budget, "most tokens to think before the answer; implies --think");
  command
      .add_option("--show-thinking", show_thinking,
                  "thoughts as they come, dimmed; only how long they took; or nothing")
      ->type_name("full|summary|none")
      ->capture_default_str();
  command.add_option("--tools", tools, "functions the model may call: a JSON file in the OpenAI schema")
      ->type_name("FILE");
  command
      .add_option("--tool-exec", tool_exec,
                  "program that carries out a call, which gets the function's name as its last argument and the "
                  "arguments as JSON on standard input")
      ->type_name("CMD");
  command.add_flag("--yes", tool_yes, "carry out calls without asking");
  command.add_option("--tool-timeout", tool_timeout, "seconds a call may take")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 86400.0));
  command.add_option("--json-schema", json_schema, "the answer is JSON that is valid under the schema in this file")
      ->type_name("FILE");
  command
      .add_option("--json-style", json_style,
                  "under a JSON schema: members in any order, or in the schema's order and no others")
      ->type_name("free|schema")
      ->capture_default_str();
  command.add_option("--grammar", grammar, "the answer matches the GBNF grammar in this file")->type_name("FILE");
  command.add_flag("--no-loop-guard", no_loop_guard, "do not stop an answer that repeats itself");
  command.add_flag("--ignore-eos", ignore_stops, "go on after stop tokens");
  command
      .add_option("--overflow", overflow,
                  "when the conversation exceeds the context: refuse the turn, or leave out the oldest ones")
      ->type_name("error|shift")
      ->capture_default_str();
  command.add_option("--chat-template", chat_template, "the file's own, the built-in one, or whichever is right")
      ->type_name("auto|embedded|builtin")
      ->capture_default_str();
  size.add_to(command);
  device.add_to(command);
  sampling.add_to(command);
  drafts.add_to(command);
}

chat::ChatSession ChatFlags::open(const Logger& log) const {
  parse_show_thinking(show_thinking);
  chat::ChatSession::Options options;
  options.overflow = chat::parse_overflow(overflow);
  const auto choice = parse_template_choice(chat_template);
  if (!tool_exec.empty() && tools.empty()) {
    fail(ErrorCode::kBadArgument, "--tool-exec carries out calls, but no functions are offered: give --tools FILE");
  }
  std::vector<text::Tool> offered;
  if (!tools.empty()) offered = text::parse_tools(read_text_file(tools), tools);

  const runtime::LoadedModel loaded = runtime::load_model(model.resolved_path());
  text::ChatTemplate chat = text::ChatTemplate::from_vocab(*loaded.vocab, loaded.model->config().is_large(), choice);
  if (!chat.warning().empty()) log->warn("{}", chat.warning());
  log->info("chat format: {}", chat.description());
  options.turn = turn_options(*this, loaded);
  options.thinking = think || think_budget;
  if (const std::string warning = loaded.model->config().sampling.warning(); !warning.empty()) log->warn("{}", warning);
  const engine::SamplingOptions& chosen = options.turn.sampling;
  log->info("seed {}, temperature {}, top-k {}, top-p {}, min-p {}", chosen.seed, chosen.temperature, chosen.top_k,
            chosen.top_p, chosen.min_p);
  exec::ExecutorOptions executor;
  executor.log = log;
  executor.cancelled = &interrupted();
  ProgressLine line;
  engine::Engine engine = EngineFlags{size, device, drafts}.make(loaded, executor, {}, loading_progress(line), log);
  line.clear();
  chat::ChatSession session(std::make_shared<engine::Runner>(std::move(engine)), std::move(chat), std::move(options));
  if (!system.empty()) session.set_system(system);
  if (!offered.empty()) session.set_tools(std::move(offered));
  return session;
}

}  // namespace carat::cli
