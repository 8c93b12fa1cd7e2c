#include "text/tools/tool_syntax.h"

#include <algorithm>
#include <array>
#include <vector>

#include "text/letter_case.h"

namespace carat::text {

namespace {

constexpr std::string_view kQuote = "<|\"|>";

using Entry = ValueMap::Entry;

// By key without regard to case; keys that differ only in case stay in their order.
std::vector<const Entry*> sorted(const ValueMap& map) {
  std::vector<std::pair<std::string, const Entry*>> keyed;
  for (const Entry& entry : map.entries()) keyed.emplace_back(to_lower(entry.key.text()), &entry);
  std::stable_sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const Entry*> entries;
  for (const auto& [key, entry] : keyed) entries.push_back(entry);
  return entries;
}

bool is_reserved(std::string_view name) {
  constexpr std::array<std::string_view, 5> kReserved = {"description", "type", "properties", "required", "nullable"};
  return std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end();
}

// A type may be a list, and then shows as Python shows lists.
MarkedText upper_type(const Value& schema) { return python_text(schema.get("type")).mapped(to_upper); }

}  // namespace

void ToolSyntax::quoted(const MarkedText& text) {
  out_.markup(kQuote);
  out_.append(text);
  out_.markup(kQuote);
}

void ToolSyntax::quoted_list(const Value& items) {
  out_.markup("[");
  if (items.is_list()) {
    for (const Value& item : items.as_list()) {
      if (&item != items.as_list().data()) out_.markup(",");
      quoted(python_text(item));
    }
  }
  out_.markup("]");
}

void ToolSyntax::value(const Value& value, Keys keys) {
  if (value.is_string()) {
    quoted(value.as_string());
  } else if (value.is_bool()) {
    out_.content(value.as_bool() ? "true" : "false");
  } else if (value.is_map()) {
    entries(value.as_map(), keys);
  } else if (value.is_list()) {
    list(value.as_list(), keys);
  } else if (value.is_none()) {
    out_.content(revision_ >= TemplateRevision::kCanonical ? "null" : "None");
  } else {
    out_.append(python_text(value));
  }
}

void ToolSyntax::entries(const ValueMap& map, Keys keys) {
  out_.markup("{");
  bool first = true;
  for (const Entry* entry : sorted(map)) {
    if (!std::exchange(first, false)) out_.markup(",");
    if (keys == Keys::kQuoted) {
      quoted(entry->key);
    } else {
      out_.append(entry->key);
    }
    out_.markup(":");
    value(entry->value, keys);
  }
  out_.markup("}");
}

void ToolSyntax::list(const std::vector<Value>& items, Keys keys) {
  out_.markup("[");
  for (const Value& item : items) {
    if (&item != items.data()) out_.markup(",");
    value(item, keys);
  }
  out_.markup("]");
}

void ToolSyntax::call(std::string_view name, const Value& arguments) {
  out_.markup("<|tool_call>call:").content(name);
  entries(arguments.as_map(), Keys::kBare);
  out_.markup("<tool_call|>");
}

void ToolSyntax::response(std::string_view name, const Value& result) {
  out_.markup("<|tool_response>response:").content(name);
  if (result.is_map()) {
    entries(result.as_map(), Keys::kBare);
  } else {
    out_.markup("{value:");
    value(result, Keys::kBare);
    out_.markup("}");
  }
  out_.markup("<tool_response|>");
}

void ToolSyntax::declaration(const Value& tool) {
  const Value function = tool.get("function");
  out_.markup("<|tool>declaration:");
  out_.append(python_text(function.get("name")));
  out_.markup("{description:");
  const Value description = function.get("description");
  quoted(description.is_none() ? MarkedText() : python_text(description));
  if (function.get("parameters").truthy()) parameters(function.get("parameters"));
  if (!function.get("response").is_undefined()) response_schema(function.get("response"));
  out_.markup("}<tool|>");
}

// The closing brace belongs to the type, here and below: so the official template has it.
void ToolSyntax::parameters(const Value& schema) {
  out_.markup(",parameters:{");
  if (schema.get("properties").truthy() && schema.get("properties").is_map()) {
    out_.markup("properties:{");
    properties(schema.get("properties").as_map(), revision_ < TemplateRevision::kCanonical);
    out_.markup("},");
  }
  if (schema.get("required").truthy()) {
    out_.markup("required:");
    quoted_list(schema.get("required"));
    out_.markup(",");
  }
  if (schema.get("type").truthy()) {
    out_.markup("type:");
    quoted(upper_type(schema));
    out_.markup("}");
  }
}

void ToolSyntax::response_schema(const Value& schema) {
  out_.markup(",response:{");
  if (schema.get("description").truthy()) {
    out_.markup("description:");
    quoted(python_text(schema.get("description")));
    out_.markup(",");
  }
  if (const MarkedText type = upper_type(schema); type.text() == "OBJECT") {
    out_.markup("type:");
    quoted(type);
    out_.markup("}");
  }
}

void ToolSyntax::properties(const ValueMap& properties, bool skip_reserved) {
  bool first = true;
  for (const Entry* entry : sorted(properties)) {
    if (skip_reserved && is_reserved(entry->key.text())) continue;
    if (!std::exchange(first, false)) out_.markup(",");
    out_.append(entry->key);
    out_.markup(":{");
    const bool outer_comma = std::exchange(needs_comma_, false);
    if (revision_ == TemplateRevision::kLaunch) {
      property_of_launch(entry->value);
    } else {
      property(entry->value);
    }
    begin_field("type");
    quoted(upper_type(entry->value));
    out_.markup("}");
    needs_comma_ = outer_comma;
  }
}

void ToolSyntax::begin_field(std::string_view name) {
  if (std::exchange(needs_comma_, true)) out_.markup(",");
  out_.markup(name).markup(":");
}

void ToolSyntax::property(const Value& schema) {
  const std::string type = upper_type(schema).text();
  if (schema.get("description").truthy()) {
    begin_field("description");
    quoted(python_text(schema.get("description")));
  }
  if (type == "STRING") enumeration(schema);
  if (type == "ARRAY" && schema.get("items").is_map() && schema.get("items").truthy()) {
    begin_field("items");
    items(schema.get("items").as_map());
  }
  if (schema.get("nullable").truthy()) {
    begin_field("nullable");
    out_.markup("true");
  }
  if (type == "OBJECT") object_fields(schema);
}

// The launch template has another order, and writes a comma before properties and items whatever came before.
void ToolSyntax::property_of_launch(const Value& schema) {
  const std::string type = upper_type(schema).text();
  if (schema.get("description").truthy()) {
    begin_field("description");
    quoted(python_text(schema.get("description")));
  }
  if (schema.get("nullable").truthy()) {
    begin_field("nullable");
    out_.markup("true");
  }
  const bool had_field = needs_comma_;
  needs_comma_ = true;
  if (type == "OBJECT") {
    object_fields(schema);
  } else if (type == "ARRAY" && schema.get("items").is_map() && schema.get("items").truthy()) {
    begin_field("items");
    items(schema.get("items").as_map());
  }
  needs_comma_ = had_field;
  if (type == "STRING") enumeration(schema);
}

void ToolSyntax::enumeration(const Value& schema) {
  if (!schema.get("enum").truthy()) return;
  begin_field("enum");
  value(schema.get("enum"), Keys::kQuoted);
}

void ToolSyntax::items(const ValueMap& schema) {
  out_.markup("{");
  bool first = true;
  for (const Entry* entry : sorted(schema)) {
    const auto& [key, field] = *entry;
    if (field.is_none()) continue;
    if (!std::exchange(first, false)) out_.markup(",");
    out_.append(key);
    out_.markup(":");
    if (key.text() == "properties") {
      out_.markup("{");
      if (field.is_map()) properties(field.as_map(), revision_ < TemplateRevision::kCanonical);
      out_.markup("}");
    } else if (key.text() == "required") {
      quoted_list(field);
    } else if (key.text() == "type" && field.is_list()) {
      std::vector<Value> types;
      for (const Value& type : field.as_list()) types.push_back(Value::string(python_text(type).mapped(to_upper)));
      list(types, Keys::kQuoted);
    } else if (key.text() == "type") {
      value(Value::string(python_text(field).mapped(to_upper)), Keys::kQuoted);
    } else {
      value(field, Keys::kQuoted);
    }
  }
  out_.markup("}");
}

// A schema of an object without properties shows its unusual fields as if they were properties.
void ToolSyntax::object_fields(const Value& schema) {
  const Value known = schema.get("properties");
  if (known.is_map() || schema.is_map()) {
    begin_field("properties");
    out_.markup("{");
    if (known.is_map()) {
      properties(known.as_map(), revision_ < TemplateRevision::kCanonical);
    } else {
      properties(schema.as_map(), true);
    }
    out_.markup("}");
  }
  if (schema.get("required").truthy()) {
    begin_field("required");
    quoted_list(schema.get("required"));
  }
}

}  // namespace carat::text
