#include "server/api/llama/completion.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/api/openai/common.h"
#include "server/api/openai/completions.h"
#include "server/api/openai/request.h"

namespace carat::server {

namespace {

using text::TokenId;

std::string_view stop_type(const ChoiceEnded& ended) {
  switch (ended.finish) {
    case Finish::kStop:
    case Finish::kStopToken:
    case Finish::kToolCalls:
      return "eos";
    case Finish::kStopString:
      return "word";
    case Finish::kLength:
    case Finish::kContextFull:
    case Finish::kLoop:
      return "limit";
  }
  return "none";
}

void write_bytes(JsonWriter& json, std::string_view bytes) {
  json.key("bytes").begin_list();
  for (const char byte : bytes) json.value(static_cast<unsigned>(static_cast<unsigned char>(byte)));
  json.end_list();
}

void write_probability(JsonWriter& json, const TokenLogprob& token) {
  json.field("id", token.token).field("token", printable_token(token.bytes));
  write_bytes(json, token.bytes);
  json.field("logprob", finite_logprob(token.logprob));
}

// "completion_probabilities": [...].
void write_probabilities(JsonWriter& json, const std::vector<ChosenLogprob>& logprobs) {
  json.key("completion_probabilities").begin_list();
  for (const ChosenLogprob& chosen : logprobs) {
    json.begin_object();
    write_probability(json, chosen);
    json.key("top_logprobs").begin_list();
    for (const TokenLogprob& other : chosen.top) {
      json.begin_object();
      write_probability(json, other);
      json.end_object();
    }
    json.end_list().end_object();
  }
  json.end_list();
}

class LlamaReply : public Reply {
 public:
  LlamaReply(const GenerationRequest& request, const ServerFacts& facts)
      : model_(request.model.empty() ? facts.model_id : request.model),
        is_streamed_(request.stream),
        wants_progress_(request.return_progress),
        wants_probabilities_(request.logprobs.wanted),
        wants_tokens_(request.return_tokens),
        choices_of_prompt_(request.choices),
        choices_(request.prompts.size() * request.choices),
        prompts_(request.prompts.size()) {
    JsonWriter json(settings_);
    write_generation_settings(json, request, facts);
    for (size_t i = 0; i < prompts_.size(); ++i) {
      if (const auto* text = std::get_if<std::string>(&request.prompts[i])) prompts_[i].text = *text;
    }
  }

  bool is_streamed() const override { return is_streamed_; }
  void on(const Event& event, std::string& out) override {
    std::visit([&](const auto& happened) { take(happened, out); }, event);
  }
  Response response() override;

 private:
  struct Choice {
    std::string text;
    std::vector<ChosenLogprob> logprobs;
    std::vector<TokenId> tokens;
    std::vector<BadCall> bad_calls;
    ChoiceEnded ended;
    bool has_new_line = false;
  };
  struct Prompt {
    std::string text;
    uint32_t tokens = 0, cached = 0;
  };
  const Prompt& prompt_of(uint32_t choice) const { return prompts_[choice / choices_of_prompt_]; }

  void take(const Started& started, std::string&) {
    Prompt& prompt = prompts_[started.index];
    prompt.tokens = started.prompt_tokens;
    prompt.cached = started.cached_tokens;
    notes_.insert(notes_.end(), started.notes.begin(), started.notes.end());
  }
  void take(const Progress& progress, std::string& out);
  void take(const AnswerText& answer, std::string& out);
  void take(const ThoughtText& thought, std::string& out) {
    take(AnswerText{.choice = thought.choice, .text = thought.text, .tokens = thought.tokens}, out);
  }
  void take(const CallMade&, std::string&) {}  // without a template nothing is a call
  void take(const BadCall& call, std::string& out) {
    choices_[call.choice].bad_calls.push_back(call);
    take(AnswerText{.choice = call.choice, .text = call.text, .tokens = call.tokens}, out);
  }
  void take(const ChoiceEnded& ended, std::string&) {
    Choice& choice = choices_[ended.choice];
    choice.ended = ended;
    choice.tokens.insert(choice.tokens.end(), ended.tokens.begin(), ended.tokens.end());
  }
  void take(const Ended& ended, std::string& out);
  void take(const Failed& failed, std::string& out) {
    failed_ = failed.problem;
    if (is_streamed_) append_sse(openai_error_json(failed.problem), out);
  }
  void write_result(JsonWriter& json, uint32_t index) const;

  std::string model_, settings_;
  bool is_streamed_, wants_progress_, wants_probabilities_, wants_tokens_;
  uint32_t choices_of_prompt_;
  std::vector<Choice> choices_;
  std::vector<Prompt> prompts_;
  std::vector<std::string> notes_;
  Usage usage_;
  std::optional<Problem> failed_;
};

void LlamaReply::take(const Progress& progress, std::string& out) {
  if (!is_streamed_ || !wants_progress_) return;
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("content", "").field("stop", false);
  write_prompt_progress(json, progress);
  json.end_object();
  append_sse(text, out);
}

void LlamaReply::take(const AnswerText& answer, std::string& out) {
  Choice& choice = choices_[answer.choice];
  choice.has_new_line = choice.has_new_line || answer.text.find('\n') != std::string::npos;
  choice.tokens.insert(choice.tokens.end(), answer.tokens.begin(), answer.tokens.end());
  if (!is_streamed_) {
    choice.text += answer.text;
    choice.logprobs.insert(choice.logprobs.end(), answer.logprobs.begin(), answer.logprobs.end());
    return;
  }
  if (answer.text.empty() && answer.tokens.empty() && answer.logprobs.empty()) return;
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("index", answer.choice).field("content", answer.text);
  write_token_ids(json, "tokens", answer.tokens);
  json.field("stop", false).field("tokens_predicted", choice.tokens.size());
  json.field("tokens_evaluated", prompt_of(answer.choice).tokens);
  if (wants_probabilities_) write_probabilities(json, answer.logprobs);
  if (answer.so_far) write_timings(json, *answer.so_far);
  json.end_object();
  append_sse(text, out);
}

// The result of one choice, with "stop": true.
void LlamaReply::write_result(JsonWriter& json, uint32_t index) const {
  const Choice& choice = choices_[index];
  const Prompt& prompt = prompt_of(index);
  json.begin_object().field("index", index).field("content", choice.text);
  write_token_ids(json, "tokens", wants_tokens_ && !is_streamed_ ? choice.tokens : std::vector<TokenId>());
  json.field("stop", true).field("model", model_).field("tokens_predicted", choice.ended.completion_tokens);
  json.field("tokens_evaluated", prompt.tokens).raw_field("generation_settings", settings_);
  json.field("prompt", prompt.text).field("has_new_line", choice.has_new_line);
  json.field("truncated", choice.ended.finish == Finish::kContextFull);
  json.field("stop_type", stop_type(choice.ended)).field("stopping_word", choice.ended.stopped_by);
  json.field("tokens_cached", prompt.cached);
  write_carat(json, choice.ended.finish, choice.bad_calls, notes_);
  write_timings(json, usage_);
  if (wants_probabilities_ && !is_streamed_) write_probabilities(json, choice.logprobs);
  json.end_object();
}

void LlamaReply::take(const Ended& ended, std::string& out) {
  usage_ = ended.usage;
  if (!is_streamed_) return;
  // Timings are those of the whole request, so the results of all choices wait for its end.
  for (uint32_t i = 0; i < choices_.size(); ++i) {
    std::string text;
    JsonWriter json(text);
    write_result(json, i);
    append_sse(text, out);
  }
}

Response LlamaReply::response() {
  if (failed_) return openai_error(*failed_);
  Response response;
  JsonWriter json(response.body);
  if (choices_.size() > 1) json.begin_list();
  for (uint32_t i = 0; i < choices_.size(); ++i) write_result(json, i);
  if (choices_.size() > 1) json.end_list();
  return response;
}

}  // namespace

void write_generation_settings(JsonWriter& json, const GenerationRequest& request, const ServerFacts& facts) {
  const SamplingWishes& wishes = request.sampling;
  json.begin_object();
  wishes.seed ? json.field("seed", *wishes.seed) : json.field("seed", -1);
  json.field("temperature", wishes.temperature.value_or(facts.temperature));
  json.field("top_k", wishes.top_k.value_or(facts.top_k)).field("top_p", wishes.top_p.value_or(facts.top_p));
  json.field("min_p", wishes.min_p.value_or(facts.min_p));
  if (wishes.repeat_last_n) json.field("repeat_last_n", *wishes.repeat_last_n);
  json.field("repeat_penalty", wishes.repeat_penalty.value_or(1.0));
  json.field("presence_penalty", wishes.presence_penalty.value_or(0.0));
  json.field("frequency_penalty", wishes.frequency_penalty.value_or(0.0));
  json.key("stop").begin_list();
  for (const std::string& stop : request.stops) json.value(stop);
  json.end_list();
  const int64_t most = request.max_tokens ? int64_t{*request.max_tokens} : -1;
  json.field("max_tokens", most).field("n_predict", most).field("ignore_eos", request.ignore_eos);
  json.field("stream", request.stream).field("n_probs", request.logprobs.top);
  json.field("grammar", request.format.kind == AnswerFormat::Kind::kGbnf ? request.format.source : "");
  json.field("timings_per_token", request.timings_per_token).end_object();
}

ParsedRequest read_llama_completion(std::string_view text) {
  const Fields body = parse_body(text);
  ParsedRequest parsed;
  GenerationRequest& request = parsed.generation;
  read_openai_common(body, request);
  request.prompts = read_raw_prompts(body);
  request.parse_special = body.flag("parse_special").value_or(true);
  if (const auto most = body.integer("n_predict", -2, INT32_MAX)) {
    request.max_tokens.reset();
    if (*most >= 0) request.max_tokens = static_cast<uint32_t>(*most);
  }
  if (const auto top = body.integer("n_probs", 0, kMaxTopLogprobs); top && *top > 0) {
    request.logprobs = {.wanted = true, .top = static_cast<uint32_t>(*top)};
  }
  if (body.flag("post_sampling_probs").value_or(false)) {
    throw ApiError({.message = "post_sampling_probs is not supported: probabilities are those before sampling",
                    .param = "post_sampling_probs",
                    .code = "unsupported_parameter"});
  }
  request.return_tokens = request.return_tokens || request.stream;
  parsed.make_reply = [request](const ServerFacts& facts, ReplyIdentity) {
    return std::make_unique<LlamaReply>(request, facts);
  };
  return parsed;
}

}  // namespace carat::server
