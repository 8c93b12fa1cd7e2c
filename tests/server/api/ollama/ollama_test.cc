// Ollama's chat and generate: what a request becomes, what the events of its answer become; what clients ask about the
// model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "server/api/ollama/models.h"
#include "server/api/ollama/request.h"

namespace carat::server {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using text::Role;

const ServerFacts kFacts{.model_id = "demo",
                         .created = 86400.5,
                         .context = 4096,
                         .trained_context = 131072,
                         .file_name = "demo.gguf",
                         .name = "Demo",
                         .format = "Q4_0",
                         .architecture = "gemma4",
                         .parameters = 8'030'000'000,
                         .file_bytes = 4'500'000'000,
                         .device_bytes = 4'000'000'000,
                         .vocabulary = 262144,
                         .width = 2560,
                         .layers = 42,
                         .chat_template = "T"};
const ReplyIdentity kIdentity{.id = "ollama-1", .created = 1795022017.25};

std::string chat_with(const std::string& rest) {
  return R"({"messages":[{"role":"user","content":"Hi."}])" + (rest.empty() ? "" : "," + rest) + "}";
}
std::string chat_of(const std::string& messages) { return "{\"messages\":[" + messages + "]}"; }
std::string prompt_with(const std::string& rest) {
  return R"({"prompt":"Hi.")" + (rest.empty() ? "" : "," + rest) + "}";
}

GenerationRequest parse(const std::string& body) { return read_ollama_chat(body).generation; }
std::vector<text::Message> messages_of(const std::string& messages) {
  return parse(chat_of(messages)).conversation->messages;
}

using Reader = ParsedRequest (*)(std::string_view);

Problem problem_of(const std::string& body, Reader read = read_ollama_chat) {
  try {
    read(body);
  } catch (const ApiError& error) {
    return error.problem();
  }
  ADD_FAILURE() << "accepted: " << body;
  return {};
}

std::vector<json> lines_of(const std::string& bytes) {
  std::vector<json> objects;
  std::istringstream stream(bytes);
  for (std::string line; std::getline(stream, line);) objects.push_back(json::parse(line));
  EXPECT_TRUE(bytes.empty() || bytes.back() == '\n');
  return objects;
}

std::vector<json> streamed(const std::string& body, const std::vector<Event>& events, Reader read = read_ollama_chat) {
  const auto reply = read(body).make_reply(kFacts, kIdentity);
  EXPECT_TRUE(reply->is_streamed());
  EXPECT_EQ(reply->stream_type(), "application/x-ndjson");
  std::string out;
  for (const Event& event : events) reply->on(event, out);
  return lines_of(out);
}

Response whole(const std::string& body, const std::vector<Event>& events, Reader read = read_ollama_chat) {
  const auto reply = read(body).make_reply(kFacts, kIdentity);
  EXPECT_FALSE(reply->is_streamed());
  std::string out;
  for (const Event& event : events) reply->on(event, out);
  EXPECT_EQ(out, "");
  return reply->response();
}

const Usage kUsage{.prompt_tokens = 12,
                   .cached_tokens = 9,
                   .completion_tokens = 5,
                   .thought_tokens = 2,
                   .queue_seconds = 0.5,
                   .prompt_seconds = 0.25,
                   .decode_seconds = 1.0};

TEST(OllamaChatRequest, WhatIsNotGiven) {
  const ParsedRequest parsed = read_ollama_chat(chat_with(""));
  const GenerationRequest& request = parsed.generation;
  EXPECT_TRUE(request.stream) << "streams are the default";
  EXPECT_FALSE(request.max_tokens || request.thinking.is_on || request.sampling.temperature || request.sampling.seed);
  EXPECT_FALSE(request.logprobs.wanted || request.continue_final);
  EXPECT_EQ(request.format.kind, AnswerFormat::Kind::kText);
  EXPECT_FALSE(parsed.answer_at_once);
}

TEST(OllamaChatRequest, Options) {
  const GenerationRequest request = parse(chat_with(
      R"("model":"Gemma:Latest","stream":false,"keep_alive":"5m","truncate":true,"shift":false,
         "options":{"num_predict":7,"temperature":0.5,"top_k":5,"top_p":0.9,"min_p":0.1,"seed":3,"stop":["a","b"],
                    "repeat_penalty":1.1,"repeat_last_n":64,"presence_penalty":0.2,"frequency_penalty":0.3,
                    "num_keep":4,"typical_p":1.0,"num_ctx":32768,"num_batch":512,"num_gpu":99,"num_thread":8,
                    "use_mmap":true,"main_gpu":0,"brand_new":[]})"));
  EXPECT_EQ(request.model, "Gemma:Latest");
  EXPECT_FALSE(request.stream);
  EXPECT_EQ(request.max_tokens, 7u);
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_k, 5u);
  EXPECT_EQ(request.sampling.top_p, 0.9);
  EXPECT_EQ(request.sampling.min_p, 0.1);
  EXPECT_EQ(request.sampling.seed, 3u);
  EXPECT_EQ(request.sampling.repeat_penalty, 1.1);
  EXPECT_EQ(request.sampling.repeat_last_n, 64u);
  EXPECT_EQ(request.sampling.presence_penalty, 0.2);
  EXPECT_EQ(request.sampling.frequency_penalty, 0.3);
  EXPECT_THAT(request.stops, ElementsAre("a", "b"));
  EXPECT_TRUE(request.notes.empty());
  EXPECT_FALSE(parse(chat_with(R"("options":{"num_predict":-1})")).max_tokens.has_value());
  EXPECT_FALSE(parse(chat_with(R"("options":{"num_predict":-2})")).max_tokens.has_value());
  EXPECT_EQ(parse(chat_with(R"("options":{"typical_p":0.5})")).notes.size(), 1u);
  EXPECT_THAT(parse(chat_with(R"("options":{"stop":"x","temperature":null})")).stops, ElementsAre("x"));
}

TEST(OllamaChatRequest, Think) {
  const auto thinking = [](const std::string& think) { return parse(chat_with("\"think\":" + think)).thinking; };
  EXPECT_EQ(thinking("true").is_on, true);
  EXPECT_FALSE(thinking("true").budget.has_value());
  EXPECT_EQ(thinking("false").is_on, false);
  EXPECT_FALSE(thinking("null").is_on.has_value());
  EXPECT_EQ(thinking("\"low\"").budget, 1024u);
  EXPECT_EQ(thinking("\"medium\"").budget, 8192u);
  EXPECT_EQ(thinking("\"high\"").is_on, true);
  EXPECT_FALSE(thinking("\"max\"").budget.has_value());
  for (const char* wrong : {"1", "\"\"", "\"some\"", "{}", "[]"}) {
    EXPECT_EQ(problem_of(chat_with("\"think\":" + std::string(wrong))).param, "think");
  }
}

TEST(OllamaChatRequest, Format) {
  const auto format = [](const std::string& value) { return parse(chat_with("\"format\":" + value)).format; };
  EXPECT_EQ(format("\"json\"").kind, AnswerFormat::Kind::kJsonObject);
  EXPECT_EQ(format("\"\"").kind, AnswerFormat::Kind::kText);
  EXPECT_EQ(format(R"({"type":"object"})").kind, AnswerFormat::Kind::kJsonSchema);
  EXPECT_EQ(format(R"({"type":"object"})").source, R"({"type":"object"})");
  EXPECT_EQ(format("{}").param, "format");
  for (const char* wrong : {"\"xml\"", "5", "[]", "true"}) {
    EXPECT_EQ(problem_of(chat_with("\"format\":" + std::string(wrong))).param, "format");
  }
}

TEST(OllamaChatRequest, LogprobsAndTools) {
  const GenerationRequest request = parse(chat_with(
      R"("logprobs":true,"top_logprobs":3,"tools":[{"type":"function","function":{"name":"f","parameters":{}}}])"));
  EXPECT_TRUE(request.logprobs.wanted);
  EXPECT_EQ(request.logprobs.top, 3u);
  EXPECT_EQ(request.conversation->tools.size(), 1u);
  EXPECT_EQ(request.tool_choice.mode, ToolChoice::Mode::kAuto);
  EXPECT_EQ(parse(chat_with(R"("top_logprobs":3)")).logprobs.top, 0u) << "only where logprobs are wanted";
}

TEST(OllamaChatRequest, Messages) {
  const auto messages = messages_of(R"({"role":"System","content":"S"},{"role":"user","content":"q","images":[]},
      {"role":"assistant","content":"","thinking":"t","tool_calls":[
        {"function":{"index":0,"name":"f","arguments":{"b":1,"a":2}}},{"id":"x","function":{"name":"g","arguments":"{"}}]},
      {"role":"tool","tool_name":"f","content":"r"},{"role":"tool","tool_call_id":"x","content":"s"},
      {"role":"assistant","content":"done"})");
  ASSERT_EQ(messages.size(), 6u);
  EXPECT_EQ(messages[0].role, Role::kSystem);
  EXPECT_EQ(messages[2].reasoning, "t");
  EXPECT_EQ(messages[2].tool_calls[0].arguments, R"({"b":1,"a":2})");
  EXPECT_EQ(messages[2].tool_calls[1].arguments, R"({"_raw":"{"})");
  EXPECT_EQ(messages[3].role, Role::kTool);
  EXPECT_EQ(messages[3].tool_call_id, messages[2].tool_calls[0].id);
  EXPECT_EQ(messages[4].tool_call_id, "x");
}

// Calls have no ids in this dialect's older clients: each result must find its own call.
TEST(OllamaChatRequest, ResultsWithoutIdsFindTheirCalls) {
  const std::string calls = R"({"role":"user","content":"q"},{"role":"assistant","tool_calls":[
      {"function":{"name":"f","arguments":{}}},{"function":{"name":"g","arguments":{}}},
      {"function":{"name":"f","arguments":{}}}]})";
  const auto links = [&](const std::string& results) {
    const auto messages = messages_of(calls + results);
    std::vector<int> found_calls;
    for (const text::Message& message : messages) {
      if (message.role != Role::kTool) continue;
      int found = -1;
      for (int i = 0; i < 3; ++i) {
        if (messages[1].tool_calls[i].id == message.tool_call_id) found = i;
      }
      found_calls.push_back(found);
    }
    return found_calls;
  };
  const std::string none = R"(,{"role":"tool","content":"r"})";
  EXPECT_THAT(links(none + none + none), ElementsAre(0, 1, 2));
  const std::string f = R"(,{"role":"tool","tool_name":"f","content":"r"})";
  const std::string g = R"(,{"role":"tool","tool_name":"g","content":"r"})";
  EXPECT_THAT(links(g + f + f), ElementsAre(1, 0, 2));
  EXPECT_THAT(links(f + none + none), ElementsAre(0, 1, 2));
  EXPECT_THAT(links(R"(,{"role":"tool","tool_name":"h","content":"r"})"), ElementsAre()) << "no call: a user's text";
}

TEST(OllamaChatRequest, NothingToAnswerIsAnsweredAtOnce) {
  const auto at_once = [](const std::string& body, Reader read) {
    const ParsedRequest parsed = read(body);
    EXPECT_TRUE(parsed.answer_at_once);
    return parsed.answer_at_once ? parsed.answer_at_once(kFacts, kIdentity).body : "";
  };
  EXPECT_EQ(at_once(R"({"model":"m"})", read_ollama_chat),
            R"({"model":"m","created_at":"2026-11-18T17:13:37.250000000Z","message":{"role":"assistant","content":""},)"
            R"("done":true,"done_reason":"load"})");
  EXPECT_EQ(at_once(R"({"model":"m","prompt":""})", read_ollama_generate),
            R"({"model":"m","created_at":"2026-11-18T17:13:37.250000000Z","response":"","done":true,)"
            R"("done_reason":"load"})");
  const auto reason = [&](const std::string& keep_alive) {
    return json::parse(at_once(R"({"messages":[],"keep_alive":)" + keep_alive + "}", read_ollama_chat))["done_reason"];
  };
  for (const char* now : {"0", "0.0", "\"0\"", "\"0s\"", "\"0m\""}) EXPECT_EQ(reason(now), "unload") << now;
  for (const char* later : {"-1", "300", "\"5m\"", "\"10s\"", "\"1h0m\"", "\"\"", "null"}) {
    EXPECT_EQ(reason(later), "load") << later;
  }
  EXPECT_EQ(problem_of(R"({"keep_alive":[]})").param, "keep_alive");
}

TEST(OllamaChatRequest, ComplaintsNameTheField) {
  for (const char* field : {"model", "messages", "tools", "format", "options", "stream", "think", "logprobs",
                            "top_logprobs", "keep_alive"}) {
    for (const char* value : {"[5]", "[[]]"}) {
      const std::string body = "{\"" + std::string(field) + "\":" + value + "}";
      const Problem problem = problem_of(body);
      EXPECT_EQ(problem.refusal, Refusal::kBadRequest);
      EXPECT_EQ(problem.param.rfind(field, 0), 0u) << body << " " << problem.param;
      EXPECT_NE(problem.message.find(field), std::string::npos) << problem.message;
    }
  }
  for (const char* field : {"num_predict", "temperature", "top_k", "top_p", "min_p", "seed", "stop", "repeat_penalty",
                            "repeat_last_n", "presence_penalty", "frequency_penalty", "typical_p"}) {
    EXPECT_EQ(problem_of(chat_with("\"options\":{\"" + std::string(field) + "\":{}}")).param,
              "options." + std::string(field));
  }
  EXPECT_EQ(problem_of(chat_with(R"("options":{"temperature":-1})")).param, "options.temperature");
  EXPECT_EQ(problem_of(chat_with(R"("logprobs":true,"top_logprobs":21)")).param, "top_logprobs");
  const auto param = [](const std::string& message) {
    return problem_of(chat_of(R"({"role":"user","content":"a"},)" + message)).param;
  };
  EXPECT_EQ(param(R"({"role":"user","content":"a","images":["eA=="]})"), "messages[1].images");
  EXPECT_EQ(param(R"({"role":"boss","content":"a"})"), "messages[1].role");
  EXPECT_EQ(param(R"({"content":"a"})"), "messages[1].role");
  EXPECT_EQ(param(R"({"role":"user","content":5})"), "messages[1].content");
  EXPECT_EQ(param(R"({"role":"assistant","thinking":5})"), "messages[1].thinking");
  EXPECT_EQ(param(R"({"role":"assistant","tool_calls":[{"function":{}}]})"), "messages[1].tool_calls[0].function.name");
  EXPECT_EQ(param(R"({"role":"tool","content":"","tool_name":5})"), "messages[1].tool_name");
}

TEST(OllamaChatRequest, HostileBodies) {
  for (const Reader read : {read_ollama_chat, read_ollama_generate}) {
    for (const std::string& body :
         {std::string(), std::string("{"), std::string("[]"), std::string("null"), std::string(100000, '['),
          R"({"messages":)" + std::string(100000, '['), std::string(R"({"options":{"temperature":1e999}})"),
          std::string("{\"model\":\"a\0b\"}", 15), std::string(R"({"model":"\ud800"})"),
          std::string("{\"model\":\"\xff\"}"), R"({"format":)" + std::string(100000, '{')}) {
      EXPECT_EQ(problem_of(body, read).refusal, Refusal::kBadRequest) << body.substr(0, 60);
    }
  }
  EXPECT_EQ(messages_of(R"({"role":"user","content":"a\u0000b"})")[0].content.joined(), std::string("a\0b", 3));
}

TEST(OllamaGenerateRequest, APromptIsAConversationUnlessItIsRaw) {
  const GenerationRequest request =
      read_ollama_generate(prompt_with(R"("system":"S","template":"{{ .Prompt }}","context":[1,2],"think":true)"))
          .generation;
  ASSERT_EQ(request.conversation->messages.size(), 2u);
  EXPECT_EQ(request.conversation->messages[0].role, Role::kSystem);
  EXPECT_EQ(request.conversation->messages[1].content.joined(), "Hi.");
  EXPECT_TRUE(request.prompts.empty());
  EXPECT_EQ(request.thinking.is_on, true);

  const GenerationRequest raw =
      read_ollama_generate(prompt_with(R"("raw":true,"options":{"num_predict":3})")).generation;
  EXPECT_FALSE(raw.conversation.has_value());
  ASSERT_EQ(raw.prompts.size(), 1u);
  EXPECT_EQ(std::get<std::string>(raw.prompts[0]), "Hi.");
  EXPECT_TRUE(raw.parse_special);
  EXPECT_EQ(raw.max_tokens, 3u);
}

TEST(OllamaGenerateRequest, ComplaintsNameTheField) {
  const auto param = [](const std::string& rest) { return problem_of(prompt_with(rest), read_ollama_generate).param; };
  EXPECT_EQ(param(R"("images":["eA=="])"), "images");
  EXPECT_EQ(param(R"("suffix":"x")"), "suffix");
  EXPECT_EQ(param(R"("raw":true,"system":"S")"), "system");
  EXPECT_EQ(param(R"("raw":"yes")"), "raw");
  EXPECT_EQ(param(R"("system":[])"), "system");
  EXPECT_EQ(problem_of(R"({"prompt":["a"]})", read_ollama_generate).param, "prompt");
  EXPECT_NO_THROW(read_ollama_generate(prompt_with(R"("images":[],"suffix":"","stream":null)")));
}

TEST(OllamaReply, AStreamOfAChat) {
  const std::vector<json> lines =
      streamed(chat_with(R"("model":"m")"),
               {Started{.prompt_tokens = 12}, Progress{}, ThoughtText{0, "hmm"}, AnswerText{.text = ""},
                AnswerText{.text = "Hello"}, CallMade{0, "call_1", "f", R"({"b":1,"a":2})"},
                CallMade{0, "call_2", "g", ""}, ChoiceEnded{.finish = Finish::kToolCalls}, Ended{kUsage}});
  ASSERT_EQ(lines.size(), 5u);
  for (const json& line : lines) {
    EXPECT_EQ(line["model"], "m");
    EXPECT_EQ(line["created_at"], "2026-11-18T17:13:37.250000000Z");
    EXPECT_EQ(line["done"], &line == &lines.back());
  }
  EXPECT_EQ(lines[0]["message"], json::parse(R"({"role":"assistant","content":"","thinking":"hmm"})"));
  EXPECT_EQ(lines[1]["message"], json::parse(R"({"role":"assistant","content":"Hello"})"));
  EXPECT_EQ(lines[2]["message"], json::parse(R"({"role":"assistant","content":"","tool_calls":[
      {"id":"call_1","function":{"index":0,"name":"f","arguments":{"b":1,"a":2}}}]})"));
  EXPECT_EQ(lines[3]["message"]["tool_calls"], json::parse(R"([
      {"id":"call_2","function":{"index":1,"name":"g","arguments":{}}}])"));
  EXPECT_EQ(lines[4], json::parse(R"({"model":"m","created_at":"2026-11-18T17:13:37.250000000Z",
      "message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":1750000000,
      "load_duration":0,"prompt_eval_count":12,"prompt_eval_duration":250000000,"eval_count":5,
      "eval_duration":1000000000})"));
}

TEST(OllamaReply, AStreamOfAPrompt) {
  const std::vector<json> lines =
      streamed(prompt_with(""), {Started{}, ThoughtText{0, "hmm"}, AnswerText{.text = "x"}, ChoiceEnded{}, Ended{}},
               read_ollama_generate);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["model"], "demo");
  EXPECT_EQ(lines[0]["thinking"], "hmm");
  EXPECT_EQ(lines[0]["response"], "");
  EXPECT_EQ(lines[1]["response"], "x");
  EXPECT_FALSE(lines[1].contains("message"));
  EXPECT_EQ(lines[2]["done"], true);
}

TEST(OllamaReply, AWholeAnswer) {
  const Response response =
      whole(chat_with(R"("stream":false)"), {Started{}, ThoughtText{0, "a"}, ThoughtText{0, "b"},
                                             AnswerText{.text = "c"}, BadCall{0, "call:f{", "cut off"},
                                             CallMade{0, "call_1", "f", "{ \"b\": 1,\n\"a\": 100000000000000000000 }"},
                                             CallMade{0, "call_2", "g", "{}"}, ChoiceEnded{}, Ended{kUsage}});
  EXPECT_EQ(response.status, 200u);
  EXPECT_EQ(response.content_type, "application/json");
  const json answer = json::parse(response.body);
  EXPECT_EQ(answer["message"]["content"], "ccall:f{");
  EXPECT_EQ(answer["message"]["thinking"], "ab");
  EXPECT_EQ(answer["message"]["tool_calls"][1]["function"]["index"], 1);
  EXPECT_NE(response.body.find(R"("arguments":{"b":1,"a":100000000000000000000})"), std::string::npos)
      << "the model's order of keys, and on one line: " << response.body;
  EXPECT_EQ(answer["done"], true);
  EXPECT_EQ(answer["eval_count"], 5);
  EXPECT_EQ(json::parse(whole(prompt_with(R"("stream":false)"), {Started{}, AnswerText{.text = "x"}, Ended{}},
                              read_ollama_generate)
                            .body)["response"],
            "x");
}

TEST(OllamaReply, Endings) {
  const auto reason = [](Finish finish) {
    return streamed(chat_with(""), {Started{}, ChoiceEnded{.finish = finish}, Ended{}}).back()["done_reason"];
  };
  for (const Finish finish :
       {Finish::kStop, Finish::kStopString, Finish::kStopToken, Finish::kToolCalls, Finish::kLoop}) {
    EXPECT_EQ(reason(finish), "stop");
  }
  EXPECT_EQ(reason(Finish::kLength), "length");
  EXPECT_EQ(reason(Finish::kContextFull), "length");
}

TEST(OllamaReply, AStreamThatFailsEndsWithItsError) {
  const std::vector<json> lines =
      streamed(chat_with(""),
               {Started{}, AnswerText{.text = "x"}, Failed{{.refusal = Refusal::kFailed, .message = "a pass failed"}},
                AnswerText{.text = "late"}, Ended{}});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1], json::parse(R"({"error":"a pass failed"})"));
  const Response response = whole(chat_with(R"("stream":false)"),
                                  {Failed{{.refusal = Refusal::kQueueFull, .message = "m", .retry_after = 2.0}}});
  EXPECT_EQ(response.status, 503u);
}

TEST(OllamaReply, WhatKeepsAStreamAliveIsAnEmptyPiece) {
  const auto kept_alive = [](const std::string& body, Reader read) {
    std::string out;
    read(body).make_reply(kFacts, kIdentity)->keep_alive(out);
    return out;
  };
  EXPECT_EQ(kept_alive(chat_with(R"("model":"m")"), read_ollama_chat),
            "{\"model\":\"m\",\"created_at\":\"2026-11-18T17:13:37.250000000Z\","
            "\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":false}\n");
  EXPECT_EQ(kept_alive(prompt_with(R"("model":"m")"), read_ollama_generate),
            "{\"model\":\"m\",\"created_at\":\"2026-11-18T17:13:37.250000000Z\",\"response\":\"\",\"done\":false}\n");
}

TEST(OllamaReply, Logprobs) {
  ChosenLogprob chosen;
  chosen.bytes = "\xC3";
  chosen.logprob = -0.5;
  chosen.top.push_back({6, " L", -4.5});
  const std::vector<Event> events = {Started{}, AnswerText{.text = "", .logprobs = {chosen}},
                                     AnswerText{.text = "x", .logprobs = {chosen}}, ChoiceEnded{}, Ended{}};
  const std::string wish = R"("logprobs":true,"top_logprobs":1)";
  const std::vector<json> lines = streamed(chat_with(wish), events);
  ASSERT_EQ(lines.size(), 3u) << "the tokens of an unfinished character are not lost";
  EXPECT_EQ(lines[1]["logprobs"], json::parse(R"([{"token":"\ufffd","logprob":-0.5,"bytes":[195],
      "top_logprobs":[{"token":" L","logprob":-4.5,"bytes":[32,76]}]}])"));
  EXPECT_EQ(json::parse(whole(chat_with(wish + R"(,"stream":false)"), events).body)["logprobs"].size(), 2u);
  EXPECT_FALSE(streamed(chat_with(""), events)[0].contains("logprobs"));
}

TEST(OllamaModels, Greeting) {
  EXPECT_EQ(ollama_greeting().body, "Ollama is running");
  EXPECT_EQ(ollama_greeting().content_type.rfind("text/plain", 0), 0u);
  EXPECT_THAT(json::parse(ollama_version().body)["version"].get<std::string>(),
              testing::MatchesRegex("0\\.[0-9]+\\.[0-9]+"));
}

TEST(OllamaModels, Tags) {
  const json model = json::parse(ollama_tags(kFacts).body)["models"][0];
  EXPECT_EQ(model["name"], "demo:latest");
  EXPECT_EQ(model["model"], "demo:latest");
  EXPECT_EQ(model["modified_at"], "1970-01-02T00:00:00.500000000Z");
  EXPECT_EQ(model["size"], 4'500'000'000);
  EXPECT_THAT(model["digest"].get<std::string>(), testing::MatchesRegex("[0-9a-f]+"));
  EXPECT_EQ(model["digest"].get<std::string>().size(), 64u);
  EXPECT_EQ(model["details"], json::parse(R"({"parent_model":"","format":"gguf","family":"gemma4","families":["gemma4"],
      "parameter_size":"8.0B","quantization_level":"Q4_0"})"));
  EXPECT_EQ(model["capabilities"], json::parse(R"(["completion","tools","thinking"])"));
}

TEST(OllamaModels, ADigestIsOfTheModel) {
  const auto digest = [](const ServerFacts& facts) {
    return json::parse(ollama_tags(facts).body)["models"][0]["digest"];
  };
  ServerFacts other = kFacts;
  EXPECT_EQ(digest(other), digest(kFacts));
  other.context = 8;  // a setting, not the model
  EXPECT_EQ(digest(other), digest(kFacts));
  other.file_bytes += 1;
  EXPECT_NE(digest(other), digest(kFacts));
}

TEST(OllamaModels, NamesWithATagKeepIt) {
  const auto name = [](const std::string& id) {
    return json::parse(ollama_tags({.model_id = id}).body)["models"][0]["name"].get<std::string>();
  };
  EXPECT_EQ(name("gemma:4b"), "gemma:4b");
  EXPECT_EQ(name("host:80/gemma"), "host:80/gemma:latest");
  EXPECT_TRUE(matches_model(name("demo"), kFacts));
}

TEST(OllamaModels, Running) {
  const json model = json::parse(ollama_running(kFacts).body)["models"][0];
  EXPECT_EQ(model["name"], "demo:latest");
  EXPECT_EQ(model["size_vram"], 4'000'000'000);
  EXPECT_EQ(model["context_length"], 4096);
  EXPECT_TRUE(model["expires_at"].is_string());
}

TEST(OllamaModels, Show) {
  const json show = json::parse(ollama_show(kFacts).body);
  EXPECT_EQ(show["model_info"]["general.architecture"], "gemma4");
  EXPECT_EQ(show["model_info"]["gemma4.context_length"], 4096) << "what requests may use of it";
  EXPECT_EQ(show["model_info"]["gemma4.block_count"], 42);
  EXPECT_EQ(show["capabilities"], json::parse(R"(["completion","tools","thinking"])"));
  EXPECT_EQ(show["template"], "T");
  EXPECT_NE(show["parameters"].get<std::string>().find("top_k                          64"), std::string::npos);
  EXPECT_EQ(show["details"]["family"], "gemma4");
  EXPECT_EQ(read_ollama_model(R"({"model":"m","name":"n"})"), "m");
  EXPECT_EQ(read_ollama_model(R"({"name":"n"})"), "n");
  EXPECT_EQ(read_ollama_model("{}"), "");
  EXPECT_THROW(read_ollama_model(R"({"model":5})"), ApiError);
}

}  // namespace
}  // namespace carat::server
