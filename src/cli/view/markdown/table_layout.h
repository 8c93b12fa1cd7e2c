#pragma once

#include <cstddef>
#include <vector>

#include "cli/view/styled_text.h"

namespace carat::cli {

enum class CellAlignment { kLeft, kCentre, kRight };

struct TableCell {
  std::vector<StyledRun> runs;
};

struct TableRow {
  std::vector<TableCell> cells;
  size_t source = 0;
};

struct Table {
  std::vector<CellAlignment> alignments;  // one per column
  std::vector<TableRow> rows;             // the first is the head
};

// How a table is drawn. Settled rows keep it, so it is chosen once.
struct TableShape {
  std::vector<size_t> widths;  // of the cells' text; empty: too narrow for columns, each row is a list of its cells
  bool ruled = false;          // lines between the rows, because some cells need several lines
};

// For a table in a window of `width` columns. One that is taller than its `rows` is settled before it is complete; its
// columns get some room for longer cells to come.
TableShape choose_shape(const Table& table, size_t width, size_t rows);

// The lines of the rows from offset `from` on, and what frames them.
std::vector<StyledLine> draw_table(const Table& table, const TableShape& shape, size_t width, size_t from);

}  // namespace carat::cli
