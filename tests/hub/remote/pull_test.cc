#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <unistd.h>

#include "hub/model_lookup.h"
#include "hub/pull_fixture.h"

namespace carat::test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(PullTest, LeavesTheLayoutAllToolsShare) {
  pull();
  EXPECT_EQ(read_text(snapshot().string()), content);
  ASSERT_TRUE(fs::is_symlink(snapshot()));
  EXPECT_EQ(fs::read_symlink(snapshot()), fs::path("../../blobs") / blob(content).filename());
  EXPECT_EQ(read_text((repo() / "refs" / "main").string()), FakeHub::kCommit);
  EXPECT_FALSE(fs::exists(incomplete(content)));
  EXPECT_THAT(pauses, IsEmpty());
  ASSERT_FALSE(progress.empty());
  EXPECT_EQ(progress.back().done, content.size());
  EXPECT_EQ(progress.back().total, content.size());
  // What -m then finds.
  const hub::LookupPlaces places{{}, {cache()}};
  EXPECT_EQ(hub::find_model("hf:maker/tiny-GGUF:q8_0", places).path, snapshot().string());
}

TEST_F(PullTest, DoesNothingTwice) {
  pull();
  const auto written = fs::last_write_time(blob(content));
  const hub::PullPlan again = plan();
  EXPECT_EQ(again.missing_bytes(), 0u);
  pull();
  EXPECT_EQ(hub_server.file_requests().size(), 1u);
  EXPECT_EQ(fs::last_write_time(blob(content)), written);
}

TEST_F(PullTest, ABlobThatIsHereIsOnlyLinked) {
  fs::create_directories(repo() / "blobs");
  write_text(blob(content).string(), content);
  EXPECT_TRUE(plan().files.front().downloaded);
  pull();
  EXPECT_THAT(hub_server.file_requests(), IsEmpty());
  EXPECT_EQ(read_text(snapshot().string()), content);
}

TEST_F(PullTest, AFileInTheSnapshotStaysAsItIs) {
  fs::create_directories(snapshot().parent_path());
  write_text(snapshot().string(), content);  // not a link, as llama.cpp may leave it
  pull();
  EXPECT_THAT(hub_server.file_requests(), IsEmpty());
  EXPECT_FALSE(fs::is_symlink(snapshot()));
  EXPECT_FALSE(fs::exists(blob(content)));
}

TEST_F(PullTest, FilesInTheWayAreNotReplaced) {
  fs::create_directories(repo() / "blobs");
  write_text(blob(content).string(), "something else");
  const RaisedError error = failed_pull();
  EXPECT_EQ(error.code, ErrorCode::kBadFile);
  EXPECT_THAT(error.message, HasSubstr("has 14 bytes, but should have 300000; remove it"));
  EXPECT_EQ(read_text(blob(content).string()), "something else");
}

TEST_F(PullTest, ALinkToNothingIsMended) {
  fs::create_directories(snapshot().parent_path());
  fs::create_symlink(fs::path("../../blobs") / blob(content).filename(), snapshot());
  pull();
  EXPECT_EQ(read_text(snapshot().string()), content);
}

TEST_F(PullTest, PullsAllPartsOfASplitModelFromASubfolder) {
  hub_server.add_file("BF16/big-BF16-00001-of-00002.gguf", "first part");
  hub_server.add_file("BF16/big-BF16-00002-of-00002.gguf", "second part");
  hub_server.set_page_size(2);
  pull("bf16");
  EXPECT_EQ(read_text(snapshot("BF16/big-BF16-00001-of-00002.gguf").string()), "first part");
  EXPECT_EQ(read_text(snapshot("BF16/big-BF16-00002-of-00002.gguf").string()), "second part");
  EXPECT_TRUE(fs::read_symlink(snapshot("BF16/big-BF16-00001-of-00002.gguf")).string().starts_with("../../../blobs/"));
  EXPECT_FALSE(fs::exists(snapshot()));
}

TEST_F(PullTest, ChoosesAndSaysWhatItChose) {
  hub_server.add_file("tiny-BF16.gguf", "large");
  hub_server.add_file("mmproj-F16.gguf", "projector");
  EXPECT_EQ(plan().files.front().file.path, kFile);
  EXPECT_THAT(plan().note, HasSubstr("Q8_0 of 2 models was taken"));
  EXPECT_EQ(plan("BF16").note, "");
  const RaisedError error = error_of([&] { plan("Q5_K_M"); });
  EXPECT_EQ(error.code, ErrorCode::kBadArgument);
  EXPECT_THAT(error.message, HasSubstr("it has BF16 (5 B), Q8_0 (300 kB)"));
}

TEST_F(PullTest, AModelWithMissingPartsIsNotBegun) {
  hub_server.add_file("big-BF16-00001-of-00002.gguf", "first part");
  EXPECT_THAT(error_of([&] { plan("bf16"); }).message, HasSubstr("part 2 of 2 is missing there"));
}

TEST_F(PullTest, NamesAreEncodedInAddresses) {
  hub_server.add_file("a b#c+ü-Q4_0.gguf", "odd");
  pull("Q4_0");
  EXPECT_EQ(read_text(snapshot("a b#c+ü-Q4_0.gguf").string()), "odd");
}

TEST_F(PullTest, TakesOtherRevisions) {
  pull("", "refs/pr/1");
  EXPECT_EQ(read_text((repo() / "refs" / "refs" / "pr" / "1").string()), FakeHub::kCommit);
  EXPECT_FALSE(fs::exists(repo() / "refs" / "main"));
  const RaisedError error = error_of([&] { plan("", "nowhere"); });
  EXPECT_EQ(error.code, ErrorCode::kBadArgument);
  EXPECT_THAT(error.message, HasSubstr("maker/tiny-GGUF with the revision nowhere (HTTP 404)"));
  EXPECT_THROW(plan("", "../main"), Error);
}

TEST_F(PullTest, OneProcessAtATime) {
  const fs::path lock = cache() / ".locks" / "models--maker--tiny-GGUF" / (blob(content).filename().string() + ".lock");
  fs::create_directories(lock.parent_path());
  const int held = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  const RaisedError error = failed_pull();
  ::close(held);
  EXPECT_EQ(error.code, ErrorCode::kIo);
  EXPECT_THAT(error.message, HasSubstr("another process is downloading tiny-Q8_0.gguf"));
  EXPECT_THAT(hub_server.file_requests(), IsEmpty());
  pull();
}

TEST_F(PullTest, RoomIsCheckedBeforehand) {
  const std::string bytes = std::to_string(hub::kMaxFileBytes);
  hub_server.lie_about(kFile, R"({"type":"file","path":"tiny-Q8_0.gguf","size":)" + bytes + R"(,"lfs":{"oid":")" +
                                  std::string(64, 'a') + R"(","size":)" + bytes + "}}");
  const RaisedError error = failed_pull();
  EXPECT_EQ(error.code, ErrorCode::kIo);
  EXPECT_THAT(error.message, HasSubstr("needs 17.6 TB, but"));
  EXPECT_THAT(error.message, HasSubstr("HF_HUB_CACHE"));
  EXPECT_THAT(hub_server.file_requests(), IsEmpty());
}

TEST_F(PullTest, FilesWithoutAChecksumAreNotTaken) {
  hub_server.lie_about(kFile, R"({"type":"file","path":"tiny-Q8_0.gguf","size":5})");
  const RaisedError error = failed_pull();
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.message, HasSubstr("no SHA-256"));
}

TEST_F(PullTest, TheTokenIsSentToTheHubButNotToWhereItRedirects) {
  token = "hf_secret";
  hub_server.require_token(token);
  HttpServer mirror(
      [this](const ServerRequest&) { return ServerReply{.status = 200, .headers = {}, .body = content}; });
  hub_server.change_next_file([&](const ServerRequest&, ServerReply) {
    return ServerReply{.status = 302, .headers = {{"Location", mirror.url() + "/blob?signature=x"}}, .body = ""};
  });
  pull();
  EXPECT_EQ(read_text(snapshot().string()), content);
  for (const ServerRequest& request : hub_server.requests()) {
    EXPECT_EQ(request.headers.at("authorization"), "Bearer hf_secret");
    EXPECT_EQ(request.headers.at("user-agent"), "carat-test");
  }
  ASSERT_EQ(mirror.requests().size(), 1u);
  EXPECT_FALSE(mirror.requests()[0].headers.contains("authorization"));
}

}  // namespace
}  // namespace carat::test
