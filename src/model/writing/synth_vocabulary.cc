#include "model/writing/synth_vocabulary.h"

#include <fmt/format.h>

#include <string_view>

#include "base/error.h"

namespace carat::model {

namespace {

constexpr int32_t kNormal = 1, kControl = 3, kUserDefined = 4, kByte = 6;
constexpr std::string_view kSpace = "\u2581";
constexpr uint32_t kLongestRun = 31;

struct Special {
  uint32_t id;
  std::string_view text;
  int32_t type;
};

constexpr Special kSpecials[] = {
    {0, "<pad>", kControl},
    {1, "<eos>", kControl},
    {2, "<bos>", kControl},
    {3, "<unk>", kControl},
    {4, "<mask>", kControl},
    {46, "<|tool>", kControl},
    {47, "<tool|>", kControl},
    {48, "<|tool_call>", kUserDefined},
    {49, "<tool_call|>", kUserDefined},
    {50, "<|tool_response>", kUserDefined},
    {51, "<tool_response|>", kUserDefined},
    {52, "<|\"|>", kUserDefined},
    {98, "<|think|>", kControl},
    {100, "<|channel>", kUserDefined},
    {101, "<channel|>", kUserDefined},
    {105, "<|turn>", kControl},
    {106, "<turn|>", kControl},
    {212, "</s>", kNormal},
};

constexpr Special kMedia[] = {
    {255999, "<|image>", kControl},  {256000, "<|audio>", kControl}, {258880, "<|image|>", kControl},
    {258881, "<|audio|>", kControl}, {258882, "<image|>", kControl}, {258883, "<audio|>", kControl},
    {258884, "<|video|>", kControl},
};
constexpr uint32_t kMediaTokens = std::size(kMedia);
constexpr uint32_t kMediaNeeds = 258885;  // a vocabulary of this size reaches the last of them

constexpr uint32_t kFirstNewlines = 107, kFirstSpaces = 138, kFirstByte = 238, kFirstTabs = 255968,
                   kSingleSpace = 236743;
constexpr uint32_t kFirstFree = kFirstByte + 256;

std::string repeated(std::string_view text, uint32_t times) {
  std::string out;
  for (uint32_t i = 0; i < times; ++i) out += text;
  return out;
}

class Builder {
 public:
  explicit Builder(uint32_t size) {
    made_.tokens.resize(size);
    made_.types.assign(size, kNormal);
  }

  void set(uint32_t id, std::string text, int32_t type = kNormal) {
    made_.tokens[id] = std::move(text);
    made_.types[id] = type;
  }

  // Puts the text at the next id that has none; false when the vocabulary is full.
  bool append(std::string text) {
    while (next_ < made_.tokens.size() && !made_.tokens[next_].empty()) ++next_;
    if (next_ == made_.tokens.size()) return false;
    made_.tokens[next_] = std::move(text);
    return true;
  }

  bool append_merged(std::string_view left, std::string_view right) {
    if (!append(fmt::format("{}{}", left, right))) return false;
    merge(left, right);
    return true;
  }

  void merge(std::string_view left, std::string_view right) {
    made_.merges.push_back(fmt::format("{} {}", left, right));
  }

  // Every way to join two runs, shorter results first: any run of up to kLongestRun becomes one token.
  void merge_runs(std::string_view unit) {
    for (uint32_t total = 2; total <= kLongestRun; ++total) {
      for (uint32_t left = 1; left < total; ++left) merge(repeated(unit, left), repeated(unit, total - left));
    }
  }

  void set_media_ends(uint32_t image, uint32_t audio) {
    made_.media_ends = {static_cast<int32_t>(image), static_cast<int32_t>(audio)};
  }

  SynthVocabulary take() { return std::move(made_); }

 private:
  SynthVocabulary made_;
  uint32_t next_ = kFirstFree;
};

void add_media_tokens(Builder& builder, uint32_t size) {
  uint32_t image_end = 0, audio_end = 0;
  for (uint32_t i = 0; i < kMediaTokens; ++i) {
    const uint32_t id = size >= kMediaNeeds ? kMedia[i].id : size - kMediaTokens + i;
    builder.set(id, std::string(kMedia[i].text), kMedia[i].type);
    if (kMedia[i].text == "<image|>") image_end = id;
    if (kMedia[i].text == "<audio|>") audio_end = id;
  }
  builder.set_media_ends(image_end, audio_end);
}

// Letters and what can be built of them, until the vocabulary is full.
void add_pieces(Builder& builder) {
  std::vector<std::string> letters, pairs;
  for (char c = 'a'; c <= 'z'; ++c) letters.emplace_back(1, c);
  for (const std::string& letter : letters) {
    if (!builder.append_merged(kSpace, letter)) return;
  }
  for (const std::string& first : letters) {
    for (const std::string& second : letters) {
      pairs.push_back(first + second);
      if (!builder.append_merged(first, second)) return;
    }
  }
  for (const std::string& pair : pairs) {
    if (!builder.append_merged(kSpace, pair)) return;
  }
  for (const std::string& pair : pairs) {
    for (const std::string& letter : letters) {
      if (!builder.append_merged(pair, letter)) return;
    }
  }
  for (const std::string& first : pairs) {
    for (const std::string& second : pairs) {
      if (!builder.append_merged(first, second)) return;
    }
  }
}

}  // namespace

SynthVocabulary make_vocabulary(uint32_t size) {
  CARAT_CHECK(size >= kMinVocabulary && size <= kMaxVocabulary);
  Builder builder(size);
  for (uint32_t id = 0; id < kFirstFree; ++id) builder.set(id, fmt::format("<unused{}>", id));
  for (const Special& special : kSpecials) builder.set(special.id, std::string(special.text), special.type);
  for (uint32_t n = 1; n <= kLongestRun; ++n) builder.set(kFirstNewlines + n - 1, repeated("\n", n));
  for (uint32_t n = 2; n <= kLongestRun; ++n) builder.set(kFirstSpaces + n - 2, repeated(kSpace, n));
  for (uint32_t byte = 0; byte < 256; ++byte) builder.set(kFirstByte + byte, fmt::format("<0x{:02X}>", byte), kByte);
  if (size >= kMediaNeeds) {
    for (uint32_t n = 1; n <= kLongestRun; ++n) builder.set(kFirstTabs + n - 1, repeated("\t", n));
    for (uint32_t id = 256001; id < kMaxVocabulary && id < size; ++id) builder.set(id, fmt::format("<unused{}>", id));
    builder.merge_runs("\t");
  }
  add_media_tokens(builder, size);
  builder.merge_runs("\n");
  builder.merge_runs(kSpace);
  if (size > kSingleSpace) {
    builder.set(kSingleSpace, std::string(kSpace));
  } else {
    builder.append(std::string(kSpace));
  }
  for (char c = '!'; c <= '~'; ++c) builder.append(std::string(1, c));
  add_pieces(builder);
  return builder.take();
}

}  // namespace carat::model
