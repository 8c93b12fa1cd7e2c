#include "batch/batch_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "base/error.h"
#include "batch/batch_line.h"
#include "support/files.h"
#include "support/raised_error.h"

namespace carat::batch {
namespace {

using test::read_text;
using test::write_text;
using testing::HasSubstr;
namespace fs = std::filesystem;

class BatchOutputTest : public testing::Test {
 protected:
  BatchOutputTest() { write_text(in_, "a\nb\n\nc\nd\n"); }

  // With what was written so far.
  void open(const Shard& shard = {}, const std::string& model = "model.gguf") {
    output_.reset();
    input_ = std::make_unique<BatchInput>(in_, shard);
    output_ = std::make_unique<BatchOutput>(out_, errors_, *input_, model);
  }
  void add(size_t line) {
    const uint64_t number = input_->lines()[line].number;
    const bool fails = number == 2;
    output_->add(line, fails,
                 fails ? refused_line(number, {.custom_id = "b", .code = "c", .message = "m"})
                       : answered_line(number, "x", 200, "{}"));
  }
  void add_the_rest_and_finish() {
    for (size_t line = 0; line < input_->lines().size(); ++line) {
      if (!output_->is_done(line)) add(line);
    }
    output_->finish();
  }
  std::string refusal() {
    return test::error_of([this] { open(); }).message;
  }

  test::TemporaryDirectory folder_;
  const std::string in_ = folder_.file("in.jsonl"), out_ = folder_.file("out.jsonl"),
                    errors_ = BatchOutput::default_errors_path(out_), partial_ = out_ + ".partial";
  std::unique_ptr<BatchInput> input_;
  std::unique_ptr<BatchOutput> output_;
};

const std::string kOut =
    R"({"id":"batch_req_1","custom_id":"x","response":{"status_code":200,"request_id":"batch_req_1","body":{}},"error":null}
{"id":"batch_req_4","custom_id":"x","response":{"status_code":200,"request_id":"batch_req_4","body":{}},"error":null}
{"id":"batch_req_5","custom_id":"x","response":{"status_code":200,"request_id":"batch_req_5","body":{}},"error":null}
)";
const std::string kErrors =
    R"({"id":"batch_req_2","custom_id":"b","response":null,"error":{"code":"c","message":"m"}}
)";

TEST_F(BatchOutputTest, LinesThatCameInAnyOrderAreInTheInputs) {
  open();
  for (const size_t line : {3, 1, 0, 2}) add(line);
  EXPECT_FALSE(fs::exists(out_)) << "what is there is whole";
  output_->finish();
  EXPECT_EQ(read_text(out_), kOut);
  EXPECT_EQ(read_text(errors_), kErrors);
  EXPECT_FALSE(fs::exists(partial_));
  open();
  EXPECT_TRUE(output_->is_finished());
  EXPECT_EQ(output_->failed(), 1u);
}

// Killed at any byte of what it wrote, even in the middle of a line, and with what a failing machine leaves behind it.
TEST_F(BatchOutputTest, WhereverItWasCutOffNothingIsLostOrRepeated) {
  open();
  for (const size_t line : {3, 1, 0}) add(line);
  output_.reset();
  const std::string whole = read_text(partial_);
  const auto is_end_of_line = [&](size_t bytes) { return bytes < whole.size() && whole[bytes] == '\n'; };
  for (size_t bytes = 0; bytes <= whole.size(); ++bytes) {
    for (const std::string& behind : {std::string(), std::string(3, '\0'), std::string("\n17 ok {}\n")}) {
      if (bytes <= whole.find('\n') && !behind.empty()) continue;  // no file of ours
      write_text(partial_, whole.substr(0, bytes) + behind);
      open();
      // Each line of which the last byte is there, and what was left of the next one is not.
      const auto whole_lines = std::count(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes), '\n');
      EXPECT_EQ(output_->done(), static_cast<uint64_t>(std::max<std::ptrdiff_t>(whole_lines - 1, 0)) +
                                     (is_end_of_line(bytes) && behind.starts_with('\n') ? 1 : 0))
          << bytes;
      if (bytes % 40 != 0 && bytes < whole.size() - 3) continue;  // files are brought to the disk, which takes time
      add_the_rest_and_finish();
      EXPECT_EQ(read_text(out_), kOut) << bytes;
      EXPECT_EQ(read_text(errors_), kErrors) << bytes;
      fs::remove(out_);
      fs::remove(errors_);
    }
  }
}

TEST_F(BatchOutputTest, KilledWhileTheFilesAreMadeItMakesThemAgain) {
  open();
  for (const size_t line : {0, 1, 2, 3}) add(line);
  output_.reset();
  write_text(errors_, kErrors);                 // it has its name already
  write_text(out_ + ".unfinished", "{\"id\"");  // and this one not yet
  open();
  EXPECT_EQ(output_->done(), 4u);
  output_->finish();
  EXPECT_EQ(read_text(out_), kOut);
  EXPECT_FALSE(fs::exists(out_ + ".unfinished"));
}

TEST_F(BatchOutputTest, KilledBeforeThePartialFileWentItIsFinished) {
  write_text(out_, kOut);
  write_text(errors_, kErrors);
  write_text(partial_, "anything");
  open();
  EXPECT_TRUE(output_->is_finished());
  EXPECT_FALSE(fs::exists(partial_));
}

TEST_F(BatchOutputTest, FilesOfSomethingElseAreLeftAlone) {
  write_text(out_, "a letter\n");
  EXPECT_THAT(refusal(), HasSubstr("is there already"));
  write_text(out_, kOut);  // without the errors
  EXPECT_THAT(refusal(), HasSubstr("is there already"));
  fs::remove(out_);
  write_text(errors_, kErrors);
  EXPECT_THAT(refusal(), HasSubstr("--errors"));
  fs::remove(errors_);
  write_text(partial_, "a letter\n");
  EXPECT_THAT(refusal(), HasSubstr("begun with something else"));
  write_text(partial_, "a letter");
  EXPECT_THAT(refusal(), HasSubstr("begun with something else"));
  EXPECT_EQ(read_text(partial_), "a letter");
}

TEST_F(BatchOutputTest, AnotherInputShardOrModelIsRefused) {
  open();
  add(0);
  EXPECT_THROW(open({1, 2}), Error);
  output_.reset();
  EXPECT_THROW(open({}, "other.gguf"), Error);
  output_.reset();
  write_text(in_, "a\nb\n\nc\ne\n");
  EXPECT_THROW(open(), Error);
}

TEST_F(BatchOutputTest, TwoProcessesDoNotWriteTheSame) {
  open();
  EXPECT_THAT(test::error_of([&] { BatchOutput(out_, errors_, *input_, "model.gguf"); }).message,
              HasSubstr("another process"));
}

TEST_F(BatchOutputTest, WithoutFailuresThereIsNoFileForThem) {
  write_text(in_, "a\n");
  open();
  add(0);
  output_->finish();
  EXPECT_FALSE(fs::exists(errors_));
  EXPECT_EQ(BatchOutput::default_errors_path("out.txt"), "out.txt.errors.jsonl");
}

}  // namespace
}  // namespace carat::batch
