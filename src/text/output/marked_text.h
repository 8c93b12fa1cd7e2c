#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace carat::text {

// A piece of a rendered prompt; only pieces the template wrote may contain special tokens.
struct PromptPiece {
  std::string text;
  bool from_template;
};

// A text whose every byte knows whether the template wrote it or somebody else did: a user, a tool, the model. Parts
// and joins keep the marks, so whatever a template does with a message, control tokens in it stay ordinary characters.
class MarkedText {
 public:
  MarkedText() = default;
  MarkedText(std::string_view text, bool from_template) { append(text, from_template); }

  const std::string& text() const { return text_; }
  size_t size() const { return text_.size(); }
  bool empty() const { return text_.empty(); }
  bool wholly_from_template() const { return runs_.empty() || (runs_.size() == 1 && runs_[0].from_template); }

  void append(std::string_view text, bool from_template);
  void append(const MarkedText& other);
  // What the template writes: special texts in it are tokens.
  MarkedText& markup(std::string_view text) { return append(text, true), *this; }
  // What somebody else supplied: whatever it contains stays text.
  MarkedText& content(std::string_view text) { return append(text, false), *this; }

  // The bytes [begin, end), which must lie inside.
  MarkedText part(size_t begin, size_t end) const;
  // `mapping` applied to each stretch of one origin.
  template <typename Mapping>
  MarkedText mapped(Mapping mapping) const {
    MarkedText result;
    for_each_run([&](std::string_view run, bool from_template) { result.append(mapping(run), from_template); });
    return result;
  }
  std::vector<PromptPiece> pieces() const;

 private:
  // Runs of one origin; neighbours differ and none is empty.
  struct Run {
    size_t end;
    bool from_template;
  };
  template <typename Visit>
  void for_each_run(Visit visit) const {
    size_t begin = 0;
    for (const Run& run : runs_) {
      visit(std::string_view(text_).substr(begin, run.end - begin), run.from_template);
      begin = run.end;
    }
  }

  std::string text_;
  std::vector<Run> runs_;
};

}  // namespace carat::text
