// Markdown as a person sees it: what the view writes goes through a terminal, and the picture is compared.
#include "cli/view/markdown/markdown_view.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ctime>
#include <string>
#include <vector>

#include "cli/view/markdown/markdown_layout.h"
#include "support/random.h"
#include "support/terminal_screen.h"

namespace carat::cli {
namespace {

struct Picture {
  std::string text;    // without styles
  std::string styled;  // with them
  size_t style_changes = 0;
  size_t movements = 0;
  size_t cursor_column = 0;
};

class MarkdownViewTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!markdown_available()) GTEST_SKIP() << "skipped: built without md4c";
  }
};

struct Window {
  unsigned columns = 40;
  unsigned rows = 24;
  bool colour = true;
};

Picture show(std::string_view markdown, Window window, const std::function<size_t()>& piece_length) {
  test::TerminalScreen terminal(window.columns, window.rows);
  const auto view = make_markdown_view([&](std::string_view bytes) { terminal.write(bytes); },
                                       Screen::of_size(window.columns, window.rows, window.colour));
  for (size_t at = 0; at < markdown.size();) {
    const size_t length = std::max<size_t>(1, piece_length());
    view->append(markdown.substr(at, length));
    at += length;
  }
  view->finish();
  return {terminal.text(), terminal.styled_text(), terminal.style_changes(), terminal.movements(),
          terminal.cursor_column()};
}

Picture show_whole(std::string_view markdown, Window window) {
  return show(markdown, window, [&] { return markdown.size(); });
}

// The picture, which must be the same whatever pieces the text comes in.
std::string picture_of(std::string_view markdown, Window window) {
  const Picture whole = show_whole(markdown, window);
  for (const size_t length : {1, 3, 7}) {
    const Picture pieces = show(markdown, window, [&] { return length; });
    EXPECT_EQ(pieces.styled, whole.styled) << "in pieces of " << length << " bytes";
    EXPECT_EQ(pieces.cursor_column, 0u);
  }
  return window.colour ? whole.styled : whole.text;
}

constexpr std::string_view kTour = R"(# Gems
A *carat* is **200 mg**; see `carat --help` or [the site](https://example.org/carat).
Not ~~a karat~~.

- cut
- clarity, which is about what is inside
  1. flawless
  2. included
- [x] colour
- [ ] weight

> Diamonds are
> forever.

```python
def f():
	return "a line that is longer than forty columns"
```

| Stone | Hardness | Note |
|:--|--:|:-:|
| Diamond | 10 | the hardest of all natural stones |
| Opal | 6 | soft |

---
Done.
)";

TEST_F(MarkdownViewTest, FitsIntoFortyColumns) {
  EXPECT_EQ(picture_of(kTour, {40, 50, false}), R"(# Gems

A *carat* is **200 mg**; see `carat
--help` or the site
(https://example.org/carat). Not ~~a
karat~~.

• cut
• clarity, which is about what is
  inside
  1. flawless
  2. included
• [x] colour
• [ ] weight

│ Diamonds are forever.

── python ─────────────────────────────
def f():
    return "a line that is longer than f
orty columns"
───────────────────────────────────────

┌─────────┬──────────┬────────────────┐
│ Stone   │ Hardness │      Note      │
├─────────┼──────────┼────────────────┤
│ Diamond │       10 │ the hardest of │
│         │          │  all natural   │
│         │          │     stones     │
├─────────┼──────────┼────────────────┤
│ Opal    │        6 │      soft      │
└─────────┴──────────┴────────────────┘

───────────────────────────────────────

Done.

)");
}

TEST_F(MarkdownViewTest, UsesTheWidthAndStyles) {
  EXPECT_EQ(picture_of(kTour, {100, 50, true}), R"({1;4;35}Gems

{}A {3}carat {}is {1}200 mg{}; see {36}carat --help {}or {4}the site {2}(https://example.org/carat){}. Not {9}a karat{}.

{2}• {}cut
{2}• {}clarity, which is about what is inside
  1. flawless
  2. included
{2}• {}[x] colour
{2}• {}[ ] weight

{2}│ {}Diamonds are forever.

{2}── python ──────────────────────────────
{}def f():
    return "a line that is longer than forty columns"
{2}────────────────────────────────────────

┌─────────┬──────────┬───────────────────────────────────┐
│ {1}Stone   {2}│ {1}Hardness {2}│               {1}Note                {2}│
├─────────┼──────────┼───────────────────────────────────┤
│ {}Diamond {2}│       {}10 {2}│ {}the hardest of all natural stones {2}│
│ {}Opal    {2}│        {}6 {2}│               {}soft                {2}│
└─────────┴──────────┴───────────────────────────────────┘

────────────────────────────────────────

{}Done.

)");
}

TEST_F(MarkdownViewTest, WithoutColourThereAreNoStyles) {
  for (const unsigned columns : {40u, 100u}) {
    const Picture picture = show(kTour, {columns, 24, false}, [] { return 3; });
    EXPECT_EQ(picture.style_changes, 0u);
    EXPECT_GT(picture.movements, 0u);  // lines are still drawn again in their place
  }
}

struct Example {
  const char* name;
  const char* markdown;
  const char* picture;  // 40 columns, no colour
};

const Example kExamples[] = {
    {"a setext heading", "Title\n=====\ntext", "# Title\n\ntext\n\n"},
    {"two paragraphs", "one\n\n\n\ntwo", "one\n\ntwo\n\n"},
    {"a hard break", "one  \ntwo\\\nthree", "one\ntwo\nthree\n\n"},
    {"a loose list", "- a\n\n- b\n\n- c\n", "• a\n\n• b\n\n• c\n\n"},
    {"paragraphs in an item", "- a\n\n  more\n- b", "• a\n\n  more\n• b\n\n"},
    {"ones are counted", "1. a\n1. b\n1. c", "1. a\n2. b\n3. c\n\n"},
    {"a list from 7", "7) a\n8) b", "7) a\n8) b\n\n"},
    {"lists of two kinds", "- a\n* b", "• a\n\n• b\n\n"},
    {"a year is no list", "It was in\n1984. Then.", "It was in 1984. Then.\n\n"},
    {"an empty item", "- \n- b", "•\n• b\n\n"},
    {"code in an item", "1. run\n   ```sh\n   ls\n   ```\n2. look",
     "1. run\n   ── sh ──────────────────────────────\n   ls\n   ────────────────────────────────────\n2. look\n\n"},
    {"code without a language", "```\nx\n```",
     "───────────────────────────────────────\nx\n"
     "───────────────────────────────────────\n\n"},
    {"code that never ends", "~~~\n- x\n\n# y",
     "───────────────────────────────────────\n- x\n\n# y\n"
     "───────────────────────────────────────\n\n"},
    {"fences in fences", "````\n```\n````\n",
     "───────────────────────────────────────\n```\n"
     "───────────────────────────────────────\n\n"},
    {"code interrupts text", "text\n```\nx\n```\nmore",
     "text\n\n───────────────────────────────────────\nx\n───────────────────────────────────────\n\nmore\n\n"},
    {"a nested quote", "> a\n> > b\n> c", "│ a\n│\n│ │ b c\n\n"},
    {"a quote with a list", "> - a\n> - b\n\nc", "│ • a\n│ • b\n\nc\n\n"},
    {"HTML is text", "<b>x</b> <!-- y -->", "<b>x</b> <!-- y -->\n\n"},
    {"HTML blocks are text", "<div>\n*x*\n</div>", "<div> *x* </div>\n\n"},
    {"an entity", "&lt;&amp;&copy;&unknown; &#955; &#x1b;[31m", "<&©&unknown; λ ␛[31m\n\n"},
    {"an autolink", "<https://a.example> www.b.example me@c.example",
     "https://a.example www.b.example\nme@c.example\n\n"},
    {"an image", "![a cat](cat.png)", "a cat (cat.png)\n\n"},
    {"definitions stay", "See [it][1].\n\n[1]: https://a.example", "See [it][1].\n\n[1]: https://a.example\n\n"},
    {"formulas", R"(so $a_1 * b_2 * c_3$ and \(x\) and \[ \{1, 2\} \])",
     "so $a_1 * b_2 * c_3$ and \\(x\\) and \\[\n\\{1, 2\\} \\]\n\n"},
    {"a formula on lines of its own", "$$\na = b\n$$", "$$\na = b\n$$\n\n"},
    {"a formula in text", "so\n$$a\n= b$$\nis", "so $$a\n= b$$ is\n\n"},
    {"prices", "It costs $5, not $6.", "It costs $5, not $6.\n\n"},
    {"a table that ends", "|a|b|\n|-|-|\n|1|2|\n\nx", "┌───┬───┐\n│ a │ b │\n├───┼───┤\n│ 1 │ 2 │\n└───┴───┘\n\nx\n\n"},
    {"a table in a list", "- t\n\n  |a|\n  |-|\n  |1|\n", "• t\n\n  ┌───┐\n  │ a │\n  ├───┤\n  │ 1 │\n  └───┘\n\n"},
    {"wide characters", "日本語の文章は空白なしで書かれるので、どこでも折り返せる。",
     "日本語の文章は空白なしで書かれるので、\nどこでも折り返せる。\n\n"},
    {"a rule between", "a\n\n***\n\nb", "a\n\n───────────────────────────────────────\n\nb\n\n"},
    {"only spaces", "  \n \n", "\n"},
    {"nothing", "", "\n"},
    {"unfinished bold", "so **very", "so **very\n\n"},
    {"unfinished marks", "text\n\n**", "text\n\n**\n\n"},
};

TEST_F(MarkdownViewTest, DrawsEveryKindOfBlock) {
  for (const Example& example : kExamples) {
    SCOPED_TRACE(example.name);
    EXPECT_EQ(picture_of(example.markdown, {40, 24, false}), example.picture);
  }
}

TEST_F(MarkdownViewTest, TooManyColumnsBecomeLists) {
  EXPECT_EQ(picture_of("|a|bb|ccc|dddd|eeeee|ffffff|ggggggg|\n|-|-|-|-|-|-|-|\n|1|2|3|4|5|6|7|\n", {30, 24, false}),
            "────────\na: 1\nbb: 2\nccc: 3\ndddd: 4\neeeee: 5\nffffff: 6\nggggggg: 7\n\n");
}

// Text must be there as soon as it comes, not when its block is complete.
TEST_F(MarkdownViewTest, ShowsTextAtOnce) {
  test::TerminalScreen terminal(40, 24);
  const auto view =
      make_markdown_view([&](std::string_view bytes) { terminal.write(bytes); }, Screen::of_size(40, 24, false));
  view->append("Hel");
  EXPECT_EQ(terminal.text(), "Hel\n");
  view->append("lo **wor");
  EXPECT_EQ(terminal.text(), "Hello **wor\n");
  view->append("ld**\n- it");
  EXPECT_EQ(terminal.text(), "Hello **world**\n\n• it\n");
  view->append("em\n\n```c\nint ");
  EXPECT_EQ(terminal.lines().back(), "int");
  view->append("x");
  EXPECT_EQ(terminal.lines().back(), "int x");
  view->finish();
}

// What has scrolled off the screen is out of reach, so a block taller than the screen must not be drawn again as a
// whole.
TEST_F(MarkdownViewTest, BlocksTallerThanTheScreenLoseNothing) {
  std::string paragraph;
  std::string list = "- list\n";
  std::string table = "| key | value |\n|---|---|\n";
  std::string words;
  for (int i = 0; i < 200; ++i) {
    paragraph += fmt::format("word{} ", i);
    list += fmt::format("  - item{}\n", i);
    table += fmt::format("| key{} | value{} |\n", i, i);
  }
  for (const unsigned rows : {5u, 10u, 24u}) {
    for (const std::string& markdown : {paragraph, list, table}) {
      const std::string picture = picture_of(markdown, {40, rows, false});
      size_t at = 0;
      for (int i = 0; i < 200; ++i) {
        const std::string number = std::to_string(i);
        const std::string wanted = markdown[0] == 'w'   ? "word" + number
                                   : markdown[0] == '-' ? "• item" + number + "\n"
                                                        : "│ key" + number + " ";
        const size_t found = picture.find(wanted, at);
        ASSERT_NE(found, std::string::npos) << wanted << " in\n" << picture;
        ASSERT_EQ(picture.find(wanted + (markdown[0] == 'w' ? " " : ""), found + 1), std::string::npos) << wanted;
        at = found;
      }
    }
  }
}

TEST_F(MarkdownViewTest, NoTextReachesTheTerminalRaw) {
  std::string controls;
  for (int byte = 0; byte < 0x20; ++byte) controls += static_cast<char>(byte);
  controls += "\x7f\x9b\xc2\x9b\x1b]52;c;eA==\x07\x1b[2J &#27;[2J &#x9b;2J [a](x&#27;y) \u202e";
  const std::string text = controls + "\n\n```\x1b[31m\n" + controls + "\n```\n\n- " + controls;
  // The terminal throws at everything that is not ours.
  EXPECT_NE(picture_of(text, {40, 24, true}).find("␛]52;c;eA==␇"), std::string::npos);
}

// Pieces of Markdown, put together at random: most of it makes no sense.
std::string random_markdown(test::Random& random) {
  static const char* const kParts[] = {"word",
                                       "word word word ",
                                       "**",
                                       "*",
                                       "_",
                                       "`",
                                       "```",
                                       "```c\n",
                                       "~~~\n",
                                       "\n",
                                       "\n",
                                       "\n\n",
                                       "\n\n",
                                       "- ",
                                       "\n- ",
                                       "\n  - ",
                                       "\n1. ",
                                       "\n2. ",
                                       "\n* ",
                                       "> ",
                                       "\n> ",
                                       "\n>> ",
                                       "# ",
                                       "\n## ",
                                       "\n---\n",
                                       "\n===\n",
                                       "| a | b |\n|---|---|\n",
                                       "| c | d |\n",
                                       "|",
                                       "[x](y)",
                                       "[1]: z",
                                       "![",
                                       "](",
                                       "<b>",
                                       "&amp;",
                                       "&#27;",
                                       "    ",
                                       "\n    code\n",
                                       "\t",
                                       "日本語",
                                       "🙂",
                                       "e\u0301",
                                       "$x$",
                                       "\\(",
                                       "\\",
                                       "  \n",
                                       "averyveryverylongwordthatdoesnotfitintothewindow",
                                       "~~",
                                       "[ ] ",
                                       "\n- [x] "};
  std::string text;
  const size_t count = 1 + random.below(60);
  for (size_t i = 0; i < count; ++i) text += kParts[random.below(std::size(kParts))];
  return text;
}

TEST_F(MarkdownViewTest, RandomTextInRandomPiecesGivesOnePicture) {
  test::Random random(2026);
  for (int round = 0; round < 600; ++round) {
    const std::string markdown = random_markdown(random);
    const Window window{static_cast<unsigned>(random.between(12, 90)), static_cast<unsigned>(random.between(3, 30)),
                        random.below(2) == 0};
    const Picture whole = show_whole(markdown, window);
    const Picture pieces = show(markdown, window, [&] { return 1 + random.below(9); });
    ASSERT_EQ(pieces.styled, whole.styled) << window.columns << " by " << window.rows << ":\n" << markdown;
    ASSERT_EQ(pieces.cursor_column, 0u);
  }
}

TEST_F(MarkdownViewTest, LinesNeverExceedTheWindow) {
  test::Random random(7);
  for (int round = 0; round < 300; ++round) {
    const std::string markdown = random_markdown(random);
    const auto width = static_cast<size_t>(random.between(12, 90));
    std::vector<TableShape> shapes;
    size_t source = 0;
    SCOPED_TRACE(markdown);
    for (const Line& line : lay_out_markdown({markdown, 0, width, 24, false, {}}, shapes).lines) {
      ASSERT_LE(line.columns, width) << line.text;
      ASSERT_GE(line.source, source) << "the order of the source is lost at " << line.text;
      source = line.source;
    }
  }
}

TEST_F(MarkdownViewTest, WithoutACursorOnlyCertainLinesAreWritten) {
  Screen screen = Screen::of_size(40, 24, false);
  screen.can_move_cursor = false;
  std::string written;
  const auto view = make_markdown_view([&](std::string_view bytes) { written += bytes; }, screen);
  view->append("one **two");
  EXPECT_EQ(written, "");
  view->append("**\n\nthree");
  EXPECT_EQ(written, "");
  view->append("\nfour");
  EXPECT_EQ(written, "one **two**\n");
  view->finish();
  EXPECT_EQ(written, "one **two**\n\nthree four\n");
}

std::string long_text(std::string_view kind, size_t size) {
  std::string text = kind == "code" ? "```\n" : kind == "table" ? "|a|b|\n|-|-|\n" : kind == "nested" ? "- top\n" : "";
  test::Random random(3);
  while (text.size() < size) {
    if (kind == "mixed" && random.below(20) == 0) text += "\n\n## heading\n\n- item\n- item\n\n```\ncode\n```\n\n";
    if (kind == "nested") text += "  - some **words** of `code` in a list\n";
    if (kind == "table") text += "| some **words** | in a `table` |\n";
    if (kind == "code") text += "  some words in code\n";
    if (kind == "brackets") text += "[";
    if (kind == "mixed" || kind == "paragraph") text += "some *words* and more, ";
  }
  return text;
}

// Seconds of processor time to show a text in pieces of three bytes.
double time_to_show(const std::string& text) {
  size_t written = 0;
  const std::clock_t begin = std::clock();
  const auto view =
      make_markdown_view([&](std::string_view bytes) { written += bytes.size(); }, Screen::of_size(80, 24, true));
  for (size_t at = 0; at < text.size(); at += 3) view->append(std::string_view(text).substr(at, 3));
  view->finish();
  EXPECT_GT(written, text.size() / 2);
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSlowdown = 20;  // of sanitizers
#else
constexpr double kSlowdown = 1;
#endif

TEST_F(MarkdownViewTest, LongAnswersAreShownInTime) {
  const double seconds = time_to_show(long_text("mixed", 100'000));
  RecordProperty("seconds", fmt::format("{:.2f}", seconds));
  EXPECT_LT(seconds, 2.0 * kSlowdown);
}

// Blocks that are one long answer, and what parsers of Markdown are slow at.
TEST_F(MarkdownViewTest, LongBlocksAreShownInTime) {
  for (const char* kind : {"paragraph", "nested", "table", "code", "brackets"}) {
    const double seconds = time_to_show(long_text(kind, 40'000));
    RecordProperty(kind, fmt::format("{:.2f}", seconds));
    EXPECT_LT(seconds, 2.0 * kSlowdown) << kind;
  }
}

TEST(RawView, SanitisesOnlyForTerminals) {
  std::string written;
  const auto collect = [&](std::string_view bytes) { written += bytes; };
  const std::string text = "a\x1b[31m\r\n日\xff**b**";
  for (const size_t length : {1u, 2u, 100u}) {
    for (const bool safe : {true, false}) {
      written.clear();
      const auto view = make_raw_view(collect, safe);
      for (size_t at = 0; at < text.size(); at += length) view->append(std::string_view(text).substr(at, length));
      view->finish();
      EXPECT_EQ(written, safe ? "a␛[31m\n日\ufffd**b**" : text);
    }
  }
}

}  // namespace
}  // namespace carat::cli
