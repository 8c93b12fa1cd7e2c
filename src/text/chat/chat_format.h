#pragma once

#include <span>
#include <string>
#include <vector>

#include "text/chat/conversation.h"
#include "text/chat/template_revision.h"
#include "text/output/marked_text.h"
#include "text/tokenizer/tokenizer.h"

namespace carat::text {

struct ChatOptions {
  bool thinking = false;
  // 12B, 26B-A4B and 31B are prompted with an empty, closed thought block when thinking is off (docs/gemma4.md 5.2).
  bool empty_thought_block = false;
  bool add_generation_prompt = true;
  // Show the thoughts of tool calls before the last user message too.
  bool preserve_thinking = false;
  TemplateRevision revision = TemplateRevision::kCanonical;
};

// Spec section 5, natively: the text the official template renders, except where that text would be broken: a prompt
// whose last model turn is closed gets a new one to answer in. Begins with <bos>. Throws kBadArgument for a
// conversation that cannot be rendered truthfully (see check_conversation).
std::vector<PromptPiece> render_chat(const Conversation& conversation, const ChatOptions& options);
std::vector<PromptPiece> render_chat(std::span<const Message> messages, const ChatOptions& options);

std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer, std::span<const PromptPiece> pieces);
// The text of earlier model turns without their thought blocks, trimmed (docs/gemma4.md 5.3).
std::string strip_thoughts(std::string_view text);

}  // namespace carat::text
