// What the documentation names exists: links and their anchors, paths and names of files, tests, and the sections of
// docs/gemma4.md that comments cite.
#include <fmt/format.h>
#include <fnmatch.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "support/files.h"

namespace carat {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 10> kFolders = {"src",     "tests", "deploy", "docs",    "examples",
                                                       "include", "bench", "fuzz",   "scripts", "cmake"};

// The text without blocks of code, in which nothing is a link, a heading or a name.
std::string without_blocks(const std::string& markdown) {
  std::istringstream lines(markdown);
  std::string text;
  bool is_inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      is_inside = !is_inside;
    } else if (!is_inside) {
      text += line + "\n";
    }
  }
  return text;
}

// All first groups of the matches.
std::vector<std::string> matches(const std::string& text, const std::regex& pattern) {
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at)
    found.push_back((*at)[1].str());
  return found;
}

// The anchor GitHub gives a heading.
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const char c : heading) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == ' ') {
      anchor += '-';
    } else if (byte >= 0x80 || std::isalnum(byte) || c == '-' || c == '_') {
      anchor += static_cast<char>(byte < 0x80 ? std::tolower(byte) : byte);
    }
  }
  return anchor;
}

std::set<std::string> anchors(const std::string& markdown) {
  static const std::regex kHeading("(?:^|\n)#+ ([^\n]*)");
  std::set<std::string> all;
  for (const std::string& heading : matches(without_blocks(markdown), kHeading)) all.insert(anchor_of(heading));
  return all;
}

// The targets of [text](target) that are no addresses.
std::vector<std::string> relative_links(const std::string& markdown) {
  static const std::regex kLink(R"(\]\(([^)\s]+)\))");
  std::vector<std::string> links = matches(without_blocks(markdown), kLink);
  std::erase_if(links, [](const std::string& link) { return link.find("://") != std::string::npos; });
  return links;
}

// "a/{b,c}.h" is "a/b.h" and "a/c.h".
std::vector<std::string> expand_braces(const std::string& name) {
  const size_t open = name.find('{'), close = name.find('}');
  if (open == std::string::npos || close == std::string::npos || close < open) return {name};
  std::vector<std::string> all;
  std::istringstream choices(name.substr(open + 1, close - open - 1));
  for (std::string choice; std::getline(choices, choice, ',');) {
    for (const std::string& each : expand_braces(name.substr(0, open) + choice + name.substr(close + 1))) {
      all.push_back(each);
    }
  }
  return all;
}

// Words in `backquotes` that are names of source files or begin with a folder of the repository.
std::vector<std::string> named_files(const std::string& markdown) {
  static const std::regex kWord("`([A-Za-z0-9_./*{},-]+)`");
  static const std::regex kSource(R"(.*[A-Za-z0-9_*}]\.(cc|h|cu|cuh|mjs|py|sh))");
  std::vector<std::string> names;
  for (const std::string& word : matches(without_blocks(markdown), kWord)) {
    const bool is_path = std::any_of(kFolders.begin(), kFolders.end(), [&](std::string_view folder) {
      return word.starts_with(fmt::format("{}/", folder));
    });
    if (!is_path && !std::regex_match(word, kSource)) continue;
    for (const std::string& name : expand_braces(word)) names.push_back(name);
  }
  return names;
}

// Everything in the repository's folders, relative to its root.
const std::vector<std::string>& repository() {
  static const std::vector<std::string> kAll = [] {
    const fs::path root = test::source_directory();
    std::vector<std::string> all;
    for (const std::string_view folder : kFolders) {
      all.emplace_back(folder);
      for (auto at = fs::recursive_directory_iterator(root / folder); at != fs::recursive_directory_iterator(); ++at) {
        if (at->path().filename() == "node_modules") at.disable_recursion_pending();
        all.push_back(at->path().lexically_relative(root).generic_string());
      }
    }
    return all;
  }();
  return kAll;
}

// The end of some path, with * for anything but a slash.
bool exists(std::string name) {
  while (name.ends_with('/')) name.pop_back();
  return std::any_of(repository().begin(), repository().end(), [&](const std::string& path) {
    const size_t depth = static_cast<size_t>(std::count(name.begin(), name.end(), '/'));
    size_t begin = path.size();
    for (size_t i = 0; i <= depth && begin != std::string::npos && begin > 0; ++i) begin = path.rfind('/', begin - 1);
    const std::string end = begin == std::string::npos ? path : path.substr(begin + 1);
    return fnmatch(name.c_str(), end.c_str(), FNM_PATHNAME) == 0;
  });
}

std::vector<fs::path> documents() {
  std::vector<fs::path> all;
  for (const fs::path& folder : {test::source_directory(), test::source_directory() / "docs"}) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".md") all.push_back(entry.path());
    }
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::string read(const fs::path& path) { return test::read_text(path.string()); }

TEST(Docs, TheRulesThemselves) {
  EXPECT_EQ(anchor_of("What works: `run`, and (more) 3.1"), "what-works-run-and-more-31");
  EXPECT_THAT(relative_links("[a](b.md#c) [d](https://e.f)\n```\n[g](h)\n```\n"), testing::ElementsAre("b.md#c"));
  EXPECT_THAT(named_files("`src/a/` `x_{b,c}.cu` `--flag` `E4B` `build/z.h` `some words.h`"),
              testing::ElementsAre("src/a/", "x_b.cu", "x_c.cu", "build/z.h"));
  EXPECT_TRUE(exists("src/base/error.h"));
  EXPECT_TRUE(exists("error.h"));
  EXPECT_TRUE(exists("src/base/"));
  EXPECT_TRUE(exists("src/base/err*.h"));
  EXPECT_FALSE(exists("rror.h"));
  EXPECT_FALSE(exists("base/no_such_file.h"));
}

TEST(Docs, LinksLeadSomewhere) {
  size_t checked = 0;
  for (const fs::path& document : documents()) {
    for (const std::string& link : relative_links(read(document))) {
      const size_t mark = link.find('#');
      const fs::path target = mark == 0 ? document : document.parent_path() / link.substr(0, mark);
      EXPECT_TRUE(fs::exists(target)) << document.filename() << " links to " << link;
      ++checked;
      if (mark == std::string::npos || !fs::exists(target)) continue;
      EXPECT_THAT(anchors(read(target)), testing::Contains(link.substr(mark + 1)))
          << document.filename() << " links to " << link;
    }
  }
  EXPECT_GT(checked, 50u);
}

TEST(Docs, NamedFilesExist) {
  size_t checked = 0;
  for (const fs::path& document : documents()) {
    for (const std::string& name : named_files(read(document))) {
      EXPECT_TRUE(exists(name)) << document.filename() << " names " << name;
      ++checked;
    }
  }
  EXPECT_GT(checked, 50u);
}

// "Suite.Case" of every test.
std::set<std::string> tests() {
  static const std::regex kTest(R"(TEST(?:_F|_P)?\(\s*(\w+,\s*\w+)\))");
  std::set<std::string> names;
  for (const std::string& path : repository()) {
    if (!path.starts_with("tests/") || !(path.ends_with(".cc") || path.ends_with(".cu"))) continue;
    for (const std::string& match : matches(read(test::source_directory() / path), kTest)) {
      const size_t comma = match.find(',');
      names.insert(match.substr(0, comma) + "." + match.substr(match.find_first_not_of(", \n", comma)));
    }
  }
  return names;
}

// Names such as `Suite.Case`, `Suite.*` and `Suite.Beginning…`.
TEST(Docs, NamedTestsExist) {
  static const std::regex kName("`([A-Z][A-Za-z]+\\.(?:\\*|[A-Z][A-Za-z0-9]*))");
  const std::set<std::string> all = tests();
  size_t checked = 0;
  for (const fs::path& document : documents()) {
    for (std::string name : matches(without_blocks(read(document)), kName)) {
      if (name.ends_with('*')) name.pop_back();
      const auto found = all.lower_bound(name);
      EXPECT_TRUE(found != all.end() && found->starts_with(name)) << document.filename() << " names the test " << name;
      ++checked;
    }
  }
  EXPECT_GT(checked, 20u);
}

TEST(Docs, CommentsCiteWhatIsThere) {
  static const std::regex kCitation(R"((docs/[A-Za-z0-9_-]+\.md(?: [0-9]+(?:\.[0-9]+)?)?))");
  static const std::regex kNumbered("(?:^|\n)#+ ([0-9]+(?:\\.[0-9]+)?)\\.? ");
  std::map<std::string, std::vector<std::string>> sections;
  size_t checked = 0;
  for (const std::string& path : repository()) {
    const std::string extension = fs::path(path).extension().string();
    if (extension != ".h" && extension != ".cc" && extension != ".cu" && extension != ".cuh") continue;
    if (path == "tests/docs/docs_test.cc") continue;
    for (const std::string& citation : matches(read(test::source_directory() / path), kCitation)) {
      const std::string document = citation.substr(0, citation.find(' '));
      ++checked;
      if (!fs::exists(test::source_directory() / document)) {
        ADD_FAILURE() << path << " cites " << document;
        continue;
      }
      if (citation == document || document != "docs/gemma4.md") continue;
      auto& numbers = sections[document];
      if (numbers.empty()) numbers = matches(read(test::source_directory() / document), kNumbered);
      EXPECT_THAT(numbers, testing::Contains(citation.substr(document.size() + 1))) << path << " cites " << citation;
    }
  }
  EXPECT_GT(checked, 20u);
}

}  // namespace
}  // namespace carat
