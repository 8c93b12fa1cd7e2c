// Downloads that go wrong, and what is left of them.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>

#include "hub/pull_fixture.h"

namespace carat::test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using PullTrouble = PullTest;

std::string range_of(const ServerRequest& request) {
  const auto found = request.headers.find("range");
  return found == request.headers.end() ? "" : found->second;
}

TEST_F(PullTrouble, ALostConnectionIsContinued) {
  hub_server.change_next_file(cut_after(100'000));
  hub_server.change_next_file(cut_after(50'000));
  pull();
  EXPECT_EQ(read_text(snapshot().string()), content);
  const auto requests = hub_server.file_requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(range_of(requests[0]), "");
  EXPECT_EQ(range_of(requests[1]), "bytes=100000-");
  EXPECT_EQ(requests[1].headers.at("if-range"), "\"" + blob(content).filename().string() + "\"");
  EXPECT_EQ(range_of(requests[2]), "bytes=150000-");
  EXPECT_THAT(pauses, ElementsAre(1, 1));  // each brought something new
  EXPECT_THAT(log.str(), HasSubstr("was lost"));
}

TEST_F(PullTrouble, TriesWithoutProgressEndAndKeepWhatCame) {
  hub_server.change_next_file(cut_after(100'000));
  for (int i = 0; i < 10; ++i) hub_server.change_next_file(cut_after(0));
  const RaisedError error = failed_pull();
  EXPECT_EQ(error.code, ErrorCode::kIo);
  EXPECT_THAT(error.message, HasSubstr("given up after 6 tries"));
  EXPECT_THAT(pauses, ElementsAre(1, 2, 4, 8, 16));
  EXPECT_EQ(read_text(incomplete(content).string()), content.substr(0, 100'000));
  EXPECT_FALSE(fs::exists(fs::symlink_status(snapshot())));
}

// A server that always begins again and always breaks off at the same place must not keep us busy for ever.
TEST_F(PullTrouble, TheSameBytesAgainAreNoProgress) {
  for (int i = 0; i < 10; ++i) {
    hub_server.change_next_file([this](const ServerRequest&, ServerReply) {
      return ServerReply{.status = 200, .headers = {}, .body = content, .cut_after = 1000};
    });
  }
  EXPECT_THAT(failed_pull().message, HasSubstr("given up after 6 tries"));
  EXPECT_EQ(hub_server.file_requests().size(), 6u);
}

TEST_F(PullTrouble, AnEarlierRunIsContinued) {
  leave_incomplete(content, content.substr(0, 123'456));
  EXPECT_EQ(plan().files.front().here_bytes, 123'456u);
  EXPECT_EQ(plan().missing_bytes(), content.size() - 123'456);
  pull();
  EXPECT_EQ(read_text(snapshot().string()), content);
  ASSERT_EQ(hub_server.file_requests().size(), 1u);
  EXPECT_EQ(range_of(hub_server.file_requests()[0]), "bytes=123456-");
  EXPECT_EQ(progress.front().stage, hub::DownloadProgress::Stage::kChecking);
}

TEST_F(PullTrouble, ACompleteButUncheckedFileNeedsNoRequest) {
  leave_incomplete(content, content);
  pull();
  EXPECT_THAT(hub_server.file_requests(), IsEmpty());
  EXPECT_EQ(read_text(snapshot().string()), content);
}

TEST_F(PullTrouble, WrongLeftoversAreReplaced) {
  leave_incomplete(content, std::string(200'000, 'x'));
  pull();
  EXPECT_EQ(read_text(snapshot().string()), content);
  EXPECT_THAT(log.str(), HasSubstr("does not fit the rest"));
  leave_incomplete("other", "longer than other");
  hub_server.add_file("tiny-BF16.gguf", "other");
  pull("BF16");
  EXPECT_EQ(read_text(snapshot("tiny-BF16.gguf").string()), "other");
}

TEST_F(PullTrouble, AServerThatIgnoresRangesBeginsAgain) {
  leave_incomplete(content, content.substr(0, 100'000));
  hub_server.change_next_file(
      [this](const ServerRequest&, ServerReply) { return ServerReply{.status = 200, .headers = {}, .body = content}; });
  pull();
  EXPECT_EQ(read_text(snapshot().string()), content);
  EXPECT_THAT(log.str(), HasSubstr("from the start again"));
}

TEST_F(PullTrouble, ARangeThatWasNotAskedForIsRefused) {
  leave_incomplete(content, content.substr(0, 100'000));
  for (const std::string range :
       {"bytes 0-299999/300000", "bytes 100000-299999/300001", "bytes 100000-299999/*", "none"}) {
    hub_server.change_next_file([range](const ServerRequest&, ServerReply reply) {
      reply.headers = {{"Content-Range", range}};
      return reply;
    });
    const RaisedError error = failed_pull();
    EXPECT_EQ(error.code, ErrorCode::kBadFile);
    EXPECT_THAT(error.message, HasSubstr(range));
    EXPECT_EQ(fs::file_size(incomplete(content)), 100'000u);
  }
}

TEST_F(PullTrouble, AWrongSizeIsRefused) {
  for (const size_t size : {content.size() - 1, content.size() + 1}) {
    hub_server.change_next_file([size](const ServerRequest&, ServerReply reply) {
      reply.body.resize(size);
      return reply;
    });
    const RaisedError error = failed_pull();
    EXPECT_EQ(error.code, ErrorCode::kBadFile);
    EXPECT_THAT(error.message, HasSubstr("but its listing says 300000"));
  }
  // The same without a length in front.
  hub_server.change_next_file([](const ServerRequest&, ServerReply reply) {
    reply.body += "more";
    reply.send_length = false;
    return reply;
  });
  EXPECT_THAT(failed_pull().message, HasSubstr("sends more than the 300000 bytes"));
  EXPECT_FALSE(fs::exists(fs::symlink_status(snapshot())));
}

TEST_F(PullTrouble, AWrongSizeDoesNotCostWhatIsHere) {
  leave_incomplete(content, content.substr(0, 100'000));
  hub_server.change_next_file([](const ServerRequest&, ServerReply) {
    return ServerReply{.status = 200, .headers = {}, .body = "an error page"};
  });
  EXPECT_EQ(failed_pull().code, ErrorCode::kBadFile);
  EXPECT_EQ(read_text(incomplete(content).string()), content.substr(0, 100'000));
}

TEST_F(PullTrouble, AServerWithFewerBytesIsRefused) {
  hub_server.change_next_file(cut_after(1000));
  hub_server.change_next_file(reply_with_status(416));
  const RaisedError error = failed_pull();
  EXPECT_EQ(error.code, ErrorCode::kBadFile);
  EXPECT_THAT(error.message, HasSubstr("no more than 1000 bytes"));
}

TEST_F(PullTrouble, AWrongChecksumLeavesNothing) {
  hub_server.change_next_file([](const ServerRequest&, ServerReply reply) {
    reply.body[1234] ^= 1;
    return reply;
  });
  const RaisedError error = failed_pull();
  EXPECT_EQ(error.code, ErrorCode::kBadFile);
  EXPECT_THAT(error.message, HasSubstr("SHA-256"));
  EXPECT_FALSE(fs::exists(incomplete(content)));
  EXPECT_FALSE(fs::exists(blob(content)));
  EXPECT_FALSE(fs::exists(fs::symlink_status(snapshot())));
  EXPECT_FALSE(fs::exists(repo() / "refs" / "main"));
  pull();
  EXPECT_EQ(read_text(snapshot().string()), content);
}

TEST_F(PullTrouble, PassingTroubleIsWaitedOut) {
  hub_server.change_next_api(reply_with_status(500));
  hub_server.change_next_file(reply_with_status(429, {{"Retry-After", "7"}}));
  hub_server.change_next_file(reply_with_status(503));
  pull();
  EXPECT_EQ(read_text(snapshot().string()), content);
  EXPECT_THAT(pauses, ElementsAre(1, 7, 2));
  EXPECT_THAT(log.str(), HasSubstr("HTTP 429 (too many requests); trying again in 7 s"));
}

TEST_F(PullTrouble, ErrorsThatStayAreSaid) {
  token = "hf_wrong_secret";
  hub_server.require_token("hf_right");
  const RaisedError refused = failed_pull();
  EXPECT_EQ(refused.code, ErrorCode::kBadArgument);
  EXPECT_THAT(refused.message, HasSubstr("HTTP 401"));
  EXPECT_THAT(refused.message, HasSubstr("maker/tiny-GGUF with the token of HF_TOKEN"));
  EXPECT_THAT(refused.message, Not(HasSubstr("secret")));
  EXPECT_THAT(log.str(), Not(HasSubstr("secret")));
  hub_server.require_token("");
  hub_server.change_next_file(reply_with_status(404));
  EXPECT_THAT(failed_pull().message, HasSubstr("has no file tiny-Q8_0.gguf in maker/tiny-GGUF (HTTP 404)"));
  EXPECT_THAT(pauses, IsEmpty());
}

TEST_F(PullTrouble, AStopKeepsWhatCame) {
  hub_server.change_next_file([](const ServerRequest&, ServerReply reply) {
    reply.piece_bytes = 10'000;
    reply.between_pieces = std::chrono::milliseconds(2);
    return reply;
  });
  on_step = [this](const hub::DownloadProgress& step) {
    if (step.done >= 100'000) cancelled.store(true);
  };
  EXPECT_EQ(failed_pull().code, ErrorCode::kInterrupted);
  const uint64_t kept = fs::file_size(incomplete(content));
  EXPECT_GE(kept, 100'000u);
  EXPECT_LT(kept, content.size());
  cancelled.store(false);
  on_step = nullptr;
  pull();
  EXPECT_EQ(read_text(snapshot().string()), content);
  EXPECT_EQ(range_of(hub_server.file_requests().back()), "bytes=" + std::to_string(kept) + "-");
}

// A limit on the size of files stands in for a full disk; both fail in the same call.
TEST_F(PullTrouble, AWriteThatFailsKeepsWhatIsWritten) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{150'000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const RaisedError error = failed_pull();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(error.code, ErrorCode::kIo);
  EXPECT_THAT(error.message, HasSubstr(incomplete(content).string()));
  EXPECT_GT(fs::file_size(incomplete(content)), 0u);
  pull();
  EXPECT_EQ(read_text(snapshot().string()), content);
}

TEST_F(PullTrouble, AFolderThatCannotBeWrittenIsNamed) {
  write_text(cache().string(), "a file where the cache should be");
  const RaisedError error = failed_pull();
  EXPECT_EQ(error.code, ErrorCode::kIo);
  EXPECT_THAT(error.message, HasSubstr("cannot create " + repo().string()));
}

}  // namespace
}  // namespace carat::test
