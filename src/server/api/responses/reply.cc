#include "server/api/responses/reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api/json_writer.h"
#include "server/api/openai/common.h"
#include "server/api/openai/tools.h"
#include "text/value_json.h"

namespace carat::server {

namespace {

// One piece of the output. A response has any number of them, of which only the last can grow.
struct Item {
  enum class Kind { kReasoning, kMessage, kCall };
  Kind kind;
  std::string id = {};
  std::string text = {};  // thoughts, answer, or the argument of the call
  std::vector<ChosenLogprob> logprobs = {};
  std::string call_id = {}, name = {};  // of a call
  bool is_custom = false;               // a call whose argument is a text
  bool is_cut = false;                  // the answer ended within it, at a limit
};

std::string_view prefix_of(const Item& item) {
  switch (item.kind) {
    case Item::Kind::kReasoning:
      return "rs";
    case Item::Kind::kMessage:
      return "msg";
    case Item::Kind::kCall:
      return item.is_custom ? "ctc" : "fc";
  }
  return "item";
}

std::string_view error_code(const Problem& problem) {
  if (!problem.code.empty()) return problem.code;
  switch (problem.refusal) {
    case Refusal::kContextExceeded:
      return "context_length_exceeded";  // Codex compacts its conversation then
    case Refusal::kQueueFull:
      return "rate_limit_exceeded";
    case Refusal::kBadRequest:
      return "invalid_prompt";
    default:
      return "server_error";
  }
}

class ResponsesReply : public Reply {
 public:
  ResponsesReply(std::shared_ptr<const ResponsesShape> shape, const ServerFacts& facts, ReplyIdentity identity)
      : shape_(std::move(shape)),
        identity_(std::move(identity)),
        model_(shape_->model.empty() ? facts.model_id : shape_->model),
        temperature_(shape_->temperature.value_or(facts.temperature)),
        top_p_(shape_->top_p.value_or(facts.top_p)) {}

  bool is_streamed() const override { return shape_->is_streamed; }
  // Codex reads what is wrong from the stream and compacts its conversation when the context is full.
  bool streams_failure(const Problem& problem) const override { return problem.refusal == Refusal::kContextExceeded; }

  void on(const Event& event, std::string& out) override {
    std::visit([&](const auto& happened) { take(happened, out); }, event);
  }
  Response response() override;

 private:
  enum class Status { kInProgress, kCompleted, kIncomplete, kFailed };

  template <typename Write>
  void send(std::string_view type, std::string& out, const Write& write) {
    if (!is_streamed()) return;
    std::string text;
    JsonWriter json(text);
    json.begin_object().field("type", type).field("sequence_number", sequence_++);
    write(json);
    json.end_object();
    append_sse(text, out, type);
  }
  void send_response(std::string_view type, Status status, std::string& out) {
    send(type, out, [&](JsonWriter& json) { write_response(json.key("response"), status); });
  }
  // An event about the last item, or about its one part.
  template <typename Write>
  void send_item(std::string_view type, bool of_part, std::string& out, const Write& write) {
    send(type, out, [&](JsonWriter& json) {
      json.field("item_id", items_.back().id).field("output_index", items_.size() - 1);
      if (of_part) json.field("content_index", 0);
      write(json);
    });
  }

  void begin(std::string& out);
  void add_item(Item item, std::string& out);
  Item& open(Item::Kind kind, std::string& out);
  void close(std::string& out);
  void send_added(std::string& out);
  void add_text(std::string_view text, const std::vector<ChosenLogprob>& logprobs, std::string& out);
  void send_call(const Item& item, std::string& out);

  void take(const Started& started, std::string& out) {
    notes_.insert(notes_.end(), started.notes.begin(), started.notes.end());
    begin(out);
  }
  void take(const Progress&, std::string& out) { begin(out); }
  void take(const ThoughtText& thought, std::string& out);
  void take(const AnswerText& answer, std::string& out) {
    if (!answer.text.empty() || !answer.logprobs.empty()) add_text(answer.text, answer.logprobs, out);
  }
  void take(const CallMade& call, std::string& out);
  void take(const BadCall& call, std::string& out) {
    // What the model wrote is shown as it is: a call is never invented from it, and nothing is swallowed.
    bad_calls_.push_back(call);
    if (!call.text.empty()) add_text(call.text, {}, out);
  }
  void take(const ChoiceEnded& ended, std::string& out);
  void take(const Ended& ended, std::string& out);
  void take(const Failed& failed, std::string& out) {
    failed_ = failed.problem;
    begin(out);
    // No "response.completed" follows, so that a client cannot take the answer for a whole one.
    send_response("response.failed", Status::kFailed, out);
  }

  bool is_cut() const { return finish_ == Finish::kLength || finish_ == Finish::kContextFull; }
  void write_part(JsonWriter& json, const Item& item) const;
  void write_item(JsonWriter& json, const Item& item, bool is_done) const;
  void write_usage(JsonWriter& json) const;
  void write_response(JsonWriter& json, Status status) const;
  void write_settings(JsonWriter& json) const;
  void keep() const;

  std::shared_ptr<const ResponsesShape> shape_;
  ReplyIdentity identity_;
  std::string model_;
  double temperature_, top_p_;
  uint64_t sequence_ = 0;
  bool has_begun_ = false, is_open_ = false;  // is_open_: the last item can grow
  std::vector<Item> items_;
  std::vector<BadCall> bad_calls_;
  std::vector<std::string> notes_;
  Finish finish_ = Finish::kStop;
  std::optional<Usage> usage_;
  std::optional<Problem> failed_;
};

void ResponsesReply::begin(std::string& out) {
  if (std::exchange(has_begun_, true)) return;
  send_response("response.created", Status::kInProgress, out);
  send_response("response.in_progress", Status::kInProgress, out);
}

void ResponsesReply::write_part(JsonWriter& json, const Item& item) const {
  json.begin_object();
  if (item.kind == Item::Kind::kReasoning) {
    json.field("type", "reasoning_text").field("text", item.text).end_object();
    return;
  }
  json.field("type", "output_text").field("text", item.text).key("annotations").begin_list().end_list();
  json.key("logprobs");
  write_logprob_list(json, item.logprobs);
  json.end_object();
}

// The item as it is when it is added, still without content, or when it is done.
void ResponsesReply::write_item(JsonWriter& json, const Item& item, bool is_done) const {
  const std::string_view status = !is_done ? "in_progress" : item.is_cut ? "incomplete" : "completed";
  json.begin_object();
  if (item.kind == Item::Kind::kCall) {
    json.field("type", item.is_custom ? "custom_tool_call" : "function_call").field("id", item.id);
    json.field("call_id", item.call_id).field("name", item.name);
    json.field(item.is_custom ? "input" : "arguments", is_done ? std::string_view(item.text) : std::string_view());
    json.field("status", status).end_object();
    return;
  }
  const bool is_message = item.kind == Item::Kind::kMessage;
  json.field("type", is_message ? "message" : "reasoning").field("id", item.id).field("status", status);
  is_message ? json.field("role", "assistant") : json.key("summary").begin_list().end_list();
  json.key("content").begin_list();
  if (is_done) write_part(json, item);
  json.end_list();
  if (!is_message && is_done && shape_->wants_encrypted) json.field("encrypted_content", "");
  json.end_object();
}

void ResponsesReply::send_added(std::string& out) {
  const Item& item = items_.back();
  send("response.output_item.added", out, [&](JsonWriter& json) {
    json.field("output_index", items_.size() - 1).key("item");
    write_item(json, item, false);
  });
  if (item.kind == Item::Kind::kCall) return;
  send_item("response.content_part.added", true, out,
            [&](JsonWriter& json) { write_part(json.key("part"), Item{.kind = item.kind}); });
}

void ResponsesReply::add_item(Item item, std::string& out) {
  begin(out);
  close(out);
  // Ids are derived from the response's, so they are as unique as it is.
  const size_t mark = identity_.id.find('_');
  const std::string_view suffix = std::string_view(identity_.id).substr(mark == std::string::npos ? 0 : mark + 1);
  item.id = fmt::format("{}_{}_{}", prefix_of(item), suffix, items_.size());
  items_.push_back(std::move(item));
  send_added(out);
}

// The item that grows by what comes next.
Item& ResponsesReply::open(Item::Kind kind, std::string& out) {
  if (!is_open_ || items_.back().kind != kind) {
    add_item({.kind = kind}, out);
    is_open_ = true;
  }
  return items_.back();
}

void ResponsesReply::close(std::string& out) {
  if (!std::exchange(is_open_, false)) return;
  const Item& item = items_.back();
  if (item.kind == Item::Kind::kReasoning) {
    send_item("response.reasoning_text.done", true, out, [&](JsonWriter& json) { json.field("text", item.text); });
  } else {
    send_item("response.output_text.done", true, out, [&](JsonWriter& json) {
      write_logprob_list(json.field("text", item.text).key("logprobs"), item.logprobs);
    });
    send_item("response.content_part.done", true, out, [&](JsonWriter& json) { write_part(json.key("part"), item); });
  }
  send("response.output_item.done", out, [&](JsonWriter& json) {
    json.field("output_index", items_.size() - 1).key("item");
    write_item(json, item, true);
  });
}

void ResponsesReply::take(const ThoughtText& thought, std::string& out) {
  if (thought.text.empty()) return;
  open(Item::Kind::kReasoning, out).text += thought.text;
  send_item("response.reasoning_text.delta", true, out, [&](JsonWriter& json) { json.field("delta", thought.text); });
}

void ResponsesReply::add_text(std::string_view text, const std::vector<ChosenLogprob>& logprobs, std::string& out) {
  Item& item = open(Item::Kind::kMessage, out);
  item.text += text;
  static const std::vector<ChosenLogprob> kNone;
  const std::vector<ChosenLogprob>& shown = shape_->wants_logprobs ? logprobs : kNone;
  item.logprobs.insert(item.logprobs.end(), shown.begin(), shown.end());
  send_item("response.output_text.delta", true, out,
            [&](JsonWriter& json) { write_logprob_list(json.field("delta", text).key("logprobs"), shown); });
}

void ResponsesReply::send_call(const Item& item, std::string& out) {
  const std::string_view type = item.is_custom ? "response.custom_tool_call_input" : "response.function_call_arguments";
  send_item(fmt::format("{}.delta", type), false, out, [&](JsonWriter& json) { json.field("delta", item.text); });
  send_item(fmt::format("{}.done", type), false, out, [&](JsonWriter& json) {
    json.field(item.is_custom ? "input" : "arguments", item.text).field("name", item.name);
  });
  send("response.output_item.done", out, [&](JsonWriter& json) {
    json.field("output_index", items_.size() - 1).key("item");
    write_item(json, item, true);
  });
}

void ResponsesReply::take(const CallMade& call, std::string& out) {
  const bool is_custom = shape_->custom.contains(call.name);
  add_item({.kind = Item::Kind::kCall, .call_id = call.id, .name = call.name, .is_custom = is_custom}, out);
  items_.back().text = is_custom ? custom_tool_input(call.arguments) : call.arguments;
  send_call(items_.back(), out);
}

void ResponsesReply::take(const ChoiceEnded& ended, std::string& out) {
  finish_ = ended.finish;
  // An answer of nothing is an empty message, not an output without items.
  const bool has_answer =
      std::any_of(items_.begin(), items_.end(), [](const Item& item) { return item.kind != Item::Kind::kReasoning; });
  if (!has_answer && !is_cut()) open(Item::Kind::kMessage, out);
  if (is_open_) items_.back().is_cut = is_cut();
  begin(out);
  close(out);
}

void ResponsesReply::take(const Ended& ended, std::string& out) {
  usage_ = ended.usage;
  begin(out);
  keep();
  is_cut() ? send_response("response.incomplete", Status::kIncomplete, out)
           : send_response("response.completed", Status::kCompleted, out);
}

// Puts the conversation with this response's items into the store, as they were sent.
void ResponsesReply::keep() const {
  if (shape_->store == nullptr) return;
  ResponseStore::Items items = shape_->items;
  for (const Item& item : items_) {
    std::string text;
    JsonWriter json(text);
    write_item(json, item, true);
    items.push_back(text::parse_json(text, false, "an item"));
  }
  shape_->store->put(identity_.id, std::move(items), items_.size());
}

void ResponsesReply::write_usage(JsonWriter& json) const {
  if (!usage_) {
    json.null_field("usage");
    return;
  }
  const uint32_t cached = std::min(usage_->cached_tokens, usage_->prompt_tokens);
  json.key("usage").begin_object().field("input_tokens", usage_->prompt_tokens);
  json.key("input_tokens_details").begin_object().field("cached_tokens", cached);
  json.field("cache_write_tokens", usage_->prompt_tokens - cached).end_object();
  json.field("output_tokens", usage_->completion_tokens);
  json.key("output_tokens_details").begin_object().field("reasoning_tokens", usage_->thought_tokens).end_object();
  json.field("total_tokens", usage_->prompt_tokens + usage_->completion_tokens).end_object();
}

// What the request asked for, as the response repeats it.
void ResponsesReply::write_settings(JsonWriter& json) const {
  json.raw_field("instructions", shape_->instructions_json);
  shape_->max_tokens ? json.field("max_output_tokens", *shape_->max_tokens) : json.null_field("max_output_tokens");
  json.field("parallel_tool_calls", shape_->is_parallel);
  shape_->previous.empty() ? json.null_field("previous_response_id")
                           : json.field("previous_response_id", shape_->previous);
  json.key("reasoning").begin_object().raw_field("effort", shape_->effort_json);
  json.raw_field("summary", shape_->summary_json).end_object();
  json.field("store", shape_->store != nullptr).field("temperature", temperature_).field("top_p", top_p_);
  json.field("top_logprobs", shape_->top_logprobs).raw_field("text", shape_->text_json);
  json.raw_field("tool_choice", shape_->tool_choice_json).raw_field("tools", shape_->tools_json);
  json.field("truncation", "disabled").field("background", false);
  json.raw_field("metadata", shape_->metadata_json).raw_field("user", shape_->user_json);
}

void ResponsesReply::write_response(JsonWriter& json, Status status) const {
  constexpr std::string_view kWords[] = {"in_progress", "completed", "incomplete", "failed"};
  const bool is_over = status != Status::kInProgress;
  json.begin_object().field("id", identity_.id).field("object", "response");
  json.field("created_at", static_cast<int64_t>(identity_.created));
  json.field("status", kWords[static_cast<size_t>(status)]);
  if (status == Status::kCompleted) {
    const Usage usage = usage_.value_or(Usage{});
    const double seconds = usage.queue_seconds + usage.prompt_seconds + usage.decode_seconds;
    json.field("completed_at", static_cast<int64_t>(identity_.created + seconds));
  } else {
    json.null_field("completed_at");
  }
  if (status == Status::kFailed) {
    json.key("error")
        .begin_object()
        .field("code", error_code(*failed_))
        .field("message", failed_->message)
        .end_object();
  } else {
    json.null_field("error");
  }
  if (status == Status::kIncomplete) {
    json.key("incomplete_details").begin_object().field("reason", "max_output_tokens").end_object();
  } else {
    json.null_field("incomplete_details");
  }
  json.field("model", model_).key("output").begin_list();
  // An item that a failure interrupted was never finished, so it is not shown as one.
  const size_t done = items_.size() - (is_open_ ? 1 : 0);
  for (size_t i = 0; is_over && i < done; ++i) write_item(json, items_[i], true);
  json.end_list();
  write_settings(json);
  write_usage(json);
  if (is_over) write_carat(json, finish_, bad_calls_, notes_);
  json.end_object();
}

Response ResponsesReply::response() {
  if (failed_) return openai_error(*failed_);
  Response response;
  JsonWriter json(response.body);
  write_response(json, is_cut() ? Status::kIncomplete : Status::kCompleted);
  return response;
}

}  // namespace

std::unique_ptr<Reply> make_openai_responses_reply(std::shared_ptr<const ResponsesShape> shape,
                                                   const ServerFacts& facts, ReplyIdentity identity) {
  return std::make_unique<ResponsesReply>(std::move(shape), facts, std::move(identity));
}

}  // namespace carat::server
