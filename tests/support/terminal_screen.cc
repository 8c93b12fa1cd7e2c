#include "support/terminal_screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <clocale>
#include <cwchar>
#include <set>
#include <stdexcept>

#include "base/utf8.h"

namespace carat::test {

namespace {

size_t number_in(std::string_view text, size_t otherwise) {
  size_t value = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

size_t width_of(std::string_view character) {
  wchar_t wide = 0;
  std::mbstate_t state = {};
  const size_t length = std::mbrtowc(&wide, character.data(), character.size(), &state);
  if (length != character.size()) throw std::runtime_error("the terminal got a character that is no UTF-8");
  return static_cast<size_t>(std::max(0, ::wcwidth(wide)));
}

}  // namespace

TerminalScreen::TerminalScreen(size_t columns, size_t rows)
    : columns_(columns), rows_(rows), history_(rows, Row(columns)) {
  if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) throw std::runtime_error("there is no locale C.UTF-8");
}

void TerminalScreen::new_line() {
  wrap_pending_ = false;
  if (row_ + 1 < rows_) {
    ++row_;
    return;
  }
  history_.emplace_back(columns_);
  ++top_;
}

void TerminalScreen::put(std::string_view character, size_t width) {
  if (width == 0) {
    const size_t target = wrap_pending_ ? column_ : column_ - std::min<size_t>(column_, 1);
    row()[target].text += character;
    return;
  }
  if (wrap_pending_ || column_ + width > columns_) {
    new_line();
    column_ = 0;
  }
  row()[column_] = {std::string(character), style_};
  if (width == 2) row()[column_ + 1] = {"", style_};
  column_ += width;
  wrap_pending_ = column_ == columns_;
  if (wrap_pending_) column_ = columns_ - 1;
}

void TerminalScreen::control(char character) {
  if (character == '\n') {  // the kernel's terminal makes CR LF of it
    column_ = 0;
    return new_line();
  }
  if (character != '\r')
    throw std::runtime_error(fmt::format("the terminal got the control character {:#x}", character));
  ++movements_;
  column_ = 0;
  wrap_pending_ = false;
}

void TerminalScreen::set_style(std::string_view parameters) {
  ++style_changes_;
  if (parameters.empty() || parameters == "0") return style_.clear();
  if (!style_.empty()) throw std::runtime_error("a style was set without ending the one before");
  style_ = parameters;
}

void TerminalScreen::escape(std::string_view parameters, char final) {
  if (final == 'm') return set_style(parameters);
  ++movements_;
  wrap_pending_ = false;
  if (final == 'A') {
    row_ -= std::min(row_, number_in(parameters, 1));
  } else if (final == 'K' && parameters.empty()) {
    for (size_t i = column_; i < columns_; ++i) row()[i] = {};
  } else {
    throw std::runtime_error(fmt::format("the terminal got the sequence ESC [ {} {}", parameters, final));
  }
}

void TerminalScreen::write(std::string_view bytes) {
  partial_ += bytes;
  std::string_view rest = partial_;
  while (!rest.empty()) {
    if (rest[0] == '\x1b') {
      if (rest.size() < 2) break;
      if (rest[1] != '[') throw std::runtime_error(fmt::format("the terminal got ESC {:#x}", rest[1]));
      const size_t end = rest.find_first_not_of("0123456789;", 2);
      if (end == std::string_view::npos) break;
      escape(rest.substr(2, end - 2), rest[end]);
      rest.remove_prefix(end + 1);
    } else if (static_cast<unsigned char>(rest[0]) < 0x20 || rest[0] == 0x7f) {
      control(rest[0]);
      rest.remove_prefix(1);
    } else {
      if (utf8_incomplete_suffix(rest) == rest.size()) break;
      const size_t length = utf8_sequence_length(rest);
      if (length == 0) throw std::runtime_error("the terminal got a byte that is no UTF-8");
      put(rest.substr(0, length), width_of(rest.substr(0, length)));
      rest.remove_prefix(length);
    }
  }
  partial_ = std::string(rest);
}

std::vector<std::string> TerminalScreen::lines() const {
  std::vector<std::string> lines;
  size_t used = top_ + row_ + 1;
  for (size_t i = 0; i < history_.size(); ++i) {
    std::string line;
    for (const Cell& cell : history_[i]) line += cell.text;
    line.erase(line.find_last_not_of(' ') + 1);
    if (!line.empty()) used = std::max(used, i + 1);
    lines.push_back(std::move(line));
  }
  lines.resize(used);
  return lines;
}

std::string TerminalScreen::text() const {
  std::string text;
  for (const std::string& line : lines()) text += line + "\n";
  return text;
}

std::string TerminalScreen::styled_text() const {
  std::string text;
  std::string style;
  for (size_t i = 0; i < lines().size(); ++i) {
    size_t end = columns_;
    while (end > 0 && history_[i][end - 1].text == " ") --end;
    for (size_t column = 0; column < end; ++column) {
      const Cell& cell = history_[i][column];
      if (cell.style != style && cell.text != " ") text += fmt::format("{{{}}}", style = cell.style);
      text += cell.text;
    }
    text += '\n';
  }
  return text;
}

}  // namespace carat::test
