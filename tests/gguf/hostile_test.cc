// Damaged and malicious files: each must be refused with carat::Error, quickly and with little memory.
#include "support/hostile_gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <time.h>

#include <span>

#include "base/error.h"
#include "gguf/allocation_meter.h"
#include "gguf/reader.h"

namespace carat::gguf {
namespace {

using test::AllocationMeter;
using test::Bytes;
using test::GgufSketch;

// Of this thread: parsing waits for nothing, and other programs on the machine must not fail the test.
double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Outcome {
  bool loaded = false;
  ErrorCode code = ErrorCode::kBadArgument;
  std::string message;  // of the refusal
  double seconds = 0;
  size_t peak_bytes = 0;
};

// Any other exception than carat::Error escapes and fails the test.
Outcome try_parse(std::span<const std::byte> bytes) {
  Outcome outcome;
  const AllocationMeter meter;
  const double start = cpu_seconds();
  try {
    const Header header = parse(bytes);
    outcome.loaded = true;
    outcome.peak_bytes = meter.peak_bytes();
  } catch (const Error& error) {
    outcome.peak_bytes = meter.peak_bytes();
    outcome.code = error.code();
    outcome.message = error.what();
  }
  outcome.seconds = cpu_seconds() - start;
  return outcome;
}

// What a header may cost: a tiny key needs a few hundred bytes of bookkeeping, and a lie must buy nothing beyond that.
size_t allowed_bytes(size_t file_bytes) { return (size_t{1} << 16) + 32 * file_bytes; }

TEST(HostileGguf, EveryLieIsRefusedAndNamed) {
  for (const test::HostileGguf& file : test::hostile_ggufs()) {
    SCOPED_TRACE(file.name);
    const Outcome outcome = try_parse(file.bytes);
    EXPECT_FALSE(outcome.loaded);
    EXPECT_THAT(outcome.message, testing::HasSubstr(file.message));
    EXPECT_TRUE(outcome.code == ErrorCode::kBadFile || outcome.code == ErrorCode::kUnsupported);
    EXPECT_LT(outcome.seconds, 1.0);
    EXPECT_LT(outcome.peak_bytes, allowed_bytes(file.bytes.size()));
  }
}

TEST(HostileGguf, MessagesAreShortAndPrintable) {
  for (const test::HostileGguf& file : test::hostile_ggufs()) {
    SCOPED_TRACE(file.name);
    const std::string message = try_parse(file.bytes).message;
    EXPECT_LT(message.size(), 400u);
    for (const char c : message) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << message;
  }
}

TEST(HostileGguf, TruncatedAtEveryByteOfTheHeader) {
  const Bytes whole = test::tiny_gguf().encode();
  const size_t header_bytes = parse(whole).data_start;
  for (size_t size = 0; size < header_bytes; ++size) {
    SCOPED_TRACE(size);
    const Outcome outcome = try_parse(std::span(whole).first(size));
    EXPECT_FALSE(outcome.loaded);
    EXPECT_FALSE(outcome.message.empty());
    EXPECT_EQ(outcome.code, ErrorCode::kBadFile);
    EXPECT_LT(outcome.peak_bytes, allowed_bytes(size));
  }
}

TEST(HostileGguf, TruncatedAroundEveryTensorBoundary) {
  const Bytes whole = test::tiny_gguf().encode();
  const Header header = parse(whole);
  const TensorInfo& last = header.tensors.back();
  const size_t complete = header.data_start + last.offset + last.bytes;
  for (const TensorInfo& tensor : header.tensors) {
    for (const size_t boundary :
         {header.data_start + tensor.offset, header.data_start + tensor.offset + tensor.bytes}) {
      for (const size_t size : {boundary - 1, boundary, boundary + 1}) {
        SCOPED_TRACE(size);
        if (size > whole.size()) continue;
        const Outcome outcome = try_parse(std::span(whole).first(size));
        EXPECT_EQ(outcome.loaded, size >= complete);
        EXPECT_THAT(outcome.message, testing::HasSubstr(size >= complete ? "" : "ends beyond the"));
      }
    }
  }
}

// Every byte inverted, and every single bit: the file loads or is refused, and the refusal is a carat::Error.
TEST(HostileGguf, EveryHeaderByteFlipped) {
  Bytes bytes = test::tiny_gguf().encode();
  const size_t header_bytes = parse(bytes).data_start;
  size_t loaded = 0, refused = 0;
  for (size_t i = 0; i < header_bytes; ++i) {
    for (const unsigned mask : {0xffu, 1u, 2u, 4u, 8u, 16u, 32u, 64u, 128u}) {
      SCOPED_TRACE(testing::Message() << "byte " << i << " mask " << mask);
      const std::byte original = bytes[i];
      bytes[i] ^= static_cast<std::byte>(mask);
      const Outcome outcome = try_parse(bytes);
      bytes[i] = original;
      (outcome.loaded ? loaded : refused) += 1;
      EXPECT_NE(outcome.loaded, !outcome.message.empty());
      EXPECT_LT(outcome.seconds, 1.0);
      EXPECT_LT(outcome.peak_bytes, allowed_bytes(bytes.size()));
    }
  }
  // A letter of a key may change freely, a count may not.
  EXPECT_GT(loaded, 1000u);
  EXPECT_GT(refused, 1000u);
}

// Tensor names that fall into the same bucket of the standard library's hash table would make a hashed lookup
// quadratic; lookups by order do not care. The largest legal crowd must stay quick.
TEST(HostileGguf, LargestLegalCrowdsLoadQuickly) {
  GgufSketch sketch;
  for (int i = 0; i < 65536; ++i) sketch.keys.push_back(test::encode_key(std::to_string(i), 0, uint8_t{0}));
  for (int i = 0; i < 131072; ++i) sketch.tensors.push_back({std::to_string(i), {1}, 0, uint64_t{32} * (131071 - i)});
  sketch.data_bytes = 32 * 131072;
  const Bytes bytes = sketch.encode();
  const Outcome outcome = try_parse(bytes);
  EXPECT_TRUE(outcome.loaded) << outcome.message;
  EXPECT_LT(outcome.seconds, 1.0);
  EXPECT_LT(outcome.peak_bytes, allowed_bytes(bytes.size()));
}

}  // namespace
}  // namespace carat::gguf
