// Bodies of POST /v1/responses: each is refused by name of the field, or its answers are whole and in order. A store of
// responses is filled on the way, so that some requests continue what was kept.
#include "server/api/responses/request.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "fuzz_check.h"
#include "reply_check.h"

namespace {

using carat::fuzz::Course;
using carat::fuzz::Sent;
using nlohmann::json;

// Follows a stream as a client does, which builds the items from the events.
class Client {
 public:
  void take(const Sent& sent) {
    const json& data = sent.data;
    const std::string& type = sent.name;
    FUZZ_CHECK(data["type"] == type && data["sequence_number"] == next_++);
    if (type == "response.created") {
      FUZZ_CHECK(next_ == 1 && data["response"]["output"].empty());
    } else if (type == "response.in_progress") {
      FUZZ_CHECK(next_ == 2);
    } else if (type == "response.output_item.added") {
      FUZZ_CHECK(!is_open_ && data["output_index"] == items_.size());
      is_open_ = true;
      id_ = data["item"]["id"];
      text_.clear();
    } else if (type == "response.output_item.done") {
      FUZZ_CHECK(is_open_ && data["output_index"] == items_.size() && data["item"]["id"] == id_);
      is_open_ = false;
      FUZZ_CHECK(text_of(data["item"]) == text_);
      items_.push_back(data["item"]);
    } else if (type == "response.completed" || type == "response.incomplete") {
      FUZZ_CHECK(!is_open_ && data["response"]["output"] == json(items_) && data["response"]["usage"].is_object());
      is_over_ = true;
    } else if (type == "response.failed") {
      FUZZ_CHECK(data["response"]["error"]["message"].is_string() && data["response"]["output"] == json(items_));
    } else {
      FUZZ_CHECK(is_open_ && data["item_id"] == id_ && data["output_index"] == items_.size());
      if (type.ends_with(".delta")) text_ += data["delta"].get<std::string>();
    }
  }
  bool is_over() const { return is_over_; }

 private:
  static std::string text_of(const json& item) {
    if (item.contains("arguments")) return item["arguments"];
    if (item.contains("input")) return item["input"];
    return item["content"][0]["text"];
  }

  uint64_t next_ = 0;
  bool is_open_ = false, is_over_ = false;
  std::string id_, text_;
  std::vector<json> items_;
};

void check_stream(const std::vector<Sent>& sent, Course course) {
  FUZZ_CHECK(sent.size() >= 3);
  Client client;
  for (const Sent& one : sent) client.take(one);
  FUZZ_CHECK(client.is_over() == (course == Course::kEnded));
  FUZZ_CHECK((sent.back().name == "response.failed") == (course != Course::kEnded));
}

void check_whole(const json& body) {
  FUZZ_CHECK(body["object"] == "response" && body["output"].is_array() && body["usage"].is_object());
  FUZZ_CHECK(body["status"] == "completed" || body["status"] == "incomplete");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace carat::server;
  const auto store = std::make_shared<ResponseStore>(2, 4096);
  carat::fuzz::check_dialect(
      std::string_view(reinterpret_cast<const char*>(data), size),
      {[&](std::string_view body) { return read_openai_responses(body, store); }, check_stream, check_whole});
  FUZZ_CHECK(store->size() <= 2 && store->bytes() <= 4096);
  return 0;
}
