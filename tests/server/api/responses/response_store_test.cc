// Responses that are kept, and requests that continue them.
#include "server/api/responses/response_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api/reply_driver.h"
#include "server/api/responses/request.h"

namespace carat::server {
namespace {

using namespace test;
using nlohmann::json;

class StoredResponses : public testing::Test {
 protected:
  ParsedRequest read(const std::string& body) { return read_openai_responses(body, store_); }
  json answer(const std::string& body, const std::string& id, const std::string& text) {
    return whole(read(body), {Started{}, ThoughtText{0, "t"}, AnswerText{.text = text}, ChoiceEnded{}, Ended{}}, id);
  }

  std::shared_ptr<ResponseStore> store_ = std::make_shared<ResponseStore>(2, 10000);
};

TEST_F(StoredResponses, AreContinuedByTheirId) {
  EXPECT_EQ(answer(R"({"input":"My name is Ada.","instructions":"Old."})", "resp_1", "Hello Ada.")["store"], true);
  const json second = answer(R"({"input":"Who am I?","previous_response_id":"resp_1"})", "resp_2", "Ada.");
  EXPECT_EQ(second["previous_response_id"], "resp_1");
  const GenerationRequest third =
      read(R"({"input":"Sure?","previous_response_id":"resp_2","instructions":"New."})").generation;
  std::vector<std::string> texts;
  for (const text::Message& message : third.conversation->messages) texts.push_back(message.content.joined());
  EXPECT_THAT(texts, testing::ElementsAre("New.", "My name is Ada.", "Hello Ada.", "Who am I?", "Ada.", "Sure?"))
      << "instructions belong to one response alone";
  EXPECT_EQ(third.conversation->messages[2].reasoning, "t");
}

TEST_F(StoredResponses, AreForgottenOldestFirst) {
  answer(R"({"input":"a"})", "resp_1", "x");
  answer(R"({"input":"b"})", "resp_2", "x");
  answer(R"({"input":"c"})", "resp_3", "x");
  const auto read_with = [&](const std::string& body) { read(body); };
  const Problem gone = problem_of(read_with, R"({"input":"q","previous_response_id":"resp_1"})");
  EXPECT_EQ(gone.refusal, Refusal::kNotFound);
  EXPECT_EQ(gone.code, "previous_response_not_found");
  EXPECT_EQ(gone.param, "previous_response_id");
  EXPECT_NO_THROW(read(R"({"input":"q","previous_response_id":"resp_2"})"));
  EXPECT_NO_THROW(read(R"({"input":"q","previous_response_id":"resp_3"})"));
}

TEST_F(StoredResponses, AreNotKeptWhereTheClientSaysSo) {
  EXPECT_EQ(answer(R"({"input":"a","store":false})", "resp_1", "x")["store"], false);
  EXPECT_EQ(store_->size(), 0u);
}

TEST_F(StoredResponses, FailedOnesAreNotKept) {
  const Response response =
      answered(read(R"({"input":"a"})"),
               {Started{}, AnswerText{.text = "x"}, Failed{{.refusal = Refusal::kFailed, .message = "no"}}});
  EXPECT_EQ(response.status, 500u);
  EXPECT_EQ(store_->size(), 0u);
}

TEST_F(StoredResponses, ItemsAreFoundByReference) {
  const json first = answer(R"({"input":"a"})", "resp_1", "the answer");
  const std::string id = first["output"][1]["id"];
  const GenerationRequest request = read(R"({"input":[{"role":"user","content":"a"},{"type":"item_reference","id":")" +
                                         id + R"("},{"role":"user","content":"b"}]})")
                                        .generation;
  ASSERT_EQ(request.conversation->messages.size(), 3u);
  EXPECT_EQ(request.conversation->messages[1].content.joined(), "the answer");
  EXPECT_TRUE(request.notes.empty());
}

TEST(ResponseStore, IsBoundedByBytes) {
  ResponseStore store(100, 1000);
  const auto item = [](const std::string& id, size_t size) {
    text::ValueMap map;
    map.set(text::MarkedText("id", false), text::Value::string(id, false));
    map.set(text::MarkedText("text", false), text::Value::string(std::string(size, 'x'), false));
    return ResponseStore::Items{text::Value::map(std::move(map))};
  };
  store.put("a", item("i_a", 400), 1);
  store.put("b", item("i_b", 400), 1);
  EXPECT_EQ(store.size(), 2u);
  EXPECT_TRUE(store.find_item("i_a").has_value());
  store.put("c", item("i_c", 400), 1);
  EXPECT_EQ(store.size(), 2u);
  EXPECT_LE(store.bytes(), 1000u);
  EXPECT_FALSE(store.find("a").has_value());
  EXPECT_FALSE(store.find_item("i_a").has_value());
  EXPECT_TRUE(store.find("c").has_value());
  store.put("huge", item("i_h", 2000), 1);
  EXPECT_FALSE(store.find("huge").has_value());
  EXPECT_EQ(store.size(), 2u) << "what does not fit alone pushes nothing out";
  ResponseStore none(0, 1000);
  none.put("a", item("i_a", 4), 1);
  EXPECT_EQ(none.size(), 0u);
}

}  // namespace
}  // namespace carat::server
