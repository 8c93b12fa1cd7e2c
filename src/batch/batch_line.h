#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace carat::batch {

// One line of OpenAI's batch files: {"custom_id", "method": "POST", "url", "body"}. Pure functions: nothing here knows
// files or engines.
struct BatchLine {
  std::string custom_id;
  std::string url;   // "/v1/chat/completions", "/v1/completions" or "/v1/responses"
  std::string body;  // the request, as JSON
};

// Why a line cannot be run as a request of a batch.
struct LineProblem {
  std::string custom_id;  // where the line has one
  std::string code;       // "invalid_json", "invalid_url", ...: OpenAI's words
  std::string message;    // names the field
};

// False: `problem` says why.
bool read_line(std::string_view json, BatchLine& line, LineProblem& problem);

// What was answered to a line, or why it was never asked. `number` counts the lines of the input from one, so the id,
// "batch_req_17", is the same in every run.
std::string line_id(uint64_t number);
// `body` is the answer's JSON; OpenAI puts what an API refused (status 400 and above) here, too, with "error" null.
std::string answered_line(uint64_t number, std::string_view custom_id, unsigned status, std::string_view body);
// For what no API has seen.
std::string refused_line(uint64_t number, const LineProblem& problem);

}  // namespace carat::batch
