#include "cli/shell/slash_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "cli/flags/model_flags.h"
#include "cli/shell/settings.h"
#include "cli/terminal.h"
#include "cli/view/styled_text.h"
#include "text/chat/conversation_json.h"

namespace carat::cli {

namespace {

struct Command {
  std::string_view name;
  std::string_view arguments;
  std::string_view help;
};

constexpr std::array kCommands = {
    Command{"/help", "", "this list"},
    Command{"/clear", "", "forget the conversation; instructions and tools stay"},
    Command{"/system", "[TEXT]", "set the system instructions; without a text, show them"},
    Command{"/think", "on|off", "let the model think before it answers"},
    Command{"/tools", "FILE|off", "offer the functions in a JSON file; without a file, list them"},
    Command{"/set", "[NAME VALUE]", "change a setting, such as /set temp 0.7; without a name, show all"},
    Command{"/regen", "", "answer the last question again"},
    Command{"/save", "FILE", "write the conversation to a file, as JSON"},
    Command{"/load", "FILE", "go on with a conversation from a file"},
    Command{"/stats", "", "what this session has read and written, and how fast"},
    Command{"/exit", "", "leave; so does Ctrl-D"},
};

double per_second(uint64_t count, double seconds) { return seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// The first word, and what follows it.
std::pair<std::string_view, std::string_view> split(std::string_view text) {
  text = trimmed(text);
  const size_t end = std::min(text.find_first_of(" \t\n"), text.size());
  return {text.substr(0, end), trimmed(text.substr(end))};
}

std::string required_file(std::string_view command, std::string_view file) {
  if (file.empty()) fail(ErrorCode::kBadArgument, "{} needs the name of a file", command);
  return std::string(file);
}

std::vector<std::string> files_beginning_with(const std::string& word) {
  namespace fs = std::filesystem;
  const size_t slash = word.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : word.substr(0, slash + 1);
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder.empty() ? "." : folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string path = folder + entry->path().filename().string();
    if (!path.starts_with(word)) continue;
    std::error_code ignored;
    if (entry->is_directory(ignored)) path += '/';
    found.push_back(std::move(path));
  }
  std::sort(found.begin(), found.end());
  return found;
}

// A conversation somebody saved may be replaced; another file is never overwritten.
void check_replaceable(const std::string& path) {
  if (!std::filesystem::exists(path)) return;
  try {
    text::parse_conversation(read_text_file(path), path);
  } catch (const Error&) {
    fail(ErrorCode::kBadArgument, "/save {}: the file exists and is no saved conversation; choose another name", path);
  }
}

}  // namespace

void SessionTotals::add(const chat::TurnReport& report) {
  ++turns;
  prompt_reused += report.prompt_reused;
  prompt_new += report.prompt_new;
  generated += report.generated;
  decode_passes += report.decode_passes;
  decode_tokens += report.decode_tokens;
  drafted += report.drafts.drafted;
  accepted += report.drafts.accepted;
  prompt_seconds += report.prompt_seconds;
  decode_seconds += report.decode_seconds;
  context_used = report.context_used;
}

SlashCommands::SlashCommands(chat::ChatSession& session, TurnPrinter& printer, SessionTotals& totals)
    : session_(session), printer_(printer), totals_(totals) {}

CommandEffect SlashCommands::carry_out(std::string_view line) {
  const auto [name, rest] = split(line);
  if (name == "/exit" || name == "/quit" || name == "/bye") return CommandEffect::kLeave;
  if (name == "/regen") return CommandEffect::kRegenerate;
  if (name == "/help" || name == "/?") {
    help();
  } else if (name == "/clear") {
    clear();
  } else if (name == "/system") {
    system(rest);
  } else if (name == "/think") {
    think(rest);
  } else if (name == "/tools") {
    tools(rest);
  } else if (name == "/set") {
    set(rest);
  } else if (name == "/save") {
    save(rest);
  } else if (name == "/load") {
    load(rest);
  } else if (name == "/stats") {
    stats();
  } else {
    fail(ErrorCode::kBadArgument,
         "there is no command {}; /help lists them (a message that begins with / can stand in "
         "\"\"\"…\"\"\")",
         name);
  }
  return CommandEffect::kDone;
}

void SlashCommands::help() const {
  // Two columns where there is room for them, else the explanation below the command.
  constexpr size_t kCommandColumns = 24;
  const size_t columns = printer_.error_columns();
  const bool is_wide = columns >= 2 * kCommandColumns;
  const size_t indent = is_wide ? kCommandColumns : 6;
  std::string text;
  const auto add = [&](std::string_view command, std::string_view explanation) {
    text += is_wide ? fmt::format("  {:<{}}", command, kCommandColumns - 2)
                    : fmt::format("  {}\n{:{}}", command, "", indent);
    bool is_first = true;
    for (const std::string& line : wrap_plain(explanation, columns > indent + 10 ? columns - indent : 10)) {
      text += fmt::format("{:{}}{}\n", "", std::exchange(is_first, false) ? 0 : indent, line);
    }
  };
  for (const Command& command : kCommands) add(fmt::format("{} {}", command.name, command.arguments), command.help);
  add("\"\"\"", "begins and ends a message of several lines");
  add("Ctrl-C", "stops the answer; a second one leaves");
  write_stderr(text);
}

void SlashCommands::clear() {
  session_.clear();
  write_stderr("The conversation is cleared.\n");
}

void SlashCommands::system(std::string_view text) {
  if (text.empty()) {
    const std::string current = session_.system();
    write_stderr(current.empty() ? "There are no system instructions.\n" : current + "\n");
    return;
  }
  session_.set_system(std::string(text));
  write_stderr("The system instructions are set.\n");
}

void SlashCommands::think(std::string_view word) {
  if (word == "on" || word == "off") {
    session_.set_thinking(word == "on");
  } else if (!word.empty()) {
    fail(ErrorCode::kBadArgument, "/think {}: say on or off", word);
  }
  write_stderr(fmt::format("Thinking is {}.\n", session_.options().thinking ? "on" : "off"));
}

void SlashCommands::tools(std::string_view file) {
  if (file == "off") {
    session_.set_tools({});
  } else if (!file.empty()) {
    session_.set_tools(text::parse_tools(read_text_file(std::string(file)), file));
  }
  const auto& offered = session_.conversation().tools;
  std::string names;
  for (const text::Tool& tool : offered) names += (names.empty() ? "" : ", ") + tool.name;
  write_stderr(offered.empty() ? "No functions are offered.\n" : fmt::format("The model may call {}.\n", names));
}

void SlashCommands::set(std::string_view words) {
  const auto [name, value] = split(words);
  if (name.empty()) return show_settings();
  if (value.empty()) fail(ErrorCode::kBadArgument, "/set {} needs a value", name);
  change_setting(name, value, session_, printer_.options());
  write_stderr(fmt::format("{} is {}.\n", name, setting_text(name, session_, printer_.options())));
}

void SlashCommands::show_settings() const {
  std::string text;
  for (const std::string_view name : setting_names()) {
    text += fmt::format("  {:<20}{}\n", name, setting_text(name, session_, printer_.options()));
  }
  write_stderr(text);
}

void SlashCommands::save(std::string_view file) const {
  const std::string path = required_file("/save", file);
  check_replaceable(path);
  // Written beside it first, so that a full disk never costs an older conversation.
  const std::string beside = path + ".new";
  std::ofstream stream(beside, std::ios::binary | std::ios::trunc);
  stream << text::conversation_to_json(session_.conversation()) << '\n';
  stream.close();
  std::error_code error;
  if (stream) std::filesystem::rename(beside, path, error);
  if (!stream || error) {
    std::error_code ignored;
    std::filesystem::remove(beside, ignored);
    fail(ErrorCode::kIo, "/save: cannot write {}", path);
  }
  write_stderr(fmt::format("Saved {} messages to {}.\n", session_.conversation().messages.size(), path));
}

void SlashCommands::load(std::string_view file) {
  const std::string path = required_file("/load", file);
  session_.replace(text::parse_conversation(read_text_file(path), path));
  write_stderr(fmt::format("Loaded {} messages.\n", session_.conversation().messages.size()));
}

void SlashCommands::stats() const {
  write_stderr(
      fmt::format("  turns       {}\n"
                  "  prompts     {} tokens read, {:.1f} t/s; {} more were reused\n"
                  "  answers     {} tokens, {:.1f} t/s\n"
                  "  context     {} of {} tokens\n"
                  "  messages    {}\n",
                  totals_.turns, totals_.prompt_new, per_second(totals_.prompt_new, totals_.prompt_seconds),
                  totals_.prompt_reused, totals_.generated, per_second(totals_.decode_tokens, totals_.decode_seconds),
                  totals_.context_used, session_.context(), session_.conversation().messages.size()));
  if (totals_.drafted == 0) return;
  write_stderr(fmt::format("  lookup      {:.1f} tokens/pass; of {} drafted tokens {} were accepted\n",
                           static_cast<double>(totals_.decode_tokens) / static_cast<double>(totals_.decode_passes),
                           totals_.drafted, totals_.accepted));
}

std::vector<std::string> SlashCommands::complete(std::string_view line, size_t cursor) {
  const std::string_view before = line.substr(0, cursor);
  if (!is_command(before)) return {};
  const size_t last = before.find_last_of(" \t");
  std::vector<std::string> words;
  const std::string word(last == before.npos ? before : before.substr(last + 1));
  const auto offer = [&](std::string_view candidate) {
    if (candidate.starts_with(word)) words.emplace_back(candidate);
  };
  if (last == before.npos) {
    for (const Command& command : kCommands) offer(command.name);
    return words;
  }
  const auto [name, rest] = split(before);
  const bool is_first_argument = rest.find_first_of(" \t") == rest.npos && (rest.empty() || !word.empty());
  if (!is_first_argument) return words;
  if (name == "/think") {
    offer("on");
    offer("off");
  } else if (name == "/set") {
    for (const std::string_view setting : setting_names()) offer(setting);
  } else if (name == "/tools" || name == "/save" || name == "/load") {
    return files_beginning_with(word);
  }
  return words;
}

}  // namespace carat::cli
