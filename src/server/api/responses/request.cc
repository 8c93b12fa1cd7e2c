#include "server/api/responses/request.h"

#include <string>
#include <utility>
#include <vector>

#include "server/api/conversation_rules.h"
#include "server/api/fields.h"
#include "server/api/openai/messages.h"
#include "server/api/openai/request.h"
#include "server/api/openai/tools.h"
#include "server/api/responses/items.h"
#include "server/api/responses/reply.h"
#include "text/value_json.h"

namespace carat::server {

namespace {

using text::Value;

[[noreturn]] void refuse_parameter(const std::string& param, const std::string& message) {
  throw ApiError({.message = message, .param = param, .code = "unsupported_parameter"});
}

// What asks for a server that keeps conversations, prompts or jobs.
void check_state(const Fields& body) {
  if (body.flag("background").value_or(false)) {
    refuse_parameter("background", "background is not supported; wait for the answer, or stream it");
  }
  if (body.has("conversation")) {
    refuse_parameter("conversation", "conversation is not supported; send the items of the conversation as input");
  }
  if (body.has("prompt")) {
    refuse_parameter("prompt", "prompt is not supported: there are no stored prompts; send instructions and input");
  }
}

Value user_message(const std::string& text) {
  text::ValueMap message;
  const auto set = [&](const char* key, const std::string& value) {
    message.set(text::MarkedText(key, false), Value::string(value, false));
  };
  set("type", "message");
  set("role", "user");
  set("content", text);
  return Value::map(std::move(message));
}

ResponseStore::Items previous_items(const Fields& body, const ResponseStore* store) {
  const auto previous = body.text("previous_response_id");
  if (!previous) return {};
  if (store == nullptr) {
    refuse_parameter("previous_response_id",
                     "previous_response_id is not supported: this server keeps no responses; send the items of the "
                     "conversation as input, or start it with --store-responses");
  }
  auto items = store->find(*previous);
  if (!items) {
    throw ApiError({.refusal = Refusal::kNotFound,
                    .message = "previous_response_id names a response that is not kept (any longer); send the items "
                               "of the conversation as input",
                    .param = "previous_response_id",
                    .code = "previous_response_not_found"});
  }
  return *std::move(items);
}

// The items of the request, with references replaced by what they refer to where it is kept.
void append_input(const Fields& body, const ResponseStore* store, ItemReader& reader, ResponseStore::Items& items) {
  const Value input = body.get("input");
  if (!body.has("input")) refuse("input", "input is required: a string or a list of items");
  if (input.is_string()) {
    items.push_back(user_message(input.text()));
    return reader.add(items.back(), "input");
  }
  if (!input.is_list()) refuse_kind("input", "a string or a list of items", input);
  size_t index = 0;
  for (const Value& item : input.as_list()) {
    const std::string path = item_path("input", index++);
    const Value type = item.get("type"), id = item.get("id");
    if (type.is_string() && type.text() == "item_reference") {
      const auto kept = store != nullptr && id.is_string() ? store->find_item(id.text()) : std::nullopt;
      if (!kept) {
        reader.leave_out("item_reference");
        continue;
      }
      items.push_back(*kept);
    } else {
      items.push_back(item);
    }
    reader.add(items.back(), path);
  }
}

text::Conversation read_conversation(const Fields& body, const ResponseStore* store, ResponsesShape& shape,
                                     std::vector<std::string>& notes) {
  text::Conversation conversation;
  if (const auto instructions = body.text("instructions")) {
    shape.instructions_json = text::to_compact_json(body.get("instructions"));
    conversation.messages.push_back({text::Role::kSystem, *instructions});
  }
  shape.previous = body.text("previous_response_id").value_or("");
  ResponseStore::Items items = previous_items(body, store);
  ItemReader reader;
  for (const Value& item : items) reader.add(item, "previous_response_id");
  append_input(body, store, reader, items);
  for (text::Message& message : reader.take_messages()) conversation.messages.push_back(std::move(message));
  for (std::string& note : reader.notes()) notes.push_back(std::move(note));
  if (shape.store != nullptr) shape.items = std::move(items);
  return conversation;
}

void read_include(const Fields& body, ResponsesShape& shape, GenerationRequest& request) {
  constexpr size_t kMost = 64;
  for (const std::string& wish : body.texts("include", kMost)) {
    if (wish == "reasoning.encrypted_content") shape.wants_encrypted = true;
    if (wish == "message.output_text.logprobs") request.logprobs.wanted = true;
  }
  request.logprobs.top = static_cast<uint32_t>(body.integer("top_logprobs", 0, kMaxTopLogprobs).value_or(0));
  if (request.logprobs.top > 0) request.logprobs.wanted = true;
  shape.wants_logprobs = request.logprobs.wanted;
  shape.top_logprobs = request.logprobs.top;
}

void read_text_and_reasoning(const Fields& body, ResponsesShape& shape, GenerationRequest& request) {
  if (const auto text = body.object("text")) {
    if (const auto format = text->object("format")) {
      add_openai_format(*format, request.format);
      shape.text_json = text::to_compact_json(text->value());
    }
  }
  request.thinking = read_openai_thinking(body);
  if (const auto reasoning = body.object("reasoning")) {
    if (const auto effort = reasoning->text("effort")) {
      request.thinking = thinking_for_effort(*effort, reasoning->path_of("effort"));
      shape.effort_json = text::to_compact_json(reasoning->get("effort"));
    }
    if (reasoning->get("summary").is_string()) shape.summary_json = text::to_compact_json(reasoning->get("summary"));
  }
}

// What the response only repeats.
void read_echoes(const Fields& body, const GenerationRequest& request, ResponsesShape& shape) {
  shape.model = request.model;
  shape.is_streamed = request.stream;
  shape.is_parallel = request.tool_choice.is_parallel;
  shape.max_tokens = request.max_tokens;
  shape.temperature = request.sampling.temperature;
  shape.top_p = request.sampling.top_p;
  if (body.has("tools")) shape.tools_json = text::to_compact_json(body.get("tools"));
  if (body.has("tool_choice")) shape.tool_choice_json = text::to_compact_json(body.get("tool_choice"));
  if (body.get("metadata").is_map()) shape.metadata_json = text::to_compact_json(body.get("metadata"));
  if (body.get("user").is_string()) shape.user_json = text::to_compact_json(body.get("user"));
}

}  // namespace

ParsedRequest read_openai_responses(std::string_view text, std::shared_ptr<ResponseStore> store) {
  const Fields body = parse_body(text);
  check_state(body);
  ParsedRequest parsed;
  GenerationRequest& request = parsed.generation;
  const auto shape = std::make_shared<ResponsesShape>();
  read_openai_common(body, request);
  request.choices = 1;
  if (const auto most = body.integer("max_output_tokens", 0, UINT32_MAX)) {
    request.max_tokens = static_cast<uint32_t>(*most);
  }
  if (body.flag("store").value_or(true)) shape->store = store;
  text::Conversation conversation = read_conversation(body, store.get(), *shape, request.notes);
  OpenAiTools tools = read_responses_tools(body);
  conversation.tools = std::move(tools.tools);
  shape->custom = std::move(tools.custom);
  request.notes.insert(request.notes.end(), tools.notes.begin(), tools.notes.end());
  request.tool_choice = read_openai_tool_choice(body, conversation.tools);
  request.conversation = normalised(std::move(conversation));
  if (request.conversation->messages.empty()) refuse("input", "input has nothing to answer");
  read_include(body, *shape, request);
  read_text_and_reasoning(body, *shape, request);
  read_echoes(body, request, *shape);
  parsed.make_reply = [shape](const ServerFacts& facts, ReplyIdentity identity) {
    return make_openai_responses_reply(shape, facts, std::move(identity));
  };
  return parsed;
}

}  // namespace carat::server
