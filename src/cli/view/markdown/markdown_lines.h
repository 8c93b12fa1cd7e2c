#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace carat::cli {

// What a single line of Markdown says about the blocks around it, as far as the view must know it to tell which blocks
// can no longer change. Lines are given without their newline.

bool is_blank_line(std::string_view line);

// Columns of white space at the start; tabs reach to multiples of 4.
size_t indentation(std::string_view line);

// `# Heading`, at the start of the line.
bool is_heading_line(std::string_view line);

// `---`, `* * *` and the like at the start of the line. After a paragraph `---` makes a heading of it.
bool is_rule_line(std::string_view line);

struct ListMarker {
  char mark = 0;               // the bullet, or the character after the number
  size_t content_indent = 0;   // what is indented as far belongs to the item
  bool can_interrupt = false;  // may begin a list in the middle of a paragraph: a bullet or the number 1, and text
};
// `- item`, `3. item`, indented by 3 columns at most.
std::optional<ListMarker> list_marker(std::string_view line);

struct Fence {
  char mark = 0;  // ` or ~
  size_t length = 0;
  size_t indent = 0;
  std::string language;
};
// The line that begins a block of code, indented by 3 columns at most.
std::optional<Fence> opening_fence(std::string_view line);
bool closes_fence(const Fence& fence, std::string_view line);
// Whether the start of a line may become one that ends the block.
bool may_close_fence(const Fence& fence, std::string_view start);

// The line as md4c is to read it; `line` may lack its end.
// - A definition such as `[1]: https://…` vanishes in Markdown, and the links that use it may be settled already, as
//   text. So definitions are text here too: the bracket is written in another way.
// - The line under the head of a table needs three characters per column for md4c, but one for GitHub.
std::string spelled_for_parser(std::string_view line);

// Whether the start of a line shows nothing of its text yet, but may turn out to be a list marker, a rule, the line
// under a heading or under the head of a table, each of which would change what stands above it for a moment.
bool is_undecided(std::string_view start);

}  // namespace carat::cli
