// Bodies of POST /v1/completions: each is refused by name of the field, or its answers are whole and in order.
#include <cstdint>
#include <string_view>

#include "fuzz_check.h"
#include "reply_check.h"
#include "server/api/openai/completions.h"

namespace {

using carat::fuzz::Course;
using carat::fuzz::Sent;

void check_stream(const std::vector<Sent>& sent, Course course) {
  FUZZ_CHECK(!sent.empty());
  FUZZ_CHECK((sent.back().data == "[DONE]") == (course == Course::kEnded));
  FUZZ_CHECK(sent.back().data.contains("error") == (course != Course::kEnded));
  for (size_t i = 0; i + 1 < sent.size(); ++i) {
    FUZZ_CHECK(sent[i].data["object"] == "text_completion" && sent[i].data["choices"].is_array());
    FUZZ_CHECK(!sent[i].data.contains("usage") || i + 2 == sent.size());
  }
}

void check_whole(const nlohmann::json& body) {
  FUZZ_CHECK(body["object"] == "text_completion" && !body["choices"].empty() && body["usage"].is_object());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  carat::fuzz::check_dialect(std::string_view(reinterpret_cast<const char*>(data), size),
                             {carat::server::read_openai_completions, check_stream, check_whole});
  return 0;
}
