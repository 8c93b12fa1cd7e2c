// Encoding, decoding and loading with the demo vocabulary, or with that of the file named by CARAT_BENCH_VOCAB.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "gguf/reader.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace carat::text {
namespace {

const gguf::ModelFile& model_file() {
  static const auto file = [] {
    const char* chosen = std::getenv("CARAT_BENCH_VOCAB");
    return gguf::ModelFile::open(chosen != nullptr ? chosen : CARAT_DEMO_MODEL);
  }();
  return *file;
}

const std::shared_ptr<const Vocab>& vocab() {
  static const auto loaded = Vocab::from_metadata(model_file().metadata());
  return loaded;
}

// Words drawn from the vocabulary itself, early ones more often, as in a text: a fixed sentence, repeated, would keep
// its few merges in the nearest cache and show a speed no text reaches.
std::string prose(size_t bytes) {
  std::vector<std::string> words;
  for (size_t id = 0; id < vocab()->size(); ++id) {
    const std::string_view text = vocab()->text(static_cast<TokenId>(id));
    if (!text.starts_with("\u2581") || text.size() < 5) continue;
    const std::string_view word = text.substr(3);
    if (word.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == std::string_view::npos) words.emplace_back(word);
  }
  std::string text;
  uint64_t state = 1;
  while (text.size() < bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const double uniform = static_cast<double>(state >> 11) * 0x1p-53;
    text += words[static_cast<size_t>(uniform * uniform * uniform * static_cast<double>(words.size()))];
    text += state % 97 < 8 ? ". " : state % 97 < 9 ? "\n\n" : " ";
  }
  return text;
}

void encode(benchmark::State& state, const std::string& text) {
  const Tokenizer tokenizer(vocab());
  std::vector<TokenId> tokens;
  for (auto _ : state) {
    tokens.clear();
    tokenizer.encode(text, Tokenizer::Specials::kPlainText, tokens);
    benchmark::DoNotOptimize(tokens.data());
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  state.counters["bytes/token"] = static_cast<double>(text.size()) / static_cast<double>(tokens.size());
}

void BM_Load(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Vocab::from_metadata(model_file().metadata()));
}
BENCHMARK(BM_Load)->Unit(benchmark::kMillisecond);

void BM_EncodeProse(benchmark::State& state) { encode(state, prose(static_cast<size_t>(state.range(0)))); }
BENCHMARK(BM_EncodeProse)->Arg(1 << 10)->Arg(1 << 20);

// No place to cut: the whole text is one heap.
void BM_EncodeSpaces(benchmark::State& state) { encode(state, std::string(static_cast<size_t>(state.range(0)), ' ')); }
BENCHMARK(BM_EncodeSpaces)->Arg(1 << 10)->Arg(1 << 20);

void BM_EncodeBytes(benchmark::State& state) {
  encode(state, std::string(static_cast<size_t>(state.range(0)), '\xff'));
}
BENCHMARK(BM_EncodeBytes)->Arg(1 << 20);

void BM_Decode(benchmark::State& state) {
  const std::string text = prose(static_cast<size_t>(state.range(0)));
  const auto tokens = Tokenizer(vocab()).encode(text);
  for (auto _ : state) benchmark::DoNotOptimize(decode(vocab(), tokens));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}
BENCHMARK(BM_Decode)->Arg(1 << 20);

}  // namespace
}  // namespace carat::text
