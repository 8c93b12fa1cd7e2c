#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/chat_format.h"
#include "text/chat/conversation.h"
#include "text/jinja/template.h"
#include "text/tokenizer/vocab.h"

namespace carat::text {

struct RenderOptions {
  bool thinking = false;
  bool add_generation_prompt = true;
  bool preserve_thinking = false;
};

// How the conversations of one model become prompts. A template that writes what a known revision of the official one
// writes is rendered natively, whatever its source looks like; any other by a bounded interpreter; a stale or missing
// one is replaced by the built-in one, with a warning. Immutable, thread-safe.
class ChatTemplate {
 public:
  enum class Choice {
    kAuto,
    kEmbedded,  // the file's own, stale or not; an error when it has none or it cannot be run
    kBuiltIn,   // the official one of July 2026
  };

  // large_model: whether the model is prompted with an empty thought block when thinking is off (12B and above). A
  // template in the file knows better.
  static ChatTemplate from_vocab(const Vocab& vocab, bool large_model, Choice choice = Choice::kAuto);
  static ChatTemplate from_source(std::string_view source, std::string_view bos, bool large_model,
                                  Choice choice = Choice::kAuto);

  // Begins with the token that begins every text, exactly once. Throws as render_chat and jinja::Template do.
  std::vector<PromptPiece> render(const Conversation& conversation, const RenderOptions& options) const;

  const std::string& warning() const { return warning_; }  // empty when there is nothing to say
  // For people: "built-in template of July 2026", "the file's own template, interpreted", ...
  std::string description() const;
  bool is_interpreted() const { return interpreted_.has_value(); }
  TemplateRevision revision() const { return revision_; }  // of the native renderer
  bool has_empty_thought_block() const { return empty_thought_block_; }

 private:
  ChatTemplate(std::string bos, bool empty_thought_block)
      : bos_(std::move(bos)), empty_thought_block_(empty_thought_block) {}

  void use_embedded(std::string_view source, Choice choice);
  void recognise_revision();
  void replace_stale(TemplateRevision revision);
  std::vector<PromptPiece> render_natively(const Conversation& conversation, const RenderOptions& options) const;
  std::vector<PromptPiece> interpret(const Conversation& conversation, const RenderOptions& options) const;

  std::string bos_;
  bool empty_thought_block_;
  bool is_from_file_ = false;
  TemplateRevision revision_ = TemplateRevision::kCanonical;
  std::optional<jinja::Template> interpreted_;
  std::string warning_;
};

// The variables a template sees for a conversation: messages, tools, add_generation_prompt, enable_thinking,
// preserve_thinking, bos_token. Everything a user, a tool or the model wrote is marked as content.
ValueMap template_variables(const Conversation& conversation, const RenderOptions& options, std::string_view bos);

}  // namespace carat::text
