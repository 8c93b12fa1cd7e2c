#pragma once

#include <span>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace carat::text {

enum class Role { kSystem, kUser, kModel };

struct Message {
  Role role;
  std::string content;
};

struct ChatOptions {
  bool thinking = false;
  // 12B, 26B-A4B and 31B are prompted with an empty, closed thought block when thinking is off (spec 5.2).
  bool empty_thought_block = false;
  bool add_generation_prompt = true;
};

// A piece of a rendered prompt; only pieces the template wrote may contain special tokens.
struct PromptPiece {
  std::string text;
  bool from_template;
};

// Spec section 5.1 to 5.3 (July 2026 template). Begins with <bos>.
std::vector<PromptPiece> render_chat(std::span<const Message> messages, const ChatOptions& options);
std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer, std::span<const PromptPiece> pieces);
// The text of earlier model turns without their thought blocks, trimmed (spec 5.3).
std::string strip_thoughts(std::string_view text);

}  // namespace carat::text
