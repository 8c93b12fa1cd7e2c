// How each dialect says no, and which names mean the model.
#include "server/api/dialect.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/api/ollama/common.h"

namespace carat::server {
namespace {

using nlohmann::json;

const std::vector<Dialect> kDialects = {Dialect::kOpenAi, Dialect::kAnthropic, Dialect::kOllama};
const std::vector<Refusal> kRefusals = {
    Refusal::kBadRequest,   Refusal::kContextExceeded, Refusal::kUnauthorized, Refusal::kForbidden,
    Refusal::kNotFound,     Refusal::kModelNotFound,   Refusal::kMethod,       Refusal::kTooLarge,
    Refusal::kMediaType,    Refusal::kHeaders,         Refusal::kQueueFull,    Refusal::kFailed,
    Refusal::kNotSupported, Refusal::kLoading,         Refusal::kDraining,     Refusal::kQueueTimeout};

std::map<std::string, std::string> headers_of(const Response& response) {
  return {response.headers.begin(), response.headers.end()};
}

Response refuse_in(Dialect dialect, Refusal refusal) {
  return refusal_response(dialect, {.refusal = refusal, .message = "no"}, "req_1");
}

TEST(Refusals, EveryOneIsAJsonObjectWithItsMessage) {
  for (const Dialect dialect : kDialects) {
    for (const Refusal refusal : kRefusals) {
      const Response response = refuse_in(dialect, refusal);
      EXPECT_GE(response.status, 400u);
      EXPECT_EQ(response.content_type, "application/json");
      const json body = json::parse(response.body);
      const json& message = dialect == Dialect::kOllama ? body["error"] : body["error"]["message"];
      EXPECT_TRUE(message.is_string() && !message.get<std::string>().empty()) << response.body;
    }
  }
}

TEST(Refusals, AnthropicsStatusesAndTypes) {
  const auto terms = [](Refusal refusal) {
    const Response response = refuse_in(Dialect::kAnthropic, refusal);
    const json body = json::parse(response.body);
    EXPECT_EQ(body["type"], "error");
    EXPECT_EQ(body["request_id"], "req_1");
    EXPECT_EQ(headers_of(response).at("request-id"), "req_1");
    return std::pair(response.status, body["error"]["type"].get<std::string>());
  };
  EXPECT_EQ(terms(Refusal::kBadRequest), std::pair(400u, std::string("invalid_request_error")));
  EXPECT_EQ(terms(Refusal::kUnauthorized), std::pair(401u, std::string("authentication_error")));
  EXPECT_EQ(terms(Refusal::kForbidden), std::pair(403u, std::string("permission_error")));
  EXPECT_EQ(terms(Refusal::kModelNotFound), std::pair(404u, std::string("not_found_error")));
  EXPECT_EQ(terms(Refusal::kTooLarge), std::pair(413u, std::string("request_too_large")));
  EXPECT_EQ(terms(Refusal::kQueueFull), std::pair(429u, std::string("rate_limit_error")));
  EXPECT_EQ(terms(Refusal::kFailed), std::pair(500u, std::string("api_error")));
  EXPECT_EQ(terms(Refusal::kLoading), std::pair(529u, std::string("overloaded_error")));
  EXPECT_EQ(terms(Refusal::kDraining), std::pair(529u, std::string("overloaded_error")));
  EXPECT_EQ(terms(Refusal::kQueueTimeout), std::pair(529u, std::string("overloaded_error")));
}

TEST(Refusals, AnthropicsWordsForAPromptThatIsTooLong) {
  const Response response = refusal_response(Dialect::kAnthropic,
                                             {.refusal = Refusal::kContextExceeded,
                                              .message = "other words",
                                              .prompt_tokens = 140112,
                                              .context_tokens = 131072},
                                             "req_1");
  EXPECT_EQ(response.status, 400u);
  EXPECT_EQ(json::parse(response.body)["error"]["message"], "prompt is too long: 140112 tokens > 131072 maximum");
}

TEST(Refusals, OllamasQueueIsFullWith503) {
  const Response response = refuse_in(Dialect::kOllama, Refusal::kQueueFull);
  EXPECT_EQ(response.status, 503u);
  EXPECT_EQ(json::parse(response.body)["error"], "server busy, please try again. maximum pending requests exceeded");
  EXPECT_EQ(refuse_in(Dialect::kOllama, Refusal::kModelNotFound).status, 404u);
  EXPECT_EQ(refusal_response(Dialect::kOllama, ollama_change_problem("pull"), "").status, 403u);
  EXPECT_EQ(refusal_response(Dialect::kOllama, ollama_embedding_problem(), "").status, 501u);
}

TEST(Refusals, SayWhenToTryAgain) {
  for (const Dialect dialect : kDialects) {
    const auto headers = [&](double seconds) {
      return headers_of(
          refusal_response(dialect, {.refusal = Refusal::kLoading, .message = "m", .retry_after = seconds}, "r"));
    };
    EXPECT_EQ(headers(0.05).at("retry-after"), "1");
    EXPECT_EQ(headers(0.05).at("retry-after-ms"), "50");
    EXPECT_EQ(headers(2.5).at("retry-after"), "3");
    EXPECT_EQ(headers(2.5).at("retry-after-ms"), "2500");
    EXPECT_EQ(headers(-1.0).at("retry-after"), "1");
    EXPECT_EQ(headers(std::nan("")).at("retry-after"), "1");
    EXPECT_EQ(headers(INFINITY).at("retry-after"), "86400");
    EXPECT_FALSE(headers_of(refuse_in(dialect, Refusal::kLoading)).contains("retry-after"));
  }
}

TEST(Refusals, WhatWouldFailAgainIsNotToBeRepeated) {
  for (const Dialect dialect : kDialects) {
    const auto headers = [&](Refusal refusal, bool is_repeatable) {
      return headers_of(
          refusal_response(dialect, {.refusal = refusal, .message = "m", .is_repeatable = is_repeatable}, "r"));
    };
    EXPECT_EQ(headers(Refusal::kFailed, true).at("x-should-retry"), "false");
    EXPECT_FALSE(headers(Refusal::kFailed, false).contains("x-should-retry"));
    EXPECT_EQ(headers(Refusal::kNotSupported, false).at("x-should-retry"), "false");
    EXPECT_FALSE(headers(Refusal::kLoading, true).contains("x-should-retry"));
  }
}

TEST(ModelNames, MeanTheModelByIdAliasAndLatest) {
  const ServerFacts facts{.model_id = "gemma-4-E4B:Q8_0", .aliases = {"small", "chat:latest"}};
  for (const char* name : {"", "gemma-4-E4B:Q8_0", "GEMMA-4-e4b:q8_0", "gemma-4-E4B:Q8_0:latest", "small",
                           "Small:Latest", "chat", "CHAT:latest"}) {
    EXPECT_TRUE(matches_model(name, facts)) << name;
  }
  for (const char* name : {"gpt-4o", "gemma-4-E4B", "smal", "small:", "small:8b", ":latest", "latest"}) {
    EXPECT_FALSE(matches_model(name, facts)) << name;
  }
}

}  // namespace
}  // namespace carat::server
