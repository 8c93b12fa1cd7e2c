#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "cli/view/markdown/table_layout.h"
#include "cli/view/styled_text.h"

namespace carat::cli {

// Whether this build can render Markdown (md4c was found).
bool markdown_available();

// What stands above a piece of Markdown that is laid out by itself: it decides about the empty line between them and
// about the numbers of a list that goes on.
struct BlockContext {
  enum class Kind { kNothing, kBlock, kList, kSameBlock };
  Kind kind = Kind::kNothing;
  char list_mark = 0;          // kList: the bullet, or the character after the numbers
  unsigned next_number = 1;    // kList: of the next item
  bool blank_between = false;  // the source has an empty line between the two
};

struct MarkdownRequest {
  std::string_view text;  // whole blocks, perhaps without the end of the last one
  size_t from = 0;  // what comes from before this offset is settled: it is not laid out, and a new line begins here
  size_t width = 80;
  size_t rows = 24;  // how much of it can still be changed once it is written
  bool colour = true;
  BlockContext above;
};

struct MarkdownLayout {
  std::vector<Line> lines;  // `source` never falls; a line whose source is above all before it is where `from` can be
  BlockContext below;       // for the Markdown that follows; blank_between is left to the caller
};

// Lays out GitHub's Markdown in lines of `width` columns at most. `shapes` holds the columns of the tables of this
// text, in their order; those of a table whose head is settled are kept.
//
// Without colour the marks of headings, emphasis and code stay, so that their meaning does.
MarkdownLayout lay_out_markdown(const MarkdownRequest& request, std::vector<TableShape>& shapes);

// The line above and the one below a block of code.
StyledLine code_head(std::string_view language, size_t width);
StyledLine code_foot(size_t width);

}  // namespace carat::cli
