#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/api/json_writer.h"
#include "server/api/openai/chat.h"
#include "server/api/openai/common.h"
#include "server/api/openai/tools.h"

namespace carat::server {

namespace {

class ChatReply : public Reply {
 public:
  ChatReply(const GenerationRequest& request, const ServerFacts& facts, ReplyIdentity identity,
            const OpenAiChatStyle& style)
      : identity_(std::move(identity)),
        model_(request.model.empty() ? facts.model_id : request.model),
        fingerprint_(facts.fingerprint),
        style_(style),
        is_streamed_(request.stream),
        separate_usage_(request.include_usage),
        wants_progress_(request.return_progress),
        wants_logprobs_(request.logprobs.wanted),
        wants_tokens_(request.return_tokens),
        choices_(request.choices) {}

  bool is_streamed() const override { return is_streamed_; }

  void on(const Event& event, std::string& out) override {
    std::visit([&](const auto& happened) { take(happened, out); }, event);
  }

  Response response() override;

 private:
  struct Choice {
    std::string thoughts, answer;
    std::vector<ChosenLogprob> logprobs;
    std::vector<CallMade> calls;
    std::vector<BadCall> bad_calls;
    std::vector<text::TokenId> tokens;
    std::optional<ChoiceEnded> ended;
    bool has_role = false;  // the first chunk was sent
  };
  // What stands in a chunk beside its delta.
  struct Beside {
    const std::vector<text::TokenId>* tokens = nullptr;
    const std::vector<ChosenLogprob>* logprobs = nullptr;
    const std::optional<Usage>* so_far = nullptr;
  };

  // A chunk up to its "choices".
  JsonWriter& head(JsonWriter& json) const {
    json.begin_object()
        .field("id", identity_.id)
        .field("object", is_streamed_ ? "chat.completion.chunk" : "chat.completion");
    json.field("created", static_cast<int64_t>(identity_.created)).field("model", model_);
    return json.field("system_fingerprint", fingerprint_);
  }
  // One chunk with a delta of one choice that has not ended; `write` fills the delta.
  template <typename Delta>
  void chunk(uint32_t index, std::string& out, const Beside& beside, const Delta& write) {
    role(index, out);
    std::string text;
    JsonWriter json(text);
    head(json).key("choices").begin_list().begin_object().field("index", index).key("delta").begin_object();
    write(json);
    json.end_object();
    if (wants_logprobs_ && beside.logprobs != nullptr) write_chat_logprobs(json.key("logprobs"), *beside.logprobs);
    if (wants_tokens_ && beside.tokens != nullptr) write_token_ids(json, "token_ids", *beside.tokens);
    json.null_field("finish_reason").end_object().end_list();
    if (beside.so_far != nullptr && *beside.so_far) write_timings(json, **beside.so_far);
    json.end_object();
    append_sse(text, out);
  }
  void role(uint32_t index, std::string& out);

  void take(const Started& started, std::string& out) {
    started_ = started;
    for (uint32_t i = 0; is_streamed_ && i < choices_.size(); ++i) role(i, out);
  }
  void take(const Progress& progress, std::string& out);
  void take(const ThoughtText& thought, std::string& out);
  void take(const AnswerText& answer, std::string& out);
  void take(const CallMade& call, std::string& out);
  void take(const BadCall& call, std::string& out);
  void take(const ChoiceEnded& ended, std::string& out);
  void take(const Ended& ended, std::string& out);
  void take(const Failed& failed, std::string& out) {
    failed_ = failed.problem;
    // No "[DONE]" follows, so that a client cannot take the answer for a whole one.
    if (is_streamed_) append_sse(openai_error_json(failed.problem), out);
  }

  void add_tokens(Choice& choice, const std::vector<text::TokenId>& tokens) const {
    if (wants_tokens_) choice.tokens.insert(choice.tokens.end(), tokens.begin(), tokens.end());
  }
  std::string_view finish_reason(Finish finish) const {
    return finish == Finish::kToolCalls && style_.old_functions ? "function_call" : openai_finish(finish);
  }
  void write_call(JsonWriter& json, const CallMade& call, std::optional<size_t> index) const;
  void write_calls(JsonWriter& json, const Choice& choice) const;
  void write_message(JsonWriter& json, const Choice& choice) const;
  void write_end(JsonWriter& json, const Choice& choice) const;
  void write_last_chunk(JsonWriter& json, uint32_t index) const;

  ReplyIdentity identity_;
  std::string model_, fingerprint_;
  OpenAiChatStyle style_;
  bool is_streamed_, separate_usage_, wants_progress_, wants_logprobs_, wants_tokens_;
  std::vector<Choice> choices_;
  Started started_;
  std::optional<Usage> usage_;
  size_t ended_choices_ = 0;
  std::optional<uint32_t> last_end_;  // held back until the usage is known where both travel in one chunk
  std::optional<Problem> failed_;
};

// The chunk that names the role comes first, once for each choice; the tokens of the prompt travel with it.
void ChatReply::role(uint32_t index, std::string& out) {
  if (std::exchange(choices_[index].has_role, true)) return;
  std::string text;
  JsonWriter json(text);
  head(json).key("choices").begin_list().begin_object().field("index", index).key("delta").begin_object();
  json.field("role", "assistant").field("content", "").end_object().null_field("logprobs");
  json.null_field("finish_reason").end_object().end_list();
  if (wants_tokens_ && index == 0) write_token_ids(json, "prompt_token_ids", started_.prompt);
  json.end_object();
  append_sse(text, out);
}

// {"id", "type": "function", "function": {...}}, or a custom tool's with its text.
void ChatReply::write_call(JsonWriter& json, const CallMade& call, std::optional<size_t> index) const {
  json.begin_object();
  if (index) json.field("index", *index);
  json.field("id", call.id);
  if (style_.custom.contains(call.name)) {
    json.field("type", "custom").key("custom").begin_object().field("name", call.name);
    json.field("input", custom_tool_input(call.arguments)).end_object().end_object();
    return;
  }
  json.field("type", "function").key("function").begin_object();
  json.field("name", call.name).field("arguments", call.arguments).end_object().end_object();
}

void ChatReply::take(const Progress& progress, std::string& out) {
  if (!is_streamed_ || !wants_progress_) return;
  std::string text;
  JsonWriter json(text);
  head(json).key("choices").begin_list().end_list();
  write_prompt_progress(json, progress);
  json.end_object();
  append_sse(text, out);
}

void ChatReply::take(const ThoughtText& thought, std::string& out) {
  Choice& choice = choices_[thought.choice];
  if (!is_streamed_) {
    choice.thoughts += thought.text;
    return add_tokens(choice, thought.tokens);
  }
  if (thought.text.empty() && !(wants_tokens_ && !thought.tokens.empty())) return;
  chunk(thought.choice, out, {.tokens = &thought.tokens, .so_far = &thought.so_far}, [&](JsonWriter& json) {
    if (!thought.text.empty()) json.field("reasoning_content", thought.text);
  });
}

void ChatReply::take(const AnswerText& answer, std::string& out) {
  Choice& choice = choices_[answer.choice];
  if (!is_streamed_) {
    choice.answer += answer.text;
    choice.logprobs.insert(choice.logprobs.end(), answer.logprobs.begin(), answer.logprobs.end());
    return add_tokens(choice, answer.tokens);
  }
  const bool has_more = (wants_tokens_ && !answer.tokens.empty()) || (wants_logprobs_ && !answer.logprobs.empty());
  if (answer.text.empty() && !has_more) return;
  const Beside beside{.tokens = &answer.tokens, .logprobs = &answer.logprobs, .so_far = &answer.so_far};
  chunk(answer.choice, out, beside, [&](JsonWriter& json) {
    if (!answer.text.empty()) json.field("content", answer.text);
  });
}

void ChatReply::take(const CallMade& call, std::string& out) {
  Choice& choice = choices_[call.choice];
  const size_t index = choice.calls.size();
  choice.calls.push_back(call);
  if (!is_streamed_) return add_tokens(choice, call.tokens);
  chunk(call.choice, out, {.tokens = &call.tokens}, [&](JsonWriter& json) {
    if (style_.old_functions) return write_calls(json, choice);
    json.key("tool_calls").begin_list();
    write_call(json, call, index);
    json.end_list();
  });
}

void ChatReply::take(const BadCall& call, std::string& out) {
  // What the model wrote is shown as it is: a call is never invented from it, and nothing is swallowed.
  take(AnswerText{.choice = call.choice, .text = call.text, .tokens = call.tokens}, out);
  choices_[call.choice].bad_calls.push_back(call);
}

void ChatReply::write_end(JsonWriter& json, const Choice& choice) const {
  write_stop_reason(json, *choice.ended);
  write_carat(json, choice.ended->finish, choice.bad_calls, {});
  json.field("finish_reason", finish_reason(choice.ended->finish));
}

// The last chunk's entry of a choice: no text, but why it ended.
void ChatReply::write_last_chunk(JsonWriter& json, uint32_t index) const {
  const Choice& choice = choices_[index];
  json.begin_object().field("index", index).key("delta").begin_object().end_object();
  if (wants_tokens_) write_token_ids(json, "token_ids", choice.ended->tokens);
  write_end(json, choice);
  json.end_object();
}

void ChatReply::take(const ChoiceEnded& ended, std::string& out) {
  Choice& choice = choices_[ended.choice];
  choice.ended = ended;
  ++ended_choices_;
  if (!is_streamed_) return add_tokens(choice, ended.tokens);
  role(ended.choice, out);
  if (ended_choices_ == choices_.size() && !separate_usage_) {
    last_end_ = ended.choice;
    return;
  }
  std::string text;
  JsonWriter json(text);
  head(json).key("choices").begin_list();
  write_last_chunk(json, ended.choice);
  json.end_list().end_object();
  append_sse(text, out);
}

void ChatReply::take(const Ended& ended, std::string& out) {
  usage_ = ended.usage;
  if (!is_streamed_) return;
  std::string text;
  JsonWriter json(text);
  head(json).key("choices").begin_list();
  if (last_end_) write_last_chunk(json, *last_end_);
  json.end_list();
  write_openai_usage(json, ended.usage);
  write_timings(json, ended.usage);
  write_carat(json, Finish::kStop, {}, started_.notes);
  json.end_object();
  append_sse(text, out);
  out += "data: [DONE]\n\n";
}

// "tool_calls" or, in the old form, "function_call"; nothing where there are none.
void ChatReply::write_calls(JsonWriter& json, const Choice& choice) const {
  if (choice.calls.empty()) return;
  if (style_.old_functions) {
    const CallMade& call = choice.calls.front();
    json.key("function_call").begin_object().field("name", call.name).field("arguments", call.arguments).end_object();
    return;
  }
  json.key("tool_calls").begin_list();
  for (const CallMade& call : choice.calls) write_call(json, call, std::nullopt);
  json.end_list();
}

void ChatReply::write_message(JsonWriter& json, const Choice& choice) const {
  json.key("message").begin_object().field("role", "assistant");
  // Null where there are only calls; an empty answer is an empty text.
  choice.answer.empty() && !choice.calls.empty() ? json.null_field("content") : json.field("content", choice.answer);
  if (!choice.thoughts.empty()) json.field("reasoning_content", choice.thoughts);
  json.null_field("refusal");
  write_calls(json, choice);
  json.end_object();
}

Response ChatReply::response() {
  if (failed_) return openai_error(*failed_);
  Response response;
  JsonWriter json(response.body);
  head(json).key("choices").begin_list();
  for (uint32_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    json.begin_object().field("index", i);
    write_message(json, choice);
    wants_logprobs_ ? write_chat_logprobs(json.key("logprobs"), choice.logprobs) : void(json.null_field("logprobs"));
    if (wants_tokens_) write_token_ids(json, "token_ids", choice.tokens);
    choice.ended ? write_end(json, choice) : void(json.field("finish_reason", "stop"));
    json.end_object();
  }
  json.end_list();
  if (wants_tokens_) write_token_ids(json, "prompt_token_ids", started_.prompt);
  const Usage usage = usage_.value_or(Usage{});
  write_openai_usage(json, usage);
  write_timings(json, usage);
  write_carat(json, Finish::kStop, {}, started_.notes);
  json.end_object();
  return response;
}

}  // namespace

std::unique_ptr<Reply> make_openai_chat_reply(const GenerationRequest& request, const ServerFacts& facts,
                                              ReplyIdentity identity, const OpenAiChatStyle& style) {
  return std::make_unique<ChatReply>(request, facts, std::move(identity), style);
}

}  // namespace carat::server
