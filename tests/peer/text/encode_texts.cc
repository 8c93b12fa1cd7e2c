// What the peer tests run:
//   encode_texts encode VOCAB.gguf   stdin: JSON [{"text": ..., "parse": bool}]; stdout: JSON [{"ids": [...],
//   "decoded": text}] encode_texts speed VOCAB.gguf    stdin: a text; stdout: JSON with the load time and the encoding
//   speed
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "gguf/reader.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace {

using carat::text::Tokenizer;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

nlohmann::json encode(const std::shared_ptr<const carat::text::Vocab>& vocab, const nlohmann::json& requests) {
  const Tokenizer tokenizer(vocab);
  nlohmann::json answers = nlohmann::json::array();
  for (const auto& request : requests) {
    const bool parse = request.value("parse", false);
    const auto ids = tokenizer.encode(request.at("text").get_ref<const std::string&>(),
                                      parse ? Tokenizer::Specials::kParse : Tokenizer::Specials::kPlainText);
    answers.push_back({{"ids", ids}, {"decoded", carat::text::decode(vocab, ids, true)}});
  }
  return answers;
}

// The best of several runs: the others measure what else the machine does.
nlohmann::json speed(const std::shared_ptr<const carat::text::Vocab>& vocab, const std::string& text, double load) {
  const Tokenizer tokenizer(vocab);
  double best = 1e9;
  size_t tokens = 0;
  for (int run = 0; run < 10; ++run) {
    const auto start = Clock::now();
    tokens = tokenizer.encode(text).size();
    best = std::min(best, seconds_since(start));
  }
  return {{"load_seconds", load},
          {"megabytes_per_second", static_cast<double>(text.size()) / best / 1e6},
          {"tokens", tokens}};
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::invalid_argument("usage: encode_texts encode|speed VOCAB.gguf < INPUT");
  const std::string input(std::istreambuf_iterator<char>(std::cin), {});
  const auto start = Clock::now();
  const auto file = carat::gguf::ModelFile::open(argv[2]);
  const auto vocab = carat::text::Vocab::from_metadata(file->metadata());
  const double load = seconds_since(start);
  const bool measure = std::string_view(argv[1]) == "speed";
  std::cout << (measure ? speed(vocab, input, load) : encode(vocab, nlohmann::json::parse(input))).dump() << "\n";
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "encode_texts: {}\n", error.what());
  return 1;
}
