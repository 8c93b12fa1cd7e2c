#include "cli/view/markdown/markdown_view.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "cli/view/markdown/markdown_layout.h"
#include "cli/view/markdown/markdown_lines.h"
#include "cli/view/sanitise.h"

namespace carat::cli {

namespace {

class RawView : public AnswerView {
 public:
  RawView(Write write, bool sanitise) : write_(std::move(write)), sanitise_(sanitise) {}

  void append(std::string_view utf8) override { emit(sanitise_ ? sanitiser_.append(utf8) : std::string(utf8)); }
  void finish() override { emit(sanitiser_.finish()); }

 private:
  void emit(const std::string& text) {
    if (!text.empty()) write_(text);
  }

  Write write_;
  bool sanitise_;
  Sanitiser sanitiser_;
};

// The text is cut into blocks by looking at its lines. Only the block in progress (`block_`, whole lines, and `line_`,
// the line being written) is laid out, again and again; when a line shows that it is over, it is settled and forgotten.
//
// What is settled, and when, depends on nothing but the text and the size of the screen: it is decided at checkpoints,
// which are certain numbers of bytes apart. In between, draw() shows how things stand, and settles nothing. So the
// final picture cannot depend on the pieces in which the text came.
class MarkdownView : public AnswerView {
 public:
  MarkdownView(Write write, const Screen& screen) : screen_(screen), region_(std::move(write), screen) {}

  void append(std::string_view utf8) override {
    take(sanitiser_.append(utf8));
    draw();
    region_.flush();
  }

  void finish() override {
    take(sanitiser_.finish());
    if (!line_.empty()) end_line();
    settle_block();
    if (fence_) close_fence();
    region_.flush();
  }

 private:
  void take(std::string_view text);
  void end_line();
  bool begins_block(std::string_view line) const;
  void note_line(std::string_view line);
  void checkpoint();
  void settle_block();
  void draw();
  std::string visible_text() const;
  MarkdownLayout lay_out(const std::string& text);
  size_t width() const;

  void open_fence(Fence fence);
  void close_fence();
  void take_code(std::string_view text);
  void write_code(std::string_view text);

  Screen screen_;
  LiveRegion region_;
  Sanitiser sanitiser_;
  BlockContext above_;

  std::string block_;
  std::string line_;
  size_t from_ = 0;  // in block_: what comes before is settled
  std::vector<TableShape> shapes_;
  size_t since_checkpoint_ = 0;
  size_t since_draw_ = 0;

  // What the lines of the block say about the next one.
  bool after_blank_ = false;
  bool after_whole_block_ = false;  // a heading or a rule, which nothing continues
  char list_mark_ = 0;              // of the list the block is, if it is one
  size_t item_indent_ = 0;
  bool nested_code_ = false;  // in a block of code within a list or quote

  // In a block of code at the top level, which nothing but its end can change: it is written as it comes.
  std::optional<Fence> fence_;
  bool code_line_begun_ = false;  // part of the line is written; until then it is kept in line_
  size_t code_column_ = 0;
};

// One layout costs time in proportion to the block. So that an answer costs time in proportion to its length, large
// blocks are laid out less often: after a certain part of their size.
constexpr size_t kAlwaysLaidOut = 1024;
constexpr size_t kLayoutsPerBlock = 64;
constexpr size_t kCheckpointDistance = 64;
// A block without an end, which no person writes, is cut in two here.
constexpr size_t kLargestBlock = 32 * 1024;

size_t MarkdownView::width() const { return std::max(screen_.columns(), 12u) - 1; }

void MarkdownView::take(std::string_view text) {
  while (!text.empty()) {
    if (fence_) {
      const size_t newline = text.find('\n');
      take_code(text.substr(0, newline));
      if (newline == std::string_view::npos) return;
      text.remove_prefix(newline + 1);
      end_line();
      continue;
    }
    const size_t distance = std::max(kCheckpointDistance, (block_.size() + line_.size()) / kLayoutsPerBlock);
    const size_t due = distance - std::min(distance - 1, since_checkpoint_);
    const size_t length = std::min({text.find('\n'), text.size(), due});
    line_ += text.substr(0, length);
    since_checkpoint_ += length;
    since_draw_ += length;
    text.remove_prefix(length);
    if (since_checkpoint_ >= distance) checkpoint();
    if (text.starts_with('\n')) {
      text.remove_prefix(1);
      end_line();
    }
  }
}

void MarkdownView::end_line() {
  const std::string line = std::exchange(line_, "");
  if (fence_) {
    if (!code_line_begun_ && closes_fence(*fence_, line)) return close_fence();
    if (!code_line_begun_) write_code(line);
    region_.end_line();
    code_line_begun_ = false;
    code_column_ = 0;
    return;
  }
  if (begins_block(line)) settle_block();
  const bool in_item = item_indent_ > 0 && indentation(line) >= item_indent_;
  if (std::optional<Fence> fence = opening_fence(line); fence && !in_item) {
    settle_block();
    return open_fence(std::move(*fence));
  }
  note_line(line);
  block_ += nested_code_ ? line : spelled_for_parser(line);
  block_ += '\n';
  ++since_checkpoint_;
  ++since_draw_;
}

// Whether everything before this line is complete, so that it could stand in a text of its own. Only lines without
// indentation are asked, because they end all lists and quotes that they do not continue by a mark of their own.
bool MarkdownView::begins_block(std::string_view line) const {
  if (block_.empty() || is_blank_line(line) || indentation(line) > 0) return false;
  if (after_blank_ || after_whole_block_ || is_heading_line(line)) return true;
  if (is_rule_line(line) && (line[0] != '-' || list_mark_ != 0)) return true;
  const std::optional<ListMarker> marker = list_marker(line);
  return marker && list_mark_ == marker->mark;
}

void MarkdownView::note_line(std::string_view line) {
  const bool blank = is_blank_line(line);
  const size_t indent = indentation(line);
  if (!blank && (item_indent_ == 0 || indent < item_indent_)) {
    const std::optional<ListMarker> marker = list_marker(line);
    const bool begins_list = marker && (block_.empty() || after_blank_ || list_mark_ != 0 || marker->can_interrupt);
    if (begins_list) {
      list_mark_ = marker->mark;
      item_indent_ = marker->content_indent;
    } else if (after_blank_) {
      list_mark_ = 0;
      item_indent_ = 0;
    }
  }
  after_whole_block_ = indent == 0 && (is_heading_line(line) || is_rule_line(line));
  after_blank_ = blank;
  const std::string_view content = line.substr(std::min(line.find_first_not_of(" \t>"), line.size()));
  if (content.starts_with("```") || content.starts_with("~~~")) nested_code_ = !nested_code_;
}

// The block and the line in progress; a line that may turn out to be anything is left out.
std::string MarkdownView::visible_text() const {
  if (is_undecided(line_)) return block_;
  return block_ + (nested_code_ ? line_ : spelled_for_parser(line_));
}

MarkdownLayout MarkdownView::lay_out(const std::string& text) {
  return lay_out_markdown({text, from_, width(), region_.capacity(), screen_.colour, above_}, shapes_);
}

// Settles the lines of a block that leaves too little room on the screen.
void MarkdownView::checkpoint() {
  since_checkpoint_ = 0;
  const bool too_large = block_.size() + line_.size() > kLargestBlock;
  if (!screen_.can_move_cursor && !too_large) return;
  const std::vector<Line> lines = lay_out(visible_text()).lines;
  if (!too_large && lines.size() <= region_.capacity()) return;
  // A new start is possible at lines that come from further on in the text than all before them.
  const size_t keep = too_large ? 1 : region_.capacity() / 2;
  size_t cut = 0;
  size_t source = from_;
  for (size_t i = 0; i < lines.size() && (i + keep <= lines.size() || cut == 0); ++i) {
    if (lines[i].source <= source) continue;
    source = lines[i].source;
    if (i > 0) cut = i;
  }
  if (cut == 0) return;
  from_ = lines[cut].source;
  region_.update(lines, cut);
  since_draw_ = 0;
  if (!too_large) return;
  // What is left goes on as a block of its own.
  const size_t settled_lines = std::min(from_, block_.size());
  if (from_ > block_.size()) line_ = visible_text().substr(from_);
  block_.erase(0, settled_lines);
  from_ = 0;
  shapes_.clear();
  above_ = {BlockContext::Kind::kSameBlock, 0, 1, false};
}

void MarkdownView::settle_block() {
  if (!block_.empty()) {
    const MarkdownLayout layout = lay_out(block_);
    region_.update(layout.lines, layout.lines.size());
    above_ = layout.below;
    above_.blank_between = after_blank_;
  }
  block_.clear();
  from_ = 0;
  shapes_.clear();
  since_checkpoint_ = 0;
  since_draw_ = 0;
  after_blank_ = after_whole_block_ = nested_code_ = false;
  list_mark_ = 0;
  item_indent_ = 0;
}

void MarkdownView::draw() {
  if (!screen_.can_move_cursor || fence_) return;
  const size_t size = block_.size() + line_.size();
  const size_t patience = size <= kAlwaysLaidOut ? 1 : (size - kAlwaysLaidOut) / kLayoutsPerBlock;
  if (since_draw_ < std::max<size_t>(patience, 1)) return;
  since_draw_ = 0;
  region_.update(lay_out(visible_text()).lines, 0);
}

void MarkdownView::open_fence(Fence fence) {
  std::vector<Line> lines;
  if (above_.kind != BlockContext::Kind::kNothing) lines.emplace_back();
  lines.push_back(write_line(code_head(fence.language, width()), screen_.colour));
  region_.update(lines, lines.size());
  fence_ = std::move(fence);
}

void MarkdownView::close_fence() {
  if (code_line_begun_) region_.end_line();
  region_.update({write_line(code_foot(width()), screen_.colour)}, 1);
  fence_.reset();
  code_line_begun_ = false;
  code_column_ = 0;
  above_ = {BlockContext::Kind::kBlock, 0, 1, false};
}

// The start of a line waits until it is certain that the line does not end the block.
void MarkdownView::take_code(std::string_view text) {
  if (code_line_begun_) return write_code(text);
  line_ += text;
  if (may_close_fence(*fence_, line_)) return;
  code_line_begun_ = true;
  write_code(std::exchange(line_, ""));
}

void MarkdownView::write_code(std::string_view text) {
  // Code in an indented fence is indented as far.
  if (code_column_ == 0) text.remove_prefix(std::min({text.find_first_not_of(' '), text.size(), fence_->indent}));
  region_.write_text(expand_tabs(text, code_column_));
}

}  // namespace

std::unique_ptr<AnswerView> make_raw_view(Write write, bool sanitise) {
  return std::make_unique<RawView>(std::move(write), sanitise);
}

std::unique_ptr<AnswerView> make_markdown_view(Write write, const Screen& screen) {
  if (!markdown_available()) {
    fail(ErrorCode::kUnsupported,
         "this carat was built without Markdown: use --raw, or install libmd4c-dev and build again");
  }
  return std::make_unique<MarkdownView>(std::move(write), screen);
}

}  // namespace carat::cli
