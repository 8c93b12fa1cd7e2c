// Shell completions and the manual page, which carat makes from its own flags.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <regex>
#include <set>
#include <sstream>

#include "chat/captured_process.h"
#include "cli/carat_process.h"
#include "cli/help/describe_app.h"
#include "support/files.h"
#include "support/tmux_session.h"

namespace carat::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::UnorderedElementsAre;

using Words = std::vector<std::string>;

struct Ran {
  int start_error;
  std::optional<int> status;
  std::string out;
  std::string err;
};

Ran run_program(const Words& command) {
  chat::CapturedProcess process(command, "");
  if (process.start_error() == 0) {
    process.watch({std::chrono::steady_clock::now() + std::chrono::minutes(2), size_t{16} << 20, nullptr});
  }
  return {process.start_error(), process.status(), process.output(), process.errors()};
}

bool is_installed(const std::string& program) {
  return run_program({"sh", "-c", "command -v \"$1\"", "sh", program}).status == 0;
}

Words lines_of(const std::string& text) {
  Words lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

// The commands as `carat --help` lists them.
Words commands() {
  const std::string help = run_carat({"--help"}).out;
  Words found;
  for (const std::string& line : lines_of(help.substr(help.find("Subcommands:")))) {
    std::smatch match;
    if (std::regex_search(line, match, std::regex("^  ([a-z]+)"))) found.push_back(match[1]);
  }
  return found;
}

// The flags as `carat COMMAND --help` lists them, but with -ngl and its like as they are typed.
Words flags_of(const std::string& command) {
  static const std::set<std::string> typed_with_one_dash = {"--ngl", "--ub",  "--fa", "--ctk", "--ctv",
                                                            "--pg",  "--npl", "--np", "--to"};
  Words flags;
  for (const std::string& line : lines_of(run_carat({command, "--help"}).out)) {
    std::smatch match;
    if (!std::regex_search(line, match, std::regex("^  (-[^ ]+)"))) continue;
    std::istringstream names(match[1]);
    for (std::string name; std::getline(names, name, ',');) {
      flags.push_back(typed_with_one_dash.contains(name) ? name.substr(1) : name);
    }
  }
  return flags;
}

TEST(DescribeArgument, KnowsWordsFilesAndPlaceholders) {
  const auto choices = [](const char* form) { return cli::describe_argument(form).choices; };
  EXPECT_THAT(choices("N|auto|all"), ElementsAre("auto", "all"));
  EXPECT_THAT(choices("bash|zsh|fish"), ElementsAre("bash", "zsh", "fish"));
  EXPECT_THAT(choices("q8_0|q4_0"), ElementsAre("q8_0", "q4_0"));
  EXPECT_THAT(choices("UINT:UINT in [1 - 4096]"), IsEmpty());
  EXPECT_EQ(cli::describe_argument("UINT:UINT in [1 - 4096]").form, "UINT");
  EXPECT_FALSE(cli::describe_argument("TEXT").is_file);
  EXPECT_TRUE(cli::describe_argument("FILE").is_file);
  EXPECT_TRUE(cli::describe_argument("MODEL").is_file);
  EXPECT_TRUE(cli::describe_argument("FILE.html").is_file);
  EXPECT_TRUE(cli::describe_argument("none|FILE").is_file);
  EXPECT_THAT(choices("none|FILE"), ElementsAre("none"));
}

TEST(DescribeApp, KnowsWhatTheParserKnows) {
  CLI::App app("a program", "carat");
  CLI::App* command = app.add_subcommand("try", "Try it");
  std::string text = "x";
  Words several;
  bool flag = false;
  command->add_option("--ngl,--layers", text, "(-ngl) how many")->type_name("N|all")->capture_default_str();
  command->add_option("-l,--list", several, "again and again")->envname("LIST");
  command->add_flag("--flag", flag, "without value");
  command->add_option("--secret", text, "not for people")->group("");
  command->add_option("in", text, "to read")->required();
  const cli::AppDescription described = cli::describe_app(app);
  ASSERT_EQ(described.commands.size(), 1u);
  const cli::CommandDescription& tried = described.commands[0];
  EXPECT_EQ(tried.name, "try");
  ASSERT_EQ(tried.options.size(), 4u);  // with --help
  EXPECT_THAT(tried.options[1].names, ElementsAre("-ngl", "--layers"));
  EXPECT_EQ(tried.options[1].help, "how many");
  EXPECT_EQ(tried.options[1].default_value, "x");
  EXPECT_FALSE(tried.options[1].repeatable);
  EXPECT_TRUE(tried.options[2].repeatable);
  EXPECT_EQ(tried.options[2].environment, "LIST");
  EXPECT_FALSE(tried.options[3].takes_argument());
  ASSERT_EQ(tried.positionals.size(), 1u);
  EXPECT_EQ(tried.positionals[0].name, "in");
  EXPECT_TRUE(tried.positionals[0].required);
}

TEST(CompletionCommand, RefusesOtherShells) {
  const ProcessResult result = run_carat({"completion", "tcsh"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("there is no completion for \"tcsh\"; give bash, zsh or fish"));
}

class Completion : public testing::Test {
 protected:
  void need(const std::string& program) {
    if (!is_installed(program)) GTEST_SKIP() << "skipped: no " << program;
  }

  // The script for a shell, in a file.
  std::string script(const std::string& shell, const std::string& name) const {
    const ProcessResult result = run_carat({"completion", shell});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    write_text(folder_.file(name), result.out);
    return folder_.file(name);
  }

  // A shell whose prompt is set to "ready> ".
  static testing::AssertionResult has_clear_screen(const TmuxSession& session) {
    return session.wait_until([&session](const std::string&) { return session.screen() == "ready>"; },
                              "the prompt on a clear screen");
  }

  TemporaryDirectory folder_;
};

class BashCompletion : public Completion {
 protected:
  void SetUp() override {
    need("bash");
    script_ = script("bash", "carat.bash");
    write_text(folder_.file("complete"),
               "source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _carat\n"
               "((${#COMPREPLY[@]} == 0)) || printf '%s\\n' \"${COMPREPLY[@]}\"\n");
  }

  // What is offered for the last of the words.
  Words offered(Words words) const {
    words.insert(words.begin(), {"bash", "--norc", "--noprofile", folder_.file("complete"), script_, "carat"});
    const Ran ran = run_program(words);
    EXPECT_EQ(ran.status, 0);
    EXPECT_EQ(ran.err, "");
    return lines_of(ran.out);
  }

  std::string script_;
};

TEST_F(BashCompletion, Commands) {
  EXPECT_THAT(offered({""}), testing::UnorderedElementsAreArray(commands()));
  EXPECT_THAT(offered({"ru"}), ElementsAre("run"));
  EXPECT_THAT(offered({"qu"}), ElementsAre("quantize"));
  EXPECT_THAT(offered({"--ver"}), ElementsAre("--version"));
  EXPECT_THAT(offered({"nonsense", "-"}), IsEmpty());
}

TEST_F(BashCompletion, EveryFlagOfEveryCommand) {
  for (const std::string& command : commands()) {
    EXPECT_THAT(offered({command, "-"}), testing::UnorderedElementsAreArray(flags_of(command))) << command;
  }
  EXPECT_THAT(offered({"run", "-ng"}), ElementsAre("-ngl"));
  EXPECT_THAT(offered({"run", "-p", "hi", "--temp", "0", "--top"}), UnorderedElementsAre("--top-k", "--top-p"));
  EXPECT_THAT(offered({"run", "-p", "-n", "--top"}), UnorderedElementsAre("--top-k", "--top-p"));  // -n is the prompt
}

TEST_F(BashCompletion, Choices) {
  EXPECT_THAT(offered({"run", "--device", ""}), UnorderedElementsAre("auto", "cpu", "gpu", "reference"));
  EXPECT_THAT(offered({"run", "-ngl", "a"}), UnorderedElementsAre("auto", "all"));
  EXPECT_THAT(offered({"plan", "-ngl", "au"}), ElementsAre("auto"));
  EXPECT_THAT(offered({"bench", "-o", "js"}), UnorderedElementsAre("json", "jsonl"));
  EXPECT_THAT(offered({"completion", ""}), UnorderedElementsAre("bash", "zsh", "fish"));
  EXPECT_THAT(offered({"quantize", "in", "out", "q4_0"}), UnorderedElementsAre("q4_0", "q4_0-pure"));
  EXPECT_THAT(offered({"synth", "tiny-e"}), UnorderedElementsAre("tiny-e2b", "tiny-e4b"));
  // --device=g is cut into three words by bash.
  EXPECT_THAT(offered({"run", "--device", "=", "g"}), ElementsAre("gpu"));
  EXPECT_THAT(offered({"run", "--device", "="}), UnorderedElementsAre("auto", "cpu", "gpu", "reference"));
  EXPECT_THAT(offered({"run", "--device", "=", "gpu", "--top-"}), UnorderedElementsAre("--top-k", "--top-p"));
}

TEST_F(BashCompletion, FilesWhereFilesAreExpectedAndNothingElsewhere) {
  write_text(folder_.file("a model.gguf"), "");
  const std::string start = folder_.file("a mo");
  EXPECT_THAT(offered({"run", "-m", start}), ElementsAre(folder_.file("a model.gguf")));
  EXPECT_THAT(offered({"run", "--model", start}), ElementsAre(folder_.file("a model.gguf")));
  EXPECT_THAT(offered({"run", "-f", start}), ElementsAre(folder_.file("a model.gguf")));
  EXPECT_THAT(offered({"info", start}), ElementsAre(folder_.file("a model.gguf")));
  EXPECT_THAT(offered({"quantize", "--dry-run", "-t", "2", "in", start}), ElementsAre(folder_.file("a model.gguf")));
  EXPECT_THAT(offered({"run", "-p", start}), IsEmpty());
  EXPECT_THAT(offered({"run", start}), IsEmpty());
  EXPECT_THAT(offered({"run", "--temp", ""}), IsEmpty());
}

TEST_F(BashCompletion, HostileWordsAreOnlyWords) {
  const std::string mark = folder_.file("ran");
  for (const std::string& word : {"$(touch " + mark + ")", "`touch " + mark + "`", "a]=$(touch " + mark + ")",
                                  std::string("x[$(touch ") + mark + ")]", std::string("'"), std::string("]")}) {
    offered({word, "-"});
    offered({"run", word, "--top"});
    offered({"run", "-" + word, "--top"});
    offered({"run", "-p", word});
  }
  EXPECT_FALSE(std::filesystem::exists(mark));
}

TEST_F(BashCompletion, AtAPrompt) {
  if (!TmuxSession::is_installed()) GTEST_SKIP() << "skipped: no tmux";
  TmuxSession session({"bash", "--norc", "--noprofile", "-i"});
  session.send_line("PS1='ready> '; source '" + script_ + "'; clear");
  ASSERT_TRUE(has_clear_screen(session));
  session.send_text("carat ru");
  session.send_key("Tab");
  ASSERT_TRUE(session.wait_for("ready> carat run"));
  session.send_text("--device=g");
  session.send_key("Tab");
  ASSERT_TRUE(session.wait_for("ready> carat run --device=gpu"));
}

class ZshCompletion : public Completion {
 protected:
  void SetUp() override { need("zsh"); }
};

TEST_F(ZshCompletion, ParsesAndNamesEveryFlag) {
  const std::string path = script("zsh", "_carat");
  const Ran ran = run_program({"zsh", "-n", path});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.err, "");
  const std::string text = read_text(path);
  EXPECT_THAT(text, testing::StartsWith("#compdef carat\n"));
  for (const std::string& command : commands()) {
    EXPECT_THAT(text, HasSubstr("        " + command + ")\n"));
    for (const std::string& flag : flags_of(command)) EXPECT_THAT(text, HasSubstr(flag)) << command;
  }
}

TEST_F(ZshCompletion, AtAPrompt) {
  if (!TmuxSession::is_installed()) GTEST_SKIP() << "skipped: no tmux";
  script("zsh", "_carat");
  write_text(folder_.file("one-model.gguf"), "");
  TmuxSession session({"zsh", "-f", "-i"});
  session.send_line("cd '" + folder_.path().string() +
                    "'; fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D; PS1='ready> '; clear");
  ASSERT_TRUE(has_clear_screen(session));
  const auto type_and_tab = [&session](const std::string& text) {
    session.send_text(text);
    session.send_key("Tab");
  };
  type_and_tab("carat ru");
  ASSERT_TRUE(session.wait_for("ready> carat run"));
  type_and_tab("--devi");
  ASSERT_TRUE(session.wait_for("ready> carat run --device"));
  type_and_tab("=g");
  ASSERT_TRUE(session.wait_for("ready> carat run --device=gpu"));
  type_and_tab("-m one");
  ASSERT_TRUE(session.wait_for("-m one-model.gguf"));
  type_and_tab("-ngl al");
  ASSERT_TRUE(session.wait_for("-ngl all"));
}

class FishCompletion : public Completion {
 protected:
  void SetUp() override {
    need("fish");
    script_ = script("fish", "carat.fish");
  }

  // The words offered for a line, without their descriptions.
  Words offered(const std::string& line) const {
    const Ran ran = run_program({"env", "HOME=" + folder_.path().string(), "fish", "--no-config", "-c",
                                 "source $argv[1]; complete -C $argv[2]", script_, line});
    EXPECT_EQ(ran.status, 0);
    EXPECT_EQ(ran.err, "");
    Words words;
    for (const std::string& offer : lines_of(ran.out)) words.push_back(offer.substr(0, offer.find('\t')));
    return words;
  }

  std::string script_;
};

TEST_F(FishCompletion, Parses) {
  const Ran ran = run_program({"fish", "--no-execute", script_});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.err, "");
}

TEST_F(FishCompletion, CommandsFlagsAndArguments) {
  EXPECT_THAT(offered("carat "), testing::UnorderedElementsAreArray(commands()));
  EXPECT_THAT(offered("carat ru"), ElementsAre("run"));
  EXPECT_THAT(offered("carat run --top"), UnorderedElementsAre("--top-k", "--top-p"));
  EXPECT_THAT(offered("carat run --device "), UnorderedElementsAre("auto", "cpu", "gpu", "reference"));
  EXPECT_THAT(offered("carat run -ngl "), UnorderedElementsAre("auto", "all"));
  EXPECT_THAT(offered("carat run -"), Contains("-ngl"));
  EXPECT_THAT(offered("carat completion "), UnorderedElementsAre("bash", "zsh", "fish"));
  EXPECT_THAT(offered("carat run "), IsEmpty());
  write_text(folder_.file("a-model.gguf"), "");
  EXPECT_THAT(offered("carat run -m " + folder_.file("a-mo")), ElementsAre(folder_.file("a-model.gguf")));
  EXPECT_THAT(offered("carat run -p " + folder_.file("a-mo")), IsEmpty());
  EXPECT_THAT(offered("carat tokenize run --i"), ElementsAre("--ids"));  // the first word is the command
}

TEST_F(FishCompletion, EveryFlagOfEveryCommand) {
  for (const std::string& command : commands()) {
    Words all = offered("carat " + command + " -");
    const Words more = offered("carat " + command + " --");
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_THAT(all, IsSupersetOf(flags_of(command))) << command;
  }
}

class ManPage : public testing::Test {
 protected:
  void SetUp() override {
    const ProcessResult result = run_carat({"man"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    source_ = result.out;
    text_ = std::regex_replace(source_, std::regex("\\\\f[BIR]"), "");
    text_ = std::regex_replace(text_, std::regex("\\\\-"), "-");
  }

  // From the heading up to the next of the same kind.
  std::string section(const std::string& heading, const std::string& next) const {
    const size_t begin = text_.find("\n" + heading + "\n");
    EXPECT_NE(begin, std::string::npos) << heading;
    if (begin == std::string::npos) return "";
    return text_.substr(begin, std::min(text_.find("\n" + next, begin + 1), text_.size()) - begin);
  }

  std::string source_;
  std::string text_;  // without fonts and with plain dashes
};

TEST_F(ManPage, HasEveryCommandAndEveryFlag) {
  for (const std::string& command : commands()) {
    const std::string part = section(".SS carat " + command, ".S");
    for (const std::string& flag : flags_of(command)) {
      EXPECT_TRUE(std::regex_search(part, std::regex("\n(-[^\n]*, )?" + flag + "[ ,\n]"))) << command << ": " << flag;
    }
  }
}

TEST_F(ManPage, HasTheUsualSections) {
  for (const char* heading :
       {"NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES", "SEE ALSO"}) {
    EXPECT_THAT(source_, HasSubstr(fmt::format("\n.SH {}\n", heading)));
  }
  EXPECT_THAT(source_, HasSubstr("\"carat " CARAT_VERSION "\""));
  EXPECT_EQ(run_carat({"man"}).out, source_);
}

// The same statuses as docs/cli.md lists.
TEST_F(ManPage, HasEveryExitStatus) {
  const std::string manual = read_text((source_directory() / "docs" / "cli.md").string());
  const size_t begin = manual.find("## Exit status");
  ASSERT_NE(begin, std::string::npos);
  std::set<std::string> documented;
  for (const std::string& line : lines_of(manual.substr(begin, manual.find("\n## ", begin + 1) - begin))) {
    std::smatch match;
    if (std::regex_search(line, match, std::regex("^\\| ([0-9]+) \\|"))) documented.insert(match[1]);
  }
  std::set<std::string> shown;
  for (const std::string& line : lines_of(section(".SH EXIT STATUS", ".SH"))) {
    if (std::regex_match(line, std::regex("[0-9]+"))) shown.insert(line);
  }
  EXPECT_GE(shown.size(), 10u);
  EXPECT_EQ(shown, documented);
}

// Every variable that the sources name.
TEST_F(ManPage, HasEveryVariable) {
  const std::string part = section(".SH ENVIRONMENT", ".SH");
  const std::regex name(R"re("((?:CARAT|HF|HUGGING|HUGGINGFACE|NO|XDG)_[A-Z_]+)")re");
  size_t found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source_directory() / "src")) {
    if (entry.path().extension() != ".cc" && entry.path().extension() != ".h") continue;
    const std::string source = read_text(entry.path().string());
    for (std::sregex_iterator match(source.begin(), source.end(), name), end; match != end; ++match) {
      ++found;
      EXPECT_TRUE(std::regex_search(part, std::regex("[\n ]" + (*match)[1].str() + "[\n,]")))
          << entry.path() << ": " << (*match)[1];
    }
  }
  EXPECT_GT(found, 0u);
}

TEST_F(ManPage, IsCleanRoff) {
  const TemporaryDirectory folder;
  write_text(folder.file("carat.1"), source_);
  const bool has_mandoc = is_installed("mandoc");
  if (!has_mandoc && !is_installed("groff")) GTEST_SKIP() << "skipped: neither mandoc nor groff";
  const Ran ran = has_mandoc ? run_program({"mandoc", "-T", "lint", "-W", "warning", folder.file("carat.1")})
                             : run_program({"groff", "-man", "-ww", "-z", folder.file("carat.1")});
  EXPECT_EQ(ran.out + ran.err, "");
  EXPECT_EQ(ran.status, 0);
}

TEST_F(ManPage, ReadsAsItIsTyped) {
  if (!is_installed("mandoc")) GTEST_SKIP() << "skipped: no mandoc";
  const TemporaryDirectory folder;
  write_text(folder.file("carat.1"), source_);
  std::string shown = run_program({"mandoc", "-T", "utf8", folder.file("carat.1")}).out;
  shown = std::regex_replace(shown, std::regex(".\\x08"), "");  // bold and underlined letters are struck twice
  EXPECT_THAT(shown, HasSubstr("-ngl, --n-gpu-layers N|auto|all"));
  EXPECT_THAT(shown, HasSubstr("--device auto|cpu|gpu|reference"));
}

}  // namespace
}  // namespace carat::test
