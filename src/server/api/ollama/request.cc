#include "server/api/ollama/request.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/api/conversation_rules.h"
#include "server/api/ollama/reply.h"
#include "server/api/openai/messages.h"
#include "text/letter_case.h"

namespace carat::server {

namespace {

using text::Message;
using text::Role;
using text::Value;

bool is_given(const Value& value) { return !value.is_undefined() && !value.is_none(); }

void refuse_images(const Fields& fields) {
  const auto images = fields.list("images");
  if (images && !images->empty())
    refuse(fields.path_of("images"), "{}: this model reads no images", fields.path_of("images"));
}

Role read_role(const Fields& message) {
  const std::string role = text::to_lower(message.required_text("role"));
  if (role == "system") return Role::kSystem;
  if (role == "user") return Role::kUser;
  if (role == "assistant") return Role::kModel;
  if (role == "tool") return Role::kTool;
  refuse(message.path_of("role"), "{} is \"{}\"; known are system, user, assistant and tool", message.path_of("role"),
         role);
}

Message read_message(const Value& value, const std::string& path) {
  const Fields fields(value, path);
  Message message{read_role(fields)};
  message.content = read_openai_content(fields.get("content"), fields.path_of("content"));
  refuse_images(fields);
  if (message.role == Role::kModel) {
    message.reasoning = fields.text("thinking").value_or("");
    for (const Value& call : fields.list("tool_calls").value_or(std::vector<Value>())) {
      const std::string place = item_path(fields.path_of("tool_calls"), message.tool_calls.size());
      message.tool_calls.push_back(read_openai_call(call, place));
    }
  }
  if (message.role == Role::kTool) {
    message.tool_call_id = fields.text("tool_call_id").value_or("");
    message.tool_name = fields.text("tool_name").value_or("");
  }
  return message;
}

// Calls and results of this dialect may come without ids: a result belongs to the first call of its name that has none
// yet, or, without a name, to the first call. Ids make that plain; no template shows them.
class ResultLinks {
 public:
  void open(Message& turn, size_t turn_index) {
    calls_.clear();
    of_name_.clear();
    of_id_.clear();
    next_ = 0;
    for (size_t i = 0; i < turn.tool_calls.size(); ++i) {
      text::ToolCall& call = turn.tool_calls[i];
      if (call.id.empty()) call.id = fmt::format("call {} of message {}", i, turn_index);
      of_name_[call.name].push_back(i);
      of_id_.emplace(call.id, i);
      calls_.push_back({call.id});
    }
  }
  void link(Message& result) {
    if (!result.tool_call_id.empty()) {
      if (const auto call = of_id_.find(result.tool_call_id); call != of_id_.end())
        calls_[call->second].has_result = true;
      return;
    }
    if (result.tool_name.empty()) {
      while (next_ < calls_.size() && calls_[next_].has_result) ++next_;
      if (next_ < calls_.size()) take(next_, result);
      return;
    }
    std::deque<size_t>& same_name = of_name_[result.tool_name];
    while (!same_name.empty() && calls_[same_name.front()].has_result) same_name.pop_front();
    if (!same_name.empty()) take(same_name.front(), result);
  }

 private:
  struct Call {
    std::string id;
    bool has_result = false;
  };
  void take(size_t call, Message& result) {
    calls_[call].has_result = true;
    result.tool_call_id = calls_[call].id;
  }

  std::vector<Call> calls_;  // of the model's last message
  std::unordered_map<std::string, std::deque<size_t>> of_name_;
  std::unordered_map<std::string, size_t> of_id_;
  size_t next_ = 0;  // all calls before it have results
};

std::vector<Message> read_messages(const std::vector<Value>& list) {
  std::vector<Message> messages;
  ResultLinks links;
  for (const Value& value : list) {
    Message message = read_message(value, item_path("messages", messages.size()));
    if (message.role == Role::kModel) links.open(message, messages.size());
    if (message.role == Role::kTool) links.link(message);
    messages.push_back(std::move(message));
  }
  return messages;
}

ThinkingWishes read_thinking(const Fields& body) {
  const Value think = body.get("think");
  if (!is_given(think)) return {};
  if (think.is_bool()) return {.is_on = think.as_bool()};
  const std::string word = think.is_string() ? think.text() : "";
  if (word == "low" || word == "medium" || word == "high" || word == "max") return thinking_for_effort(word, "think");
  refuse("think", "think must be true, false, \"low\", \"medium\", \"high\" or \"max\"");
}

AnswerFormat read_format(const Fields& body) {
  const Value format = body.get("format");
  if (!is_given(format)) return {};
  if (format.is_map()) return json_schema_format(format, "format");
  if (!format.is_string()) refuse_kind("format", "\"json\" or a JSON schema", format);
  if (format.text().empty()) return {};
  if (format.text() != "json")
    refuse("format", "format is \"{}\"; it must be \"json\" or a JSON schema", format.text());
  return {.kind = AnswerFormat::Kind::kJsonObject, .param = "format"};
}

void read_options(const Fields& body, GenerationRequest& request) {
  const auto options = body.object("options");
  if (!options) return;
  request.sampling = read_openai_sampling(*options);
  const auto most = options->integer("num_predict", INT32_MIN, UINT32_MAX);
  if (most && *most >= 0) request.max_tokens = static_cast<uint32_t>(*most);  // negative: no limit
  request.stops = options->texts("stop", kMaxStops);
  std::erase(request.stops, "");
  if (const auto typical = options->number("typical_p", -1e6, 1e6); typical && *typical < 1.0 && *typical > 0.0) {
    request.notes.push_back("options.typical_p: this sampler is not offered");
  }
}

void read_logprobs(const Fields& body, GenerationRequest& request) {
  request.logprobs.wanted = body.flag("logprobs").value_or(false);
  const auto top = body.integer("top_logprobs", 0, kMaxTopLogprobs);
  if (request.logprobs.wanted) request.logprobs.top = static_cast<uint32_t>(top.value_or(0));
}

// Whether keep_alive is no time at all: a number of seconds, or a text such as "5m".
bool ends_at_once(const Fields& body) {
  const Value keep = body.get("keep_alive");
  if (!is_given(keep)) return false;
  if (keep.is_number()) return keep.is_integer() ? keep.as_integer() == 0 : keep.is_float() && keep.as_float() == 0.0;
  if (!keep.is_string()) refuse_kind("keep_alive", "a number of seconds or a duration", keep);
  const std::string& text = keep.text();
  const bool has_digits = text.find('0') != std::string::npos;
  return has_digits && text.find_first_of("123456789") == std::string::npos;
}

// What both routes have.
GenerationRequest read_common(const Fields& body) {
  GenerationRequest request;
  request.model = body.text("model").value_or("");
  request.stream = body.flag("stream").value_or(true);
  request.thinking = read_thinking(body);
  request.format = read_format(body);
  read_options(body, request);
  read_logprobs(body, request);
  return request;
}

ParsedRequest answered_by(GenerationRequest request, OllamaRoute route) {
  ParsedRequest parsed{.generation = std::move(request), .make_reply = {}};
  const OllamaReplyWishes wishes{.route = route,
                                 .model = parsed.generation.model,
                                 .is_streamed = parsed.generation.stream,
                                 .wants_logprobs = parsed.generation.logprobs.wanted};
  parsed.make_reply = [wishes](const ServerFacts& facts, ReplyIdentity identity) {
    return make_ollama_reply(wishes, facts, std::move(identity));
  };
  return parsed;
}

ParsedRequest answered_at_once(GenerationRequest request, OllamaRoute route, bool unloads) {
  ParsedRequest parsed = answered_by(std::move(request), route);
  const OllamaReplyWishes wishes{.route = route, .model = parsed.generation.model};
  parsed.answer_at_once = [wishes, unloads](const ServerFacts& facts, const ReplyIdentity& identity) {
    return ollama_idle_response(wishes, unloads ? "unload" : "load", facts, identity);
  };
  return parsed;
}

}  // namespace

ParsedRequest read_ollama_chat(std::string_view text) {
  const Fields body = parse_body(text);
  GenerationRequest request = read_common(body);
  const bool unloads = ends_at_once(body);
  text::Conversation conversation;
  conversation.tools = read_openai_tools(body);
  conversation.messages = read_messages(body.list("messages").value_or(std::vector<Value>()));
  if (conversation.messages.empty()) return answered_at_once(std::move(request), OllamaRoute::kChat, unloads);
  request.conversation = normalised(std::move(conversation));
  if (request.conversation->messages.empty()) refuse("messages", "messages has nothing to answer");
  return answered_by(std::move(request), OllamaRoute::kChat);
}

ParsedRequest read_ollama_generate(std::string_view text) {
  const Fields body = parse_body(text);
  GenerationRequest request = read_common(body);
  const bool unloads = ends_at_once(body);
  refuse_images(body);
  if (!body.text("suffix").value_or("").empty()) {
    refuse("suffix", "suffix: this model was not trained to fill in what stands before a text");
  }
  std::string prompt = body.text("prompt").value_or("");
  const std::string system = body.text("system").value_or("");
  const bool is_raw = body.flag("raw").value_or(false);
  if (prompt.empty()) return answered_at_once(std::move(request), OllamaRoute::kGenerate, unloads);
  if (is_raw) {
    if (!system.empty()) refuse("system", "system: a raw prompt has no place for it");
    request.prompts.emplace_back(std::move(prompt));
    request.parse_special = true;  // a raw prompt is a template that the client has filled in
  } else {
    text::Conversation conversation;
    if (!system.empty()) conversation.messages.push_back({Role::kSystem, system});
    conversation.messages.push_back({Role::kUser, std::move(prompt)});
    request.conversation = normalised(std::move(conversation));
  }
  return answered_by(std::move(request), OllamaRoute::kGenerate);
}

std::string read_ollama_model(std::string_view text) {
  const Fields body = parse_body(text);
  const auto model = body.text("model");
  return model && !model->empty() ? *model : body.text("name").value_or("");
}

}  // namespace carat::server
