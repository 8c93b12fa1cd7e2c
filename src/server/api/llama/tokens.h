#pragma once

#include <string_view>

#include "server/api/generation.h"
#include "server/api/reply.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/vocab.h"

namespace carat::server {

// llama-server's routes between texts and tokens. All throw ApiError naming the field.

// POST /tokenize: {"content", "add_special": false, "parse_special": true, "with_pieces": false}.
Response llama_tokenize(std::string_view body, const text::Tokenizer& tokenizer);
// POST /detokenize: {"tokens"}.
Response llama_detokenize(std::string_view body, const text::Vocab& vocab);

// POST /apply-template: a chat completion's body in, the prompt that it becomes out. Only the conversation, the
// thinking and continue_final of the request matter.
GenerationRequest read_llama_apply_template(std::string_view body);
Response llama_apply_template(std::string_view prompt);

}  // namespace carat::server
