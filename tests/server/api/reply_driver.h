#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/api/dialect.h"

namespace carat::server::test {

// Readers of requests and writers of answers, driven without a server.

inline const ServerFacts kFacts{.model_id = "demo", .aliases = {"gemma"}, .fingerprint = "carat-1", .context = 4096};

// The problem a body is refused with.
template <typename Read>
Problem problem_of(const Read& read, const std::string& body) {
  try {
    read(body);
  } catch (const ApiError& error) {
    return error.problem();
  }
  ADD_FAILURE() << "accepted: " << body;
  return {};
}

// One server-sent event.
struct Sent {
  std::string name;
  nlohmann::json data;  // "[DONE]" as a string
};

inline std::vector<Sent> events_of(const std::string& bytes) {
  std::vector<Sent> events;
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t end = bytes.find("\n\n", at);
    if (end == std::string::npos) {
      ADD_FAILURE() << "an unfinished event: " << bytes.substr(at);
      break;
    }
    std::string event = bytes.substr(at, end - at);
    at = end + 2;
    Sent sent;
    if (event.rfind("event: ", 0) == 0) {
      const size_t line = event.find('\n');
      sent.name = event.substr(7, line - 7);
      event = event.substr(line + 1);
    }
    EXPECT_EQ(event.rfind("data: ", 0), 0u) << event;
    const std::string data = event.substr(6);
    sent.data = data == "[DONE]" ? nlohmann::json(data) : nlohmann::json::parse(data);
    events.push_back(std::move(sent));
  }
  return events;
}

inline std::string bytes_of(const ParsedRequest& request, const std::vector<Event>& events, const std::string& id) {
  const auto reply = request.make_reply(kFacts, {.id = id, .created = 7.0});
  EXPECT_TRUE(reply->is_streamed());
  std::string out;
  for (const Event& event : events) reply->on(event, out);
  return out;
}

inline std::vector<Sent> streamed(const ParsedRequest& request, const std::vector<Event>& events,
                                  const std::string& id = "id_1") {
  return events_of(bytes_of(request, events, id));
}

inline Response answered(const ParsedRequest& request, const std::vector<Event>& events,
                         const std::string& id = "id_1") {
  const auto reply = request.make_reply(kFacts, {.id = id, .created = 7.0});
  EXPECT_FALSE(reply->is_streamed());
  std::string out;
  for (const Event& event : events) reply->on(event, out);
  EXPECT_EQ(out, "");
  return reply->response();
}

inline nlohmann::json whole(const ParsedRequest& request, const std::vector<Event>& events,
                            const std::string& id = "id_1") {
  const Response response = answered(request, events, id);
  EXPECT_EQ(response.status, 200u);
  return nlohmann::json::parse(response.body);
}

inline ChosenLogprob logprob(std::string bytes, double value, std::vector<TokenLogprob> top = {}) {
  ChosenLogprob chosen;
  chosen.token = 5;
  chosen.bytes = std::move(bytes);
  chosen.logprob = value;
  chosen.top = std::move(top);
  return chosen;
}

}  // namespace carat::server::test
