#include "cli/view/markdown/markdown_layout.h"

#include "base/error.h"

#ifdef CARAT_HAVE_MD4C
#include <md4c.h>

#include <exception>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "cli/view/markdown/entities.h"
#include "cli/view/markdown/markdown_page.h"
#endif

namespace carat::cli {

#ifndef CARAT_HAVE_MD4C

bool markdown_available() { return false; }

MarkdownLayout lay_out_markdown(const MarkdownRequest&, std::vector<TableShape>&) {
  fail(ErrorCode::kUnsupported,
       "this carat was built without Markdown: use --raw, or install libmd4c-dev and build again");
}

#else

namespace {

constexpr Style kDim = {.dim = true};

std::string text_of(const MD_ATTRIBUTE& attribute) {
  std::string text;
  if (attribute.text == nullptr) return text;
  for (size_t i = 0; attribute.substr_offsets[i] < attribute.size; ++i) {
    const MD_OFFSET start = attribute.substr_offsets[i];
    const std::string_view part(attribute.text + start, attribute.substr_offsets[i + 1] - start);
    text += attribute.substr_types[i] == MD_TEXT_ENTITY ? decode_entity(part) : std::string(part);
  }
  return text;
}

CellAlignment alignment_of(MD_ALIGN align) {
  if (align == MD_ALIGN_CENTER) return CellAlignment::kCentre;
  return align == MD_ALIGN_RIGHT ? CellAlignment::kRight : CellAlignment::kLeft;
}

// Receives the parser's events: collects the text of each block in its styles, and gives the blocks to the page.
class Layouter {
 public:
  Layouter(const MarkdownRequest& request, std::vector<TableShape>& shapes)
      : request_(request), page_(request, shapes) {}

  void enter_block(MD_BLOCKTYPE type, void* detail);
  void leave_block(MD_BLOCKTYPE type);
  void enter_span(MD_SPANTYPE type);
  void leave_span(MD_SPANTYPE type, void* detail);
  void add_text(MD_TEXTTYPE type, std::string_view text);

  MarkdownLayout finish() { return page_.finish(); }

  std::exception_ptr failure;

 private:
  void enter_heading(unsigned level);
  void leave_cell();
  void leave_link(const std::string& target);
  void add_run(std::string text, size_t source);
  void add_made(std::string text, size_t source);
  void add_mark(std::string_view mark);
  void break_line();
  bool is_source(std::string_view text) const;
  bool begins_line_of_formula(size_t source) const;

  const MarkdownRequest& request_;
  MarkdownPage page_;
  std::vector<StyledRun> runs_;
  Style block_style_;  // of the text outside of all spans
  Style style_;
  size_t position_ = 0;  // in the source, after the last text
  bool in_code_ = false;
  bool fenced_ = false;
  std::string language_;
  std::optional<Table> table_;
  bool in_display_math_ = false;
  std::vector<size_t> link_starts_;  // where in runs_ the text of each open link begins
};

// Other text is the parser's own, such as the end of a line.
bool Layouter::is_source(std::string_view text) const {
  const auto* begin = request_.text.data();
  return !text.empty() && std::less_equal<>()(begin, text.data()) &&
         std::less<>()(text.data(), begin + request_.text.size());
}

// The parser swallows the newline after the opening $$.
bool Layouter::begins_line_of_formula(size_t source) const {
  const std::string_view gap = request_.text.substr(position_, source - position_);
  return gap.substr(gap.rfind('$') + 1).find('\n') != std::string_view::npos;
}

void Layouter::enter_heading(unsigned level) {
  block_style_ = Style{.bold = true, .underline = level == 1};
  if (level <= 2) block_style_.colour = Colour::kMagenta;
  style_ = block_style_;
  add_mark(std::string(level, '#') + " ");
}

void Layouter::enter_block(MD_BLOCKTYPE type, void* detail) {
  // The text of a list item may come without a paragraph around it; another block ends it.
  if (!table_) page_.add_paragraph(std::exchange(runs_, {}));
  switch (type) {
    case MD_BLOCK_QUOTE:
      return page_.open_quote();
    case MD_BLOCK_UL:
      return page_.open_list(false, 1, static_cast<const MD_BLOCK_UL_DETAIL*>(detail)->mark);
    case MD_BLOCK_OL: {
      const auto& list = *static_cast<const MD_BLOCK_OL_DETAIL*>(detail);
      return page_.open_list(true, list.start, list.mark_delimiter);
    }
    case MD_BLOCK_LI: {
      const auto& item = *static_cast<const MD_BLOCK_LI_DETAIL*>(detail);
      return page_.open_item(item.is_task == 0 ? "" : item.task_mark == ' ' ? "[ ] " : "[x] ");
    }
    case MD_BLOCK_H:
      return enter_heading(static_cast<const MD_BLOCK_H_DETAIL*>(detail)->level);
    case MD_BLOCK_CODE: {
      const auto& code = *static_cast<const MD_BLOCK_CODE_DETAIL*>(detail);
      in_code_ = true;
      fenced_ = code.fence_char != 0;
      language_ = text_of(code.lang);
      return;
    }
    case MD_BLOCK_TABLE:
      table_.emplace();
      return table_->alignments.resize(static_cast<const MD_BLOCK_TABLE_DETAIL*>(detail)->col_count);
    case MD_BLOCK_TR:
      return table_->rows.push_back({{}, MarkdownPage::kNowhere});
    case MD_BLOCK_TH:
    case MD_BLOCK_TD: {
      const size_t column = table_->rows.back().cells.size();
      const CellAlignment alignment = alignment_of(static_cast<const MD_BLOCK_TD_DETAIL*>(detail)->align);
      if (column < table_->alignments.size()) table_->alignments[column] = alignment;
      block_style_ = style_ = Style{.bold = type == MD_BLOCK_TH};
      return;
    }
    default:
      return;
  }
}

void Layouter::leave_cell() {
  TableRow& row = table_->rows.back();
  if (row.source == MarkdownPage::kNowhere && !runs_.empty()) row.source = runs_.front().source;
  row.cells.push_back({std::exchange(runs_, {})});
  block_style_ = style_ = Style{};
}

void Layouter::leave_block(MD_BLOCKTYPE type) {
  switch (type) {
    case MD_BLOCK_P:
      return page_.add_paragraph(std::exchange(runs_, {}));
    case MD_BLOCK_H:
      block_style_ = style_ = Style{};
      return page_.add_paragraph(std::exchange(runs_, {}));
    case MD_BLOCK_CODE:
      in_code_ = false;
      return page_.add_code(std::exchange(runs_, {}), language_, fenced_, position_);
    case MD_BLOCK_HR:
      return page_.add_rule(position_);
    case MD_BLOCK_TH:
    case MD_BLOCK_TD:
      return leave_cell();
    case MD_BLOCK_TABLE:
      page_.add_table(std::move(*table_), position_);
      return table_.reset();
    case MD_BLOCK_LI:
    case MD_BLOCK_QUOTE:
      page_.add_paragraph(std::exchange(runs_, {}));
      return page_.close_container(position_);
    case MD_BLOCK_UL:
    case MD_BLOCK_OL:
      return page_.close_list();
    default:
      return;
  }
}

void Layouter::enter_span(MD_SPANTYPE type) {
  switch (type) {
    case MD_SPAN_EM:
      add_mark("*");
      style_.italic = true;
      return;
    case MD_SPAN_STRONG:
      add_mark("**");
      style_.bold = true;
      return;
    case MD_SPAN_DEL:
      add_mark("~~");
      style_.strike = true;
      return;
    case MD_SPAN_CODE:
      add_mark("`");
      style_.colour = Colour::kCyan;
      return;
    case MD_SPAN_LATEXMATH:
      return add_made("$", position_);
    case MD_SPAN_LATEXMATH_DISPLAY:
      in_display_math_ = true;
      return add_made("$$", position_);
    case MD_SPAN_A:
    case MD_SPAN_IMG:
      style_.underline = true;
      return link_starts_.push_back(runs_.size());
    default:
      return;
  }
}

void Layouter::leave_span(MD_SPANTYPE type, void* detail) {
  switch (type) {
    case MD_SPAN_EM:
      style_.italic = block_style_.italic;
      return add_mark("*");
    case MD_SPAN_STRONG:
      style_.bold = block_style_.bold;
      return add_mark("**");
    case MD_SPAN_DEL:
      style_.strike = block_style_.strike;
      return add_mark("~~");
    case MD_SPAN_CODE:
      style_.colour = block_style_.colour;
      return add_mark("`");
    case MD_SPAN_LATEXMATH:
      return add_made("$", position_);
    case MD_SPAN_LATEXMATH_DISPLAY:
      in_display_math_ = false;
      return add_made("$$", position_);
    case MD_SPAN_A:
      return leave_link(text_of(static_cast<const MD_SPAN_A_DETAIL*>(detail)->href));
    case MD_SPAN_IMG:
      return leave_link(text_of(static_cast<const MD_SPAN_IMG_DETAIL*>(detail)->src));
    default:
      return;
  }
}

void Layouter::leave_link(const std::string& target) {
  style_.underline = block_style_.underline;
  std::string shown;
  for (size_t i = link_starts_.back(); i < runs_.size(); ++i) shown += runs_[i].text;
  link_starts_.pop_back();
  // The text of an autolink is the address, or all of it but the scheme.
  if (target.empty() || (!shown.empty() && target.ends_with(shown))) return;
  add_made(" (" + target + ")", position_);
  runs_.back().style = kDim;
}

void Layouter::add_text(MD_TEXTTYPE type, std::string_view text) {
  const bool own = is_source(text);
  const size_t source = own ? static_cast<size_t>(text.data() - request_.text.data()) : position_;
  // Brackets and backslashes with a backslash before them are how formulas are written far more often than Markdown's
  // escapes: \( … \), \[ … \], \{ … \}.
  const bool escaped = own && type == MD_TEXT_NORMAL && source > position_ && request_.text[source - 1] == '\\' &&
                       std::string_view("()[]{}\\,;!%&").find(text[0]) != std::string_view::npos;
  if (in_display_math_ && (!own || begins_line_of_formula(source))) break_line();
  if (own) position_ = source + text.size();
  if (type == MD_TEXT_BR) return break_line();
  if (type == MD_TEXT_SOFTBR) return add_run(" ", source);
  if (type == MD_TEXT_ENTITY) return add_made(decode_entity(text), source);
  if (type == MD_TEXT_NULLCHAR) return add_made("\ufffd", source);
  if (in_display_math_ && !own) return;
  if (escaped) return add_run("\\" + std::string(text), source - 1);
  add_run(std::string(text), source);
}

void Layouter::add_run(std::string text, size_t source) {
  const bool goes_on = !in_code_ && !runs_.empty() && !runs_.back().ends_line && !runs_.back().is_from_point &&
                       runs_.back().style == style_ && runs_.back().source + runs_.back().text.size() == source &&
                       link_starts_.empty();
  if (goes_on) {
    runs_.back().text += text;
  } else {
    runs_.push_back({std::move(text), style_, source});
  }
}

void Layouter::add_made(std::string text, size_t source) {
  runs_.push_back({std::move(text), style_, source, false, true});
}

// Without colour the marks are what shows the style.
void Layouter::add_mark(std::string_view mark) {
  if (!request_.colour) add_made(std::string(mark), position_);
}

void Layouter::break_line() {
  if (!runs_.empty()) runs_.back().ends_line = true;
}

// Exceptions must not pass through the parser, which is C: it is told to stop, and they are thrown again behind it.
template <typename Event>
int guarded(void* data, const Event& event) {
  auto& layouter = *static_cast<Layouter*>(data);
  try {
    event(layouter);
    return 0;
  } catch (...) {
    layouter.failure = std::current_exception();
    return 1;
  }
}

}  // namespace

bool markdown_available() { return true; }

MarkdownLayout lay_out_markdown(const MarkdownRequest& request, std::vector<TableShape>& shapes) {
  MD_PARSER parser = {};
  parser.flags = MD_DIALECT_GITHUB | MD_FLAG_NOHTML | MD_FLAG_LATEXMATHSPANS;
  parser.enter_block = [](MD_BLOCKTYPE type, void* detail, void* data) {
    return guarded(data, [&](Layouter& layouter) { layouter.enter_block(type, detail); });
  };
  parser.leave_block = [](MD_BLOCKTYPE type, void*, void* data) {
    return guarded(data, [&](Layouter& layouter) { layouter.leave_block(type); });
  };
  parser.enter_span = [](MD_SPANTYPE type, void*, void* data) {
    return guarded(data, [&](Layouter& layouter) { layouter.enter_span(type); });
  };
  parser.leave_span = [](MD_SPANTYPE type, void* detail, void* data) {
    return guarded(data, [&](Layouter& layouter) { layouter.leave_span(type, detail); });
  };
  parser.text = [](MD_TEXTTYPE type, const MD_CHAR* text, MD_SIZE size, void* data) {
    return guarded(data, [&](Layouter& layouter) { layouter.add_text(type, std::string_view(text, size)); });
  };
  Layouter layouter(request, shapes);
  const int status = md_parse(request.text.data(), static_cast<MD_SIZE>(request.text.size()), &parser, &layouter);
  if (layouter.failure) std::rethrow_exception(layouter.failure);
  if (status != 0) throw std::bad_alloc();  // all that can go wrong in the parser itself
  return layouter.finish();
}

#endif

}  // namespace carat::cli
