#include "serve/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "base/error.h"
#include "support/files.h"

namespace carat::serve_bench {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

size_t words_in(const std::string& text) {
  return text.empty() ? 0 : static_cast<size_t>(std::count(text.begin(), text.end(), ' ')) + 1;
}

TEST(Workload, IsTheSameForTheSameSeed) {
  const DatasetOptions options{.num_prompts = 3, .input_len = 50, .output_len = 20, .range_ratio = 0.5};
  DatasetOptions other = options;
  other.seed = 7;
  const Workload one = make_workload(options, 0), two = make_workload(options, 0), three = make_workload(other, 0);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(one.sessions[i].turns[0].content, two.sessions[i].turns[0].content);
    EXPECT_NE(one.sessions[i].turns[0].content, three.sessions[i].turns[0].content);
    EXPECT_EQ(one.sessions[i].name, two.sessions[i].name);
    EXPECT_NE(one.sessions[i].name, three.sessions[i].name);
  }
}

TEST(Workload, RandomLengthsStayInTheirRange) {
  const Workload workload =
      make_workload({.num_prompts = 500, .input_len = 100, .output_len = 10, .range_ratio = 0.2, .prefix_len = 7}, 0);
  ASSERT_EQ(workload.requests(), 500u);
  std::set<uint32_t> inputs;
  const std::string first = workload.sessions[0].turns[0].content;
  for (const Session& session : workload.sessions) {
    const Turn& turn = session.turns.at(0);
    inputs.insert(turn.input_tokens);
    EXPECT_EQ(words_in(turn.content), turn.input_tokens);
    EXPECT_GE(turn.output_tokens, 8u);
    EXPECT_LE(turn.output_tokens, 12u);
    EXPECT_THAT(turn.content, StartsWith(first.substr(0, 20))) << "the shared prefix";
  }
  EXPECT_EQ(*inputs.begin(), 87u);
  EXPECT_EQ(*inputs.rbegin(), 127u);
}

TEST(Workload, LogNormalLengthsHaveTheirMean) {
  const Workload workload = make_workload({.num_prompts = 4000, .input_len = 200, .lengths = Lengths::kLogNormal}, 0);
  double sum = 0;
  uint32_t most = 0;
  for (const Session& session : workload.sessions) {
    sum += session.turns[0].input_tokens;
    most = std::max(most, session.turns[0].input_tokens);
  }
  EXPECT_NEAR(sum / 4000, 200, 12) << "of 4000 draws, the mean is within 200 +- 3";
  EXPECT_GT(most, 600u);
}

TEST(Workload, TokenIdsAreExactAndOfTheVocabulary) {
  const Workload workload =
      make_workload({.num_prompts = 10, .token_ids = true, .input_len = 30, .prefix_len = 4}, 1000);
  for (const Session& session : workload.sessions) {
    const std::string& ids = session.turns[0].content;
    EXPECT_EQ(std::count(ids.begin(), ids.end(), ','), 33);
    for (size_t at = 0; at != std::string::npos + 1 && at < ids.size(); at = ids.find(',', at) + 1) {
      EXPECT_LT(std::stoi(ids.substr(at)), 1000);
      if (ids.find(',', at) == std::string::npos) break;
    }
  }
  EXPECT_THROW(make_workload({.token_ids = true}, 0), Error) << "the server did not say how many there are";
}

TEST(Workload, PrefixesRepeat) {
  const Workload workload = make_workload({.dataset = Dataset::kPrefixRepetition,
                                           .num_prompts = 20,
                                           .num_prefixes = 4,
                                           .repeated_prefix_len = 30,
                                           .suffix_len = 10},
                                          0);
  std::set<std::string> prefixes, all;
  for (const Session& session : workload.sessions) {
    const std::string& text = session.turns[0].content;
    EXPECT_EQ(words_in(text), 40u);
    prefixes.insert(text.substr(0, 60));
    all.insert(text);
  }
  EXPECT_EQ(prefixes.size(), 4u);
  EXPECT_EQ(all.size(), 20u);
}

TEST(Workload, ConversationsShareTheirInstructions) {
  const Workload workload = make_workload({.dataset = Dataset::kSharedPrefix,
                                           .num_sessions = 6,
                                           .turns = 3,
                                           .system_prompts = 2,
                                           .system_len = 25,
                                           .first_len = 9,
                                           .turn_len = 5,
                                           .turn_output_len = 11},
                                          0);
  EXPECT_EQ(workload.requests(), 18u);
  EXPECT_FALSE(workload.in_rounds);
  EXPECT_EQ(workload.sessions[0].system, workload.sessions[2].system);
  EXPECT_NE(workload.sessions[0].system, workload.sessions[1].system);
  EXPECT_EQ(words_in(workload.sessions[5].turns[0].content), 9u);
  EXPECT_EQ(words_in(workload.sessions[5].turns[2].content), 5u);
  EXPECT_EQ(workload.sessions[5].turns[2].output_tokens, 11u);
}

TEST(Workload, ArrivalsHaveTheirRate) {
  Workload workload = make_workload({.num_prompts = 400, .input_len = 1}, 0);
  set_arrivals({.request_rate = 10.0, .burstiness = 0.5}, 3, workload);
  EXPECT_NEAR(workload.sessions.back().start_seconds, 40.0, 1e-9);
  for (size_t i = 1; i < 400; ++i) {
    EXPECT_GE(workload.sessions[i].start_seconds, workload.sessions[i - 1].start_seconds);
  }
  Workload at_once = make_workload({.num_prompts = 5, .input_len = 1}, 0);
  set_arrivals({}, 3, at_once);
  EXPECT_EQ(at_once.sessions.back().start_seconds, 0.0);
}

TEST(Workload, TheIntruderComesLater) {
  const Workload workload = make_workload(
      {.dataset = Dataset::kIntruder, .input_len = 3, .num_sessions = 4, .intruder_len = 90, .intruder_delay = 1.5}, 0);
  ASSERT_EQ(workload.sessions.size(), 5u);
  EXPECT_TRUE(workload.sessions[4].is_intruder);
  EXPECT_EQ(workload.sessions[4].start_seconds, 1.5);
  EXPECT_EQ(words_in(workload.sessions[4].turns[0].content), 90u);
}

class WorkloadFileTest : public testing::Test {
 protected:
  Workload read(const std::string& text) {
    std::ofstream(path_) << text;
    return make_workload({.dataset = Dataset::kCustom, .path = path_, .output_len = 99}, 0);
  }
  carat::test::TemporaryDirectory folder_;
  const std::string path_ = (folder_.path() / "prompts.jsonl").string();
};

TEST_F(WorkloadFileTest, HasPromptsAndMessages) {
  const Workload workload = read(
      "{\"prompt\":\"say \\\"hi\\\"\"}\n\n{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":5}\n");
  ASSERT_EQ(workload.sessions.size(), 2u);
  EXPECT_EQ(workload.sessions[0].turns[0].content, "say \\\"hi\\\"");
  EXPECT_EQ(workload.sessions[0].turns[0].output_tokens, 99u);
  EXPECT_EQ(workload.sessions[1].turns[0].messages, "{\"content\":\"x\",\"role\":\"user\"}");
  EXPECT_EQ(workload.sessions[1].turns[0].output_tokens, 5u);
}

TEST_F(WorkloadFileTest, MistakesNameTheirLine) {
  for (const char* line :
       {"nonsense", "[]", "{}", "{\"prompt\":3}", "{\"messages\":[]}", "{\"prompt\":\"\",\"max_tokens\":0}"}) {
    try {
      read(std::string("{\"prompt\":\"a\"}\n") + line + "\n");
      FAIL() << line;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("line 2"));
    }
  }
  EXPECT_THROW(read(""), Error);
  EXPECT_THROW(make_workload({.dataset = Dataset::kCustom, .path = "/nowhere"}, 0), Error);
}

}  // namespace
}  // namespace carat::serve_bench
