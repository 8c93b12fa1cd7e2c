#pragma once

#include <string>
#include <string_view>

#include "serve/base_url.h"
#include "serve/options.h"
#include "serve/workload.h"

namespace carat::serve_bench {

// What a session has said and heard so far, as it stands in a request.
struct Conversation {
  std::string text = {};     // the inside of a prompt, or of a list of messages
  std::string headers = {};  // of its requests alone
};

// Writes requests, headers included. Pure.
class RequestWriter {
 public:
  // Throws kBadArgument for an --extra-body that is no JSON object.
  RequestWriter(const TargetOptions& target, const BaseUrl& url, std::string model, bool has_token_ids);

  Conversation begin(const Session& session) const;
  void add_turn(const Turn& turn, Conversation& conversation) const;
  void add_answer(std::string_view answer, Conversation& conversation) const;

  std::string request(const Conversation& conversation, uint32_t output_tokens) const;
  std::string get(std::string_view path) const;

 private:
  void add_text(std::string_view text, Conversation& conversation) const;
  void add_message(std::string_view role, std::string_view content, Conversation& conversation) const;

  const bool is_chat_, has_token_ids_;
  std::string headers_;  // of all requests
  std::string session_header_;
  std::string head_;    // of requests with a body, up to its length
  std::string before_;  // of the body, up to the prompt
  std::string after_;   // from there on, without the limit of the answer
  std::string prefix_;  // of paths
};

}  // namespace carat::serve_bench
