#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "cli/commands/commands.h"
#include "cli/flags/model_flags.h"
#include "cli/terminal.h"
#include "gguf/reader.h"
#include "runtime/model_loader.h"
#include "text/tokenizer/tokenizer.h"

namespace carat::cli {

namespace {

struct TokenizeFlags {
  ModelFlags model;
  std::vector<std::string> words;
  std::string file;
  bool ids = false;
  bool count = false;
  bool json = false;
  bool specials = false;
  bool bos = false;
};

std::string input_text(const TokenizeFlags& flags) {
  if (!flags.words.empty() && !flags.file.empty()) fail(ErrorCode::kBadArgument, "give either a text or -f, not both");
  if (!flags.file.empty()) return read_text_file(flags.file);
  if (flags.words.empty()) return read_text_file("-");
  std::string text;
  for (const std::string& word : flags.words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// The token's text as the vocabulary has it (U+2581 for a space, <0x0A> for a byte), safe to print.
std::string piece(const text::Vocab& vocab, text::TokenId token) { return utf8_sanitise(vocab.text(token)); }

std::string as_json(const text::Vocab& vocab, const std::vector<text::TokenId>& tokens) {
  nlohmann::ordered_json entries = nlohmann::ordered_json::array();
  for (const text::TokenId token : tokens) entries.push_back({{"id", token}, {"piece", piece(vocab, token)}});
  return nlohmann::ordered_json{{"count", tokens.size()}, {"tokens", std::move(entries)}}.dump() + "\n";
}

void tokenize(const TokenizeFlags& flags) {
  if (flags.ids + flags.count + flags.json > 1) fail(ErrorCode::kBadArgument, "give one of --ids, --count and --json");
  const auto file = gguf::ModelFile::open(flags.model.resolved_path());
  const text::Tokenizer tokenizer(runtime::load_vocab(*file));
  const text::Vocab& vocab = tokenizer.vocab();
  const std::string text = input_text(flags);
  std::vector<text::TokenId> tokens;
  if (flags.bos) tokens.push_back(vocab.bos());
  using Specials = text::Tokenizer::Specials;
  tokenizer.encode(text, flags.specials ? Specials::kParse : Specials::kPlainText, tokens);

  if (flags.json) return write_stdout(as_json(vocab, tokens));
  if (flags.count) return write_stdout(fmt::format("{}\n", tokens.size()));
  if (flags.ids) return write_stdout(fmt::format("{}\n", fmt::join(tokens, " ")));
  std::string lines;
  for (const text::TokenId token : tokens) {
    std::string shown = piece(vocab, token);
    for (size_t at = 0; (at = shown.find('\n', at)) != std::string::npos; at += 2) shown.replace(at, 1, "\\n");
    lines += fmt::format("{:>7}  {}\n", token, shown);
  }
  write_stdout(lines);
}

}  // namespace

void add_tokenize_command(CLI::App& app) {
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* command = app.add_subcommand("tokenize", "Show how a text is cut into tokens");
  flags->model.add_to(*command);
  command->add_option("text", flags->words, "the text; several words are joined by spaces (default: standard input)");
  command->add_option("-f,--file", flags->file, "read the text from a file; - is standard input")->type_name("FILE");
  command->add_flag("--ids", flags->ids, "only the ids, on one line");
  command->add_flag("--count", flags->count, "only how many tokens there are");
  command->add_flag("--json", flags->json, "one JSON object: count, and id and piece of each token");
  command->add_flag("--specials", flags->specials, "special texts such as <turn|> become their tokens");
  command->add_flag("--bos", flags->bos, "begin with the <bos> token");
  command->callback([flags] { tokenize(*flags); });
}

}  // namespace carat::cli
