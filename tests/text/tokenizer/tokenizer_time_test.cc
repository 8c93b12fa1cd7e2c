// Hostile texts take time linear in their length, within a factor of four, up to a mebibyte. The program has no other
// tests and measures processor time, so that a busy machine does not matter.
#include <gtest/gtest.h>
#include <time.h>  // clock_gettime is POSIX, not in <ctime>

#include <algorithm>
#include <functional>
#include <limits>

#include "support/random.h"
#include "text/demo_vocab.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace carat::text {
namespace {

constexpr size_t kSmall = size_t{1} << 16;
constexpr size_t kLarge = size_t{1} << 20;
// Fresh memory for the larger result costs page faults that the smaller one is spared.
constexpr double kPageFaultSeconds = 0.02;

double thread_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double best_seconds(int runs, const std::function<void()>& work) {
  double best = std::numeric_limits<double>::max();
  for (int run = 0; run < runs; ++run) {
    const double start = thread_seconds();
    work();
    best = std::min(best, thread_seconds() - start);
  }
  return best;
}

struct HostileText {
  const char* name;
  std::function<std::string(size_t)> make;
  friend void PrintTo(const HostileText& text, std::ostream* out) { *out << text.name; }
};

std::string repeated(std::string_view unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

std::string random_letters(size_t bytes) {
  carat::test::Random random(5);
  std::string text(bytes, ' ');
  for (char& c : text) c = static_cast<char>('a' + random.below(26));
  return text;
}

std::string random_bytes(size_t bytes) {
  carat::test::Random random(6);
  std::string text(bytes, ' ');
  for (char& c : text) c = static_cast<char>(random.below(256));
  return text;
}

class HostileTexts : public ::testing::TestWithParam<HostileText> {};

TEST_P(HostileTexts, TakeLinearTime) {
  const auto vocab = test::demo_vocab();
  const Tokenizer tokenizer(vocab);
  const std::string small = GetParam().make(kSmall), large = GetParam().make(kLarge);
  for (const auto specials : {Tokenizer::Specials::kPlainText, Tokenizer::Specials::kParse}) {
    const double small_seconds = best_seconds(5, [&] { tokenizer.encode(small, specials); });
    const double large_seconds = best_seconds(2, [&] { tokenizer.encode(large, specials); });
    EXPECT_LT(large_seconds, 4.0 * kLarge / kSmall * small_seconds + kPageFaultSeconds)
        << kSmall << " bytes take " << small_seconds << " s";
  }
  const auto small_tokens = tokenizer.encode(small), large_tokens = tokenizer.encode(large);
  const double small_seconds = best_seconds(5, [&] { decode(vocab, small_tokens); });
  const double large_seconds = best_seconds(2, [&] { decode(vocab, large_tokens); });
  EXPECT_LT(large_seconds, 4.0 * kLarge / kSmall * small_seconds + kPageFaultSeconds)
      << kSmall << " bytes take " << small_seconds << " s to decode";
}

INSTANTIATE_TEST_SUITE_P(
    All, HostileTexts,
    ::testing::Values(HostileText{"OneLetter", [](size_t n) { return std::string(n, 'a'); }},
                      HostileText{"Spaces", [](size_t n) { return std::string(n, ' '); }},
                      HostileText{"Newlines", [](size_t n) { return std::string(n, '\n'); }},
                      HostileText{"RandomLetters", random_letters}, HostileText{"RandomBytes", random_bytes},
                      HostileText{"OneSyllable", [](size_t n) { return repeated("the", n); }},
                      HostileText{"Emoji", [](size_t n) { return repeated("\U0001f600", n); }},
                      HostileText{"Zeros", [](size_t n) { return std::string(n, '\0'); }},
                      HostileText{"Malformed", [](size_t n) { return std::string(n, '\xf0'); }},
                      HostileText{"AlmostSpecials", [](size_t n) { return repeated("<|tool_respons", n); }},
                      HostileText{"Specials", [](size_t n) { return repeated("<turn|>", n); }}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace carat::text
