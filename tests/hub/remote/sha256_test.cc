#include "hub/remote/sha256.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace carat::test {
namespace {

using hub::Sha256;

std::string digest(std::string_view text, Sha256::Way way) {
  Sha256 hash(way);
  hash.add(text);
  return hash.hex_digest();
}

constexpr std::array kWays = {Sha256::Way::kBest, Sha256::Way::kPortable};

// The examples of FIPS 180-4.
TEST(Sha256, GivesThePublishedDigests) {
  for (const Sha256::Way way : kWays) {
    EXPECT_EQ(digest("", way), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(digest("abc", way), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", way),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(digest(std::string(1'000'000, 'a'), way),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
}

TEST(Sha256, BothWaysAndAllCutsAgree) {
  std::string text;
  for (int i = 0; i < 300; ++i) text.push_back(static_cast<char>(i * 37 + i / 7));
  for (size_t size = 0; size <= text.size(); ++size) {
    const std::string_view part = std::string_view(text).substr(0, size);
    const std::string expected = digest(part, Sha256::Way::kPortable);
    EXPECT_EQ(digest(part, Sha256::Way::kBest), expected) << size;
    Sha256 in_pieces;
    for (size_t at = 0, step = 1; at < size; at += step, step = step % 67 + 1) in_pieces.add(part.substr(at, step));
    EXPECT_EQ(in_pieces.hex_digest(), expected) << size;
  }
}

}  // namespace
}  // namespace carat::test
