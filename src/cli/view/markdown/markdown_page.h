#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cli/view/markdown/markdown_layout.h"
#include "cli/view/markdown/table_layout.h"
#include "cli/view/styled_text.h"

namespace carat::cli {

// Puts the blocks of a piece of Markdown below each other: the marks of lists and quotes before their lines, empty
// lines between blocks, and nothing of what is settled already. Positions are offsets in the Markdown.
class MarkdownPage {
 public:
  MarkdownPage(const MarkdownRequest& request, std::vector<TableShape>& shapes) : request_(request), shapes_(shapes) {
    layout_.below = request.above;
  }

  void open_quote();
  void open_list(bool ordered, unsigned start, char mark);
  void close_list();
  // `task`: "[ ] " or "[x] ", or nothing.
  void open_item(std::string_view task);
  // The innermost quote or item. One without any text still is a line.
  void close_container(size_t position);

  void add_paragraph(std::vector<StyledRun> runs);
  void add_rule(size_t position);
  // Code within lists and quotes, or indented: the view writes other code itself. Line ends are runs of their own,
  // "\n".
  void add_code(const std::vector<StyledRun>& runs, std::string_view language, bool fenced, size_t position);
  // Rows without text have kNowhere as their source.
  void add_table(Table table, size_t position);

  MarkdownLayout finish() { return std::move(layout_); }

  static constexpr size_t kNowhere = static_cast<size_t>(-1);

 private:
  // A list item or a quote that is open: what stands before its first line, and before the others.
  struct Container {
    StyledLine first;
    StyledLine rest;
    bool begun = false;
  };
  struct OpenList {
    bool ordered = false;
    char mark = 0;
    unsigned next_number = 1;
  };

  void add_block(size_t start, size_t first_line, const std::vector<StyledLine>& lines);
  void add_separator(size_t first_line, size_t source);
  void add_line(const StyledLine& line);
  void note_top_block();
  bool blank_line_before(size_t position) const;
  size_t text_room() const;

  const MarkdownRequest& request_;
  std::vector<TableShape>& shapes_;
  MarkdownLayout layout_;
  std::vector<Container> containers_;
  std::vector<OpenList> lists_;
  size_t blocks_ = 0;          // so far, settled ones too
  size_t blocks_in_list_ = 0;  // of them since the outermost list began
  size_t shared_depth_ = 0;    // containers that are open since the last block
  bool any_top_block_ = false;
  size_t table_count_ = 0;
};

}  // namespace carat::cli
