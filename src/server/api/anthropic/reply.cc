#include "server/api/anthropic/reply.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api/anthropic/common.h"
#include "server/api/conversation_rules.h"
#include "server/api/json_writer.h"

namespace carat::server {

namespace {

std::string_view stop_reason(Finish finish) {
  switch (finish) {
    case Finish::kToolCalls:
      return "tool_use";
    case Finish::kLength:
      return "max_tokens";
    case Finish::kContextFull:
      return "model_context_window_exceeded";
    case Finish::kStopString:
      return "stop_sequence";
    case Finish::kStop:
    case Finish::kStopToken:
    case Finish::kLoop:
      return "end_turn";
  }
  return "end_turn";
}

class AnthropicReply : public Reply {
 public:
  AnthropicReply(AnthropicReplyWishes wishes, const ServerFacts& facts, ReplyIdentity identity)
      : wishes_(std::move(wishes)), identity_(std::move(identity)) {
    if (wishes_.model.empty()) wishes_.model = facts.model_id;
  }

  bool is_streamed() const override { return wishes_.is_streamed; }
  std::vector<std::pair<std::string, std::string>> headers() const override {
    return anthropic_headers(identity_.request_id);
  }

  void on(const Event& event, std::string& out) override {
    if (is_over_) return;
    std::visit([&](const auto& happened) { take(happened, out); }, event);
  }
  void keep_alive(std::string& out) override {
    if (!is_over_) append_sse(R"({"type":"ping"})", out, "ping");
  }

  Response response() override;

 private:
  enum class Kind { kThinking, kText, kCall };
  struct Block {
    Kind kind;
    std::string text = {};  // of a call: its arguments
    std::string id = {}, name = {};
  };

  void take(const Started& started, std::string& out) {
    usage_.prompt_tokens = started.prompt_tokens;
    usage_.cached_tokens = started.cached_tokens;
    start(out);
  }
  void take(const Progress&, std::string&) {}
  void take(const ThoughtText& thought, std::string& out) {
    if (!thought.text.empty()) add(Kind::kThinking, wishes_.hides_thoughts ? std::string() : thought.text, out);
  }
  void take(const AnswerText& answer, std::string& out) {
    if (!answer.text.empty()) add(Kind::kText, answer.text, out);
  }
  void take(const CallMade& call, std::string& out);
  void take(const BadCall& call, std::string& out) {
    // What the model wrote is shown as it is: a call is never invented from it, and nothing is swallowed.
    if (!call.text.empty()) add(Kind::kText, call.text, out);
  }
  void take(const ChoiceEnded& ended, std::string& out) {
    close_block(out);
    ended_ = ended;
  }
  void take(const Ended& ended, std::string& out);
  void take(const Failed& failed, std::string& out) {
    failed_ = failed.problem;
    is_over_ = true;
    if (is_streamed()) append_sse(anthropic_error_json(failed.problem, identity_.request_id), out, "error");
  }

  // Sends one event; `write` adds to its object.
  template <typename Write>
  void send(std::string_view type, std::string& out, const Write& write) const {
    std::string text;
    JsonWriter json(text);
    json.begin_object().field("type", type);
    write(json);
    json.end_object();
    append_sse(text, out, type);
  }
  template <typename Write>
  void send_delta(std::string_view type, std::string& out, const Write& write) const {
    send("content_block_delta", out, [&](JsonWriter& json) {
      json.field("index", blocks_.size() - 1).key("delta").begin_object().field("type", type);
      write(json);
      json.end_object();
    });
  }

  // The beginning of the message, once, however the events come.
  void start(std::string& out);
  void open_block(Block block, std::string& out);
  void close_block(std::string& out);
  void add(Kind kind, const std::string& text, std::string& out);
  void write_head(JsonWriter& json) const;
  void write_ending(JsonWriter& json) const;
  void write_block(JsonWriter& json, const Block& block) const;
  void write_usage(JsonWriter& json) const {
    write_anthropic_usage(json, usage_.prompt_tokens, usage_.cached_tokens, usage_.completion_tokens);
  }

  AnthropicReplyWishes wishes_;
  ReplyIdentity identity_;
  bool has_started_ = false, is_block_open_ = false, is_over_ = false;
  std::vector<Block> blocks_;  // without their texts in a stream
  std::optional<ChoiceEnded> ended_;
  Usage usage_;
  std::optional<Problem> failed_;
};

void AnthropicReply::write_head(JsonWriter& json) const {
  json.field("id", identity_.id).field("type", "message").field("role", "assistant").field("model", wishes_.model);
}

void AnthropicReply::write_ending(JsonWriter& json) const {
  const ChoiceEnded ended = ended_.value_or(ChoiceEnded{});
  json.field("stop_reason", stop_reason(ended.finish));
  ended.finish == Finish::kStopString ? json.field("stop_sequence", ended.stopped_by)
                                      : json.null_field("stop_sequence");
}

void AnthropicReply::write_block(JsonWriter& json, const Block& block) const {
  json.begin_object();
  switch (block.kind) {
    case Kind::kThinking:
      json.field("type", "thinking").field("thinking", block.text).field("signature", "");
      break;
    case Kind::kText:
      json.field("type", "text").field("text", block.text);
      break;
    case Kind::kCall:
      json.field("type", "tool_use").field("id", block.id).field("name", block.name);
      json.raw_field("input", block.text.empty() ? "{}" : block.text);
      break;
  }
  json.end_object();
}

void AnthropicReply::start(std::string& out) {
  if (std::exchange(has_started_, true) || !is_streamed()) return;
  send("message_start", out, [&](JsonWriter& json) {
    json.key("message").begin_object();
    write_head(json);
    json.key("content").begin_list().end_list().null_field("stop_reason").null_field("stop_sequence");
    write_usage(json);
    json.end_object();
  });
}

void AnthropicReply::open_block(Block block, std::string& out) {
  start(out);
  close_block(out);
  blocks_.push_back(std::move(block));
  is_block_open_ = true;
  if (!is_streamed()) return;
  send("content_block_start", out, [&](JsonWriter& json) {
    json.field("index", blocks_.size() - 1).key("content_block");
    write_block(json, blocks_.back());
  });
}

void AnthropicReply::close_block(std::string& out) {
  if (!std::exchange(is_block_open_, false) || !is_streamed()) return;
  if (blocks_.back().kind == Kind::kThinking) {
    send_delta("signature_delta", out, [](JsonWriter& json) { json.field("signature", ""); });
  }
  send("content_block_stop", out, [&](JsonWriter& json) { json.field("index", blocks_.size() - 1); });
}

void AnthropicReply::add(Kind kind, const std::string& text, std::string& out) {
  if (!is_block_open_ || blocks_.back().kind != kind) open_block({.kind = kind}, out);
  if (!is_streamed()) {
    blocks_.back().text += text;
  } else if (!text.empty()) {
    const bool thinks = kind == Kind::kThinking;
    send_delta(thinks ? "thinking_delta" : "text_delta", out,
               [&](JsonWriter& json) { json.field(thinks ? "thinking" : "text", text); });
  }
}

void AnthropicReply::take(const CallMade& call, std::string& out) {
  open_block({.kind = Kind::kCall, .id = call.id, .name = call.name}, out);
  const std::string arguments = arguments_object(call.arguments);
  if (is_streamed()) {
    send_delta("input_json_delta", out, [&](JsonWriter& json) { json.field("partial_json", arguments); });
  } else {
    blocks_.back().text = arguments;
  }
  close_block(out);
}

void AnthropicReply::take(const Ended& ended, std::string& out) {
  start(out);
  close_block(out);
  usage_ = ended.usage;
  is_over_ = true;
  if (!is_streamed()) return;
  send("message_delta", out, [&](JsonWriter& json) {
    json.key("delta").begin_object();
    write_ending(json);
    json.end_object();
    write_usage(json);
  });
  send("message_stop", out, [](JsonWriter&) {});
}

Response AnthropicReply::response() {
  if (failed_) return anthropic_error(*failed_, identity_.request_id);
  Response response{.headers = headers()};
  JsonWriter json(response.body);
  json.begin_object();
  write_head(json);
  json.key("content").begin_list();
  for (const Block& block : blocks_) write_block(json, block);
  json.end_list();
  write_ending(json);
  write_usage(json);
  json.end_object();
  return response;
}

}  // namespace

std::unique_ptr<Reply> make_anthropic_reply(AnthropicReplyWishes wishes, const ServerFacts& facts,
                                            ReplyIdentity identity) {
  return std::make_unique<AnthropicReply>(std::move(wishes), facts, std::move(identity));
}

}  // namespace carat::server
