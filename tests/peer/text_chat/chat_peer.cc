// What the peer tests run: stdin is a JSON list of requests, stdout a JSON list with the answer to each, {"text": ...}
// or {"error": ...}.
//   {"kind": "jinja", "source": ..., "variables": {...}}               the interpreter alone
//   {"kind": "native", "conversation": {...}, "options": {...}}        the native renderer
//   {"kind": "embedded", "source": ..., "conversation": ..., "options": ...}
//                                    what a file with this template gets; adds "interpreted", "revision" and "warning"
//   {"kind": "file_template", "path": ...}                             the chat template in a model file
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "gguf/reader.h"
#include "text/chat/chat_template.h"
#include "text/chat/conversation_json.h"
#include "text/value_json.h"

namespace {

using carat::text::ChatTemplate;
using Json = nlohmann::ordered_json;

std::string joined(const std::vector<carat::text::PromptPiece>& pieces) {
  std::string text;
  for (const auto& piece : pieces) text += piece.text;
  return text;
}

Json answer_jinja(const Json& request) {
  const auto variables = carat::text::parse_json(request.at("variables").dump(), false, "variables");
  const auto parsed = carat::text::jinja::Template::parse(request.at("source").get<std::string>());
  return {{"text", parsed.render(variables.as_map()).text()}};
}

Json answer_native(const Json& request) {
  const Json& options = request.at("options");
  const auto conversation = carat::text::parse_conversation(request.at("conversation").dump(), "conversation");
  const carat::text::ChatOptions chat = {
      .thinking = options.value("thinking", false),
      .empty_thought_block = options.value("large", false),
      .add_generation_prompt = options.value("generation", true),
      .preserve_thinking = options.value("preserve", false),
      .revision = static_cast<carat::text::TemplateRevision>(options.value("revision", 3))};
  return {{"text", joined(render_chat(conversation, chat))}};
}

Json answer_embedded(const Json& request) {
  const Json& options = request.at("options");
  const auto conversation = carat::text::parse_conversation(request.at("conversation").dump(), "conversation");
  const auto chat = ChatTemplate::from_source(request.at("source").get<std::string>(), "<bos>", false);
  const auto pieces = chat.render(conversation, {.thinking = options.value("thinking", false),
                                                 .add_generation_prompt = options.value("generation", true),
                                                 .preserve_thinking = options.value("preserve", false)});
  return {{"text", joined(pieces)},
          {"interpreted", chat.is_interpreted()},
          {"revision", static_cast<int>(chat.revision())},
          {"warning", chat.warning()}};
}

Json answer_file_template(const Json& request) {
  const auto file = carat::gguf::ModelFile::open(request.at("path").get<std::string>());
  const auto vocab = carat::text::Vocab::from_metadata(file->metadata());
  return {{"text", std::string(vocab->chat_template())}};
}

Json answer(const Json& request) try {
  const std::string kind = request.at("kind");
  if (kind == "jinja") return answer_jinja(request);
  if (kind == "native") return answer_native(request);
  if (kind == "embedded") return answer_embedded(request);
  if (kind == "file_template") return answer_file_template(request);
  throw std::invalid_argument(fmt::format("unknown kind {}", kind));
} catch (const std::exception& error) {
  return {{"error", error.what()}};
}

}  // namespace

int main() try {
  const std::string input(std::istreambuf_iterator<char>(std::cin), {});
  Json answers = Json::array();
  for (const Json& request : Json::parse(input)) answers.push_back(answer(request));
  std::cout << answers.dump();
} catch (const std::exception& error) {
  fmt::print(stderr, "chat_peer: {}\n", error.what());
  return 1;
}
