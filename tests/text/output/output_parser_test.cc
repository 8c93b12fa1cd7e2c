#include "text/output/output_parser.h"

#include <gtest/gtest.h>

#include "text/chat/chat_format.h"
#include "text/demo_vocab.h"
#include "text/model_outputs.h"

namespace carat::text {
namespace {

using test::ModelOutput;
using test::ParsedOutput;

OutputEnd end_of(const ModelOutput& output) { return output.cut ? OutputEnd::kCut : OutputEnd::kStopped; }

// The output in the given pieces.
ParsedOutput parse_pieces(const ModelOutput& output, const std::vector<std::string_view>& pieces) {
  ParsedOutput parsed;
  TextOutputParser parser(output.prompt, {}, parsed.sink());
  for (const std::string_view piece : pieces) parser.append(piece);
  parser.finish(end_of(output));
  return parsed;
}

ParsedOutput parse_tokens(const std::vector<TokenId>& prompt, const std::vector<TokenId>& tokens, OutputEnd end) {
  ParsedOutput parsed;
  TokenOutputParser parser(test::demo_vocab(), prompt, {}, parsed.sink());
  for (const TokenId token : tokens) parser.append(token);
  parser.finish(end);
  return parsed;
}

TEST(OutputParser, HasManyRecordedOutputs) { EXPECT_GE(test::model_outputs().size(), 40u); }

TEST(OutputParser, UnderstandsWholeOutputs) {
  for (const ModelOutput& output : test::model_outputs()) {
    EXPECT_EQ(parse_pieces(output, {output.output}), expected(output)) << output.name;
  }
}

TEST(OutputParser, SplitsAtEveryByteChangeNothing) {
  for (const ModelOutput& output : test::model_outputs()) {
    const std::string_view text = output.output;
    std::vector<std::string_view> bytes;
    for (size_t i = 0; i < text.size(); ++i) {
      bytes.push_back(text.substr(i, 1));
      EXPECT_EQ(parse_pieces(output, {text.substr(0, i), text.substr(i)}), expected(output)) << output.name << " " << i;
    }
    EXPECT_EQ(parse_pieces(output, bytes), expected(output)) << output.name;
  }
}

TEST(OutputParser, EveryPairOfSplitsChangesNothing) {
  for (const ModelOutput& output : test::model_outputs()) {
    const std::string_view text = output.output;
    if (text.size() > 90) continue;  // the longer ones bring nothing new and take their time
    for (size_t i = 0; i < text.size(); ++i) {
      for (size_t j = i; j < text.size(); ++j) {
        const ParsedOutput parsed = parse_pieces(output, {text.substr(0, i), text.substr(i, j - i), text.substr(j)});
        ASSERT_EQ(parsed, expected(output)) << output.name << " " << i << " " << j;
      }
    }
  }
}

// Tokens as a model writes them, and the same text in the smallest tokens there are: bytes.
TEST(OutputParser, TokensOfAnyShapeMeanTheSame) {
  const auto vocab = test::demo_vocab();
  const Tokenizer tokenizer(vocab);
  for (const ModelOutput& output : test::model_outputs()) {
    const auto prompt = tokenizer.encode(output.prompt, Tokenizer::Specials::kParse);
    const auto tokens = tokenizer.encode(output.output, Tokenizer::Specials::kParse);
    EXPECT_EQ(parse_tokens(prompt, tokens, end_of(output)), expected(output)) << output.name;

    std::vector<TokenId> bytes;
    for (const TokenId token : tokens) {
      const std::string text = decode(vocab, std::vector<TokenId>{token});
      const bool is_whole = vocab->is_special(token) || vocab->byte_value(token);
      if (is_whole) bytes.push_back(token);
      for (const char c : is_whole ? std::string() : text) bytes.push_back(vocab->byte_token(static_cast<uint8_t>(c)));
    }
    EXPECT_EQ(parse_tokens(prompt, bytes, end_of(output)), expected(output)) << output.name;
  }
}

// What is spelled with ordinary tokens is text, even where it looks like a mark.
TEST(OutputParser, OnlyTokensAreMarks) {
  const Tokenizer tokenizer(test::demo_vocab());
  const std::string text = "<|channel>thought\nno<channel|><|tool_call>call:f{a:<|\"|>b<|\"|>}<tool_call|><turn|>";
  ParsedOutput parsed = parse_tokens({}, tokenizer.encode(text), OutputEnd::kStopped);
  EXPECT_EQ(parsed.answer, text);
  EXPECT_EQ(parsed.thought + std::to_string(parsed.calls.size() + parsed.bad.size()), "0");

  // In the argument of a call, too.
  std::vector<TokenId> tokens = tokenizer.encode("<|tool_call>call:f{a:<|\"|>", Tokenizer::Specials::kParse);
  tokenizer.encode("x<|\"|><tool_call|>", Tokenizer::Specials::kPlainText, tokens);
  tokenizer.encode("<|\"|>}<tool_call|>", Tokenizer::Specials::kParse, tokens);
  parsed = parse_tokens({}, tokens, OutputEnd::kStopped);
  EXPECT_EQ(parsed.calls, std::vector<std::string>{R"(f {"a":"x<|\"|><tool_call|>"})"});
}

TEST(OutputParser, TextAppearsAsSoonAsItIsCertain) {
  ParsedOutput parsed;
  TextOutputParser parser("", {}, parsed.sink());
  parser.append("Hello <");
  EXPECT_EQ(parsed.answer, "Hello ");
  parser.append("b>");
  EXPECT_EQ(parsed.answer, "Hello <b>");
  parser.append("<|channel>thought\nso");
  EXPECT_EQ(parsed.thought, "so");
  EXPECT_TRUE(parser.in_thought());
  parser.append(" \n");
  EXPECT_EQ(parsed.thought, "so");  // perhaps the end
  parser.append("be it");
  EXPECT_EQ(parsed.thought, "so \nbe it");
}

TEST(OutputParser, OnlyOfferedToolsCanBeCalled) {
  ParsedOutput parsed;
  std::string problem;
  const OutputSink collect = parsed.sink();
  TextOutputParser parser("", {"known"}, [&](OutputEvent event) {
    problem = event.problem;
    collect(std::move(event));
  });
  parser.append("<|tool_call>call:known{}<tool_call|><|tool_call>call:other{}<tool_call|>");
  parser.finish(OutputEnd::kStopped);
  EXPECT_EQ(parsed.calls, std::vector<std::string>{"known {}"});
  EXPECT_EQ(parsed.bad, std::vector<std::string>{"<|tool_call>call:other{}<tool_call|>"});
  EXPECT_EQ(problem, "there is no tool called other");
}

TEST(OutputParser, AnEndlessCallIsReportedAndForgotten) {
  ParsedOutput parsed;
  TextOutputParser parser("", {}, parsed.sink());
  parser.append("<|tool_call>call:f{a:");
  const std::string block(65536, 'x');
  for (int i = 0; i < 40; ++i) parser.append(block);
  parser.append("<tool_call|>Sorry.");
  parser.finish(OutputEnd::kStopped);
  ASSERT_EQ(parsed.bad.size(), 1u);
  EXPECT_LE(parsed.bad[0].size(), OutputParser::kMaxCallBytes + 100);
  EXPECT_EQ(parsed.answer, "Sorry.");
}

TEST(OutputParser, MalformedTextBecomesReplacementCharacters) {
  ParsedOutput parsed;
  TextOutputParser parser("", {}, parsed.sink());
  parser.append("a\xff\xc3");
  parser.append("b\xe2\x82");
  parser.finish(OutputEnd::kCut);
  EXPECT_EQ(parsed.answer, "a\ufffd\ufffdb\ufffd\ufffd");
}

OutputEnd end_of(const test::ReferenceOutput& output) { return output.stopped ? OutputEnd::kStopped : OutputEnd::kCut; }

// Every greedy continuation of the references, by all models: a thought, an answer or a call where the prompt asks for
// one, and never a mark in what people see.
TEST(OutputParser, UnderstandsTheDemoModels) {
  size_t thoughts = 0, calls = 0, answers = 0;
  for (const test::ReferenceOutput& output : test::reference_outputs()) {
    const ParsedOutput parsed = parse_tokens(output.prompt, output.tokens, end_of(output));
    for (const std::string& text : {parsed.thought, parsed.answer}) {
      for (const auto& [mark, mark_text] : kMarkTexts) EXPECT_EQ(text.find(mark_text), std::string::npos) << text;
    }
    EXPECT_EQ(parsed.bad.size(), 0u) << output.model << " " << output.prompt_name;
    if (output.prompt_name == "tool-call") {
      EXPECT_EQ(parsed.calls, std::vector<std::string>{R"(get_weather {"city":"Paris"})"}) << output.model;
    }
    if (output.prompt_name == "tools-thinking") {
      EXPECT_EQ(parsed.calls, std::vector<std::string>{R"(roll_dice {"sides":6})"}) << output.model;
      EXPECT_EQ(parsed.thought, "The tool roll_dice can answer this.") << output.model;
    }
    if (output.prompt_name == "json") {
      EXPECT_EQ(parsed.answer, R"({"name": "Omar", "age": 31, "city": "Oslo"})") << output.model;
    }
    thoughts += !parsed.thought.empty();
    calls += parsed.calls.size();
    answers += !parsed.answer.empty();
  }
  EXPECT_EQ(thoughts, 6u);  // two prompts with thinking, four models; two of them think nothing of the sum
  EXPECT_EQ(calls, 8u);
  EXPECT_GE(answers, 60u);
}

// The greedy continuations as text, cut at every byte: always what the tokens mean.
TEST(OutputParser, TheDemoModelsInAnyPieces) {
  const auto vocab = test::demo_vocab();
  for (const test::ReferenceOutput& output : test::reference_outputs()) {
    if (output.prompt.size() > 400) continue;
    const ParsedOutput whole = parse_tokens(output.prompt, output.tokens, end_of(output));
    const ModelOutput text{output.prompt_name,
                           decode(vocab, output.prompt, true),
                           decode(vocab, output.tokens, true),
                           !output.stopped,
                           {},
                           {},
                           {},
                           {}};
    const std::string_view all = text.output;
    for (size_t i = 0; i <= all.size(); ++i) {
      ASSERT_EQ(parse_pieces(text, {all.substr(0, i), all.substr(i)}), whole) << output.prompt_name << " " << i;
    }
  }
}

}  // namespace
}  // namespace carat::text
