#include "cli/view/markdown/markdown_page.h"

#include <algorithm>

#include "cli/view/text_width.h"

namespace carat::cli {

namespace {

constexpr size_t kRuleWidth = 40;     // of lines that only separate
constexpr size_t kSmallestText = 10;  // what deep nesting leaves for text
constexpr Style kDim = {.dim = true};

void extend_rule(StyledLine& line, size_t width) {
  while (line.columns < std::min(width, kRuleWidth)) line.add("─", 1, kDim);
}

void append(StyledLine& line, const StyledLine& more) {
  for (const StyledRun& run : more.runs) line.add(run.text, 0, run.style);
  line.columns += more.columns;
}

void drop_spaces_at_end(StyledLine& line) {
  while (!line.runs.empty() && line.runs.back().text.ends_with(' ')) {
    line.runs.back().text.pop_back();
    --line.columns;
    if (line.runs.back().text.empty()) line.runs.pop_back();
  }
}

// What comes from `from` on.
std::vector<StyledRun> without_settled(std::vector<StyledRun> runs, size_t from) {
  std::vector<StyledRun> rest;
  for (StyledRun& run : runs) {
    if (run.source < from) {
      if (run.is_from_point || run.source + run.text.size() <= from) continue;
      run.text.erase(0, from - run.source);
      run.source = from;
    }
    rest.push_back(std::move(run));
  }
  return rest;
}

// Runs of code with ends of lines among them, as one run per line.
std::vector<StyledRun> code_lines(const std::vector<StyledRun>& runs) {
  std::vector<StyledRun> lines;
  bool at_start = true;
  for (const StyledRun& run : runs) {
    if (at_start) lines.push_back({"", {}, run.source});
    at_start = run.text == "\n";
    if (!at_start) lines.back().text += run.text;
  }
  return lines;
}

}  // namespace

StyledLine code_head(std::string_view language, size_t width) {
  constexpr size_t kFrame = 5;  // two dashes and a space before the language, a space and a dash at least after it
  StyledLine line;
  if (!language.empty() && width > kFrame) {
    const std::string_view label = cut_to_width(language, std::min(width, kRuleWidth) - kFrame);
    line.add("── ", 3, kDim);
    line.add(label, text_width(label), kDim);
    line.add(" ", 1, kDim);
  }
  extend_rule(line, width);
  return line;
}

StyledLine code_foot(size_t width) {
  StyledLine line;
  extend_rule(line, width);
  return line;
}

void MarkdownPage::open_quote() {
  Container container;
  container.first.add("│ ", 2, kDim);
  container.rest = container.first;
  containers_.push_back(std::move(container));
}

void MarkdownPage::open_list(bool ordered, unsigned start, char mark) {
  const BlockContext& above = request_.above;
  const bool is_first = containers_.empty() && !any_top_block_;
  const bool goes_on = is_first && above.kind == BlockContext::Kind::kList && above.list_mark == mark;
  if (lists_.empty()) blocks_in_list_ = goes_on ? 1 : 0;
  lists_.push_back({ordered, mark, goes_on ? above.next_number : start});
}

void MarkdownPage::close_list() {
  const OpenList list = lists_.back();
  lists_.pop_back();
  if (!containers_.empty()) return;
  layout_.below = {BlockContext::Kind::kList, list.mark, list.next_number, false};
  any_top_block_ = true;
}

void MarkdownPage::open_item(std::string_view task) {
  OpenList& list = lists_.back();
  const std::string marker = list.ordered ? std::to_string(list.next_number) + list.mark + " " : "• ";
  ++list.next_number;
  const size_t width = text_width(marker);
  Container container;
  container.first.add(marker, width, list.ordered ? Style{} : kDim);
  container.first.add(task, task.size(), {});
  container.rest.add(std::string(width + task.size(), ' '), width + task.size(), {});
  containers_.push_back(std::move(container));
}

void MarkdownPage::close_container(size_t position) {
  if (!containers_.back().begun) add_block(position, position, {StyledLine{{}, 0, position}});
  containers_.pop_back();
  shared_depth_ = std::min(shared_depth_, containers_.size());
  note_top_block();
}

void MarkdownPage::add_paragraph(std::vector<StyledRun> runs) {
  if (runs.empty()) return;
  const size_t start = runs.front().source;
  const std::vector<StyledLine> lines = wrap(without_settled(std::move(runs), request_.from), text_room());
  if (lines.empty() && start >= request_.from) return;  // nothing but white space
  add_block(start, start, lines);
}

void MarkdownPage::add_rule(size_t position) {
  StyledLine rule;
  rule.source = position;
  extend_rule(rule, text_room());
  add_block(position, position, {rule});
}

void MarkdownPage::add_code(const std::vector<StyledRun>& runs, std::string_view language, bool fenced,
                            size_t position) {
  const size_t room = text_room();
  const size_t start = runs.empty() ? position : runs.front().source;
  std::vector<StyledLine> lines;
  lines.push_back(code_head(language, room));
  lines.back().source = start;
  size_t source = start;
  for (StyledRun& run : code_lines(runs)) {
    source = run.source = std::max(source, run.source);
    for (StyledLine& line : cut_into_lines(run, room)) lines.push_back(std::move(line));
  }
  lines.push_back(code_foot(room));
  lines.back().source = source;
  std::erase_if(lines, [&](const StyledLine& line) { return line.source < request_.from; });
  // The line with the fence stands before the first line of code.
  const size_t fence_end = start == 0 ? std::string_view::npos : request_.text.rfind('\n', start - 1);
  add_block(start, fenced && fence_end != std::string_view::npos ? fence_end : start, lines);
}

void MarkdownPage::add_table(Table table, size_t position) {
  if (table.rows.empty()) return;
  // A row without text stands where the next one with text does, or the last.
  size_t source = position;
  for (auto row = table.rows.rbegin(); row != table.rows.rend(); ++row) {
    if (row->source == kNowhere) row->source = source;
    source = row->source;
  }
  const size_t room = text_room();
  const size_t index = table_count_++;
  if (shapes_.size() <= index) shapes_.resize(index + 1);
  const size_t start = table.rows.front().source;
  if (start >= request_.from) shapes_[index] = choose_shape(table, room, request_.rows);
  add_block(start, start, draw_table(table, shapes_[index], room, request_.from));
}

// `lines` are those of the block that are not settled; the block begins at `start`, which may be, and in the line of
// `first_line`.
void MarkdownPage::add_block(size_t start, size_t first_line, const std::vector<StyledLine>& lines) {
  if (start >= request_.from) {
    add_separator(first_line, start);
  } else {
    for (Container& container : containers_) container.begun = true;
  }
  for (const StyledLine& line : lines) {
    if (line.source >= request_.from) add_line(line);
  }
  ++blocks_;
  ++blocks_in_list_;
  shared_depth_ = containers_.size();
  note_top_block();
}

void MarkdownPage::note_top_block() {
  if (!containers_.empty() || !lists_.empty()) return;
  layout_.below = {BlockContext::Kind::kBlock, 0, 1, false};
  any_top_block_ = true;
}

// Between top-level blocks there is always an empty line; in lists where the source has one, which no later item can
// change.
void MarkdownPage::add_separator(size_t first_line, size_t source) {
  const BlockContext& above = request_.above;
  const bool in_list = !lists_.empty() && blocks_in_list_ > 0;
  bool wanted = !in_list || blank_line_before(first_line);
  if (blocks_ == 0) {
    wanted = above.kind == BlockContext::Kind::kBlock || above.kind == BlockContext::Kind::kList;
    if (in_list) wanted = above.blank_between;
  }
  if (!wanted) return;
  StyledLine line;
  line.source = source;
  for (size_t i = 0; i < shared_depth_; ++i) append(line, containers_[i].rest);
  drop_spaces_at_end(line);
  layout_.lines.push_back(write_line(line, request_.colour));
}

void MarkdownPage::add_line(const StyledLine& line) {
  StyledLine whole;
  whole.source = line.source;
  const size_t prefix_room = request_.width - std::min(request_.width, kSmallestText);
  for (Container& container : containers_) {
    const StyledLine& prefix = container.begun ? container.rest : container.first;
    container.begun = true;
    if (whole.columns + prefix.columns <= prefix_room) append(whole, prefix);
  }
  append(whole, line);
  if (line.runs.empty()) drop_spaces_at_end(whole);
  layout_.lines.push_back(write_line(whole, request_.colour));
}

// Also where only the marks of quotes stand.
bool MarkdownPage::blank_line_before(size_t position) const {
  const size_t line = request_.text.rfind('\n', position == 0 ? 0 : position - 1);
  if (line == std::string_view::npos || line == 0 || line >= position) return false;
  const size_t before = request_.text.rfind('\n', line - 1);
  const size_t start = before == std::string_view::npos ? 0 : before + 1;
  return request_.text.substr(start, line - start).find_first_not_of(" \t>") == std::string_view::npos;
}

size_t MarkdownPage::text_room() const {
  size_t prefix = 0;
  for (const Container& container : containers_) prefix += container.rest.columns;
  const size_t least = std::min(kSmallestText, request_.width);
  return request_.width > prefix + least ? request_.width - prefix : least;
}

}  // namespace carat::cli
