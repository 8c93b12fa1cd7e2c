#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "server/api/facts.h"
#include "server/api/reply.h"

namespace carat::server {

// What llama-server's routes tell about a server: GET /health, /props and /slots, and the one that steers a running
// answer. No text of any user is in them.

Response health_ok();
Response health_loading(double progress);  // 0 to 1
Response health_draining();

// GET /props.
Response llama_props(const ServerFacts& facts);

// A place for one request that runs.
struct SlotFigures {
  uint32_t id = 0;
  uint64_t task = 0;     // counts the requests of the server; only while one runs here
  uint32_t context = 0;  // tokens it may have
  bool is_running = false;
  uint32_t prompt_tokens = 0, cached_tokens = 0, read_tokens = 0;  // of the running request
  uint32_t generated_tokens = 0;
};

// GET /slots. With ?fail_on_no_slot=1 a server without a free slot answers 503.
Response llama_slots(std::span<const SlotFigures> slots, bool fail_on_no_slot);

// POST /v1/chat/completions/control: something to do with an answer that is being generated.
struct ChatControl {
  enum class Action { kEndThoughts };
  std::string id;  // of the answer: "chatcmpl-..."
  Action action = Action::kEndThoughts;
};
// Throws ApiError naming the field.
ChatControl read_chat_control(std::string_view body);
Response chat_control_done();

}  // namespace carat::server
