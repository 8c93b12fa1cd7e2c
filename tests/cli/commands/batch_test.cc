#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "cli/carat_process.h"

namespace carat::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int kLines = 60;

std::vector<json> lines_of(const std::string& path) {
  std::vector<json> lines;
  std::istringstream text(read_text(path));
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
  return lines;
}

json request(const std::string& custom_id, const std::string& url, const json& body) {
  return {{"custom_id", custom_id}, {"method", "POST"}, {"url", url}, {"body", body}};
}

// Chats, completions and responses of different lengths, with a line that fails here and there.
std::string some_lines() {
  std::string text;
  for (int i = 0; i < kLines; ++i) {
    const std::string id = "line-" + std::to_string(i), question = "What is nginx? (" + std::to_string(i % 7) + ")";
    const int tokens = 3 + 7 * (i % 5);
    json line;
    if (i % 3 == 0) {
      line = request(id, "/v1/chat/completions",
                     {{"messages", {{{"role", "user"}, {"content", question}}}}, {"max_tokens", tokens}});
    } else if (i % 3 == 1) {
      line = request(id, "/v1/completions", {{"prompt", question}, {"max_tokens", tokens}});
    } else {
      line = request(id, "/v1/responses", {{"input", question}, {"max_output_tokens", tokens + 16}});
    }
    if (i % 10 == 4) line["body"]["temperature"] = "warm";
    if (i % 20 == 7) line["url"] = "/v1/embeddings";
    text += line.dump() + "\n";
  }
  return text;
}

template <typename Condition>
void wait_until(Condition condition) {
  for (int i = 0; i < 3000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

class BatchCommand : public testing::Test {
 protected:
  std::vector<std::string> command(const std::vector<std::string>& flags = {}) const {
    std::vector<std::string> all = {"batch", in_,   out_,  "--device", "cpu",    "-t", "1",
                                    "-c",    "256", "-np", "4",        "--temp", "0"};
    all.insert(all.end(), flags.begin(), flags.end());
    return all;
  }

  TemporaryDirectory folder_;
  const std::string in_ = folder_.file("in.jsonl"), out_ = folder_.file("out.jsonl"),
                    errors_ = folder_.file("out.errors.jsonl");
};

// What a client reads of an answer, without what differs from run to run.
std::string text_of(const json& line) {
  const json& body = line["response"]["body"];
  if (body.contains("output")) return body["output"].back()["content"][0]["text"];
  const json& choice = body["choices"][0];
  return choice.contains("text") ? choice["text"] : choice["message"]["content"];
}

TEST_F(BatchCommand, AnswersComeInTheInputsOrderAndFailuresInAFileOfTheirOwn) {
  write_text(in_, some_lines());
  const ProcessResult result = run_carat(command());
  EXPECT_EQ(result.exit_code, 15) << result.err;
  EXPECT_THAT(result.err, HasSubstr("carat: 60 lines: 51 answered: " + out_ + ", 9 failed: " + errors_));
  EXPECT_EQ(result.out, "");
  int number = 0;
  for (const json& line : lines_of(out_)) {
    const int i = std::stoi(line["custom_id"].get<std::string>().substr(5));
    EXPECT_EQ(line["id"], "batch_req_" + std::to_string(i + 1));
    EXPECT_GT(i + 1, number);
    number = i + 1;
    EXPECT_EQ(line["response"]["status_code"], 200);
    EXPECT_TRUE(line["error"].is_null());
    EXPECT_EQ(line["response"]["body"]["object"], i % 3 == 0   ? "chat.completion"
                                                  : i % 3 == 1 ? "text_completion"
                                                               : "response");
    EXPECT_FALSE(text_of(line).empty());
  }
  const auto failed = lines_of(errors_);
  ASSERT_EQ(failed.size(), 9u);
  EXPECT_EQ(failed[0]["custom_id"], "line-4");  // refused by the API
  EXPECT_EQ(failed[0]["response"]["status_code"], 400);
  EXPECT_EQ(failed[0]["response"]["body"]["error"]["param"], "temperature");
  EXPECT_TRUE(failed[0]["error"].is_null());
  EXPECT_EQ(failed[1]["custom_id"], "line-7");  // never asked
  EXPECT_TRUE(failed[1]["response"].is_null());
  EXPECT_EQ(failed[1]["error"]["code"], "invalid_url");

  // Once more: there is nothing to do, and nothing is done.
  const auto written = fs::last_write_time(out_);
  const ProcessResult again = run_carat(command());
  EXPECT_EQ(again.exit_code, 15);
  EXPECT_THAT(again.err, HasSubstr("nothing to do"));
  EXPECT_EQ(fs::last_write_time(out_), written);
}

TEST_F(BatchCommand, KilledAtAnyMomentItLosesAndRepeatsNothing) {
  write_text(in_, some_lines());
  const ProcessResult first = run_carat(command());
  ASSERT_EQ(first.exit_code, 15) << first.err;
  const auto whole = lines_of(out_), whole_failed = lines_of(errors_);
  fs::remove(out_);
  fs::remove(errors_);
  std::mt19937 random(std::random_device{}());
  const auto written = [this] {
    std::error_code none;
    const auto bytes = fs::file_size(out_ + ".partial", none);
    return none ? 0 : bytes;
  };
  size_t kills = 0, kills_with_work = 0;
  while (!fs::exists(out_)) {
    const size_t kept = written();
    CaratProcess process(command());
    // Every other one while it works, the rest at any time; after enough of them it may come to its end.
    if (kills < 12) {
      if (kills % 2 == 0) wait_until([&] { return written() > kept + 300 || fs::exists(out_); });
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % (kills % 2 == 0 ? 20 : 200)));
      process.send(SIGKILL);
      ++kills;
    }
    const ProcessResult result = process.wait();
    ASSERT_TRUE(result.exit_code == 15 || result.exit_code == -SIGKILL) << result.exit_code << result.err;
    kills_with_work += written() > kept ? 1 : 0;
  }
  EXPECT_GE(kills_with_work, 3u);
  EXPECT_EQ(run_carat(command()).exit_code, 15);  // it may have been killed before it tidied up
  const auto lines = lines_of(out_);
  ASSERT_EQ(lines.size(), whole.size()) << "after " << kills << " kills";
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["id"], whole[i]["id"]);
    EXPECT_EQ(lines[i]["custom_id"], whole[i]["custom_id"]);
    EXPECT_EQ(text_of(lines[i]), text_of(whole[i])) << lines[i]["custom_id"];
  }
  EXPECT_EQ(lines_of(errors_), whole_failed);
  EXPECT_FALSE(fs::exists(out_ + ".partial"));
}

TEST_F(BatchCommand, ASignalStopsItAndTheSameCommandGoesOn) {
  std::string text;
  for (int i = 0; i < 120; ++i) {
    text += request(std::to_string(i), "/v1/completions",
                    {{"prompt", "nginx is"}, {"max_tokens", 40}, {"ignore_eos", true}})
                .dump() +
            "\n";
  }
  write_text(in_, text);
  {
    CaratProcess process(command());
    wait_until([&] { return fs::exists(out_ + ".partial") && fs::file_size(out_ + ".partial") > 3000; });
    process.send(SIGTERM);
    const ProcessResult result = process.wait();
    EXPECT_EQ(result.exit_code, 130);
    EXPECT_THAT(result.err, HasSubstr("of 120 lines; the same command goes on from there"));
  }
  EXPECT_FALSE(fs::exists(out_));
  EXPECT_EQ(run_carat(command()).exit_code, 0);
  EXPECT_EQ(lines_of(out_).size(), 120u);
  EXPECT_FALSE(fs::exists(errors_));
}

TEST_F(BatchCommand, ShardsAfterOneAnotherAreTheWhole) {
  write_text(in_, some_lines());
  run_carat(command());
  std::vector<json> joined;
  for (const char* shard : {"1/3", "2/3", "3/3"}) {
    std::vector<std::string> part = command({"--shard", shard});
    part[2] = folder_.file(std::string("part-") + shard[0] + ".jsonl");
    run_carat(part);
    for (const json& line : lines_of(part[2])) joined.push_back(line);
  }
  const auto whole = lines_of(out_);
  ASSERT_EQ(joined.size(), whole.size());
  for (size_t i = 0; i < joined.size(); ++i) {
    EXPECT_EQ(joined[i]["id"], whole[i]["id"]);
    EXPECT_EQ(text_of(joined[i]), text_of(whole[i]));
  }
}

TEST_F(BatchCommand, WrongNamesAreFoundBeforeAnythingIsDone) {
  write_text(in_, some_lines());
  const auto says = [](std::vector<std::string> flags, int exit_code, const std::string& text) {
    flags.insert(flags.begin(), "batch");
    const ProcessResult result = run_carat(flags);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(text));
  };
  says({folder_.file("none"), out_}, 2, "none");
  says({in_, in_}, 1, "a file of its own");
  says({in_, out_, "--shard", "0/3"}, 1, "--shard 0/3");
  says({in_, out_, "--errors", out_}, 1, "--errors");
  says({in_, folder_.file("no/where")}, 2, "no/where.partial");
  write_text(out_, "something");
  says({in_, out_}, 1, "is there already");
}

}  // namespace
}  // namespace carat::test
