#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cli/answer_stream.h"
#include "cli/commands.h"
#include "cli/interrupts.h"
#include "cli/model_flags.h"
#include "cli/sampling_flags.h"
#include "cli/terminal.h"
#include "engine/engine.h"
#include "text/chat_format.h"
#include "text/tokenizer.h"

namespace carat::cli {

namespace {

struct RunFlags {
  ModelFlags model;
  DeviceFlags device;
  SizeFlags size;
  SamplingFlags sampling;
  std::string prompt;
  std::string prompt_file;
  bool has_prompt = false;
  int64_t max_tokens = -1;
  bool raw = false;
  bool think = false;
  bool ignore_eos = false;
  std::string system;
};

constexpr std::string_view kDim = "\033[2m";
constexpr std::string_view kPlain = "\033[0m";

double per_second(uint64_t count, double seconds) { return seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0; }

// Whether the model's own template prompts with an empty, closed thought block when thinking is off; where the file has
// no template, the models without per-layer embeddings do (spec 5.2).
bool prompts_with_empty_thought(const text::Vocab& vocab, const model::Config& config) {
  const std::string_view source = vocab.chat_template();
  if (source.empty()) return config.P == 0;
  return source.find("<|channel>thought\\n<channel|>") != std::string_view::npos ||
         source.find("<|channel>thought\n<channel|>") != std::string_view::npos;
}

// One model, one conversation.
class Session {
 public:
  explicit Session(const RunFlags& flags)
      : flags_(flags),
        log_(make_logger(flags.model.verbose)),
        loaded_(load_model(flags.model.resolved_path())),
        tokenizer_(loaded_.vocab),
        sampling_(flags.sampling.options(loaded_.model->config())),
        engine_(make_engine()) {
    if (!flags_.system.empty()) messages_.push_back({text::Role::kSystem, flags_.system});
    log_->info("seed {}, temperature {}, top-k {}, top-p {}, min-p {}", sampling_.seed, sampling_.temperature,
               sampling_.top_k, sampling_.top_p, sampling_.min_p);
  }

  // Answers one user message, or completes one raw text. The conversation only grows when that worked.
  engine::Ending answer(const std::string& text) {
    if (flags_.raw) return generate(encode_raw(text)).first;
    messages_.push_back({text::Role::kUser, text});
    try {
      auto [ending, reply] = generate(encode_chat());
      messages_.push_back({text::Role::kModel, text::strip_thoughts(reply)});
      return ending;
    } catch (...) {
      messages_.pop_back();
      throw;
    }
  }

 private:
  engine::Engine make_engine() {
    exec::ExecutorOptions options;
    options.outputs = 1;
    options.log = log_;
    options.cancelled = &interrupted();
    flags_.size.apply(loaded_.model->config(), options);
    flags_.device.apply(options);
    const uint32_t trained = loaded_.model->config().context_length;
    if (options.context > trained) {
      log_->warn("-c {} is more than the {} tokens the model was trained for; answers get worse beyond them",
                 options.context, trained);
    }
    ProgressLine line;
    auto executor =
        engine::make_executor(flags_.device.chosen_device(), loaded_.model, options, loading_progress(line));
    line.clear();
    flags_.device.explain_unused(*executor, log_);
    return engine::Engine(std::move(executor), loaded_.vocab);
  }

  // The user writes the whole prompt, so special texts mean their tokens. <bos> comes first whether written or not.
  std::vector<text::TokenId> encode_raw(const std::string& text) const {
    std::vector<text::TokenId> tokens = tokenizer_.encode(text, text::Tokenizer::Specials::kParse);
    const text::TokenId bos = loaded_.vocab->bos();
    if (tokens.empty() || tokens.front() != bos) tokens.insert(tokens.begin(), bos);
    return tokens;
  }

  std::vector<text::TokenId> encode_chat() const {
    text::ChatOptions options;
    options.thinking = flags_.think;
    options.empty_thought_block = prompts_with_empty_thought(*loaded_.vocab, loaded_.model->config());
    return text::encode_prompt(tokenizer_, text::render_chat(messages_, options));
  }

  void check_fits(size_t prompt_tokens) {
    const uint32_t context = engine_.executor().options().context;
    if (prompt_tokens <= context) return;
    const uint32_t trained = loaded_.model->config().context_length;
    fail(ErrorCode::kBadArgument, "the prompt has {} tokens but the context holds {}; {}", prompt_tokens, context,
         prompt_tokens <= trained ? fmt::format("give -c {} or more (the model allows {})", prompt_tokens + 1, trained)
                                  : fmt::format("the model allows {}, so shorten the text", trained));
  }

  std::pair<engine::Ending, std::string> generate(std::vector<text::TokenId> prompt) {
    check_fits(prompt.size());
    engine::Request request;
    request.prompt = std::move(prompt);
    if (flags_.max_tokens >= 0) request.max_tokens = static_cast<uint32_t>(flags_.max_tokens);
    request.ignore_stops = flags_.ignore_eos;
    request.sampling = sampling_;

    ProgressLine progress;
    AnswerStream stream(loaded_.vocab, write_stdout, flags_.raw ? AnswerStream::Sink() : write_thought);
    const Stoppable stoppable;
    const auto sequence = engine_.submit(std::move(request), [&](text::TokenId token) {
      progress.clear();
      stream.append(token);
    });
    while (engine_.step()) {
      if (sequence->generated().empty()) {
        progress.show(
            fmt::format("reading the prompt: {} of {} tokens", sequence->processed(), sequence->prompt().size()));
      }
    }
    progress.clear();
    stream.finish();
    if (stream.answer().empty() || stream.answer().back() != '\n') write_stdout("\n");
    report(*sequence, stream);
    return {sequence->ending(), stream.answer()};
  }

  static void write_thought(std::string_view text) {
    const bool dim = stderr_is_terminal();
    write_stderr(dim ? fmt::format("{}{}{}", kDim, text, kPlain) : std::string(text));
  }

  // An answer that is not whole is always said to be so; figures are for people who watch.
  void report(const engine::Sequence& sequence, const AnswerStream& stream) {
    if (sequence.ending() == engine::Ending::kContextFull) {
      log_->warn("the answer is cut off: the context of {} tokens is full; a larger -c gives it room",
                 engine_.executor().options().context);
    }
    if (sequence.ending() == engine::Ending::kLength && stream.in_thought()) {
      log_->warn("the limit of {} tokens (-n) was reached inside the thoughts, before an answer", flags_.max_tokens);
    }
    if (!stderr_is_terminal() && !flags_.model.verbose) return;
    const auto computed = sequence.prompt().size() - sequence.prefix_reused();
    std::string reuse;
    if (sequence.prefix_reused() > 0) {
      reuse = fmt::format(" ({} more from the cache)", sequence.prefix_reused());
    } else if (sequence.prefix_shared() > 1) {
      reuse = fmt::format(" ({} were known, but the sliding window had moved past them)", sequence.prefix_shared());
    }
    write_stderr(fmt::format("[prompt {} tokens{}, {:.1f} t/s; answer {} tokens, {:.1f} t/s; {}]\n", computed, reuse,
                             per_second(computed, sequence.prompt_seconds()), sequence.generated().size(),
                             per_second(sequence.decode_passes(), sequence.decode_seconds()),
                             engine::ending_name(sequence.ending())));
  }

  const RunFlags& flags_;
  Logger log_;
  LoadedModel loaded_;
  text::Tokenizer tokenizer_;
  engine::SamplingOptions sampling_;
  engine::Engine engine_;
  std::vector<text::Message> messages_;
};

// Line after line from standard input until its end; a line that cannot be answered does not end the conversation when
// a person is typing.
void converse(Session& session) {
  const bool typed = stdin_is_terminal();
  if (typed) write_stderr("Type a line to ask. Ctrl-C stops an answer, Ctrl-D leaves.\n");
  std::string line;
  while (true) {
    if (typed) write_stderr("> ");
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    try {
      const engine::Ending ending = session.answer(line);
      if (ending == engine::Ending::kInterrupted && !typed) fail(ErrorCode::kInterrupted, "interrupted");
    } catch (const Error& error) {
      if (!typed || error.code() != ErrorCode::kBadArgument) throw;
      write_stderr(fmt::format("carat: error: {}\n", error.what()));
    }
  }
  if (typed) write_stderr("\n");
}

void run(const RunFlags& flags) {
  if (flags.has_prompt && !flags.prompt_file.empty()) fail(ErrorCode::kBadArgument, "give either -p or -f, not both");
  if (flags.max_tokens < -1 || flags.max_tokens >= int64_t{engine::Request::kUnlimited}) {
    fail(ErrorCode::kBadArgument, "-n {}: give a number of tokens, or -1 for no limit", flags.max_tokens);
  }
  if (flags.raw && (flags.think || !flags.system.empty())) {
    fail(ErrorCode::kBadArgument, "--raw takes the prompt as it is; --think and --system need the chat format");
  }
  std::string prompt = flags.prompt;
  if (!flags.prompt_file.empty()) prompt = read_text_file(flags.prompt_file);
  Session session(flags);
  if (!flags.has_prompt && flags.prompt_file.empty()) return converse(session);
  if (session.answer(prompt) == engine::Ending::kInterrupted) fail(ErrorCode::kInterrupted, "interrupted");
}

}  // namespace

void add_run_command(CLI::App& app) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command = app.add_subcommand("run", "Answer one prompt, or line after line from standard input");
  flags->model.add_to(*command);
  CLI::Option* prompt = command->add_option("-p,--prompt", flags->prompt, "the question");
  command->add_option("-f,--file", flags->prompt_file, "read the question from a file; - is standard input");
  command->add_option("-n,--predict", flags->max_tokens, "most tokens to generate; -1: until the model ends")
      ->capture_default_str();
  command->add_option("--system", flags->system, "system instructions of the conversation");
  command->add_flag("--think", flags->think, "let the model think first; thoughts go to stderr");
  command->add_flag("--raw", flags->raw, "no chat format: the text is the whole prompt, special tokens included");
  command->add_flag("--ignore-eos", flags->ignore_eos, "go on after stop tokens");
  flags->size.add_to(*command);
  flags->device.add_to(*command);
  flags->sampling.add_to(*command);
  command->callback([flags, prompt] {
    flags->has_prompt = prompt->count() > 0;
    run(*flags);
  });
}

}  // namespace carat::cli
