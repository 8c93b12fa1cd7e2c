#include "server/api/llama/tokens.h"

#include <string>
#include <vector>

#include "base/utf8.h"
#include "server/api/api_error.h"
#include "server/api/fields.h"
#include "server/api/json_writer.h"
#include "server/api/openai/chat.h"
#include "text/tokenizer/detokenizer.h"

namespace carat::server {

namespace {

using text::TokenId;

TokenId read_token(const text::Value& value, const std::string& path, const text::Vocab& vocab) {
  if (!value.is_integer()) refuse_kind(path, "the id of a token", value);
  const int64_t id = value.as_integer();
  if (id < 0 || static_cast<uint64_t>(id) >= vocab.size()) {
    refuse(path, "{} is {}; the vocabulary has the tokens 0 to {}", path, id, vocab.size() - 1);
  }
  return static_cast<TokenId>(id);
}

// A text, or a list of texts and of tokens that stay as they are.
std::vector<TokenId> encode_content(const Fields& body, const text::Tokenizer& tokenizer) {
  using Specials = text::Tokenizer::Specials;
  const text::Value content = body.get("content");
  const Specials specials = body.flag("parse_special").value_or(true) ? Specials::kParse : Specials::kPlainText;
  std::vector<TokenId> tokens;
  if (body.flag("add_special").value_or(false)) tokens.push_back(tokenizer.vocab().bos());
  if (content.is_string()) {
    tokenizer.encode(content.text(), specials, tokens);
    return tokens;
  }
  if (!content.is_list()) refuse_kind("content", "a string, or a list of strings and tokens", content);
  size_t index = 0;
  for (const text::Value& item : content.as_list()) {
    const std::string path = item_path("content", index++);
    if (item.is_string()) {
      tokenizer.encode(item.text(), specials, tokens);
    } else {
      tokens.push_back(read_token(item, path, tokenizer.vocab()));
    }
  }
  return tokens;
}

// A token's spelling: a text, or its bytes where they are not whole characters.
void write_piece(JsonWriter& json, const text::Vocab& vocab, TokenId token) {
  std::string bytes;
  text::append_spelling(vocab, token, bytes);
  if (utf8_sanitise(bytes) == bytes) {
    json.value(bytes);
    return;
  }
  json.begin_list();
  for (const char byte : bytes) json.value(static_cast<unsigned>(static_cast<unsigned char>(byte)));
  json.end_list();
}

}  // namespace

Response llama_tokenize(std::string_view text, const text::Tokenizer& tokenizer) {
  const Fields body = parse_body(text);
  const bool with_pieces = body.flag("with_pieces").value_or(false);
  const std::vector<TokenId> tokens = encode_content(body, tokenizer);
  Response response;
  JsonWriter json(response.body);
  json.begin_object().key("tokens").begin_list();
  for (const TokenId token : tokens) {
    if (!with_pieces) {
      json.value(token);
      continue;
    }
    json.begin_object().field("id", token).key("piece");
    write_piece(json, tokenizer.vocab(), token);
    json.end_object();
  }
  json.end_list().end_object();
  return response;
}

Response llama_detokenize(std::string_view text, const text::Vocab& vocab) {
  const Fields body = parse_body(text);
  const auto tokens = body.list("tokens");
  if (!tokens) refuse("tokens", "tokens is required: a list of token ids");
  std::string bytes;
  size_t index = 0;
  for (const text::Value& token : *tokens) {
    text::append_spelling(vocab, read_token(token, item_path("tokens", index++), vocab), bytes);
  }
  Response response;
  JsonWriter json(response.body);
  json.begin_object().field("content", utf8_sanitise(bytes)).end_object();
  return response;
}

GenerationRequest read_llama_apply_template(std::string_view body) { return parse_openai_chat(body); }

Response llama_apply_template(std::string_view prompt) {
  Response response;
  JsonWriter json(response.body);
  json.begin_object().field("prompt", prompt).end_object();
  return response;
}

}  // namespace carat::server
