#include "reply_check.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "fuzz_check.h"

namespace carat::fuzz {

namespace {

using namespace carat::server;
using nlohmann::json;

constexpr size_t kMostChoices = 16;  // more say nothing new and take long

const ServerFacts kFacts{.model_id = "demo", .aliases = {"a", "b"}, .fingerprint = "carat-1", .context = 4096};

ChosenLogprob chosen(std::string bytes) {
  ChosenLogprob chosen;
  chosen.token = 7;
  chosen.bytes = std::move(bytes);
  chosen.logprob = -0.5;
  chosen.top = {{7, chosen.bytes, -0.5}, {8, "\xF0\x9F", -1e300}};
  return chosen;
}

// What a choice goes through: a little of everything, in an order that models write.
std::vector<Event> events_of(const GenerationRequest& request, uint32_t choice) {
  const Usage so_far{.prompt_tokens = 5, .completion_tokens = 2, .decode_seconds = 0.5};
  const std::string quoted = "a \"quoted\"\n\x01 \xC3\xA9\xE2\x80\xA8 </script>";
  std::vector<Event> events;
  if (request.conversation) {
    events.emplace_back(ThoughtText{choice, quoted, {1, 2}, so_far});
    events.emplace_back(ThoughtText{choice, "", {3}});
  }
  events.emplace_back(AnswerText{choice, quoted, {chosen("\xC3"), chosen("\xA9")}, {4, 5}, so_far});
  events.emplace_back(AnswerText{choice, "", {chosen("x")}, {6}});
  events.emplace_back(AnswerText{choice, "more"});
  if (request.conversation) {
    events.emplace_back(CallMade{choice, "call_1", "f", R"({"input":"x\ny","n":[1,2]})", {7}});
    if (request.tool_choice.is_parallel) events.emplace_back(CallMade{choice, "call_2", "g", "{}", {8}});
    events.emplace_back(ThoughtText{choice, "again"});
    events.emplace_back(BadCall{choice, "call:f{", "it was cut off", {9}});
  }
  return events;
}

void append_all(std::vector<Event>& events, std::vector<Event> more) {
  events.insert(events.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

std::vector<Event> course_of_events(const GenerationRequest& request, Course course) {
  const Failed failed{{.refusal = Refusal::kFailed, .message = "a pass \"failed\""}};
  if (course == Course::kFailedAtOnce) return {failed};
  const auto prompts = request.conversation ? 1 : static_cast<uint32_t>(request.prompts.size());
  std::vector<Event> events;
  for (uint32_t prompt = 0; prompt < prompts; ++prompt) {
    events.emplace_back(Started{
        .prompt_tokens = 5, .cached_tokens = 2, .prompt = {1, 2}, .index = prompt, .text = "p", .notes = {"a note"}});
    events.emplace_back(Progress{.total = 5, .cached = 2, .processed = 4, .milliseconds = 1.5});
  }
  constexpr Finish kFinishes[] = {Finish::kStop,   Finish::kStopString,  Finish::kStopToken, Finish::kToolCalls,
                                  Finish::kLength, Finish::kContextFull, Finish::kLoop};
  for (uint32_t choice = 0; choice < prompts * request.choices; ++choice) {
    append_all(events, events_of(request, choice));
    if (course == Course::kFailedMidway) break;
    events.emplace_back(ChoiceEnded{.choice = choice,
                                    .finish = kFinishes[(choice + request.stops.size()) % std::size(kFinishes)],
                                    .stopped_by = "\"stop\"",
                                    .tokens = {10},
                                    .completion_tokens = 9});
  }
  if (course == Course::kFailedMidway) {
    events.emplace_back(failed);
  } else {
    events.emplace_back(Ended{{.prompt_tokens = 5,
                               .cached_tokens = 2,
                               .completion_tokens = 9,
                               .thought_tokens = 3,
                               .decode_seconds = 0.25,
                               .drafted = 4,
                               .accepted = 2,
                               .lost_reason = "evicted",
                               .lost_tokens = 1}});
  }
  return events;
}

json parsed(std::string_view text) {
  json value = json::parse(text, nullptr, false);
  FUZZ_CHECK(!value.is_discarded());
  return value;
}

// Server-sent events: an optional name, one line of data, an empty line; comments may stand anywhere between.
std::vector<Sent> read_sse(std::string_view bytes) {
  std::vector<Sent> sent;
  while (!bytes.empty()) {
    const size_t end = bytes.find("\n\n");
    FUZZ_CHECK(end != std::string_view::npos);
    std::string_view event = bytes.substr(0, end);
    bytes.remove_prefix(end + 2);
    if (event.starts_with(":")) continue;
    Sent one;
    if (event.starts_with("event: ")) {
      const size_t line = event.find('\n');
      FUZZ_CHECK(line != std::string_view::npos);
      one.name = event.substr(7, line - 7);
      event.remove_prefix(line + 1);
    }
    FUZZ_CHECK(event.starts_with("data: ") && event.find('\n') == std::string_view::npos);
    event.remove_prefix(6);
    one.data = event == "[DONE]" ? json("[DONE]") : parsed(event);
    sent.push_back(std::move(one));
  }
  return sent;
}

std::vector<Sent> read_lines(std::string_view bytes) {
  std::vector<Sent> sent;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    FUZZ_CHECK(end != std::string_view::npos);
    sent.push_back({"", parsed(bytes.substr(0, end))});
    bytes.remove_prefix(end + 1);
  }
  return sent;
}

void check_sound(const GenerationRequest& request) {
  FUZZ_CHECK(request.conversation.has_value() == request.prompts.empty());
  FUZZ_CHECK(request.choices >= 1);
  if (!request.conversation) return;
  text::check_conversation(*request.conversation);  // throws where no template could render it
  for (const std::string& name : request.tool_choice.allowed) {
    const auto& tools = request.conversation->tools;
    FUZZ_CHECK(std::any_of(tools.begin(), tools.end(), [&](const text::Tool& tool) { return tool.name == name; }));
  }
  for (const text::Tool& tool : request.conversation->tools) FUZZ_CHECK(parsed(tool.json).is_object());
}

std::optional<ParsedRequest> accepted(std::string_view body, const DialectRules& rules) {
  try {
    return rules.read(body);
  } catch (const ApiError& error) {
    FUZZ_CHECK(!error.problem().message.empty() && status_of(error.problem().refusal) < 500);
    return std::nullopt;
  }
}

void answer(std::string_view body, const DialectRules& rules, Course course) {
  const std::optional<ParsedRequest> request = accepted(body, rules);
  if (!request) return;
  const ReplyIdentity identity{.id = "id_1", .created = 1795022195.5, .request_id = "r"};
  if (request->answer_at_once) {
    const Response response = request->answer_at_once(kFacts, identity);
    FUZZ_CHECK(response.status == 200 && parsed(response.body).is_object());
    return;
  }
  check_sound(request->generation);
  const GenerationRequest& generation = request->generation;
  if (generation.prompts.size() * generation.choices > kMostChoices || generation.choices > kMostChoices) return;
  const std::unique_ptr<Reply> reply = request->make_reply(kFacts, identity);
  FUZZ_CHECK(reply->is_streamed() == generation.stream);
  std::string out;
  for (const Event& event : course_of_events(generation, course)) {
    reply->on(event, out);
    if (reply->is_streamed()) reply->keep_alive(out);
  }
  if (reply->is_streamed()) {
    rules.check_stream(reply->stream_type() == "application/x-ndjson" ? read_lines(out) : read_sse(out), course);
  }
  if (reply->is_streamed() && course != Course::kFailedAtOnce) return;
  const Response response = reply->response();
  const json whole = parsed(response.body);
  FUZZ_CHECK((response.status == 200) == (course == Course::kEnded));
  if (!reply->is_streamed()) FUZZ_CHECK(out.empty());
  if (response.status == 200) rules.check_whole(whole);
}

}  // namespace

void check_dialect(std::string_view body, const DialectRules& rules) {
  const std::optional<ParsedRequest> request = accepted(body, rules);
  if (!request) return;
  std::vector<std::string> bodies = {std::string(body)};
  if (json other = json::parse(body, nullptr, false); other.is_object()) {
    other["stream"] = !request->generation.stream;
    bodies.push_back(other.dump());
  }
  for (const std::string& one : bodies) {
    for (const Course course : {Course::kEnded, Course::kFailedAtOnce, Course::kFailedMidway})
      answer(one, rules, course);
  }
}

}  // namespace carat::fuzz
