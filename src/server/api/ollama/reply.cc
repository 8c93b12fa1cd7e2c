#include "server/api/ollama/reply.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "server/api/conversation_rules.h"
#include "server/api/json_writer.h"
#include "server/api/ollama/common.h"
#include "server/api/openai/common.h"
#include "text/value_json.h"

namespace carat::server {

namespace {

std::string_view done_reason(Finish finish) {
  switch (finish) {
    case Finish::kLength:
    case Finish::kContextFull:
      return "length";
    case Finish::kStop:
    case Finish::kStopString:
    case Finish::kStopToken:
    case Finish::kToolCalls:
    case Finish::kLoop:
      return "stop";
  }
  return "stop";
}

int64_t nanoseconds(double seconds) { return std::llround(1e9 * seconds); }

// What one object says: a piece of the answer, or all of it.
struct Piece {
  std::string thoughts = {}, answer = {};
  std::vector<CallMade> calls = {};
  size_t first_call = 0;  // number of the first of `calls` in the answer
  std::vector<ChosenLogprob> logprobs = {};
};

void write_calls(JsonWriter& json, const Piece& piece) {
  json.key("tool_calls").begin_list();
  for (size_t i = 0; i < piece.calls.size(); ++i) {
    const CallMade& call = piece.calls[i];
    json.begin_object().field("id", call.id).key("function").begin_object();
    json.field("index", piece.first_call + i).field("name", call.name);
    // Written anew: an object of a stream must not have a line break between its tokens.
    const std::string arguments = arguments_object(call.arguments);
    json.raw_field("arguments", text::to_compact_json(text::parse_json(arguments, false, call.name)));
    json.end_object().end_object();
  }
  json.end_list();
}

class OllamaReply : public Reply {
 public:
  OllamaReply(OllamaReplyWishes wishes, const ServerFacts& facts, const ReplyIdentity& identity)
      : wishes_(std::move(wishes)), created_at_(rfc3339(identity.created, true)) {
    if (wishes_.model.empty()) wishes_.model = facts.model_id;
  }

  bool is_streamed() const override { return wishes_.is_streamed; }
  std::string_view stream_type() const override { return "application/x-ndjson"; }

  void on(const Event& event, std::string& out) override {
    if (is_over_) return;
    std::visit([&](const auto& happened) { take(happened, out); }, event);
  }
  void keep_alive(std::string& out) override {
    if (!is_over_) send({}, out);
  }
  Response response() override;
  // An object with no text and a reason instead.
  std::string idle_json(std::string_view reason) const;

 private:
  void take(const Started& started, std::string&) {
    usage_.prompt_tokens = started.prompt_tokens;
    usage_.cached_tokens = started.cached_tokens;
  }
  void take(const Progress&, std::string&) {}
  void take(const ThoughtText& thought, std::string& out) { add({.thoughts = thought.text}, out); }
  void take(const AnswerText& answer, std::string& out) {
    Piece piece{.answer = answer.text};
    if (wishes_.wants_logprobs) piece.logprobs = answer.logprobs;
    add(std::move(piece), out);
  }
  void take(const CallMade& call, std::string& out) { add({.calls = {call}, .first_call = calls_++}, out); }
  // What the model wrote is shown as it is: a call is never invented from it, and nothing is swallowed.
  void take(const BadCall& call, std::string& out) { add({.answer = call.text}, out); }
  void take(const ChoiceEnded& ended, std::string&) { ended_ = ended; }
  void take(const Ended& ended, std::string& out) {
    usage_ = ended.usage;
    is_over_ = true;
    if (is_streamed()) out += done_json({}) + '\n';
  }
  void take(const Failed& failed, std::string& out) {
    failed_ = failed.problem;
    is_over_ = true;
    if (is_streamed()) out += ollama_error_json(failed.problem) + '\n';
  }

  void add(Piece piece, std::string& out);
  void send(const Piece& piece, std::string& out) const;
  // The beginning of every object: whose it is, and what it says.
  void write_piece(JsonWriter& json, const Piece& piece) const;
  std::string done_json(const Piece& piece) const;

  OllamaReplyWishes wishes_;
  std::string created_at_;
  Piece whole_;       // of a reply that is not streamed
  size_t calls_ = 0;  // so far
  bool is_over_ = false;
  std::optional<ChoiceEnded> ended_;
  Usage usage_;
  std::optional<Problem> failed_;
};

void OllamaReply::write_piece(JsonWriter& json, const Piece& piece) const {
  const bool is_chat = wishes_.route == OllamaRoute::kChat;
  json.field("model", wishes_.model).field("created_at", created_at_);
  if (is_chat) json.key("message").begin_object().field("role", "assistant");
  json.field(is_chat ? "content" : "response", piece.answer);
  if (!piece.thoughts.empty()) json.field("thinking", piece.thoughts);
  if (!piece.calls.empty()) write_calls(json, piece);
  if (is_chat) json.end_object();
  if (!piece.logprobs.empty()) write_logprob_list(json.key("logprobs"), piece.logprobs);
}

void OllamaReply::send(const Piece& piece, std::string& out) const {
  JsonWriter json(out);
  json.begin_object();
  write_piece(json, piece);
  json.field("done", false).end_object();
  out += '\n';
}

void OllamaReply::add(Piece piece, std::string& out) {
  if (is_streamed()) {
    const bool says_nothing =
        piece.answer.empty() && piece.thoughts.empty() && piece.calls.empty() && piece.logprobs.empty();
    if (!says_nothing) send(piece, out);
    return;
  }
  whole_.thoughts += piece.thoughts;
  whole_.answer += piece.answer;
  for (CallMade& call : piece.calls) whole_.calls.push_back(std::move(call));
  for (ChosenLogprob& token : piece.logprobs) whole_.logprobs.push_back(std::move(token));
}

std::string OllamaReply::done_json(const Piece& piece) const {
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  write_piece(json, piece);
  json.field("done", true).field("done_reason", done_reason(ended_ ? ended_->finish : Finish::kStop));
  json.field("total_duration", nanoseconds(usage_.queue_seconds + usage_.prompt_seconds + usage_.decode_seconds));
  json.field("load_duration", 0);
  json.field("prompt_eval_count", usage_.prompt_tokens);
  json.field("prompt_eval_duration", nanoseconds(usage_.prompt_seconds));
  json.field("eval_count", usage_.completion_tokens).field("eval_duration", nanoseconds(usage_.decode_seconds));
  json.end_object();
  return out;
}

std::string OllamaReply::idle_json(std::string_view reason) const {
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  write_piece(json, {});
  json.field("done", true).field("done_reason", reason).end_object();
  return out;
}

Response OllamaReply::response() {
  if (failed_) return ollama_error(*failed_);
  return {.body = done_json(whole_)};
}

}  // namespace

std::unique_ptr<Reply> make_ollama_reply(OllamaReplyWishes wishes, const ServerFacts& facts, ReplyIdentity identity) {
  return std::make_unique<OllamaReply>(std::move(wishes), facts, identity);
}

Response ollama_idle_response(const OllamaReplyWishes& wishes, std::string_view reason, const ServerFacts& facts,
                              const ReplyIdentity& identity) {
  return {.body = OllamaReply(wishes, facts, identity).idle_json(reason)};
}

}  // namespace carat::server
