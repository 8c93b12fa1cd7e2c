#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gguf/reader.h"
#include "support/random.h"
#include "text/chat/chat_format.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/vocab.h"

namespace carat::test {

// What the demo models were trained to do with long contexts: a list of codes, then a question for one of them.
struct RecallQuestion {
  std::vector<text::TokenId> prompt;
  std::string answer;  // four digits
};

// A list of `lines` codes (12.4 tokens each) under different names; any of them may be asked for.
inline std::string recall_text(uint32_t lines, Random& random, std::string& answer) {
  constexpr std::array kAdjectives = {"amber",  "brave", "calm",  "clever", "dusty", "eager", "fancy",
                                      "gentle", "happy", "icy",   "jolly",  "kind",  "lucky", "noble",
                                      "proud",  "quiet", "rusty", "shiny",  "tiny",  "wild"};
  constexpr std::array kNouns = {"badger", "bear",  "camel", "cat",   "crow", "deer", "eagle", "fox",
                                 "frog",   "goat",  "hawk",  "lion",  "lynx", "mole", "otter", "owl",
                                 "panda",  "pony",  "raven", "robin", "seal", "swan", "tiger", "toad",
                                 "turtle", "whale", "wolf",  "wren",  "yak",  "zebra"};
  std::vector<std::string> names;
  for (const char* adjective : kAdjectives) {
    for (const char* noun : kNouns) names.push_back(std::string(adjective) + "-" + noun);
  }
  for (size_t i = 0; i < lines; ++i) std::swap(names[i], names[i + random.below(names.size() - i)]);
  const size_t asked = random.below(lines);
  std::string text = "Here is a list of codes.";
  for (size_t i = 0; i < lines; ++i) {
    const std::string code = std::to_string(1000 + random.below(9000));
    text += "\n" + names[i] + ": " + code;
    if (i == asked) answer = code;
  }
  return text + "\nWhat is the code of " + names[asked] + "?";
}

inline std::vector<RecallQuestion> recall_questions(const gguf::ModelFile& file, uint32_t lines, size_t count,
                                                    uint64_t seed) {
  const auto vocab = text::Vocab::from_metadata(file.metadata());
  const auto chat = text::ChatTemplate::from_vocab(*vocab, false);
  const text::Tokenizer tokenizer(vocab);
  Random random(seed);
  std::vector<RecallQuestion> questions(count);
  for (RecallQuestion& question : questions) {
    text::Conversation conversation;
    conversation.messages.push_back({text::Role::kUser, recall_text(lines, random, question.answer)});
    question.prompt = text::encode_prompt(tokenizer, chat.render(conversation, {}));
  }
  return questions;
}

}  // namespace carat::test
