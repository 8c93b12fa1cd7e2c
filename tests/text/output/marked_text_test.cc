#include "text/output/marked_text.h"

#include <gtest/gtest.h>

#include "support/random.h"
#include "text/letter_case.h"
#include "text/white_space.h"

namespace carat::text {
namespace {

std::string shown(const MarkedText& text) {
  std::string out;
  for (const PromptPiece& piece : text.pieces()) out += (piece.from_template ? "T" : "c") + ("(" + piece.text + ")");
  return out;
}

TEST(MarkedText, NeighboursOfOneOriginAreOnePiece) {
  MarkedText text;
  text.markup("a").markup("b").content("c").content("").content("d").markup("e");
  EXPECT_EQ(shown(text), "T(ab)c(cd)T(e)");
  EXPECT_EQ(text.text(), "abcde");
  EXPECT_FALSE(text.wholly_from_template());
  EXPECT_TRUE(MarkedText().wholly_from_template());
}

TEST(MarkedText, CanBeAppendedToItself) {
  MarkedText text;
  text.markup("a").content("b");
  text.append(text);
  EXPECT_EQ(shown(text), "T(a)c(b)T(a)c(b)");
}

// Parts and joins against one mark for each byte.
TEST(MarkedText, PartsKeepTheMarksOfTheirBytes) {
  carat::test::Random random(3);
  MarkedText text;
  std::string marks;
  for (int i = 0; i < 60; ++i) {
    const bool from_template = random.below(2) == 0;
    const std::string piece(random.below(3), 'x');
    text.append(piece, from_template);
    marks += std::string(piece.size(), from_template ? 'T' : 'c');
  }
  for (size_t begin = 0; begin <= marks.size(); ++begin) {
    for (size_t end = begin; end <= marks.size(); ++end) {
      std::string found;
      for (const PromptPiece& piece : text.part(begin, end).pieces()) {
        found += std::string(piece.text.size(), piece.from_template ? 'T' : 'c');
      }
      ASSERT_EQ(found, marks.substr(begin, end - begin));
    }
  }
}

TEST(MarkedText, MappedPieceByPiece) {
  MarkedText text;
  text.markup("a\u00df").content("b");
  EXPECT_EQ(shown(text.mapped(to_upper)), "T(ASS)c(B)");
}

TEST(LetterCase, MapsTheLettersOfTheCommonScripts) {
  EXPECT_EQ(
      to_lower("ABC xyz \u00c0\u00de\u0178 \u0100\u0139\u017d \u0391\u03a9\u0386\u038c \u0410\u042f\u0401 \u0531 "
               "\u1e00\u1ef8"),
      "abc xyz \u00e0\u00fe\u00ff \u0101\u013a\u017e \u03b1\u03c9\u03ac\u03cc \u0430\u044f\u0451 \u0561 \u1e01\u1ef9");
  EXPECT_EQ(
      to_upper("abc XYZ \u00e0\u00fe\u00ff \u0101\u013a\u017e \u03b1\u03c9\u03ac\u03cc \u0430\u044f\u0451 \u0561 "
               "\u1e01\u1ef9"),
      "ABC XYZ \u00c0\u00de\u0178 \u0100\u0139\u017d \u0391\u03a9\u0386\u038c \u0410\u042f\u0401 \u0531 \u1e00\u1ef8");
  EXPECT_EQ(to_upper("\u00d7\u00f7 \u65e5\u672c \U0001f642 \xff\xc3"), "\u00d7\u00f7 \u65e5\u672c \U0001f642 \xff\xc3");
}

TEST(WhiteSpace, TrimsWhatPythonCallsSpace) {
  EXPECT_EQ(trim(" \t\n\u00a0\u2003\u3000x \u0085"), "x");
  EXPECT_EQ(trim_start("  x "), "x ");
  EXPECT_EQ(trim_end("  x "), "  x");
  EXPECT_EQ(trim("\u200b"), "\u200b");
  EXPECT_EQ(trim(" \xa0 "), "\xa0");  // half a character
  EXPECT_EQ(trim(""), "");
}

}  // namespace
}  // namespace carat::text
