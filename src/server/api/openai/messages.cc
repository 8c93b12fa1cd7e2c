#include "server/api/openai/messages.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "server/api/api_error.h"
#include "text/value_json.h"

namespace carat::server {

namespace {

using text::Role;
using text::Value;

constexpr size_t kMaxBiases = 4096;

bool is_given(const Value& value) { return !value.is_undefined() && !value.is_none(); }

Role read_role(const Fields& message) {
  const std::string role = message.required_text("role");
  if (role == "system") return Role::kSystem;
  if (role == "developer") return Role::kDeveloper;
  if (role == "user") return Role::kUser;
  if (role == "assistant" || role == "model") return Role::kModel;
  if (role == "tool" || role == "function") return Role::kTool;
  refuse(message.path_of("role"), "{} is \"{}\"; known are system, developer, user, assistant and tool",
         message.path_of("role"), role);
}

// A part's text; what else a part can be is refused with the reason.
std::string read_part(const Value& value, const std::string& path) {
  if (value.is_string()) return value.text();
  const Fields part(value, path);
  const std::string type = part.text("type").value_or("text");
  if (type == "text" || type == "input_text" || type == "output_text") return part.required_text("text");
  if (type == "refusal") return part.required_text("refusal");
  if (type == "image_url" || type == "input_image") refuse(path, "{}: this model reads no images", path);
  if (type == "input_audio") refuse(path, "{}: this model reads no sound", path);
  refuse(path, "{}: parts of type \"{}\" are not supported; send text", path, type);
}

std::vector<std::pair<std::variant<text::TokenId, std::string>, float>> read_bias(const Fields& body) {
  std::vector<std::pair<std::variant<text::TokenId, std::string>, float>> bias;
  const Value value = body.get("logit_bias");
  if (!is_given(value)) return bias;
  const auto strength = [&](const Value& number, const std::string& path) -> float {
    if (number.is_bool() && !number.as_bool()) return -std::numeric_limits<float>::infinity();
    const double given = number.is_integer() ? static_cast<double>(number.as_integer())
                         : number.is_float() ? number.as_float()
                                             : std::numeric_limits<double>::quiet_NaN();
    if (!(given >= -100.0 && given <= 100.0)) refuse(path, "{}: a bias is a number from -100 to 100", path);
    // The ends of the range mean: never, and always.
    if (given == -100.0) return -std::numeric_limits<float>::infinity();
    return static_cast<float>(given == 100.0 ? 1e4 : given);
  };
  if (value.is_map()) {
    for (const text::ValueMap::Entry& entry : value.as_map().entries()) {
      const std::string path = fmt::format("logit_bias[\"{}\"]", entry.key.text());
      const std::string& digits = entry.key.text();
      text::TokenId token = -1;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), token);
      if (error != std::errc() || end != digits.data() + digits.size() || token < 0) {
        refuse(path, "{}: keys are ids of tokens, such as \"1234\"", path);
      }
      bias.emplace_back(token, strength(entry.value, path));
    }
  } else if (value.is_list()) {
    for (const Value& item : value.as_list()) {
      const std::string path = item_path("logit_bias", bias.size());
      if (!item.is_list() || item.as_list().size() != 2) refuse(path, "{} must be [token or text, bias]", path);
      const Value& token = item.as_list()[0];
      const float added = strength(item.as_list()[1], path);
      if (token.is_string()) {
        bias.emplace_back(token.text(), added);
      } else if (token.is_integer() && token.as_integer() >= 0 && token.as_integer() <= INT32_MAX) {
        bias.emplace_back(static_cast<text::TokenId>(token.as_integer()), added);
      } else {
        refuse(path, "{}: the first element must be the id of a token or a text", path);
      }
    }
  } else {
    refuse_kind("logit_bias", "an object of token ids, or a list of pairs", value);
  }
  if (bias.size() > kMaxBiases) {
    refuse("logit_bias", "logit_bias has {} entries; at most {} are allowed", bias.size(), kMaxBiases);
  }
  return bias;
}

// The one grammar a request may have, in whichever field it came.
void set_format(AnswerFormat& format, AnswerFormat found) {
  if (format.kind != AnswerFormat::Kind::kText) {
    refuse(found.param, "{} and {} both say what the answer must match; send one of them", format.param, found.param);
  }
  format = std::move(found);
}

Value parse_schema(const std::string& schema, const std::string& path) {
  try {
    return text::parse_json(schema, false, path);
  } catch (const Error& error) {
    refuse(path, "{}", error.what());
  }
}

void read_guided(const Fields& fields, std::string_view json, std::string_view regex, std::string_view choice,
                 std::string_view grammar, AnswerFormat& format) {
  if (fields.has(json)) {
    const Value given = fields.get(json);
    set_format(format, json_schema_format(given.is_string() ? parse_schema(given.text(), fields.path_of(json)) : given,
                                          fields.path_of(json)));
  }
  if (const auto pattern = fields.text(regex)) {
    set_format(format, {.kind = AnswerFormat::Kind::kRegex, .source = *pattern, .param = fields.path_of(regex)});
  }
  if (fields.has(choice)) {
    AnswerFormat one_of{.kind = AnswerFormat::Kind::kChoice, .param = fields.path_of(choice)};
    one_of.choices = fields.texts(choice, 1000);
    if (one_of.choices.empty()) refuse(one_of.param, "{} has no choices", one_of.param);
    set_format(format, std::move(one_of));
  }
  if (const auto gbnf = fields.text(grammar); gbnf && !gbnf->empty()) {
    set_format(format, {.kind = AnswerFormat::Kind::kGbnf, .source = *gbnf, .param = fields.path_of(grammar)});
  }
}

}  // namespace

text::ToolCall read_openai_call(const Value& value, const std::string& path) {
  const Fields call(value, path);
  text::ToolCall result;
  result.id = call.text("id").value_or("");
  if (const auto custom = call.object("custom")) {
    result.name = custom->required_text("name");
    result.arguments = custom_tool_arguments(custom->text("input").value_or(""));
    return result;
  }
  const Fields function = call.object("function").value_or(call);
  result.name = function.required_text("name");
  if (result.name.empty()) refuse(function.path_of("name"), "{} is empty", function.path_of("name"));
  const Value arguments = function.get("arguments");
  if (arguments.is_string()) {
    result.arguments = arguments.text();
  } else if (is_given(arguments)) {
    result.arguments = text::to_compact_json(arguments);
  }
  return result;
}

AnswerFormat json_schema_format(const Value& schema, const std::string& path) {
  if (!schema.is_map() && !schema.is_bool()) refuse_kind(path, "a JSON schema", schema);
  return {.kind = AnswerFormat::Kind::kJsonSchema, .source = text::to_compact_json(schema), .param = path};
}

void add_openai_format(const Fields& wish, AnswerFormat& format) {
  const std::string type = wish.required_text("type");
  if (type == "text") return;
  if (type == "json_object") {
    if (wish.has("schema")) return set_format(format, json_schema_format(wish.get("schema"), wish.path_of("schema")));
    return set_format(format, {.kind = AnswerFormat::Kind::kJsonObject, .param = wish.path()});
  }
  if (type != "json_schema") {
    refuse(wish.path_of("type"), "{} is \"{}\"; known are text, json_object and json_schema", wish.path_of("type"),
           type);
  }
  const std::optional<Fields> inner = wish.object("json_schema");
  const Fields& holder = inner && inner->has("schema") ? *inner : wish;
  if (!holder.has("schema")) {
    // Where OpenAI's API has it: nested in chat completions, flat in responses.
    const std::string path = wish.path_of(wish.path() == "response_format" ? "json_schema.schema" : "schema");
    refuse(path, "{} is required for type json_schema", path);
  }
  set_format(format, json_schema_format(holder.get("schema"), holder.path_of("schema")));
}

text::Content read_openai_content(const Value& content, const std::string& path) {
  if (!is_given(content)) return {};
  if (content.is_string()) return content.text();
  if (!content.is_list()) refuse_kind(path, "a string or a list of parts", content);
  std::vector<std::string> parts;
  for (const Value& part : content.as_list()) parts.push_back(read_part(part, item_path(path, parts.size())));
  return text::Content::of_parts(std::move(parts));
}

text::Message read_openai_message(const Value& value, const std::string& path) {
  const Fields fields(value, path);
  text::Message message{read_role(fields)};
  message.content = read_openai_content(fields.get("content"), fields.path_of("content"));
  if (message.role == Role::kModel) {
    if (message.content.empty()) message.content = fields.text("refusal").value_or("");
    message.reasoning = fields.text("reasoning_content").value_or("");
    if (message.reasoning.empty() && fields.get("reasoning").is_string()) message.reasoning = *fields.text("reasoning");
    for (const Value& call : fields.list("tool_calls").value_or(std::vector<Value>())) {
      const std::string place = item_path(fields.path_of("tool_calls"), message.tool_calls.size());
      message.tool_calls.push_back(read_openai_call(call, place));
    }
    if (const auto call = fields.object("function_call")) {
      message.tool_calls.push_back(read_openai_call(call->value(), call->path()));
    }
  }
  if (message.role == Role::kTool) {
    message.tool_call_id = fields.text("tool_call_id").value_or("");
    message.tool_name = fields.text("name").value_or("");
  }
  return message;
}

std::vector<text::Message> read_openai_messages(const Fields& body) {
  const auto list = body.list("messages");
  if (!list) refuse(body.path_of("messages"), "messages is required: a list with at least one message");
  if (list->empty()) refuse(body.path_of("messages"), "messages is empty; send at least one message");
  std::vector<text::Message> messages;
  for (const Value& message : *list) {
    messages.push_back(read_openai_message(message, item_path(body.path_of("messages"), messages.size())));
  }
  return messages;
}

SamplingWishes read_openai_sampling(const Fields& body) {
  constexpr double kMost = 1e6;
  SamplingWishes wishes;
  wishes.temperature = body.number("temperature", 0.0, 2.0);
  wishes.top_p = body.number("top_p", 0.0, 1.0);
  wishes.min_p = body.number("min_p", 0.0, 1.0);
  // -1 is how vLLM says: no limit.
  if (const auto top_k = body.integer("top_k", -1, INT32_MAX))
    wishes.top_k = static_cast<uint32_t>(std::max<int64_t>(*top_k, 0));
  wishes.repeat_penalty = body.number("repetition_penalty", 1e-3, kMost);
  if (!wishes.repeat_penalty) wishes.repeat_penalty = body.number("repeat_penalty", 1e-3, kMost);
  if (const auto last = body.integer("repeat_last_n", -1, INT32_MAX)) {
    wishes.repeat_last_n = *last < 0 ? UINT32_MAX : static_cast<uint32_t>(*last);
  }
  wishes.presence_penalty = body.number("presence_penalty", -2.0, 2.0);
  wishes.frequency_penalty = body.number("frequency_penalty", -2.0, 2.0);
  if (const auto seed = body.integer("seed", INT64_MIN, INT64_MAX); seed && *seed >= 0) {
    wishes.seed = static_cast<uint64_t>(*seed);
  }
  wishes.bias = read_bias(body);
  return wishes;
}

AnswerFormat read_openai_format(const Fields& body) {
  AnswerFormat format;
  if (const auto wish = body.object("response_format")) add_openai_format(*wish, format);
  read_guided(body, "guided_json", "guided_regex", "guided_choice", "guided_grammar", format);
  read_guided(body, "json_schema", "regex", "choice", "grammar", format);
  if (const auto outputs = body.object("structured_outputs")) {
    read_guided(*outputs, "json", "regex", "choice", "grammar", format);
    if (outputs->flag("json_object").value_or(false)) {
      set_format(format, {.kind = AnswerFormat::Kind::kJsonObject, .param = outputs->path_of("json_object")});
    }
  }
  return format;
}

ThinkingWishes thinking_for_effort(const std::string& effort, const std::string& path) {
  constexpr uint64_t kLowBudget = 1024, kMediumBudget = 8192;
  if (effort == "none" || effort == "minimal") return {.is_on = false};
  if (effort == "low") return {.is_on = true, .budget = kLowBudget};
  if (effort == "medium") return {.is_on = true, .budget = kMediumBudget};
  if (effort == "high" || effort == "xhigh" || effort == "max") return {.is_on = true};
  refuse(path, "{} is \"{}\"; known are none, minimal, low, medium, high, xhigh and max", path, effort);
}

ThinkingWishes read_openai_thinking(const Fields& body) {
  ThinkingWishes wishes;
  if (const auto effort = body.text("reasoning_effort")) wishes = thinking_for_effort(*effort, "reasoning_effort");
  if (const auto arguments = body.object("chat_template_kwargs")) {
    if (const auto enabled = arguments->flag("enable_thinking")) wishes.is_on = *enabled;
  }
  for (const char* name : {"thinking_token_budget", "reasoning_budget_tokens", "thinking_budget_tokens"}) {
    const auto budget = body.integer(name, -1, INT32_MAX);
    if (!budget || *budget < 0) continue;
    wishes.is_on = *budget > 0;
    wishes.budget = static_cast<uint64_t>(*budget);
  }
  return wishes;
}

}  // namespace carat::server
