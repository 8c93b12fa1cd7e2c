#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/api/generation.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace carat::server {

// Turns conversations and raw texts into the tokens a model continues. Immutable, thread-safe.
class PromptMaker {
 public:
  PromptMaker(std::shared_ptr<const text::Vocab> vocab, text::ChatTemplate chat_template, uint32_t context,
              bool thinks_by_default);

  const text::Tokenizer& tokenizer() const { return tokenizer_; }
  const text::ChatTemplate& chat_template() const { return template_; }
  std::shared_ptr<const text::Vocab> vocab() const { return vocab_; }

  // Whether the model is asked to think before it answers.
  bool thinks(const GenerationRequest& request) const { return request.thinking.is_on.value_or(thinks_by_default_); }

  // One list of tokens for each prompt of the request. Throws ApiError: for a conversation that no template renders, a
  // token that the vocabulary does not have, a prompt that is empty or longer than the context.
  std::vector<std::vector<text::TokenId>> prompts(const GenerationRequest& request) const;
  // The tokens of its prompts, for requests that only ask how many there are: whatever their length.
  std::vector<std::vector<text::TokenId>> unbounded_prompts(const GenerationRequest& request) const;
  // The prompt of a conversation as text, control tokens spelled out.
  std::string rendered(const GenerationRequest& request) const;

 private:
  std::vector<text::PromptPiece> pieces(const GenerationRequest& request) const;
  std::vector<text::TokenId> raw(const RawPrompt& prompt, bool parse_special, size_t index) const;

  std::shared_ptr<const text::Vocab> vocab_;
  text::Tokenizer tokenizer_;
  text::ChatTemplate template_;
  uint32_t context_;
  bool thinks_by_default_;
};

}  // namespace carat::server
