#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/api/event.h"
#include "server/api/json_writer.h"
#include "server/api/reply.h"

namespace carat::server {

// Pieces of JSON that several of OpenAI's routes share.

// {"error": {...}} with the status's type and code.
std::string openai_error_json(const Problem& problem);
// The same as an answer, with the headers that tell clients whether and when to try again.
Response openai_error(const Problem& problem);

std::string_view openai_finish(Finish finish);
// "carat": {"ending", "bad_tool_call", "notes"}: endings that OpenAI has no word for, calls that could not be read,
// wishes that are not fulfilled to the letter. Nothing where there is nothing to say.
void write_carat(JsonWriter& json, Finish finish, const std::vector<BadCall>& bad_calls,
                 const std::vector<std::string>& notes);

void write_openai_usage(JsonWriter& json, const Usage& usage);  // "usage": {...}
void write_timings(JsonWriter& json, const Usage& usage);       // llama-server's "timings": {...}
void write_chat_logprobs(JsonWriter& json, const std::vector<ChosenLogprob>& logprobs);  // {"content": [...], ...}
void write_logprob_list(JsonWriter& json, const std::vector<ChosenLogprob>& logprobs);   // [...] of the same
void write_token_ids(JsonWriter& json, std::string_view key, const std::vector<text::TokenId>& tokens);
void write_prompt_progress(JsonWriter& json, const Progress& progress);  // "prompt_progress": {...}
// "stop_reason" as vLLM has it: the string or the token that ended the answer, where one did.
void write_stop_reason(JsonWriter& json, const ChoiceEnded& ended);
// A token's text with U+FFFD for what is not a whole character.
std::string printable_token(std::string_view bytes);
// -9999 stands for what has no probability at all.
double finite_logprob(double logprob);

}  // namespace carat::server
