#include "text/chat/chat_template.h"

#include <array>
#include <utility>

#include "base/error.h"

namespace carat::text {

namespace {

constexpr std::string_view kTurnClose = "<turn|>\n";
constexpr std::string_view kModelTurn = "<|turn>model\n";
constexpr std::string_view kOpenThought = "<|channel>thought\n";
constexpr std::string_view kEmptyThought = "<|channel>thought\n<channel|>";

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// Whether the source writes the closed thought block, with its newline as an escape or as itself.
bool writes_empty_thought(std::string_view source) {
  return contains(source, "<|channel>thought\\n<channel|>") || contains(source, kEmptyThought);
}

// Google's own templates are told apart by what each revision added. Others are judged by what they write.
std::optional<TemplateRevision> google_revision(std::string_view source) {
  if (!contains(source, "<|tool_call>call:") || !contains(source, "macro format_function_declaration(")) return {};
  if (contains(source, "preserve_thinking")) return TemplateRevision::kCanonical;
  return contains(source, "tool_call_id") ? TemplateRevision::kApril : TemplateRevision::kLaunch;
}

std::string_view revision_text(TemplateRevision revision) {
  switch (revision) {
    case TemplateRevision::kLaunch:
      return "2 April 2026";
    case TemplateRevision::kApril:
      return "April and May 2026";
    case TemplateRevision::kCanonical:
      return "July 2026";
    case TemplateRevision::kEmptyThoughts:
      return "July 2026 with empty thought blocks";
  }
  return "";
}

std::string joined(const std::vector<PromptPiece>& pieces) {
  std::string text;
  for (const PromptPiece& piece : pieces) text += piece.text;
  return text;
}

// Conversations that between them show every difference of the revisions. Two templates that agree on all of them are
// the same for any purpose.
std::vector<Conversation> probes() {
  const Tool tool = {
      "f", R"({"type":"function","function":{"name":"f","description":"Does it","parameters":{"type":"object",)"
           R"("properties":{"B":{"type":"string","description":"x","enum":["u","v"]},"a":{"type":"array",)"
           R"("items":{"type":"object","properties":{"k":{"type":"number"}},"required":["k"]}},)"
           R"("o":{"type":"object","properties":{"type":{"type":"string","nullable":true}},)"
           R"("required":["type"]}},"required":["B"]}}})"};
  const ToolCall call = {"1", "f", R"({"B":"u","a":[1,2.5,true,null],"o":{"z":"s","Y":{}}})"};
  const ToolCall second = {"2", "g", ""};
  const Message user{Role::kUser, " Hi \n"}, answer{Role::kModel, "<|channel>thought\nhm<channel|> Yes "};
  Message calls{Role::kModel};
  calls.reasoning = "because";
  calls.tool_calls = {call, second};
  Message talks = calls;
  talks.content = "Let me see.";
  Message thinks = answer;
  thinks.reasoning = "so";
  Message result{Role::kTool, R"({"t": 1})"};
  result.tool_call_id = "1";
  Message other_result{Role::kTool, "ok"};
  other_result.tool_call_id = "2";
  const Message system{Role::kSystem, " Be terse. "}, developer{Role::kDeveloper, "Be kind."};
  return {{{user}, {}},
          {{system, user, answer, user}, {}},
          {{developer, user}, {tool}},
          {{user, calls}, {tool}},
          {{user, calls, result, other_result}, {tool}},
          {{user, calls, result, other_result, answer, user}, {tool}},
          {{user, talks, result, other_result, calls, result, other_result, answer}, {}},
          {{user, thinks, answer, user, thinks}, {}}};
}

std::array<RenderOptions, 4> probe_options() {
  return {{{.thinking = false, .add_generation_prompt = true, .preserve_thinking = false},
           {.thinking = true, .add_generation_prompt = true, .preserve_thinking = false},
           {.thinking = true, .add_generation_prompt = false, .preserve_thinking = true},
           {.thinking = false, .add_generation_prompt = false, .preserve_thinking = false}}};
}

// The built-in renderer gives every closed turn a new one to answer in; a template may not. So does carat when it
// interprets: without it the model would answer outside of any turn.
void open_model_turn(bool thinking, bool empty_thought_block, MarkedText& prompt) {
  for (const std::string_view thought : {kEmptyThought, kOpenThought}) {
    const bool is_outside = prompt.text().ends_with(std::string(kTurnClose) + std::string(thought));
    if (is_outside) prompt = prompt.part(0, prompt.size() - thought.size());
  }
  if (!prompt.text().ends_with(kTurnClose)) return;
  prompt.markup(kModelTurn);
  if (empty_thought_block && !thinking) prompt.markup(kEmptyThought);
}

}  // namespace

ChatTemplate ChatTemplate::from_vocab(const Vocab& vocab, bool large_model, Choice choice) {
  return from_source(vocab.chat_template(), vocab.text(vocab.bos()), large_model, choice);
}

ChatTemplate ChatTemplate::from_source(std::string_view source, std::string_view bos, bool large_model, Choice choice) {
  ChatTemplate result(std::string(bos), source.empty() ? large_model : writes_empty_thought(source));
  if (choice == Choice::kBuiltIn) return result;
  if (source.empty()) {
    if (choice == Choice::kEmbedded) fail(ErrorCode::kBadFile, "the model file has no chat template");
    result.warning_ = "the model file has no chat template; the built-in one of July 2026 is used";
    return result;
  }
  const auto google = google_revision(source);
  if (google && *google < TemplateRevision::kCanonical && choice == Choice::kAuto) {
    result.replace_stale(*google);
  } else {
    result.use_embedded(source, choice);
  }
  return result;
}

void ChatTemplate::replace_stale(TemplateRevision revision) {
  warning_ = fmt::format(
      "the model file has the chat template of {}, which Google has replaced since ({}); the built-in one of July 2026 "
      "is used",
      revision_text(revision),
      revision == TemplateRevision::kLaunch ? "it loses tool results and thoughts between tool calls"
                                            : "it drops thoughts and leaves turns unbalanced in tool loops");
}

void ChatTemplate::use_embedded(std::string_view source, Choice choice) {
  try {
    interpreted_ = jinja::Template::parse(source);
    interpret({{Message{Role::kUser, "Hi"}}, {}}, {});  // what cannot even do this is of no use
  } catch (const Error& error) {
    if (choice == Choice::kEmbedded) throw;
    interpreted_.reset();
    warning_ = fmt::format("the chat template of the model file cannot be used ({}); the built-in one of July 2026 is",
                           error.what());
    return;
  }
  is_from_file_ = true;
  recognise_revision();
}

// Keeps the interpreter unless a native renderer writes the same for every probe.
void ChatTemplate::recognise_revision() {
  const auto writes_the_same = [&](const ChatTemplate& native) {
    for (const Conversation& probe : probes()) {
      for (const RenderOptions& options : probe_options()) {
        try {
          if (joined(interpret(probe, options)) != joined(native.render_natively(probe, options))) return false;
        } catch (const Error&) {
          return false;
        }
      }
    }
    return true;
  };
  for (const auto revision : {TemplateRevision::kCanonical, TemplateRevision::kEmptyThoughts, TemplateRevision::kApril,
                              TemplateRevision::kLaunch}) {
    for (const bool empty_thought_block : {true, false}) {
      ChatTemplate native(bos_, empty_thought_block);
      native.revision_ = revision;
      if (!writes_the_same(native)) continue;
      revision_ = revision;
      empty_thought_block_ = empty_thought_block;
      interpreted_.reset();
      return;
    }
  }
}

std::string ChatTemplate::description() const {
  if (is_interpreted()) return "the file's own chat template, interpreted";
  if (!is_from_file_) return "built-in chat template of July 2026";
  return fmt::format("the file's chat template, as that of {}", revision_text(revision_));
}

std::vector<PromptPiece> ChatTemplate::render(const Conversation& conversation, const RenderOptions& options) const {
  if (!is_interpreted()) return render_natively(conversation, options);
  check_conversation(conversation);
  return interpret(conversation, options);
}

std::vector<PromptPiece> ChatTemplate::render_natively(const Conversation& conversation,
                                                       const RenderOptions& options) const {
  return render_chat(conversation, {.thinking = options.thinking,
                                    .empty_thought_block = empty_thought_block_,
                                    .add_generation_prompt = options.add_generation_prompt,
                                    .preserve_thinking = options.preserve_thinking,
                                    .revision = revision_});
}

std::vector<PromptPiece> ChatTemplate::interpret(const Conversation& conversation, const RenderOptions& options) const {
  MarkedText prompt = interpreted_->render(template_variables(conversation, options, bos_));
  const auto begins_with_bos = [&] {
    return prompt.text().starts_with(bos_) && prompt.part(0, bos_.size()).wholly_from_template();
  };
  while (!bos_.empty() && begins_with_bos()) prompt = prompt.part(bos_.size(), prompt.size());
  MarkedText result(bos_, true);
  result.append(prompt);
  if (options.add_generation_prompt) open_model_turn(options.thinking, empty_thought_block_, result);
  return result.pieces();
}

}  // namespace carat::text
