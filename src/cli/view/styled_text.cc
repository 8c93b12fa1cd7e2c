#include "cli/view/styled_text.h"

#include <utility>

#include "cli/view/text_width.h"

namespace carat::cli {

namespace {

constexpr std::string_view kReset = "\x1b[0m";
constexpr size_t kTabWidth = 4;

std::string sequence_for(const Style& style) {
  std::string codes;
  const auto add = [&](const char* code) { (codes += codes.empty() ? "" : ";") += code; };
  if (style.bold) add("1");
  if (style.dim) add("2");
  if (style.italic) add("3");
  if (style.underline) add("4");
  if (style.strike) add("9");
  if (style.colour == Colour::kCyan) add("36");
  if (style.colour == Colour::kMagenta) add("35");
  return "\x1b[" + codes + "m";
}

bool is_space(uint32_t code_point) { return code_point == ' ' || code_point == '\t' || code_point == '\n'; }

// Characters of scripts that are written without spaces; emoji, which are as wide, keep to the word they stand in.
bool is_ideograph(const TextUnit& unit) {
  return unit.columns >= 2 && unit.code_point >= 0x2e80 && (unit.code_point < 0xa4d0 || unit.code_point >= 0xf900) &&
         (unit.code_point < 0x1f000 || unit.code_point >= 0x20000);
}

// Full-width punctuation that must not begin a line.
bool closes_phrase(uint32_t code_point) {
  switch (code_point) {
    case 0x3001:  // comma and full stop
    case 0x3002:
    case 0x3009:  // closing brackets
    case 0x300b:
    case 0x300d:
    case 0x300f:
    case 0x3011:
    case 0xff01:  // ! ) , . : ; ?
    case 0xff09:
    case 0xff0c:
    case 0xff0e:
    case 0xff1a:
    case 0xff1b:
    case 0xff1f:
      return true;
    default:
      return false;
  }
}

// How many bytes at the start are characters of ASCII within a word, none of which a mark can follow: the bulk of most
// texts, which need not be looked at one by one.
size_t plain_length(std::string_view text) {
  size_t length = 0;
  while (length < text.size() && text[length] > ' ' && text[length] < 0x7f) ++length;
  return length < text.size() && static_cast<unsigned char>(text[length]) >= 0x80 && length > 0 ? length - 1 : length;
}

// Where the last part of a run comes from.
size_t source_of(const StyledRun& run, std::string_view rest) {
  return run.is_from_point ? run.source : run.source + (run.text.size() - rest.size());
}

class Wrapper {
 public:
  explicit Wrapper(size_t width) : width_(width == 0 ? 1 : width) {}

  void add(const StyledRun& run) {
    std::string_view rest = run.text;
    while (!rest.empty()) {
      const size_t plain = plain_length(rest);
      if (plain > 0 && !after_ideograph_ && word_.columns + plain <= width_) {
        if (word_.runs.empty()) word_.source = source_of(run, rest);
        word_.add(rest.substr(0, plain), plain, run.style);
        rest.remove_prefix(plain);
        continue;
      }
      const TextUnit unit = first_unit(rest);
      if (is_space(unit.code_point)) {
        end_word();
        space_pending_ = line_.columns > 0;
        space_style_ = run.style;
      } else {
        add_to_word(unit, run.style, source_of(run, rest));
      }
      rest.remove_prefix(unit.bytes.size());
    }
    if (!run.ends_line) return;
    end_word();
    end_line();
  }

  std::vector<StyledLine> finish() {
    end_word();
    if (!line_.runs.empty()) end_line();
    return std::move(lines_);
  }

 private:
  void add_to_word(const TextUnit& unit, const Style& style, size_t source) {
    const bool ideograph = is_ideograph(unit);
    if (!word_.runs.empty() && (ideograph || after_ideograph_) && !closes_phrase(unit.code_point)) end_word();
    after_ideograph_ = ideograph;
    if (word_.columns + unit.columns > width_ && !word_.runs.empty()) {
      end_word();
      end_line();
    }
    if (word_.runs.empty()) word_.source = source;
    word_.add(unit.bytes, unit.columns, style);
  }

  void end_word() {
    if (word_.runs.empty()) return;
    const size_t space = space_pending_ ? 1 : 0;
    if (!line_.runs.empty() && line_.columns + space + word_.columns > width_) {
      end_line();
    } else if (space_pending_) {
      line_.add(" ", 1, space_style_);
    }
    space_pending_ = false;
    if (line_.runs.empty()) line_.source = word_.source;
    for (const StyledRun& run : word_.runs) line_.add(run.text, 0, run.style);
    line_.columns += word_.columns;
    word_ = StyledLine{};
  }

  void end_line() {
    lines_.push_back(std::exchange(line_, StyledLine{}));
    space_pending_ = false;
  }

  size_t width_;
  StyledLine line_;
  StyledLine word_;
  bool space_pending_ = false;
  Style space_style_;
  bool after_ideograph_ = false;
  std::vector<StyledLine> lines_;
};

}  // namespace

void StyledLine::add(std::string_view text, size_t width, const Style& style) {
  if (runs.empty() || runs.back().style != style) runs.push_back({"", style});
  runs.back().text += text;
  columns += width;
}

std::string styled(std::string_view text, const Style& style, bool colour) {
  if (!colour || style == Style{} || text.empty()) return std::string(text);
  return (sequence_for(style) += text) += kReset;
}

Line write_line(const StyledLine& line, bool colour) {
  Line written{"", line.columns, line.source};
  for (const StyledRun& run : line.runs) written.text += styled(run.text, run.style, colour);
  return written;
}

std::vector<StyledLine> wrap(const std::vector<StyledRun>& runs, size_t width) {
  Wrapper wrapper(width);
  for (const StyledRun& run : runs) wrapper.add(run);
  return wrapper.finish();
}

std::vector<std::string> wrap_plain(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::vector<StyledLine> wrapped = wrap({{std::string(text.substr(0, end)), {}}}, width);
    if (wrapped.empty()) lines.emplace_back();
    for (const StyledLine& line : wrapped) lines.push_back(write_line(line, false).text);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

std::string expand_tabs(std::string_view text, size_t& column) {
  std::string expanded;
  while (!text.empty()) {
    const TextUnit unit = first_unit(text);
    if (unit.code_point == '\t') {
      const size_t spaces = kTabWidth - column % kTabWidth;
      expanded.append(spaces, ' ');
      column += spaces;
    } else {
      expanded += unit.bytes;
      column += unit.columns;
    }
    text.remove_prefix(unit.bytes.size());
  }
  return expanded;
}

std::vector<StyledLine> cut_into_lines(const StyledRun& run, size_t width) {
  size_t column = 0;
  const std::string expanded = expand_tabs(run.text, column);
  std::vector<StyledLine> lines(1);
  lines.back().source = run.source;
  std::string_view rest = expanded;
  while (!rest.empty()) {
    const TextUnit unit = first_unit(rest);
    if (lines.back().columns + unit.columns > width && lines.back().columns > 0) {
      lines.emplace_back();
      lines.back().source = run.source;
    }
    lines.back().add(unit.bytes, unit.columns, run.style);
    rest.remove_prefix(unit.bytes.size());
  }
  return lines;
}

}  // namespace carat::cli
