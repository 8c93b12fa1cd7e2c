#include "text/jinja/parser.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <string>

#include "base/error.h"
#include "text/jinja/expression_parser.h"

namespace carat::text::jinja {

namespace {

class StatementParser {
 public:
  StatementParser(std::vector<Token> tokens, const Limits& limits)
      : cursor_(std::move(tokens)), expressions_(cursor_, limits), limits_(limits) {}

  Block parse() {
    Block block = parse_block({});
    if (cursor_.peek().kind != TokenKind::kEnd) {
      fail_at(cursor_.line(), fmt::format("{{% {} %}} ends nothing", cursor_.peek(1).text));
    }
    return block;
  }

 private:
  // Statements up to, and without, one of the tags in `ends`. At the top level, up to the end.
  Block parse_block(std::initializer_list<std::string_view> ends) {
    if (++depth_ > limits_.nesting) fail_at(cursor_.line(), "blocks nest too deeply");
    Block block;
    for (;;) {
      const Token& token = cursor_.peek();
      if (token.kind == TokenKind::kEnd) {
        if (ends.size() > 0)
          fail_at(token.line, fmt::format("the template ends where {{% {} %}} should be", *ends.begin()));
        break;
      }
      const bool opens = token.kind == TokenKind::kOpenStatement;
      if (opens && is_end(cursor_.peek(1), ends)) break;
      parse_one(block);
    }
    --depth_;
    return block;
  }

  static bool is_end(const Token& name, std::initializer_list<std::string_view> ends) {
    constexpr std::array<std::string_view, 9> kAllEnds = {"endif",    "else",      "elif",          "endfor", "endset",
                                                          "endmacro", "endfilter", "endgeneration", "endcall"};
    if (name.kind != TokenKind::kName) return false;
    if (ends.size() == 0) return std::find(kAllEnds.begin(), kAllEnds.end(), name.text) != kAllEnds.end();
    return std::find(ends.begin(), ends.end(), name.text) != ends.end();
  }

  void parse_one(Block& block) {
    const Token& token = cursor_.peek();
    if (token.kind == TokenKind::kText) {
      Statement text{StatementKind::kText, token.line};
      text.value = Value::string(token.text, true);
      cursor_.next();
      block.push_back(std::move(text));
    } else if (token.kind == TokenKind::kOpenExpression) {
      Statement output{StatementKind::kOutput, token.line};
      cursor_.next();
      output.expression = expressions_.parse_sequence();
      cursor_.expect(TokenKind::kCloseExpression, "}}");
      block.push_back(std::move(output));
    } else {
      cursor_.expect(TokenKind::kOpenStatement, "{%");
      block.push_back(parse_statement());
    }
  }

  Statement parse_statement() {
    const Token keyword = cursor_.expect(TokenKind::kName, "the name of a statement");
    if (keyword.text == "set") return parse_set(keyword.line);
    if (keyword.text == "if") return parse_if(keyword.line);
    if (keyword.text == "for") return parse_for(keyword.line);
    if (keyword.text == "macro") return parse_macro(keyword.line);
    if (keyword.text == "filter") return parse_filter(keyword.line);
    if (keyword.text == "generation") return parse_group(keyword.line);
    if (keyword.text == "break" || keyword.text == "continue") {
      if (loops_ == 0) fail_at(keyword.line, keyword.text + " outside of a loop");
      close_tag();
      return {keyword.text == "break" ? StatementKind::kBreak : StatementKind::kContinue, keyword.line};
    }
    fail_at(keyword.line, fmt::format("{{% {} %}} is not supported in chat templates", keyword.text));
  }

  void close_tag() { cursor_.expect(TokenKind::kCloseStatement, "%}"); }
  // {% name %}, which the block before it has stopped at.
  void end_tag(std::string_view name) {
    cursor_.expect(TokenKind::kOpenStatement, "{%");
    cursor_.expect_name(name);
    close_tag();
  }

  Statement parse_set(int line) {
    Statement set{StatementKind::kSet, line};
    do {
      set.names.push_back(cursor_.expect(TokenKind::kName, "a variable").text);
    } while (cursor_.take_operator(","));
    if (set.names.size() == 1 && cursor_.take_operator(".")) {
      set.attribute = cursor_.expect(TokenKind::kName, "an attribute").text;
    }
    if (cursor_.take_operator("=")) {
      set.expression = expressions_.parse_sequence();
      close_tag();
      return set;
    }
    if (cursor_.peek().is_operator("|")) set.condition = expressions_.parse_filters_of_block();
    close_tag();
    set.body = parse_block({"endset"});
    end_tag("endset");
    return set;
  }

  Statement parse_if(int line) {
    Statement statement{StatementKind::kIf, line};
    ExpressionPtr condition = expressions_.parse();
    for (;;) {
      close_tag();
      Block body = condition == nullptr ? parse_block({"endif"}) : parse_block({"endif", "elif", "else"});
      statement.branches.push_back({std::move(condition), std::move(body)});
      cursor_.expect(TokenKind::kOpenStatement, "{%");
      const std::string name = cursor_.expect(TokenKind::kName, "endif").text;
      if (name == "endif") break;
      condition = name == "elif" ? expressions_.parse() : nullptr;
    }
    close_tag();
    return statement;
  }

  Statement parse_for(int line) {
    Statement loop{StatementKind::kFor, line};
    const bool in_brackets = cursor_.take_operator("(");
    do {
      loop.names.push_back(cursor_.expect(TokenKind::kName, "a loop variable").text);
    } while (cursor_.take_operator(","));
    if (in_brackets) cursor_.expect_operator(")");
    cursor_.expect_name("in");
    loop.expression = expressions_.parse_without_condition();
    if (cursor_.take_name("if")) loop.condition = expressions_.parse();
    if (cursor_.peek().is_name("recursive")) fail_at(line, "recursive loops are not supported in chat templates");
    close_tag();
    ++loops_;
    const size_t mentions = expressions_.mentions_of_loop();
    loop.body = parse_block({"endfor", "else"});
    loop.uses_loop = expressions_.mentions_of_loop() > mentions;
    --loops_;
    if (cursor_.peek(1).is_name("else")) {
      end_tag("else");
      loop.otherwise = parse_block({"endfor"});
    }
    end_tag("endfor");
    return loop;
  }

  Statement parse_macro(int line) {
    Statement macro{StatementKind::kMacro, line};
    macro.name = cursor_.expect(TokenKind::kName, "the name of the macro").text;
    cursor_.expect_operator("(");
    while (!cursor_.take_operator(")")) {
      if (!macro.parameters.empty()) cursor_.expect_operator(",");
      Argument parameter{cursor_.expect(TokenKind::kName, "a parameter").text, nullptr};
      if (cursor_.take_operator("=")) parameter.value = expressions_.parse();
      macro.parameters.push_back(std::move(parameter));
    }
    close_tag();
    const int loops = std::exchange(loops_, 0);
    macro.body = parse_block({"endmacro"});
    loops_ = loops;
    cursor_.expect(TokenKind::kOpenStatement, "{%");
    cursor_.expect_name("endmacro");
    if (cursor_.peek().kind == TokenKind::kName) cursor_.next();  // {% endmacro name %}
    close_tag();
    return macro;
  }

  Statement parse_filter(int line) {
    Statement filter{StatementKind::kFilter, line};
    filter.expression = expressions_.parse_filters_of_block();
    close_tag();
    filter.body = parse_block({"endfilter"});
    end_tag("endfilter");
    return filter;
  }

  Statement parse_group(int line) {
    Statement group{StatementKind::kGroup, line};
    close_tag();
    group.body = parse_block({"endgeneration"});
    end_tag("endgeneration");
    return group;
  }

  Cursor cursor_;
  ExpressionParser expressions_;
  const Limits& limits_;
  uint32_t depth_ = 0;
  int loops_ = 0;
};

}  // namespace

Block parse(std::string_view source, const Limits& limits) {
  if (source.size() > limits.template_bytes) {
    fail(ErrorCode::kBadFile, "the chat template has {} bytes; at most {} are read", source.size(),
         limits.template_bytes);
  }
  return StatementParser(tokenize(source), limits).parse();
}

}  // namespace carat::text::jinja
