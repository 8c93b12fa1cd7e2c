#include "cli/reports/bench_drafts.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "text/chat/chat_format.h"
#include "text/chat/chat_template.h"

namespace carat::cli {

std::vector<text::TokenId> question_tokens(const model::Model& model, const std::shared_ptr<const text::Vocab>& vocab,
                                           std::string question) {
  const auto chat = text::ChatTemplate::from_vocab(*vocab, model.config().is_large());
  text::Conversation conversation;
  conversation.messages.push_back({text::Role::kUser, std::move(question)});
  return text::encode_prompt(text::Tokenizer(vocab), chat.render(conversation, {}));
}

std::shared_ptr<const engine::Sequence> DraftBench::answer(uint32_t generated) {
  engine::Request request;
  request.prompt = prompt_;
  request.max_tokens = generated + 1;
  request.ignore_stops = true;
  request.sampling.temperature = 0.0f;
  auto sequence = engine_.submit(std::move(request));
  engine_.run();
  if (sequence->ending() == engine::Ending::kInterrupted) fail(ErrorCode::kInterrupted, "interrupted");
  if (sequence->failure()) sequence->failure()->rethrow();
  CARAT_CHECK(sequence->decode_tokens() == generated);
  return sequence;
}

DraftBench::Runs DraftBench::run(engine::DraftMode mode, uint32_t generated, uint32_t repetitions, bool with_warmup) {
  engine::DraftOptions options = engine_.drafts();
  options.mode = mode;
  engine_.set_drafts(options);
  if (with_warmup) answer(generated);
  Runs runs;
  uint64_t passes = 0, drafted = 0, accepted = 0;
  for (uint32_t i = 0; i < repetitions; ++i) {
    const auto sequence = answer(generated);
    runs.samples_ns.push_back(static_cast<uint64_t>(std::max(1.0, std::round(1e9 * sequence->decode_seconds()))));
    passes += sequence->decode_passes();
    drafted += sequence->drafts().drafted;
    accepted += sequence->drafts().accepted;
    const auto tokens = sequence->generated();
    if (first_.size() < tokens.size()) first_.assign(tokens.begin(), tokens.end());
    const auto parted = std::mismatch(tokens.begin(), tokens.end(), first_.begin());
    const auto equal = static_cast<uint32_t>(parted.first - tokens.begin());
    runs.equal_tokens = i == 0 ? equal : std::min(runs.equal_tokens, equal);
  }
  const double tokens = static_cast<double>(generated) * repetitions;
  runs.tokens_per_pass = tokens / static_cast<double>(passes);
  if (drafted > 0) runs.accepted = static_cast<double>(accepted) / static_cast<double>(drafted);
  return runs;
}

}  // namespace carat::cli
