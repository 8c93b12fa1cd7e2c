// `carat pull`, `carat ls` and -m hf:... as a user meets them: the built program, a cache in a temporary folder, and a
// web server of ours as the Hub.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/carat_process.h"
#include "hub/fake_hub.h"
#include "support/tiny_model.h"

namespace carat::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A variable of the environment that child processes inherit, until the end of the scope.
class ScopedVariable {
 public:
  ScopedVariable(std::string name, const std::optional<std::string>& value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    set(value);
  }
  ~ScopedVariable() { set(before_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  void set(const std::optional<std::string>& value) const {
    if (value) {
      ::setenv(name_.c_str(), value->c_str(), 1);
    } else {
      ::unsetenv(name_.c_str());
    }
  }
  std::string name_;
  std::optional<std::string> before_;
};

class LsCommand : public testing::Test {
 protected:
  LsCommand() {
    tiny_draft(tiny_shape(TinyKind::kE2B)).write(folder.file("tiny.gguf"));
    model = read_text(folder.file("tiny.gguf"));
    server.add_file("tiny-F32.gguf", model);
  }

  fs::path repo() const { return folder.path() / "home/hub/models--maker--tiny-GGUF"; }
  fs::path snapshot() const { return repo() / "snapshots" / FakeHub::kCommit / "tiny-F32.gguf"; }

  // The one unfinished download there is; empty when there is none yet.
  fs::path incomplete() const {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(repo() / "blobs", error)) {
      if (entry.path().extension() == ".incomplete") return entry.path();
    }
    return {};
  }

  TemporaryDirectory folder;
  std::string model;
  FakeHub server;
  ScopedVariable endpoint{"HF_ENDPOINT", server.url()};
  ScopedVariable home{"HF_HOME", folder.file("home")};
  ScopedVariable user{"HOME", folder.file("user")};
  ScopedVariable cache_home{"XDG_CACHE_HOME", std::nullopt};
  ScopedVariable hub_cache{"HF_HUB_CACHE", std::nullopt};
  ScopedVariable old_hub_cache{"HUGGINGFACE_HUB_CACHE", std::nullopt};
  ScopedVariable token{"HF_TOKEN", std::nullopt};
  ScopedVariable old_token{"HUGGING_FACE_HUB_TOKEN", std::nullopt};
  ScopedVariable token_path{"HF_TOKEN_PATH", std::nullopt};
  ScopedVariable offline{"HF_HUB_OFFLINE", std::nullopt};
};

class PullCommand : public LsCommand {
 protected:
  void SetUp() override {
#ifndef CARAT_HAVE_CURL
    GTEST_SKIP() << "skipped: this build has no libcurl";
#endif
  }

  void expect_refused(const std::vector<std::string>& arguments, int exit_code, const std::string& message) {
    const ProcessResult result = run_carat(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("carat: error: "));
    EXPECT_THAT(result.err, HasSubstr(message));
  }
};

TEST_F(PullCommand, WhatWasPulledIsListedAndRuns) {
  const ProcessResult pulled = run_carat({"pull", "hf:maker/tiny-GGUF:f32"});
  ASSERT_EQ(pulled.exit_code, 0) << pulled.err;
  EXPECT_EQ(pulled.out, snapshot().string() + "\n");
  EXPECT_THAT(pulled.err, HasSubstr("the checksum is right"));
  EXPECT_THAT(pulled.err, Not(HasSubstr("\r")));  // no terminal, no rewritten line
  EXPECT_EQ(read_text(snapshot().string()), model);

  const ProcessResult listed = run_carat({"ls", "--json"});
  ASSERT_EQ(listed.exit_code, 0) << listed.err;
  const json inventory = json::parse(listed.out);
  json found;
  for (const json& entry : inventory["models"]) {
    if (entry["name"] == "hf:maker/tiny-GGUF:F32") found = entry;
  }
  EXPECT_EQ(found["path"], snapshot().string());
  EXPECT_EQ(found["bytes"], model.size());
  EXPECT_EQ(found["architecture"], "gemma4");
  EXPECT_EQ(found["format"], "F32");
  EXPECT_TRUE(found["problem"].is_null());

  const size_t requests = server.requests().size();
  const ProcessResult run =
      run_carat({"run", "-m", "hf:maker/tiny-GGUF", "--raw", "-p", "ab", "-n", "2", "--temp", "0", "-t", "1"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(server.requests().size(), requests) << "running a model must not touch the network";

  const ProcessResult again = run_carat({"pull", "maker/tiny-GGUF"});
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.err, HasSubstr("is here already"));
  EXPECT_EQ(server.file_requests().size(), 1u);
}

TEST_F(PullCommand, ADryRunChangesNothing) {
  const ProcessResult result = run_carat({"pull", "maker/tiny-GGUF", "--dry-run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("tiny-F32.gguf"));
  EXPECT_THAT(result.out, HasSubstr(FakeHub::kCommit));
  EXPECT_THAT(result.out, HasSubstr("to download into " + repo().string()));
  EXPECT_FALSE(fs::exists(folder.path() / "home"));
  EXPECT_THAT(server.file_requests(), IsEmpty());
}

TEST_F(PullCommand, CtrlCKeepsWhatCameAndTheNextRunGoesOn) {
  server.change_next_file([](const ServerRequest&, ServerReply reply) {
    reply.piece_bytes = reply.body.size() / 200;
    reply.between_pieces = std::chrono::milliseconds(50);
    return reply;
  });
  CaratProcess process({"pull", "hf:maker/tiny-GGUF"});
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  std::error_code ignored;
  while (incomplete().empty() || fs::file_size(incomplete(), ignored) < 1000) {
    ASSERT_LT(std::chrono::steady_clock::now(), until) << "no byte arrived";
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  process.send(SIGINT);
  const ProcessResult stopped = process.wait();
  EXPECT_EQ(stopped.exit_code, 130);
  EXPECT_THAT(stopped.err, HasSubstr("`carat pull hf:maker/tiny-GGUF` goes on from there"));
  ASSERT_FALSE(incomplete().empty());
  const uint64_t kept = fs::file_size(incomplete());
  EXPECT_GE(kept, 1000u);
  EXPECT_LT(kept, model.size());
  EXPECT_EQ(read_text(incomplete().string()), model.substr(0, kept));
  EXPECT_THAT(run_carat({"ls"}).out, HasSubstr("BROKEN: the download is not finished"));

  const ProcessResult finished = run_carat({"pull", "hf:maker/tiny-GGUF"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_EQ(server.file_requests().back().headers.at("range"), "bytes=" + std::to_string(kept) + "-");
  EXPECT_EQ(read_text(snapshot().string()), model);
}

TEST_F(PullCommand, CtrlCEndsAPauseAtOnce) {
  server.change_next_api(reply_with_status(429, {{"Retry-After", "250"}}));
  CaratProcess process({"pull", "hf:maker/tiny-GGUF"});
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (server.requests().empty()) {
    ASSERT_LT(std::chrono::steady_clock::now(), until);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  process.send(SIGINT);
  EXPECT_EQ(process.wait().exit_code, 130);
  EXPECT_LT(std::chrono::steady_clock::now(), until);
}

TEST_F(PullCommand, FailuresHaveTheirExitCodes) {
  expect_refused({"pull", "maker/missing"}, 1, "HTTP 404");
  expect_refused({"pull", "maker"}, 1, "names no repository");
  expect_refused({"pull", "maker/tiny-GGUF:Q4_K_M"}, 1, "it has F32");
  server.change_next_file([](const ServerRequest&, ServerReply reply) {
    reply.body.back() ^= 1;
    return reply;
  });
  expect_refused({"pull", "maker/tiny-GGUF"}, 3, "SHA-256");
  server.change_next_api(reply_with_status(429, {{"Retry-After", "3600"}}));
  expect_refused({"pull", "maker/tiny-GGUF"}, 2, "come back in 3600 s");
  const ScopedVariable nobody("HF_ENDPOINT", "http://127.0.0.1:1");
  expect_refused({"pull", "maker/tiny-GGUF"}, 2, "cannot be reached");
  const ScopedVariable no_network("HF_HUB_OFFLINE", "1");
  expect_refused({"pull", "maker/tiny-GGUF"}, 1, "HF_HUB_OFFLINE");
}

TEST_F(PullCommand, TheTokenIsUsedAndNeverShown) {
  server.require_token("hf_very_secret");
  expect_refused({"pull", "maker/tiny-GGUF"}, 1, "set HF_TOKEN");
  {
    const ScopedVariable wrong("HF_TOKEN", "hf_quite_wrong");
    const ProcessResult result = run_carat({"pull", "-v", "maker/tiny-GGUF"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("token of HF_TOKEN"));
    EXPECT_THAT(result.err, Not(HasSubstr("quite_wrong")));
  }
  fs::create_directories(folder.path() / "home");
  write_text(folder.file("home/token"), "hf_very_secret\n");
  const ProcessResult result = run_carat({"pull", "-v", "maker/tiny-GGUF"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("very_secret")));
}

TEST_F(PullCommand, SaysThatAModelIsOfAnotherKind) {
  GgufDraft draft = tiny_draft(tiny_shape(TinyKind::kE2B));
  draft.keys["general.architecture"] = "llama";
  draft.write(folder.file("other.gguf"));
  server.add_file("other-Q8_0.gguf", read_text(folder.file("other.gguf")));
  const ProcessResult result = run_carat({"pull", "maker/tiny-GGUF:other-Q8_0"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("is no Gemma 4 model (general.architecture is 'llama')"));
  EXPECT_THAT(run_carat({"ls"}).out, EndsWith("and 1 GGUF file of other kinds\n"));

  server.add_file("noise-Q8_0.gguf", "what the repository has, but no model");
  const ProcessResult noise = run_carat({"pull", "maker/tiny-GGUF:noise-Q8_0"});
  EXPECT_EQ(noise.exit_code, 0) << noise.err;
  EXPECT_THAT(noise.err, HasSubstr("but carat cannot read it"));
}

#ifndef CARAT_HAVE_CURL
TEST_F(LsCommand, WithoutLibcurlPullSaysHowToGetIt) {
  const ProcessResult result = run_carat({"pull", "maker/tiny-GGUF"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, HasSubstr("built without libcurl"));
}
#endif

TEST_F(LsCommand, ShowsATableOfWhatIsHere) {
  const ProcessResult result = run_carat({"ls"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, testing::StartsWith("NAME "));
  EXPECT_THAT(result.out, testing::ContainsRegex("demo-e-q8_0 +16.1 MB  Q8_0 +gemma4 "));
  EXPECT_THAT(result.out, testing::ContainsRegex("demo-e-assistant-q8_0 +3.08 MB  Q8_0 +gemma4-assistant "));
}

TEST_F(LsCommand, NamesWorkAfterMInEveryCommand) {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"info"},
                                                  {"tokenize", "hi"},
                                                  {"kernels", "--gpu", "H200,9.0,132,141"},
                                                  {"plan", "--gpu", "H200,9.0,132,141"},
                                                  {"run", "--raw", "-p", "hi", "-n", "1"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"-m", "demo-moe-q8_0"});
    const ProcessResult result = run_carat(arguments);
    EXPECT_EQ(result.exit_code, 0) << command.front() << ": " << result.err;
  }
}

TEST_F(LsCommand, AModelThatIsNotHereIsNotLookedForInTheNetwork) {
  const ProcessResult result = run_carat({"run", "-m", "hf:maker/tiny-GGUF:F32", "-p", "hi"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr(folder.file("home/hub")));
  EXPECT_THAT(result.err, HasSubstr("`carat pull hf:maker/tiny-GGUF:F32` downloads it"));
  EXPECT_THAT(server.requests(), IsEmpty());
}

}  // namespace
}  // namespace carat::test
