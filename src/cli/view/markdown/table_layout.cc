#include "cli/view/markdown/table_layout.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "cli/view/text_width.h"

namespace carat::cli {

namespace {

constexpr size_t kSmallestColumn = 4;  // narrower ones leave nothing readable
constexpr size_t kFrameRows = 3;       // above the head, below it, and at the end
constexpr Style kFrame = {.dim = true};

// What the frame takes: a bar before each column and after the last, and a space on both sides of each cell.
size_t frame_width(size_t columns) { return 3 * columns + 1; }

size_t natural_width(const TableCell& cell) {
  size_t width = 0;
  for (const StyledLine& line : wrap(cell.runs, std::string::npos)) width = std::max(width, line.columns);
  return width;
}

// Columns that need less than an equal share of the room keep what they need; the others share the rest.
void fit_widths(std::vector<size_t>& widths, size_t room) {
  std::vector<size_t*> open;
  for (size_t& width : widths) open.push_back(&width);
  std::sort(open.begin(), open.end(), [](const size_t* a, const size_t* b) { return *a < *b; });
  for (size_t i = 0; i < open.size(); ++i) {
    const size_t share = room / (open.size() - i);
    *open[i] = std::min(*open[i], share);
    room -= *open[i];
  }
}

// A quarter more for each column, as long as it fits.
void add_reserve(std::vector<size_t>& widths, size_t window) {
  size_t used = frame_width(widths.size());
  for (const size_t width : widths) used += width;
  for (size_t& width : widths) {
    const size_t reserve = std::max<size_t>(2, width / 4);
    if (used + reserve > window) continue;
    width += reserve;
    used += reserve;
  }
}

StyledLine frame_line(const TableShape& shape, std::string_view left, std::string_view middle, std::string_view right,
                      size_t source) {
  StyledLine line;
  line.source = source;
  for (size_t column = 0; column < shape.widths.size(); ++column) {
    line.add(column == 0 ? left : middle, 1, kFrame);
    for (size_t i = 0; i < shape.widths[column] + 2; ++i) line.add("─", 1, kFrame);
  }
  line.add(right, 1, kFrame);
  return line;
}

void add_padded(StyledLine& line, const StyledLine* content, size_t width, CellAlignment alignment) {
  const size_t used = content == nullptr ? 0 : content->columns;
  const size_t gap = width - std::min(width, used);
  size_t before = 0;
  if (alignment == CellAlignment::kRight) before = gap;
  if (alignment == CellAlignment::kCentre) before = gap / 2;
  line.add(std::string(before + 1, ' '), before + 1, {});
  if (content != nullptr) {
    for (const StyledRun& run : content->runs) line.add(run.text, 0, run.style);
    line.columns += used;
  }
  line.add(std::string(gap - before + 1, ' '), gap - before + 1, {});
}

void draw_row(const Table& table, const TableRow& row, const TableShape& shape, std::vector<StyledLine>& lines) {
  std::vector<std::vector<StyledLine>> cells;
  size_t height = 1;
  for (size_t column = 0; column < shape.widths.size(); ++column) {
    cells.push_back(column < row.cells.size() ? wrap(row.cells[column].runs, shape.widths[column])
                                              : std::vector<StyledLine>());
    height = std::max(height, cells.back().size());
  }
  for (size_t i = 0; i < height; ++i) {
    StyledLine line;
    line.source = row.source;
    for (size_t column = 0; column < cells.size(); ++column) {
      line.add("│", 1, kFrame);
      const StyledLine* content = i < cells[column].size() ? &cells[column][i] : nullptr;
      add_padded(line, content, shape.widths[column], table.alignments[column]);
    }
    line.add("│", 1, kFrame);
    lines.push_back(std::move(line));
  }
}

// Each row as "head: cell" lines under a rule.
void draw_as_list(const Table& table, size_t width, size_t from, std::vector<StyledLine>& lines) {
  const TableRow& head = table.rows.front();
  for (size_t i = table.rows.size() > 1 ? 1 : 0; i < table.rows.size(); ++i) {
    const TableRow& row = table.rows[i];
    if (row.source < from) continue;
    StyledLine rule;
    rule.source = row.source;
    for (size_t column = 0; column < std::min<size_t>(width, 8); ++column) rule.add("─", 1, kFrame);
    lines.push_back(std::move(rule));
    for (size_t column = 0; column < row.cells.size(); ++column) {
      std::vector<StyledRun> runs;
      if (i > 0 && column < head.cells.size()) {
        runs = head.cells[column].runs;
        runs.push_back({": ", {}});
      }
      runs.insert(runs.end(), row.cells[column].runs.begin(), row.cells[column].runs.end());
      for (StyledLine& line : wrap(runs, width)) {
        line.source = row.source;
        lines.push_back(std::move(line));
      }
    }
  }
}

}  // namespace

TableShape choose_shape(const Table& table, size_t width, size_t rows) {
  TableShape shape;
  const size_t columns = table.alignments.size();
  shape.widths.assign(columns, 1);
  for (const TableRow& row : table.rows) {
    for (size_t column = 0; column < std::min(columns, row.cells.size()); ++column) {
      shape.widths[column] = std::max(shape.widths[column], natural_width(row.cells[column]));
    }
  }
  if (table.rows.size() + kFrameRows > rows) add_reserve(shape.widths, width);
  size_t wanted = 0;
  size_t least = 0;
  for (const size_t natural : shape.widths) {
    wanted += natural;
    least += std::min(natural, kSmallestColumn);
  }
  if (wanted + frame_width(columns) <= width) return shape;
  if (least + frame_width(columns) > width) return {};
  fit_widths(shape.widths, width - frame_width(columns));
  shape.ruled = true;
  return shape;
}

std::vector<StyledLine> draw_table(const Table& table, const TableShape& shape, size_t width, size_t from) {
  std::vector<StyledLine> lines;
  if (table.rows.empty()) return lines;
  if (shape.widths.empty()) {
    draw_as_list(table, width, from, lines);
    return lines;
  }
  size_t last_source = 0;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const TableRow& row = table.rows[i];
    last_source = row.source;
    if (row.source < from) continue;
    if (i == 0) lines.push_back(frame_line(shape, "┌", "┬", "┐", row.source));
    if (i == 1 || (i > 1 && shape.ruled)) lines.push_back(frame_line(shape, "├", "┼", "┤", row.source));
    draw_row(table, row, shape, lines);
  }
  if (last_source >= from) lines.push_back(frame_line(shape, "└", "┴", "┘", last_source));
  return lines;
}

}  // namespace carat::cli
