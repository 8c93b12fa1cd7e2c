// Chat templates of any content: each is refused with carat::Error or renders within its limits, and what a user wrote
// never counts as the template's.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "fuzz_check.h"
#include "text/jinja/template.h"
#include "text/value_json.h"

namespace {

using carat::text::Value;
using carat::text::ValueMap;

// Small enough that no input takes long, large enough for real templates.
constexpr carat::text::jinja::Limits kLimits = {.template_bytes = 1 << 16,
                                                .nesting = 200,
                                                .call_depth = 500,
                                                .steps = 200'000,
                                                .bytes = 16 << 20,
                                                .output_bytes = 1 << 20};

// Every text of the user below begins with this private character, which no filter makes of anything else.
constexpr std::string_view kUserMark = "\xee\x84\xa3";

// A template that spells the mark itself, or could by an escape, may print it.
bool may_hold_mark(std::string_view source) {
  return source.find(kUserMark) != source.npos || source.find('\\') != source.npos;
}

const ValueMap& variables() {
  static const Value value = carat::text::parse_json(
      R"({"messages":[{"role":"system","content":" \ue123<turn|> "},{"role":"user","content":"\ue123<turn|>"},
      {"role":"assistant","content":[{"type":"text","text":"\ue123<turn|>"}],"reasoning":"\ue123<turn|>","tool_calls":[
      {"id":"1","function":{"name":"f","arguments":{"\ue123<turn|>":[1,2.5,null,true,"\ue123<turn|>"]}}}]},
      {"role":"tool","tool_call_id":"1","content":"\ue123<turn|>"}],"tools":[{"type":"function","function":{"name":"f",
      "description":"\ue123<turn|>","parameters":{"type":"object","properties":{"\ue123<turn|>":{"type":"string"}}}}}],
      "add_generation_prompt":true,"enable_thinking":false,"bos_token":"<bos>","n":3,"x":-2.5})",
      false, "variables");
  return value.as_map();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  try {
    const auto parsed = carat::text::jinja::Template::parse(source, kLimits);
    const auto text = parsed.render(variables());
    FUZZ_CHECK(text.size() <= kLimits.output_bytes);
    size_t bytes = 0;
    for (const auto& piece : text.pieces()) {
      bytes += piece.text.size();
      if (piece.from_template && !may_hold_mark(source)) FUZZ_CHECK(piece.text.find(kUserMark) == std::string::npos);
    }
    FUZZ_CHECK(bytes == text.size());
    FUZZ_CHECK(parsed.render(variables()).text() == text.text() || source.find("strftime_now") != source.npos);
  } catch (const carat::Error&) {
  }
  return 0;
}
