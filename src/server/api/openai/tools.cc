#include "server/api/openai/tools.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "server/api/api_error.h"
#include "text/value_json.h"

namespace carat::server {

namespace {

using text::Value;

constexpr size_t kMaxToolName = 128;

bool is_given(const Value& value) { return !value.is_undefined() && !value.is_none(); }

Value text_value(std::string_view text) { return Value::string(text, false); }

Value map_of(std::initializer_list<std::pair<std::string_view, Value>> entries) {
  text::ValueMap map;
  for (const auto& [key, value] : entries) {
    if (is_given(value)) map.set(text::MarkedText(key, false), value);
  }
  return Value::map(std::move(map));
}

text::Tool read_function(const Fields& function) {
  const std::string name = function.required_text("name");
  check_tool_name(name, function.path_of("name"));
  const Value parameters = function.get("parameters");
  if (is_given(parameters) && !parameters.is_map()) {
    refuse_kind(function.path_of("parameters"), "a JSON schema, an object", parameters);
  }
  return make_tool(name, function.get("description"), parameters, function.get("strict"));
}

// A tool with a text for an argument becomes a function with one string. A grammar of the text guides nothing then.
void add_custom(const Fields& custom, OpenAiTools& tools) {
  const std::string name = custom.required_text("name");
  check_tool_name(name, custom.path_of("name"));
  const Value input = map_of({{"type", text_value("string")}});
  const Value parameters = map_of({{"type", text_value("object")},
                                   {"properties", map_of({{"input", input}})},
                                   {"required", Value::list({text_value("input")})}});
  tools.tools.push_back(make_tool(name, custom.get("description"), parameters, Value()));
  tools.custom.insert(name);
  const auto format = custom.object("format");
  if (format && format->text("type").value_or("text") != "text") {
    tools.notes.push_back(fmt::format("{}: the format of the tool's input is not enforced", format->path()));
  }
}

// Remembers names, so that many tools cost no more than they are.
class Names {
 public:
  void add(const OpenAiTools& tools, const std::string& path) {
    const std::string& name = tools.tools.back().name;
    if (!seen_.insert(name).second) refuse(path, "{}: two tools have the name {}", path, name);
  }

 private:
  std::set<std::string> seen_;
};

ToolChoice::Mode read_mode(const std::string& word, const std::string& path) {
  if (word == "auto") return ToolChoice::Mode::kAuto;
  if (word == "none") return ToolChoice::Mode::kNone;
  if (word == "required" || word == "any") return ToolChoice::Mode::kRequired;
  refuse(path, "{} is \"{}\"; known are auto, none and required", path, word);
}

// {"type": "function", "function": {"name"}}, {"type": "custom", "custom": {"name"}}, or flat.
std::string chosen_name(const Fields& choice) {
  for (const char* key : {"function", "custom"}) {
    if (const auto inner = choice.object(key)) return inner->required_text("name");
  }
  return choice.required_text("name");
}

bool is_own_type(const Fields& choice) {
  const std::string type = choice.text("type").value_or("function");
  return type == "function" || type == "custom";
}

// Names in tool_choice must be tools of the request.
void check_known(const std::set<std::string_view>& known, const std::string& name, const std::string& path) {
  if (!known.contains(name)) refuse(path, "{} names \"{}\", which is not among the tools", path, name);
}

void read_wish(const Fields& wish, const std::set<std::string_view>& known, ToolChoice& choice) {
  if (wish.text("type").value_or("function") != "allowed_tools") {
    if (!is_own_type(wish)) {
      refuse(wish.path_of("type"), "{} is \"{}\"; only functions can be forced", wish.path_of("type"),
             *wish.text("type"));
    }
    choice.mode = ToolChoice::Mode::kRequired;
    choice.allowed = {chosen_name(wish)};
    return check_known(known, choice.allowed.front(), wish.path());
  }
  const Fields allowed = wish.object("allowed_tools").value_or(wish);
  choice.mode = read_mode(allowed.text("mode").value_or("auto"), allowed.path_of("mode"));
  const std::vector<Value> tools = allowed.list("tools").value_or(std::vector<Value>());
  check_tool_count(tools.size(), allowed.path_of("tools"));
  size_t index = 0;
  for (const Value& tool : tools) {
    const Fields place(tool, item_path(allowed.path_of("tools"), index++));
    if (!is_own_type(place)) continue;  // left out of the tools, too
    choice.allowed.push_back(chosen_name(place));
    check_known(known, choice.allowed.back(), place.path());
  }
  if (choice.allowed.empty()) {
    if (choice.mode == ToolChoice::Mode::kRequired)
      refuse(wish.path(), "{} allows no tool and requires one", wish.path());
    choice.mode = ToolChoice::Mode::kNone;
  }
}

}  // namespace

void check_tool_name(const std::string& name, const std::string& path) {
  const bool is_ok = !name.empty() && name.size() <= kMaxToolName && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
  });
  if (!is_ok)
    refuse(path, "{}: the name of a tool has 1 to {} of the characters A-Z a-z 0-9 _ . -", path, kMaxToolName);
}

void check_tool_count(size_t count, const std::string& path) {
  if (count > kMaxTools) refuse(path, "{} has {} entries; at most {} are allowed", path, count, kMaxTools);
}

text::Tool make_tool(const std::string& name, const Value& description, const Value& parameters, const Value& strict) {
  const Value function = map_of(
      {{"name", text_value(name)}, {"description", description}, {"parameters", parameters}, {"strict", strict}});
  return {name, text::to_compact_json(map_of({{"type", text_value("function")}, {"function", function}}))};
}

std::vector<text::Tool> read_openai_tools(const Fields& body) { return read_chat_tools(body).tools; }

OpenAiTools read_chat_tools(const Fields& body) {
  const std::string_view key = body.has("tools") ? "tools" : "functions";
  OpenAiTools tools;
  Names names;
  const std::vector<Value> list = body.list(key).value_or(std::vector<Value>());
  check_tool_count(list.size(), body.path_of(key));
  for (const Value& value : list) {
    const Fields tool(value, item_path(body.path_of(key), tools.tools.size()));
    const std::string type = tool.text("type").value_or("function");
    if (type == "custom") {
      add_custom(tool.object("custom").value_or(tool), tools);
    } else if (type == "function") {
      tools.tools.push_back(read_function(tool.object("function").value_or(tool)));
    } else {
      refuse(tool.path_of("type"), "{}: tools of type \"{}\" cannot be called; known are function and custom",
             tool.path(), type);
    }
    names.add(tools, tool.path());
  }
  return tools;
}

OpenAiTools read_responses_tools(const Fields& body) {
  OpenAiTools tools;
  Names names;
  size_t index = 0;
  const std::vector<Value> list = body.list("tools").value_or(std::vector<Value>());
  check_tool_count(list.size(), body.path_of("tools"));
  for (const Value& value : list) {
    const Fields tool(value, item_path(body.path_of("tools"), index++));
    const std::string type = tool.text("type").value_or("function");
    if (type == "custom") {
      add_custom(tool, tools);
    } else if (type == "function") {
      tools.tools.push_back(read_function(tool.object("function").value_or(tool)));
    } else {
      continue;
    }
    names.add(tools, tool.path());
  }
  return tools;
}

ToolChoice read_openai_tool_choice(const Fields& body, const std::vector<text::Tool>& tools) {
  ToolChoice choice;
  choice.is_parallel = body.flag("parallel_tool_calls").value_or(true);
  const std::string_view key = body.has("tool_choice") ? "tool_choice" : "function_call";
  if (!body.has(key)) return choice;
  std::set<std::string_view> known;
  for (const text::Tool& tool : tools) known.insert(tool.name);
  const Value value = body.get(key);
  const std::string path = body.path_of(key);
  if (value.is_string()) {
    choice.mode = read_mode(value.text(), path);
  } else {
    read_wish(Fields(value, path), known, choice);
  }
  if (choice.mode == ToolChoice::Mode::kRequired && tools.empty()) {
    refuse(path, "{} asks for a call, but the request has no tools", path);
  }
  return choice;
}

std::string custom_tool_input(const std::string& arguments) {
  try {
    const Value input = text::parse_json(arguments, false, "the arguments").get("input");
    if (input.is_string()) return input.text();
  } catch (const Error&) {
  }
  return arguments;
}

std::string custom_tool_arguments(const std::string& input) {
  return text::to_compact_json(map_of({{"input", text_value(input)}}));
}

}  // namespace carat::server
