#include "text/chat_format.h"

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "text/symbol_table.h"

namespace carat::text {

namespace {

constexpr std::string_view kThoughtOpen = "<|channel>";
constexpr std::string_view kThoughtClose = "<channel|>";

// The characters Jinja's trim removes: those Python's str.isspace() is true for.
bool is_space(uint32_t code_point) {
  constexpr std::array<std::pair<uint32_t, uint32_t>, 10> kRanges = {{{0x09, 0x0d},
                                                                      {0x1c, 0x20},
                                                                      {0x85, 0x85},
                                                                      {0xa0, 0xa0},
                                                                      {0x1680, 0x1680},
                                                                      {0x2000, 0x200a},
                                                                      {0x2028, 0x2029},
                                                                      {0x202f, 0x202f},
                                                                      {0x205f, 0x205f},
                                                                      {0x3000, 0x3000}}};
  for (const auto& [first, last] : kRanges) {
    if (code_point >= first && code_point <= last) return true;
  }
  return false;
}

std::string_view trim(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_sequence_length(text);
    if (length == 0 || !is_space(code_point_of(text.substr(0, length)))) break;
    text.remove_prefix(length);
  }
  while (!text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && text.size() - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xc0) == 0x80) --begin;
    const std::string_view last = text.substr(begin);
    if (utf8_sequence_length(last) != last.size() || !is_space(code_point_of(last))) break;
    text.remove_suffix(last.size());
  }
  return text;
}

std::string_view role_name(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kUser:
      return "user";
    case Role::kModel:
      return "model";
  }
  return "";
}

// Collects pieces; neighbours of the same origin become one.
class Prompt {
 public:
  // What the template writes: special texts in it are tokens.
  Prompt& markup(std::string_view text) { return add(text, true); }
  // What a user, a tool or the model supplied: whatever it contains stays text.
  Prompt& content(std::string_view text) { return add(text, false); }

  std::vector<PromptPiece> take() { return std::move(pieces_); }

 private:
  Prompt& add(std::string_view text, bool from_template) {
    if (text.empty()) return *this;
    if (pieces_.empty() || pieces_.back().from_template != from_template) {
      pieces_.push_back({std::string(text), from_template});
    } else {
      pieces_.back().text += text;
    }
    return *this;
  }

  std::vector<PromptPiece> pieces_;
};

void render_system_turn(Prompt& prompt, const Message* system, const ChatOptions& options) {
  if (system == nullptr && !options.thinking) return;
  prompt.markup("<|turn>system\n");
  if (options.thinking) prompt.markup("<|think|>\n");
  if (system != nullptr) prompt.content(trim(system->content));
  prompt.markup("<turn|>\n");
}

// Consecutive model messages are one turn: only the first opens it and only the last closes it.
void render_turns(Prompt& prompt, std::span<const Message> messages) {
  const auto is_model = [&](size_t i) { return i < messages.size() && messages[i].role == Role::kModel; };
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    const bool continues = is_model(i) && i > 0 && is_model(i - 1);
    if (!continues) prompt.markup("<|turn>").markup(role_name(message.role)).markup("\n");
    if (is_model(i)) {
      prompt.content(strip_thoughts(message.content));
    } else {
      prompt.content(trim(message.content));
    }
    const bool is_continued = is_model(i) && is_model(i + 1);
    if (!is_continued) prompt.markup("<turn|>\n");
  }
}

void render_generation_prompt(Prompt& prompt, const ChatOptions& options) {
  prompt.markup("<|turn>model\n");
  if (options.empty_thought_block && !options.thinking) {
    prompt.markup(kThoughtOpen).markup("thought\n").markup(kThoughtClose);
  }
}

}  // namespace

std::vector<PromptPiece> render_chat(std::span<const Message> messages, const ChatOptions& options) {
  if (messages.empty()) fail(ErrorCode::kBadArgument, "a chat needs at least one message");
  const bool has_system = messages.front().role == Role::kSystem;
  Prompt prompt;
  prompt.markup("<bos>");
  render_system_turn(prompt, has_system ? &messages.front() : nullptr, options);
  render_turns(prompt, messages.subspan(has_system ? 1 : 0));
  if (options.add_generation_prompt) render_generation_prompt(prompt, options);
  return prompt.take();
}

std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer, std::span<const PromptPiece> pieces) {
  std::vector<Tokenizer::Segment> segments;
  segments.reserve(pieces.size());
  for (const PromptPiece& piece : pieces) {
    segments.push_back(
        {piece.text, piece.from_template ? Tokenizer::Specials::kParse : Tokenizer::Specials::kPlainText});
  }
  std::vector<TokenId> tokens;
  tokenizer.encode(segments, tokens);
  return tokens;
}

std::string strip_thoughts(std::string_view text) {
  std::string kept;
  for (;;) {
    const size_t close = text.find(kThoughtClose);
    const std::string_view part = text.substr(0, close);
    kept += part.substr(0, part.find(kThoughtOpen));
    if (close == std::string_view::npos) break;
    text.remove_prefix(close + kThoughtClose.size());
  }
  return std::string(trim(kept));
}

}  // namespace carat::text
