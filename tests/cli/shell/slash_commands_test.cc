#include "cli/shell/slash_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "chat/demo_session.h"
#include "cli/shell/settings.h"
#include "support/files.h"
#include "text/chat/conversation_json.h"

namespace carat::cli {
namespace {

using test::TemporaryDirectory;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class SlashCommandsTest : public testing::Test {
 protected:
  std::string error_of(std::string_view line) {
    try {
      commands.carry_out(line);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }

  chat::ChatSession session = test::demo_session();
  TurnPrinter printer{Screen{}, Screen{}, {}};
  SessionTotals totals;
  SlashCommands commands{session, printer, totals};
  test::TurnRecorder watcher;
};

TEST_F(SlashCommandsTest, LeaveAndRegenerate) {
  EXPECT_EQ(commands.carry_out("/exit"), CommandEffect::kLeave);
  EXPECT_EQ(commands.carry_out("/quit "), CommandEffect::kLeave);
  EXPECT_EQ(commands.carry_out("/regen"), CommandEffect::kRegenerate);
  EXPECT_EQ(commands.carry_out("/help"), CommandEffect::kDone);
  EXPECT_EQ(commands.carry_out("/stats"), CommandEffect::kDone);
}

TEST_F(SlashCommandsTest, AnUnknownCommandIsNeverAMessage) {
  EXPECT_THAT(error_of("/celar"), HasSubstr("there is no command /celar; /help lists them"));
}

TEST_F(SlashCommandsTest, SystemAndClear) {
  commands.carry_out("/system Be brief.\nAnd kind.");
  EXPECT_EQ(session.system(), "Be brief.\nAnd kind.");
  session.ask("What is vim?", watcher);
  commands.carry_out("/clear");
  EXPECT_EQ(session.conversation().messages.size(), 1u);
  EXPECT_EQ(session.system(), "Be brief.\nAnd kind.");
}

TEST_F(SlashCommandsTest, Think) {
  commands.carry_out("/think on");
  EXPECT_TRUE(session.options().thinking);
  commands.carry_out("/think off");
  EXPECT_FALSE(session.options().thinking);
  EXPECT_THAT(error_of("/think maybe"), HasSubstr("say on or off"));
}

TEST_F(SlashCommandsTest, SettingsAreCheckedAndNamed) {
  commands.carry_out("/set temp 0.7");
  EXPECT_FLOAT_EQ(session.options().turn.sampling.temperature, 0.7f);
  commands.carry_out("/set predict 12");
  EXPECT_EQ(session.options().turn.max_tokens, 12u);
  commands.carry_out("/set predict -1");
  EXPECT_EQ(session.options().turn.max_tokens, engine::Request::kUnlimited);
  commands.carry_out("/set overflow shift");
  EXPECT_EQ(session.options().overflow, chat::Overflow::kShift);
  commands.carry_out("/set show-thinking none");
  EXPECT_EQ(printer.options().show_thinking, ShowThinking::kNone);
  commands.carry_out("/set");
  EXPECT_THAT(error_of("/set temp warm"), HasSubstr("/set temp warm: give a number"));
  EXPECT_THAT(error_of("/set top-p 3"), HasSubstr("top-p"));
  EXPECT_THAT(error_of("/set top-k -4"), HasSubstr("whole, not negative"));
  EXPECT_THAT(error_of("/set warmth 3"), HasSubstr("known settings are temp, top-k"));
  EXPECT_THAT(error_of("/set temp"), HasSubstr("needs a value"));
  EXPECT_FLOAT_EQ(session.options().turn.sampling.temperature, 0.7f);
  for (const std::string_view name : setting_names()) {
    EXPECT_THAT(setting_text(name, session, printer.options()), testing::Not(IsEmpty())) << name;
  }
}

TEST_F(SlashCommandsTest, SavedConversationsAreReadBack) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("talk.json");
  session.ask("My name is Clara.", watcher);
  commands.carry_out("/save " + path);
  const std::string saved = text::conversation_to_json(session.conversation());
  commands.carry_out("/save " + path);  // a saved conversation may be replaced
  commands.carry_out("/clear");
  commands.carry_out("/load " + path);
  EXPECT_EQ(text::conversation_to_json(session.conversation()), saved);
  EXPECT_EQ(session.ask("What is my name?", watcher).result.message.content.joined(), "Your name is Clara.");
}

TEST_F(SlashCommandsTest, OtherFilesAreNeverOverwritten) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("thesis.txt");
  test::write_text(path, "Ten years of work");
  session.ask("What is vim?", watcher);
  EXPECT_THAT(error_of("/save " + path), HasSubstr("the file exists and is no saved conversation"));
  EXPECT_EQ(test::read_text(path), "Ten years of work");
  EXPECT_THAT(error_of("/save"), HasSubstr("/save needs the name of a file"));
  EXPECT_THAT(error_of("/save " + folder.file("missing/talk.json")), HasSubstr("cannot write"));
  EXPECT_THAT(error_of("/load " + folder.file("missing.json")), HasSubstr("missing.json"));
  test::write_text(folder.file("broken.json"), "{\"messages\": [{\"role\": \"elf\"}]}");
  const size_t before = session.conversation().messages.size();
  EXPECT_THAT(error_of("/load " + folder.file("broken.json")), HasSubstr("broken.json"));
  EXPECT_EQ(session.conversation().messages.size(), before);
}

TEST_F(SlashCommandsTest, ToolsComeFromAFile) {
  const TemporaryDirectory folder;
  test::write_text(folder.file("tools.json"), test::kWeatherTool);
  commands.carry_out("/tools " + folder.file("tools.json"));
  ASSERT_EQ(session.conversation().tools.size(), 1u);
  EXPECT_EQ(session.conversation().tools.front().name, "get_weather");
  commands.carry_out("/tools off");
  EXPECT_TRUE(session.conversation().tools.empty());
  EXPECT_THAT(error_of("/tools " + folder.file("none.json")), HasSubstr("none.json"));
}

TEST_F(SlashCommandsTest, CompletesCommandsSettingsAndFiles) {
  const auto complete = [](std::string_view line) { return SlashCommands::complete(line, line.size()); };
  EXPECT_THAT(complete("/cl"), ElementsAre("/clear"));
  EXPECT_THAT(complete("/s"), ElementsAre("/system", "/set", "/save", "/stats"));
  EXPECT_THAT(complete("/think "), ElementsAre("on", "off"));
  EXPECT_THAT(complete("/think of"), ElementsAre("off"));
  EXPECT_THAT(complete("/set top"), ElementsAre("top-k", "top-p"));
  EXPECT_THAT(complete("/set temp 0"), IsEmpty());
  EXPECT_THAT(complete("hello /cl"), IsEmpty());
  const TemporaryDirectory folder;
  test::write_text(folder.file("talk-1.json"), "");
  test::write_text(folder.file("talk-2.json"), "");
  EXPECT_THAT(complete("/load " + folder.file("talk-")),
              ElementsAre(folder.file("talk-1.json"), folder.file("talk-2.json")));
}

}  // namespace
}  // namespace carat::cli
