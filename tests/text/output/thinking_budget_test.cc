#include "text/output/thinking_budget.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "text/demo_vocab.h"
#include "text/output/output_parser.h"
#include "text/tokenizer/detokenizer.h"
#include "text/vocab_builder.h"

namespace carat::text {
namespace {

// An answer as an engine makes it: the model's tokens, and after the budget is spent those of the budget instead.
struct Answer {
  std::string thought, answer;
  size_t injected = 0;
};
Answer generate(const std::string& prompt, const std::vector<TokenId>& model_tokens, uint64_t budget_tokens) {
  const Tokenizer tokenizer(test::demo_vocab());
  Answer result;
  TokenOutputParser parser(test::demo_vocab(), tokenizer.encode(prompt, Tokenizer::Specials::kParse), {},
                           [&](const OutputEvent& event) {
                             (event.kind == OutputEvent::Kind::kThought ? result.thought : result.answer) += event.text;
                           });
  ThinkingBudget budget(tokenizer, budget_tokens, parser.in_thought());
  const TokenId close = *test::demo_vocab()->find("<channel|>");
  for (auto next = model_tokens.begin(); next != model_tokens.end();) {
    parser.append(*next);
    const auto injected = budget.append(*next++);
    for (const TokenId token : injected) {
      parser.append(token);
      EXPECT_TRUE(budget.append(token).empty());
    }
    result.injected += injected.size();
    // With its channel closed the model goes on with its answer.
    if (!injected.empty()) next = std::find(next, model_tokens.end(), close) + 1;
  }
  parser.finish(OutputEnd::kStopped);
  return result;
}

std::vector<TokenId> tokens_of(std::string_view text) {
  return Tokenizer(test::demo_vocab()).encode(text, Tokenizer::Specials::kParse);
}

TEST(ThinkingBudget, LeavesAThoughtWithinItAlone) {
  const Answer answer = generate("", tokens_of("<|channel>thought\nshort\n<channel|>Yes"), 100);
  EXPECT_EQ(answer.thought, "short");
  EXPECT_EQ(answer.answer, "Yes");
  EXPECT_EQ(answer.injected, 0u);
}

TEST(ThinkingBudget, RoundsOffAThoughtThatIsTooLong) {
  const std::string long_thought = "<|channel>thought\none two three four five six seven eight\n<channel|>Yes";
  const Answer answer = generate("", tokens_of(long_thought), 8);
  EXPECT_TRUE(answer.thought.ends_with("\n\nThat is enough thought; now the answer.")) << answer.thought;
  EXPECT_EQ(answer.thought.find("eight"), std::string::npos);
  EXPECT_EQ(answer.answer, "Yes");
  EXPECT_GT(answer.injected, 0u);
}

TEST(ThinkingBudget, CountsAThoughtOpenedByThePrompt) {
  const Answer answer = generate("<|channel>thought\n", tokens_of("one two three four five six\n<channel|>Yes"), 4);
  EXPECT_TRUE(answer.thought.ends_with("now the answer.")) << answer.thought;
  EXPECT_EQ(answer.answer, "Yes");
}

TEST(ThinkingBudget, AnswersCostNothing) {
  const Tokenizer tokenizer(test::demo_vocab());
  ThinkingBudget budget(tokenizer, 1, false);
  for (const TokenId token : tokens_of("a long answer without any thought at all")) {
    EXPECT_TRUE(budget.append(token).empty());
  }
  EXPECT_EQ(budget.used(), 0u);
}

TEST(ThinkingBudget, AChannelOpenedAfterItIsSpentIsClosedAtOnce) {
  const Tokenizer tokenizer(test::demo_vocab());
  ThinkingBudget budget(tokenizer, 0, false);
  const auto tokens = budget.append(*test::demo_vocab()->find("<|channel>"));
  EXPECT_EQ(decode(test::demo_vocab(), tokens, true), "thought\n<channel|>");
  for (const TokenId token : tokens) EXPECT_TRUE(budget.append(token).empty());
  EXPECT_FALSE(budget.append(*test::demo_vocab()->find("<|channel>")).empty());  // and again
}

TEST(ThinkingBudget, NeedsAChannelToClose) {
  test::VocabBuilder builder;
  for (std::string& token : *builder.tokens) {
    if (token == "<|channel>") token = "<unused>";
  }
  const Tokenizer tokenizer(builder.build());
  EXPECT_THROW(ThinkingBudget(tokenizer, 1, false), Error);
}

}  // namespace
}  // namespace carat::text
