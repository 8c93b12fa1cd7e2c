#include "server/service/prompt_maker.h"

#include <utility>

#include "server/api/api_error.h"
#include "server/api/fields.h"
#include "text/chat/chat_format.h"

namespace carat::server {

PromptMaker::PromptMaker(std::shared_ptr<const text::Vocab> vocab, text::ChatTemplate chat_template, uint32_t context,
                         bool thinks_by_default)
    : vocab_(std::move(vocab)),
      tokenizer_(vocab_),
      template_(std::move(chat_template)),
      context_(context),
      thinks_by_default_(thinks_by_default) {}

std::vector<text::PromptPiece> PromptMaker::pieces(const GenerationRequest& request) const {
  text::RenderOptions options;
  options.thinking = thinks(request);
  try {
    if (!request.continue_final) return template_.render(*request.conversation, options);
    // The model's turn is opened as for an answer, and begins with the words that are there already.
    text::Conversation before = *request.conversation;
    const text::Message last = std::move(before.messages.back());
    before.messages.pop_back();
    if (!last.tool_calls.empty()) refuse("messages", "the last message has tool calls, so it cannot be continued");
    if (before.messages.empty()) refuse("messages", "there is no question before the message to be continued");
    std::vector<text::PromptPiece> pieces = template_.render(before, options);
    pieces.push_back({last.content.joined(), false});
    return pieces;
  } catch (const ApiError&) {
    throw;
  } catch (const Error& error) {
    refuse("messages", "messages: {}", error.what());
  }
}

std::vector<text::TokenId> PromptMaker::raw(const RawPrompt& prompt, bool parse_special, size_t index) const {
  if (const auto* tokens = std::get_if<std::vector<text::TokenId>>(&prompt)) {
    for (const text::TokenId token : *tokens) {
      if (!vocab_->contains(token)) {
        refuse(item_path("prompt", index), "prompt has the token {}; ids go from 0 to {}", token, vocab_->size() - 1);
      }
    }
    return *tokens;
  }
  const auto specials = parse_special ? text::Tokenizer::Specials::kParse : text::Tokenizer::Specials::kPlainText;
  std::vector<text::TokenId> tokens = tokenizer_.encode(std::get<std::string>(prompt), specials);
  if (tokens.empty() || tokens.front() != vocab_->bos()) tokens.insert(tokens.begin(), vocab_->bos());
  return tokens;
}

std::vector<std::vector<text::TokenId>> PromptMaker::unbounded_prompts(const GenerationRequest& request) const {
  if (request.conversation) return {text::encode_prompt(tokenizer_, pieces(request))};
  std::vector<std::vector<text::TokenId>> prompts;
  for (const RawPrompt& prompt : request.prompts) {
    prompts.push_back(raw(prompt, request.parse_special, prompts.size()));
  }
  return prompts;
}

std::vector<std::vector<text::TokenId>> PromptMaker::prompts(const GenerationRequest& request) const {
  std::vector<std::vector<text::TokenId>> prompts = unbounded_prompts(request);
  const char* param = request.conversation ? "messages" : "prompt";
  for (const auto& tokens : prompts) {
    if (tokens.empty()) refuse(param, "{} has an empty list of tokens", param);
    if (tokens.size() <= context_) continue;
    throw ApiError(
        {.refusal = Refusal::kContextExceeded,
         .message = fmt::format("the prompt has {} tokens and the context holds {}", tokens.size(), context_),
         .param = param,
         .prompt_tokens = tokens.size(),
         .context_tokens = context_});
  }
  return prompts;
}

std::string PromptMaker::rendered(const GenerationRequest& request) const {
  std::string text;
  for (const text::PromptPiece& piece : pieces(request)) text += piece.text;
  return text;
}

}  // namespace carat::server
