#include "text/chat/chat_format.h"

#include <string_view>
#include <unordered_map>
#include <utility>

#include "text/tools/tool_syntax.h"
#include "text/value_json.h"
#include "text/white_space.h"

namespace carat::text {

namespace {

constexpr std::string_view kThoughtOpen = "<|channel>";
constexpr std::string_view kThoughtClose = "<channel|>";

// Renders one conversation. The model's messages, with the tool messages between them, make up model turns.
class ChatRenderer {
 public:
  ChatRenderer(const Conversation& conversation, const ChatOptions& options)
      : messages_(conversation.messages),
        tools_(conversation.tools),
        options_(options),
        syntax_(options.revision, out_) {
    for (size_t i = 0; i < messages_.size(); ++i) {
      if (messages_[i].role == Role::kUser) last_user_ = i;
    }
  }

  std::vector<PromptPiece> render() {
    out_.markup("<bos>");
    const bool has_system = messages_[0].role == Role::kSystem || messages_[0].role == Role::kDeveloper;
    render_system_turn(has_system ? &messages_[0] : nullptr);
    for (size_t i = has_system ? 1 : 0; i < messages_.size(); ++i) {
      if (messages_[i].role != Role::kTool) render_message(i, has_system ? 1 : 0);
    }
    if (options_.add_generation_prompt) render_generation_prompt();
    return out_.pieces();
  }

 private:
  // How the text ends.
  enum class End {
    kTurnClosed,    // <turn|>, or nothing yet
    kAwaitsResult,  // <|tool_response>: calls without results
    kAfterResult,   // <tool_response|>: the model goes on in this turn
    kInsideTurn,    // text of a model turn that the next message continues
  };

  bool is(TemplateRevision revision) const { return options_.revision == revision; }
  bool at_least(TemplateRevision revision) const { return options_.revision >= revision; }
  // The launch template has no notion of one model turn over several messages.
  bool continues_turn(size_t i, size_t first) const {
    if (is(TemplateRevision::kLaunch) || messages_[i].role != Role::kModel) return false;
    for (size_t before = i; before > first; --before) {
      if (messages_[before - 1].role != Role::kTool) return messages_[before - 1].role == Role::kModel;
    }
    return false;
  }

  void render_system_turn(const Message* system) {
    if (system == nullptr && !options_.thinking && tools_.empty()) return;
    out_.markup("<|turn>system\n");
    if (options_.thinking) out_.markup(is(TemplateRevision::kLaunch) ? "<|think|>" : "<|think|>\n");
    if (system != nullptr) {
      for (const std::string& part : system->content.parts()) {
        out_.content(trim(part));
        if (system->content.is_list()) out_.markup(" ");
      }
    }
    for (const Tool& tool : tools_) syntax_.declaration(parse_json(tool.json, false, tool.name));
    out_.markup("<turn|>\n");
  }

  void render_message(size_t i, size_t first) {
    const Message& message = messages_[i];
    const bool is_model = message.role == Role::kModel;
    if (!continues_turn(i, first)) {
      out_.markup("<|turn>").markup(is_model ? "model" : role_name(message.role)).markup("\n");
      render_empty_thought_of_history(i);
    }
    if (shows_reasoning(i)) {
      out_.markup(kThoughtOpen).markup("thought\n").content(message.reasoning).markup("\n").markup(kThoughtClose);
    }
    for (const ToolCall& call : message.tool_calls) {
      const std::string_view arguments = call.arguments.empty() ? "{}" : std::string_view(call.arguments);
      syntax_.call(call.name, parse_json(arguments, false, call.name));
    }
    const bool has_results = render_results(i);
    const size_t before_content = out_.size();
    render_content(message);
    const bool shows_content = out_.size() > before_content;
    close_message(i, has_results, shows_content);
  }

  bool shows_reasoning(size_t i) const {
    const Message& message = messages_[i];
    if (message.reasoning.empty() || is(TemplateRevision::kLaunch)) return false;
    const bool is_current = last_user_ == kNone || i > last_user_;
    if (!at_least(TemplateRevision::kCanonical)) return is_current && !message.tool_calls.empty();
    return is_current || (options_.preserve_thinking && !message.tool_calls.empty());
  }

  void render_empty_thought_of_history(size_t i) {
    if (!is(TemplateRevision::kEmptyThoughts) || messages_[i].role != Role::kModel) return;
    if (options_.thinking || !options_.empty_thought_block || shows_reasoning(i)) return;
    out_.markup(kThoughtOpen).markup("thought\n").markup(kThoughtClose);
  }

  // The tool messages right after message i hold the results of its calls.
  bool render_results(size_t i) {
    if (messages_[i].tool_calls.empty()) return false;
    // Not a search for each result: a message may have a hundred thousand of both.
    std::unordered_map<std::string_view, std::string_view> names;
    for (const ToolCall& call : messages_[i].tool_calls) names[call.id] = call.name;
    size_t next = i + 1;
    for (; next < messages_.size() && messages_[next].role == Role::kTool; ++next) {
      const Message& result = messages_[next];
      std::string name = result.tool_name.empty() ? "unknown" : result.tool_name;
      if (const auto call = names.find(result.tool_call_id); call != names.end()) name = call->second;
      if (result.result_json.empty()) {
        syntax_.response(name, Value::string(result.content.joined(), false));
      } else {
        syntax_.response(name, parse_json(result.result_json, false, name));
      }
    }
    return next > i + 1;
  }

  void render_content(const Message& message) {
    for (const std::string& part : message.content.parts()) {
      if (message.role == Role::kModel) {
        out_.content(strip_thoughts(part));
      } else {
        out_.content(trim(part));
      }
    }
  }

  void close_message(size_t i, bool has_results, bool shows_content) {
    const Message& message = messages_[i];
    if (!message.tool_calls.empty() && !has_results && !is(TemplateRevision::kLaunch)) {
      out_.markup("<|tool_response>");
      end_ = End::kAwaitsResult;
      return;
    }
    if (!at_least(TemplateRevision::kCanonical)) {
      // Content counts as given, even where nothing of it is left to show.
      if (has_results && message.content.empty()) {
        end_ = End::kAfterResult;
        return;
      }
    } else {
      const size_t next = next_message(i);
      if (message.role == Role::kModel && next < messages_.size() && messages_[next].role == Role::kModel) {
        end_ = has_results && !shows_content ? End::kAfterResult : End::kInsideTurn;
        return;
      }
      if (has_results && !shows_content && next == messages_.size()) {
        end_ = End::kAfterResult;
        return;
      }
    }
    out_.markup("<turn|>\n");
    end_ = End::kTurnClosed;
  }

  size_t next_message(size_t i) const {
    do {
      ++i;
    } while (i < messages_.size() && messages_[i].role == Role::kTool);
    return i;
  }

  void render_generation_prompt() {
    if (end_ == End::kAwaitsResult) return;
    const bool closes_thoughts = options_.empty_thought_block && !options_.thinking;
    if (end_ == End::kTurnClosed) {
      out_.markup("<|turn>model\n");
    } else if (at_least(TemplateRevision::kCanonical) && options_.thinking) {
      out_.markup(kThoughtOpen).markup("thought\n");
      return;
    } else if (!is(TemplateRevision::kLaunch)) {
      return;
    }
    if (closes_thoughts) out_.markup(kThoughtOpen).markup("thought\n").markup(kThoughtClose);
  }

  static constexpr size_t kNone = static_cast<size_t>(-1);

  std::span<const Message> messages_;
  std::span<const Tool> tools_;
  const ChatOptions& options_;
  MarkedText out_;
  ToolSyntax syntax_;
  size_t last_user_ = kNone;
  End end_ = End::kTurnClosed;
};

}  // namespace

std::vector<PromptPiece> render_chat(const Conversation& conversation, const ChatOptions& options) {
  check_conversation(conversation);
  return ChatRenderer(conversation, options).render();
}

std::vector<PromptPiece> render_chat(std::span<const Message> messages, const ChatOptions& options) {
  return render_chat(Conversation{{messages.begin(), messages.end()}, {}}, options);
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
