#pragma once

#include <string_view>

#include "text/chat/template_revision.h"
#include "text/output/marked_text.h"
#include "text/value.h"

namespace carat::text {

// Writes the parts of a prompt that concern tools (docs/gemma4.md 5.4 and 5.5). Braces, keywords and string delimiters
// are the template's; every name, key and value is content.
class ToolSyntax {
 public:
  ToolSyntax(TemplateRevision revision, MarkedText& out) : revision_(revision), out_(out) {}

  // `tool` is {"type": "function", "function": {...}}.
  void declaration(const Value& tool);
  // `arguments` is a map.
  void call(std::string_view name, const Value& arguments);
  // A map becomes the fields of the response, anything else its field `value`.
  void response(std::string_view name, const Value& result);

 private:
  enum class Keys { kBare, kQuoted };
  void value(const Value& value, Keys keys);
  void entries(const ValueMap& map, Keys keys);
  void list(const std::vector<Value>& items, Keys keys);
  void quoted(const MarkedText& text);
  void quoted_list(const Value& items);

  void parameters(const Value& schema);
  void response_schema(const Value& schema);
  // The properties of a schema; those whose names the template reserves are left out when `skip_reserved`.
  void properties(const ValueMap& properties, bool skip_reserved);
  void property(const Value& schema);
  void property_of_launch(const Value& schema);
  void enumeration(const Value& schema);
  void items(const ValueMap& schema);
  void object_fields(const Value& schema);
  void begin_field(std::string_view name);

  TemplateRevision revision_;
  MarkedText& out_;
  bool needs_comma_ = false;  // before the next field of the property being written
};

}  // namespace carat::text
