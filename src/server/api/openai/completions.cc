#include "server/api/openai/completions.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "server/api/json_writer.h"
#include "server/api/openai/common.h"
#include "server/api/openai/request.h"

namespace carat::server {

namespace {

using text::TokenId;
using text::Value;

constexpr uint32_t kDefaultMaxTokens = 16;  // of OpenAI's API

std::vector<TokenId> read_token_prompt(const std::vector<Value>& items, const std::string& path) {
  if (items.empty()) refuse(path, "{} is empty; a prompt of tokens has at least one", path);
  std::vector<TokenId> tokens;
  tokens.reserve(items.size());
  for (const Value& item : items) {
    if (!item.is_integer() || item.as_integer() < 0 || item.as_integer() > INT32_MAX) {
      refuse_kind(item_path(path, tokens.size()), "the id of a token", item);
    }
    tokens.push_back(static_cast<TokenId>(item.as_integer()));
  }
  return tokens;
}

// How many characters start in some bytes, which may begin or end in the middle of one.
size_t character_starts(std::string_view bytes) {
  return static_cast<size_t>(std::count_if(bytes.begin(), bytes.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// The name of a token in the old form of log-probabilities, whose maps cannot hold bytes otherwise.
std::string legacy_token(std::string_view bytes) {
  if (utf8_sanitise(bytes) == bytes) return std::string(bytes);
  std::string name = "bytes:";
  for (const char byte : bytes) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return name;
}

class CompletionsReply : public Reply {
 public:
  CompletionsReply(const GenerationRequest& request, const ServerFacts& facts, ReplyIdentity identity)
      : identity_(std::move(identity)),
        model_(request.model.empty() ? facts.model_id : request.model),
        fingerprint_(facts.fingerprint),
        is_streamed_(request.stream),
        separate_usage_(request.include_usage),
        wants_progress_(request.return_progress),
        wants_logprobs_(request.logprobs.wanted),
        wants_tokens_(request.return_tokens),
        echo_(request.echo),
        choices_of_prompt_(request.choices),
        choices_(request.prompts.size() * request.choices),
        prompts_(request.prompts.size()) {
    for (size_t i = 0; echo_ && i < prompts_.size(); ++i) {
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
    std::optional<ChoiceEnded> ended;
    size_t characters = 0;  // of the prompt, where it is repeated, and of the tokens so far
  };
  struct Prompt {
    std::string text;  // where the answer repeats it
    std::vector<TokenId> tokens;
  };

  JsonWriter& head(JsonWriter& json) const {
    json.begin_object().field("id", identity_.id).field("object", "text_completion");
    json.field("created", static_cast<int64_t>(identity_.created)).field("model", model_);
    return json.field("system_fingerprint", fingerprint_);
  }
  void write_logprobs(JsonWriter& json, Choice& choice, const std::vector<ChosenLogprob>& logprobs) const;
  void write_choice(JsonWriter& json, uint32_t index, std::string_view text, const std::vector<ChosenLogprob>& logprobs,
                    const std::vector<TokenId>* tokens);
  void chunk(uint32_t index, std::string& out, const AnswerText& answer);

  void take(const Started& started, std::string& out);
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
  void take(const ChoiceEnded& ended, std::string& out);
  void take(const Ended& ended, std::string& out);
  void take(const Failed& failed, std::string& out) {
    failed_ = failed.problem;
    // No "[DONE]" follows, so that a client cannot take the answer for a whole one.
    if (is_streamed_) append_sse(openai_error_json(failed.problem), out);
  }

  ReplyIdentity identity_;
  std::string model_, fingerprint_;
  bool is_streamed_, separate_usage_, wants_progress_, wants_logprobs_, wants_tokens_, echo_;
  uint32_t choices_of_prompt_;
  std::vector<Choice> choices_;
  std::vector<Prompt> prompts_;
  std::vector<std::string> notes_;
  std::optional<Usage> usage_;
  size_t ended_choices_ = 0;
  std::optional<uint32_t> last_end_;  // held back until the usage is known where both travel in one chunk
  std::optional<Problem> failed_;
};

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}; offsets count characters of the answer's text.
void CompletionsReply::write_logprobs(JsonWriter& json, Choice& choice,
                                      const std::vector<ChosenLogprob>& logprobs) const {
  json.begin_object().key("tokens").begin_list();
  for (const ChosenLogprob& chosen : logprobs) json.value(legacy_token(chosen.bytes));
  json.end_list().key("token_logprobs").begin_list();
  for (const ChosenLogprob& chosen : logprobs) json.value(finite_logprob(chosen.logprob));
  json.end_list().key("top_logprobs").begin_list();
  for (const ChosenLogprob& chosen : logprobs) {
    std::set<std::string> written;  // two tokens may be spelled the same
    json.begin_object();
    for (const TokenLogprob& other : chosen.top) {
      if (written.insert(legacy_token(other.bytes)).second) {
        json.field(legacy_token(other.bytes), finite_logprob(other.logprob));
      }
    }
    if (written.insert(legacy_token(chosen.bytes)).second) {
      json.field(legacy_token(chosen.bytes), finite_logprob(chosen.logprob));
    }
    json.end_object();
  }
  json.end_list().key("text_offset").begin_list();
  for (const ChosenLogprob& chosen : logprobs) {
    const bool starts_inside = !chosen.bytes.empty() && (chosen.bytes.front() & 0xC0) == 0x80;
    json.value(choice.characters - (starts_inside && choice.characters > 0 ? 1 : 0));
    choice.characters += character_starts(chosen.bytes);
  }
  json.end_list().end_object();
}

// The fields of one choice, up to its "finish_reason".
void CompletionsReply::write_choice(JsonWriter& json, uint32_t index, std::string_view text,
                                    const std::vector<ChosenLogprob>& logprobs, const std::vector<TokenId>* tokens) {
  Choice& choice = choices_[index];
  json.begin_object().field("index", index).field("text", text);
  if (wants_logprobs_ && (!is_streamed_ || !logprobs.empty())) {
    write_logprobs(json.key("logprobs"), choice, logprobs);
  } else {
    json.null_field("logprobs");
  }
  if (wants_tokens_ && tokens != nullptr) write_token_ids(json, "token_ids", *tokens);
}

void CompletionsReply::chunk(uint32_t index, std::string& out, const AnswerText& answer) {
  std::string text;
  JsonWriter json(text);
  head(json).key("choices").begin_list();
  write_choice(json, index, answer.text, answer.logprobs, &answer.tokens);
  json.null_field("finish_reason").end_object().end_list();
  if (answer.so_far) write_timings(json, *answer.so_far);
  json.end_object();
  append_sse(text, out);
}

void CompletionsReply::take(const Started& started, std::string& out) {
  Prompt& prompt = prompts_[started.index];
  if (echo_ && !started.text.empty()) prompt.text = started.text;
  prompt.tokens = started.prompt;
  notes_.insert(notes_.end(), started.notes.begin(), started.notes.end());
  for (uint32_t i = 0; i < choices_of_prompt_; ++i) {
    const uint32_t index = started.index * choices_of_prompt_ + i;
    Choice& choice = choices_[index];
    choice.characters = character_starts(prompt.text);
    choice.text = prompt.text;
    if (!is_streamed_ || (prompt.text.empty() && !wants_tokens_)) continue;
    std::string text;
    JsonWriter json(text);
    head(json).key("choices").begin_list();
    write_choice(json, index, prompt.text, {}, nullptr);
    if (wants_tokens_) write_token_ids(json, "prompt_token_ids", prompt.tokens);
    json.null_field("finish_reason").end_object().end_list().end_object();
    append_sse(text, out);
  }
}

void CompletionsReply::take(const Progress& progress, std::string& out) {
  if (!is_streamed_ || !wants_progress_) return;
  std::string text;
  JsonWriter json(text);
  head(json).key("choices").begin_list().end_list();
  write_prompt_progress(json, progress);
  json.end_object();
  append_sse(text, out);
}

void CompletionsReply::take(const AnswerText& answer, std::string& out) {
  if (is_streamed_) {
    const bool has_extras = (wants_tokens_ && !answer.tokens.empty()) || (wants_logprobs_ && !answer.logprobs.empty());
    if (!answer.text.empty() || has_extras) chunk(answer.choice, out, answer);
    return;
  }
  Choice& choice = choices_[answer.choice];
  choice.text += answer.text;
  choice.logprobs.insert(choice.logprobs.end(), answer.logprobs.begin(), answer.logprobs.end());
  choice.tokens.insert(choice.tokens.end(), answer.tokens.begin(), answer.tokens.end());
}

void CompletionsReply::take(const ChoiceEnded& ended, std::string& out) {
  Choice& choice = choices_[ended.choice];
  choice.ended = ended;
  if (!is_streamed_) {
    choice.tokens.insert(choice.tokens.end(), ended.tokens.begin(), ended.tokens.end());
    return;
  }
  if (++ended_choices_ == choices_.size() && !separate_usage_) {
    last_end_ = ended.choice;
    return;
  }
  std::string text;
  JsonWriter json(text);
  head(json).key("choices").begin_list();
  write_choice(json, ended.choice, "", {}, &ended.tokens);
  write_stop_reason(json, ended);
  write_carat(json, ended.finish, choice.bad_calls, {});
  json.field("finish_reason", openai_finish(ended.finish)).end_object().end_list().end_object();
  append_sse(text, out);
}

void CompletionsReply::take(const Ended& ended, std::string& out) {
  usage_ = ended.usage;
  if (!is_streamed_) return;
  std::string text;
  JsonWriter json(text);
  head(json).key("choices").begin_list();
  if (last_end_) {
    const Choice& choice = choices_[*last_end_];
    write_choice(json, *last_end_, "", {}, &choice.ended->tokens);
    write_stop_reason(json, *choice.ended);
    write_carat(json, choice.ended->finish, choice.bad_calls, {});
    json.field("finish_reason", openai_finish(choice.ended->finish)).end_object();
  }
  json.end_list();
  write_openai_usage(json, ended.usage);
  write_timings(json, ended.usage);
  write_carat(json, Finish::kStop, {}, notes_);
  json.end_object();
  append_sse(text, out);
  out += "data: [DONE]\n\n";
}

Response CompletionsReply::response() {
  if (failed_) return openai_error(*failed_);
  Response response;
  JsonWriter json(response.body);
  head(json).key("choices").begin_list();
  for (uint32_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    write_choice(json, i, choice.text, choice.logprobs, &choice.tokens);
    if (wants_tokens_) write_token_ids(json, "prompt_token_ids", prompts_[i / choices_of_prompt_].tokens);
    if (choice.ended) {
      write_stop_reason(json, *choice.ended);
      write_carat(json, choice.ended->finish, choice.bad_calls, {});
    }
    json.field("finish_reason", openai_finish(choice.ended ? choice.ended->finish : Finish::kStop)).end_object();
  }
  json.end_list();
  const Usage usage = usage_.value_or(Usage{});
  write_openai_usage(json, usage);
  write_timings(json, usage);
  write_carat(json, Finish::kStop, {}, notes_);
  json.end_object();
  return response;
}

}  // namespace

std::vector<RawPrompt> read_raw_prompts(const Fields& body) {
  const Value prompt = body.get("prompt");
  if (!body.has("prompt")) refuse("prompt", "prompt is required: a string, or a list of strings or token ids");
  if (prompt.is_string()) return {prompt.text()};
  if (!prompt.is_list()) refuse_kind("prompt", "a string, or a list of strings or token ids", prompt);
  const std::vector<Value>& items = prompt.as_list();
  if (items.empty()) refuse("prompt", "prompt is empty; send a string, or a list of strings or token ids");
  if (items.front().is_number()) return {read_token_prompt(items, "prompt")};
  if (items.size() > kMaxPrompts) {
    refuse("prompt", "prompt has {} entries; at most {} are allowed", items.size(), kMaxPrompts);
  }
  std::vector<RawPrompt> prompts;
  for (const Value& item : items) {
    const std::string path = item_path("prompt", prompts.size());
    if (item.is_string()) {
      prompts.emplace_back(item.text());
    } else if (item.is_list()) {
      prompts.emplace_back(read_token_prompt(item.as_list(), path));
    } else {
      refuse_kind(path, "a string, or a list of token ids", item);
    }
  }
  return prompts;
}

GenerationRequest parse_openai_completions(std::string_view text) {
  const Fields body = parse_body(text);
  GenerationRequest request;
  read_openai_common(body, request);
  request.prompts = read_raw_prompts(body);
  request.parse_special = body.flag("parse_special").value_or(false);
  request.echo = body.flag("echo").value_or(false);
  if (!body.has("max_tokens") && !body.has("max_completion_tokens")) request.max_tokens = kDefaultMaxTokens;
  if (const auto suffix = body.text("suffix"); suffix && !suffix->empty()) {
    throw ApiError({.message = "suffix is not supported: this model was not trained to fill in the middle",
                    .param = "suffix",
                    .code = "unsupported_parameter"});
  }
  const auto best_of = body.integer("best_of", 0, INT32_MAX);
  if (best_of && *best_of > request.choices) {
    throw ApiError({.message = fmt::format("best_of is {}, more than n, which is {}; answers are not ranked", *best_of,
                                           request.choices),
                    .param = "best_of",
                    .code = "unsupported_parameter"});
  }
  if (const auto top = body.integer("logprobs", 0, kMaxTopLogprobs)) {
    request.logprobs = {.wanted = true, .top = static_cast<uint32_t>(*top)};
    if (request.echo) {
      throw ApiError({.message = "echo with logprobs is not supported: only tokens of the answer have them",
                      .param = "echo",
                      .code = "unsupported_parameter"});
    }
  }
  return request;
}

std::unique_ptr<Reply> make_openai_completions_reply(const GenerationRequest& request, const ServerFacts& facts,
                                                     ReplyIdentity identity) {
  return std::make_unique<CompletionsReply>(request, facts, std::move(identity));
}

ParsedRequest read_openai_completions(std::string_view body) {
  ParsedRequest parsed{.generation = parse_openai_completions(body), .make_reply = {}};
  GenerationRequest kept = parsed.generation;
  if (!kept.echo) std::fill(kept.prompts.begin(), kept.prompts.end(), RawPrompt());  // only their number matters
  parsed.make_reply = [kept = std::move(kept)](const ServerFacts& facts, ReplyIdentity identity) {
    return make_openai_completions_reply(kept, facts, std::move(identity));
  };
  return parsed;
}

}  // namespace carat::server
