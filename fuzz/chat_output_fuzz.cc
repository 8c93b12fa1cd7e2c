// A model may write anything: it is split into thoughts, answer and calls, the same however it is cut into pieces.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "demo_vocab.h"
#include "fuzz_check.h"
#include "text/output/output_parser.h"
#include "text/tokenizer/tokenizer.h"

namespace {

using carat::text::OutputEnd;
using carat::text::OutputEvent;
using carat::text::TextOutputParser;
using carat::text::TokenOutputParser;

struct Result {
  std::string thought, answer, calls;
  bool operator==(const Result&) const = default;

  carat::text::OutputSink sink() {
    return [this](const OutputEvent& event) {
      FUZZ_CHECK(carat::utf8_sanitise(event.text) == event.text);
      switch (event.kind) {
        case OutputEvent::Kind::kThought:
          thought += event.text;
          break;
        case OutputEvent::Kind::kAnswer:
          answer += event.text;
          break;
        case OutputEvent::Kind::kToolCall:
          FUZZ_CHECK(nlohmann::json::parse(event.arguments, nullptr, false).is_object() && !event.name.empty());
          calls += event.name + event.arguments + "\n";
          break;
        case OutputEvent::Kind::kBadToolCall:
          FUZZ_CHECK(!event.problem.empty());
          calls += event.text + "\n";
          break;
      }
    };
  }
};

Result parse(std::string_view prompt, std::string_view text, size_t piece, OutputEnd end) {
  Result result;
  TextOutputParser parser(prompt, {}, result.sink());
  for (size_t at = 0; at < text.size(); at += piece) parser.append(text.substr(at, piece));
  parser.finish(end);
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view prompt = (data[0] & 1) != 0 ? "<|turn>model\n<|channel>thought\n" : "<|turn>model\n";
  const OutputEnd end = (data[0] & 2) != 0 ? OutputEnd::kCut : OutputEnd::kStopped;
  const Result whole = parse(prompt, text, text.size() + 1, end);
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{5}, size_t{data[0]} / 4 + 3}) {
    FUZZ_CHECK(parse(prompt, text, piece, end) == whole);
  }

  using Specials = carat::text::Tokenizer::Specials;
  const carat::text::Tokenizer tokenizer(carat::fuzz::demo_vocab());
  const auto prompt_tokens = tokenizer.encode(prompt, Specials::kParse);
  for (const Specials specials : {Specials::kParse, Specials::kPlainText}) {
    Result result;
    TokenOutputParser parser(carat::fuzz::demo_vocab(), prompt_tokens, {}, result.sink());
    for (const auto token : tokenizer.encode(text, specials)) parser.append(token);
    parser.finish(end);
    if (specials == Specials::kPlainText) FUZZ_CHECK(result.calls.empty());  // nobody's text is a mark
  }
  return 0;
}
