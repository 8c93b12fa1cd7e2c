#include "server/api/anthropic/request.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/api/anthropic/messages.h"
#include "server/api/anthropic/reply.h"
#include "server/api/conversation_rules.h"
#include "server/api/openai/messages.h"
#include "text/value_json.h"

namespace carat::server {

namespace {

using text::Value;

constexpr uint32_t kDefaultMaxTokens = 4096;
constexpr int64_t kLeastBudget = 1024;  // of thoughts, as Anthropic has it

bool is_given(const Value& value) { return !value.is_undefined() && !value.is_none(); }

struct Thinking {
  ThinkingWishes wishes{.is_on = false};
  bool is_hidden = false;  // the answer shows that the model thought, and not what
};

Thinking read_thinking(const Fields& body) {
  Thinking thinking;
  std::optional<ThinkingWishes> effort;
  if (const auto output = body.object("output_config")) {
    const auto word = output->text("effort");
    if (word) effort = thinking_for_effort(*word, output->path_of("effort"));
  }
  const auto wish = body.object("thinking");
  if (!wish) return thinking;
  const std::string type = wish->required_text("type");
  if (type == "adaptive") {
    thinking.wishes = effort.value_or(ThinkingWishes{.is_on = true});
  } else if (type == "enabled") {
    const auto budget = wish->integer("budget_tokens", kLeastBudget, UINT32_MAX);
    if (!budget) refuse("thinking.budget_tokens", "thinking.budget_tokens is required for type enabled");
    thinking.wishes = {.is_on = true, .budget = static_cast<uint64_t>(*budget)};
  } else if (type != "disabled") {
    refuse("thinking.type", "thinking.type is \"{}\"; known are enabled, disabled and adaptive", type);
  }
  thinking.is_hidden = wish->text("display").value_or("") == "omitted";
  return thinking;
}

uint32_t read_max_tokens(const Fields& body, const Thinking& thinking) {
  const uint64_t budget = thinking.wishes.budget.value_or(0);
  const auto most = body.integer("max_tokens", 0, UINT32_MAX);
  if (!most) return static_cast<uint32_t>(std::min<uint64_t>(kDefaultMaxTokens + budget, UINT32_MAX));
  if (body.object("thinking") && body.object("thinking")->has("budget_tokens") &&
      budget >= static_cast<uint64_t>(*most)) {
    refuse("thinking.budget_tokens", "thinking.budget_tokens is {}; it must be less than max_tokens, {}", budget,
           *most);
  }
  return static_cast<uint32_t>(*most);
}

AnswerFormat read_format(const Fields& body) {
  // "output_format" is what the field was called before it moved into output_config.
  const auto output = body.object("output_config");
  auto format = output ? output->object("format") : std::nullopt;
  if (!format) format = body.object("output_format");
  if (!format) return {};
  const std::string type = format->required_text("type");
  if (type != "json_schema") {
    refuse(format->path_of("type"), "{} is \"{}\"; known is json_schema", format->path_of("type"), type);
  }
  return json_schema_format(format->get("schema"), format->path_of("schema"));
}

// Tools without a schema run on Anthropic's servers, or are known to Anthropic's models alone: the model is not told of
// them. Their names go to `notes`.
std::vector<text::Tool> read_tools(const Fields& body, std::vector<std::string>& notes) {
  std::vector<text::Tool> tools;
  std::set<std::string> names;
  const std::vector<Value> list = body.list("tools").value_or(std::vector<Value>());
  check_tool_count(list.size(), "tools");
  size_t index = 0;
  for (const Value& value : list) {
    const std::string path = item_path("tools", index++);
    const Fields tool(value, path);
    const bool is_custom = tool.text("type").value_or("custom") == "custom";
    if (!is_custom && !tool.has("input_schema")) {
      notes.push_back(fmt::format("{}: it has no input_schema, so the model is not told of it", path));
      continue;
    }
    const std::string name = tool.required_text("name");
    check_tool_name(name, tool.path_of("name"));
    if (!names.insert(name).second) refuse(path, "{}: two tools have the name {}", path, name);
    const Value schema = tool.get("input_schema");
    if (is_given(schema) && !schema.is_map()) {
      refuse_kind(tool.path_of("input_schema"), "a JSON schema, an object", schema);
    }
    tool.text("description");  // throws where it is none
    tools.push_back(make_tool(name, tool.get("description"), schema, tool.get("strict")));
  }
  return tools;
}

ToolChoice read_tool_choice(const Fields& body, const std::vector<text::Tool>& tools) {
  ToolChoice choice;
  const auto wish = body.object("tool_choice");
  if (!wish) return choice;
  const std::string type = wish->required_text("type");
  choice.is_parallel = !wish->flag("disable_parallel_tool_use").value_or(false);
  if (type == "none") {
    choice.mode = ToolChoice::Mode::kNone;
  } else if (type == "any" || type == "tool") {
    choice.mode = ToolChoice::Mode::kRequired;
    if (tools.empty()) refuse("tool_choice", "tool_choice asks for a call, but the request has no tools to call");
  } else if (type != "auto") {
    refuse("tool_choice.type", "tool_choice.type is \"{}\"; known are auto, any, tool and none", type);
  }
  if (type == "tool") {
    choice.allowed = {wish->required_text("name")};
    const bool is_known = std::any_of(tools.begin(), tools.end(),
                                      [&](const text::Tool& tool) { return tool.name == choice.allowed.front(); });
    if (!is_known) {
      refuse("tool_choice.name", "tool_choice.name is \"{}\", which is not among the tools", choice.allowed.front());
    }
  }
  return choice;
}

// Whose conversation it is: agents put a JSON object with the session into metadata.user_id, others any name. It is
// only a hint, so nothing about it is an error.
std::string read_affinity(const Fields& body) {
  const Value user = body.get("metadata").get("user_id");
  if (!user.is_string()) return {};
  try {
    const Value session = text::parse_json(user.text(), false, "metadata.user_id").get("session_id");
    if (session.is_string()) return session.text();
  } catch (const Error&) {
  }
  return user.text();
}

SamplingWishes read_sampling(const Fields& body) {
  SamplingWishes wishes;
  wishes.temperature = body.number("temperature", 0.0, 1.0);
  wishes.top_p = body.number("top_p", 0.0, 1.0);
  // -1 is how old clients say: no limit.
  if (const auto top_k = body.integer("top_k", -1, INT32_MAX)) {
    wishes.top_k = static_cast<uint32_t>(std::max<int64_t>(*top_k, 0));
  }
  return wishes;
}

// What decides the prompt.
GenerationRequest read_prompt(const Fields& body, const Thinking& thinking) {
  GenerationRequest request;
  request.model = body.text("model").value_or("");
  request.thinking = thinking.wishes;
  request.affinity = read_affinity(body);
  text::Conversation conversation;
  conversation.tools = read_tools(body, request.notes);
  conversation.messages = read_anthropic_conversation(body);
  request.tool_choice = read_tool_choice(body, conversation.tools);
  request.conversation = normalised(std::move(conversation));
  const std::vector<text::Message>& messages = request.conversation->messages;
  if (messages.empty()) refuse("messages", "messages has nothing to answer");
  const text::Message& last = messages.back();
  if (!last.tool_calls.empty()) {
    refuse("messages", "messages ends with a tool_use of {} that has no tool_result", last.tool_calls.back().name);
  }
  request.continue_final = last.role == text::Role::kModel;
  return request;
}

}  // namespace

ParsedRequest read_anthropic_messages(std::string_view text) {
  const Fields body = parse_body(text);
  const Thinking thinking = read_thinking(body);
  GenerationRequest request = read_prompt(body, thinking);
  request.max_tokens = read_max_tokens(body, thinking);
  request.sampling = read_sampling(body);
  request.format = read_format(body);
  request.stops = body.texts("stop_sequences", kMaxStops);
  std::erase(request.stops, "");
  request.stream = body.flag("stream").value_or(false);

  ParsedRequest parsed{.generation = std::move(request), .make_reply = {}, .call_id_prefix = "toolu_"};
  const AnthropicReplyWishes wishes{
      .model = parsed.generation.model, .is_streamed = parsed.generation.stream, .hides_thoughts = thinking.is_hidden};
  parsed.make_reply = [wishes](const ServerFacts& facts, ReplyIdentity identity) {
    return make_anthropic_reply(wishes, facts, std::move(identity));
  };
  return parsed;
}

GenerationRequest read_anthropic_count(std::string_view text) {
  const Fields body = parse_body(text);
  return read_prompt(body, read_thinking(body));
}

}  // namespace carat::server
