#include "server/api/openai/chat.h"

#include <utility>

#include "server/api/conversation_rules.h"
#include "server/api/openai/messages.h"
#include "server/api/openai/request.h"
#include "server/api/openai/tools.h"

namespace carat::server {

namespace {

void check_modalities(const Fields& body) {
  for (const std::string& modality : body.texts("modalities", 8)) {
    if (modality != "text") refuse("modalities", "modalities has \"{}\"; this model writes text only", modality);
  }
}

// A predicted answer is a draft that the engine may check: {"type": "content", "content": text or parts}.
std::string read_prediction(const Fields& body) {
  const auto prediction = body.object("prediction");
  return prediction ? read_openai_content(prediction->get("content"), "prediction.content").joined() : "";
}

GenerationRequest read_request(const Fields& body, OpenAiChatStyle& style) {
  GenerationRequest request;
  read_openai_common(body, request);
  check_modalities(body);
  text::Conversation conversation;
  conversation.messages = read_openai_messages(body);
  OpenAiTools tools = read_chat_tools(body);
  conversation.tools = std::move(tools.tools);
  request.notes = std::move(tools.notes);
  style.custom = std::move(tools.custom);
  style.old_functions = body.has("functions") && !body.has("tools");
  request.tool_choice = read_openai_tool_choice(body, conversation.tools);
  if (style.old_functions) request.tool_choice.is_parallel = false;  // the old form has room for one call
  request.thinking = read_openai_thinking(body);
  request.thoughts_in_answer = body.text("reasoning_format").value_or("auto") == "none";
  request.prediction = read_prediction(body);
  request.logprobs.wanted = body.flag("logprobs").value_or(false);
  const auto top = body.integer("top_logprobs", 0, kMaxTopLogprobs);
  if (top && *top > 0 && !request.logprobs.wanted) refuse("top_logprobs", "top_logprobs needs logprobs: true");
  request.logprobs.top = static_cast<uint32_t>(top.value_or(0));
  const bool continues = body.flag("continue_final_message").value_or(false);
  if (continues && body.flag("add_generation_prompt").value_or(false)) {
    refuse("continue_final_message", "continue_final_message and add_generation_prompt exclude one another");
  }
  request.continue_final = continues;
  request.conversation = normalised(std::move(conversation));
  if (request.conversation->messages.empty()) refuse("messages", "messages has nothing to answer");
  if (continues && request.conversation->messages.back().role != text::Role::kModel) {
    refuse("continue_final_message", "continue_final_message needs an assistant's message at the end");
  }
  return request;
}

}  // namespace

GenerationRequest parse_openai_chat(std::string_view body) {
  OpenAiChatStyle style;
  return read_request(parse_body(body), style);
}

ParsedRequest read_openai_chat(std::string_view body) {
  OpenAiChatStyle style;
  ParsedRequest parsed{.generation = read_request(parse_body(body), style), .make_reply = {}};
  // The conversation is not kept: an answer repeats nothing of it.
  GenerationRequest kept = parsed.generation;
  kept.conversation.reset();
  parsed.make_reply = [kept = std::move(kept), style = std::move(style)](const ServerFacts& facts,
                                                                         ReplyIdentity identity) {
    return make_openai_chat_reply(kept, facts, std::move(identity), style);
  };
  return parsed;
}

}  // namespace carat::server
