#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "base/error.h"

namespace carat::text::jinja {

namespace {

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kText:
      return "text";
    case TokenKind::kOpenStatement:
      return "{%";
    case TokenKind::kCloseStatement:
      return "%}";
    case TokenKind::kOpenExpression:
      return "{{";
    case TokenKind::kCloseExpression:
      return "}}";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kEnd:
      return "the end of the template";
    default:
      return "'" + token.text + "'";
  }
}

std::vector<ExpressionPtr> operands_of(ExpressionPtr first, ExpressionPtr second = nullptr) {
  std::vector<ExpressionPtr> operands;
  operands.push_back(std::move(first));
  if (second != nullptr) operands.push_back(std::move(second));
  return operands;
}

}  // namespace

const Token& Cursor::expect(TokenKind kind, std::string_view what) {
  if (peek().kind != kind) fail_at(line(), fmt::format("{} instead of {}", describe(peek()), what));
  return next();
}

void Cursor::expect_operator(std::string_view text) {
  if (!take_operator(text)) fail_at(line(), fmt::format("{} instead of {}", describe(peek()), text));
}

void Cursor::expect_name(std::string_view text) {
  if (!take_name(text)) fail_at(line(), fmt::format("{} instead of {}", describe(peek()), text));
}

ExpressionPtr ExpressionParser::make(ExpressionKind kind, int line, std::vector<ExpressionPtr> operands,
                                     std::string name, std::vector<Argument> arguments) {
  auto node = std::make_unique<Expression>(Expression{kind, line});
  node->name = std::move(name);
  node->operands = std::move(operands);
  node->arguments = std::move(arguments);
  const auto deepen = [&](const ExpressionPtr& child) {
    if (child != nullptr) node->depth = std::max(node->depth, child->depth + 1);
  };
  for (const auto& operand : node->operands) deepen(operand);
  for (const auto& argument : node->arguments) deepen(argument.value);
  // Long chains of operators nest as well, though the parser does not recurse for them.
  if (node->depth > limits_.nesting) fail_at(line, "an expression is too long");
  return node;
}

ExpressionPtr ExpressionParser::parse() {
  const Level level(*this);
  ExpressionPtr value = parse_or();
  while (cursor_.peek().is_name("if")) {
    const int line = cursor_.next().line;
    ExpressionPtr condition = parse_or();
    ExpressionPtr otherwise = cursor_.take_name("else") ? parse() : nullptr;
    auto operands = operands_of(std::move(value), std::move(condition));
    operands.push_back(std::move(otherwise));
    value = make(ExpressionKind::kConditional, line, std::move(operands));
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_sequence() {
  ExpressionPtr first = parse();
  if (!cursor_.peek().is_operator(",")) return first;
  const int line = first->line;
  auto items = operands_of(std::move(first));
  const auto ends = [&] {
    const Token& token = cursor_.peek();
    return token.kind == TokenKind::kCloseExpression || token.kind == TokenKind::kCloseStatement ||
           token.is_operator(")");
  };
  while (cursor_.take_operator(",") && !ends()) items.push_back(parse());
  return make(ExpressionKind::kList, line, std::move(items));
}

ExpressionPtr ExpressionParser::parse_or() {
  ExpressionPtr left = parse_and();
  while (cursor_.peek().is_name("or")) {
    const int line = cursor_.next().line;
    left = make(ExpressionKind::kOr, line, operands_of(std::move(left), parse_and()));
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  ExpressionPtr left = parse_not();
  while (cursor_.peek().is_name("and")) {
    const int line = cursor_.next().line;
    left = make(ExpressionKind::kAnd, line, operands_of(std::move(left), parse_not()));
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!cursor_.peek().is_name("not")) return parse_comparison();
  const Level level(*this);
  const int line = cursor_.next().line;
  return make(ExpressionKind::kNot, line, operands_of(parse_not()));
}

bool ExpressionParser::take_comparison(std::string& name) {
  for (const char* op : {"==", "!=", "<=", ">=", "<", ">"}) {
    if (!cursor_.take_operator(op)) continue;
    name = op;
    return true;
  }
  if (cursor_.peek().is_name("not") && cursor_.peek(1).is_name("in")) {
    cursor_.next();
    cursor_.next();
    name = "not in";
    return true;
  }
  name = "in";
  return cursor_.take_name("in");
}

ExpressionPtr ExpressionParser::parse_comparison() {
  ExpressionPtr first = parse_sum();
  const int line = first->line;
  std::vector<std::string> names;
  std::vector<ExpressionPtr> operands;
  for (std::string name; take_comparison(name);) {
    if (operands.empty()) operands.push_back(std::move(first));
    names.push_back(name);
    operands.push_back(parse_sum());
  }
  if (operands.empty()) return first;
  ExpressionPtr node = make(ExpressionKind::kCompare, line, std::move(operands));
  node->names = std::move(names);
  return node;
}

ExpressionPtr ExpressionParser::parse_binary(std::initializer_list<std::string_view> operators, Parse operand) {
  ExpressionPtr left = (this->*operand)();
  for (;;) {
    const Token token = cursor_.peek();
    const bool fits = token.kind == TokenKind::kOperator &&
                      std::find(operators.begin(), operators.end(), token.text) != operators.end();
    if (!fits) return left;
    cursor_.next();
    left = make(ExpressionKind::kBinary, token.line, operands_of(std::move(left), (this->*operand)()), token.text);
  }
}

ExpressionPtr ExpressionParser::parse_sum() { return parse_binary({"+", "-"}, &ExpressionParser::parse_concatenation); }
ExpressionPtr ExpressionParser::parse_concatenation() { return parse_binary({"~"}, &ExpressionParser::parse_product); }
ExpressionPtr ExpressionParser::parse_product() {
  return parse_binary({"*", "/", "//", "%"}, &ExpressionParser::parse_power);
}
ExpressionPtr ExpressionParser::parse_power() { return parse_binary({"**"}, &ExpressionParser::parse_unary); }

ExpressionPtr ExpressionParser::parse_unary() { return parse_filters_and_tests(parse_sign()); }

// A sign binds less than attributes and calls, and more than filters: -x.y | abs is (-(x.y)) | abs.
ExpressionPtr ExpressionParser::parse_sign() {
  const Token& token = cursor_.peek();
  if (!token.is_operator("-") && !token.is_operator("+")) return parse_postfix(parse_primary());
  const Level level(*this);
  const auto kind = token.text == "-" ? ExpressionKind::kNegate : ExpressionKind::kPlus;
  const int line = cursor_.next().line;
  return make(kind, line, operands_of(parse_sign()));
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Level level(*this);
  const Token token = cursor_.peek();
  if (token.kind == TokenKind::kString) return parse_strings();
  cursor_.next();
  if (token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat) return parse_number(token);
  if (token.is_operator("[")) return parse_list();
  if (token.is_operator("{")) return parse_map();
  if (token.is_operator("(")) {
    if (cursor_.take_operator(")")) return make(ExpressionKind::kList, token.line);
    ExpressionPtr inner = parse_sequence();
    cursor_.expect_operator(")");
    return inner;
  }
  if (token.kind != TokenKind::kName) fail_at(token.line, describe(token) + " instead of a value");
  if (token.text == "loop") ++mentions_of_loop_;
  ExpressionPtr node = make(ExpressionKind::kVariable, token.line, {}, token.text);
  const auto literal = [&](Value value) {
    node->kind = ExpressionKind::kLiteral;
    node->value = std::move(value);
  };
  if (token.text == "true" || token.text == "True") literal(Value::boolean(true));
  if (token.text == "false" || token.text == "False") literal(Value::boolean(false));
  if (token.text == "none" || token.text == "None") literal(Value::none());
  return node;
}

ExpressionPtr ExpressionParser::parse_number(const Token& token) {
  ExpressionPtr node = make(ExpressionKind::kLiteral, token.line);
  const char* const begin = token.text.data();
  const char* const end = begin + token.text.size();
  if (token.kind == TokenKind::kInteger) {
    int64_t number = 0;
    if (std::from_chars(begin, end, number).ec != std::errc()) fail_at(token.line, token.text + " is too large");
    node->value = Value::integer(number);
  } else {
    double number = 0;
    if (std::from_chars(begin, end, number).ec != std::errc()) fail_at(token.line, token.text + " is out of range");
    node->value = Value::real(number);
  }
  return node;
}

// Neighbouring strings are one, as in Python.
ExpressionPtr ExpressionParser::parse_strings() {
  ExpressionPtr node = make(ExpressionKind::kLiteral, cursor_.line());
  std::string text;
  while (cursor_.peek().kind == TokenKind::kString) text += cursor_.next().text;
  node->value = Value::string(text, true);
  return node;
}

ExpressionPtr ExpressionParser::parse_list() {
  const int line = cursor_.line();
  std::vector<ExpressionPtr> items;
  while (!cursor_.take_operator("]")) {
    if (!items.empty()) {
      cursor_.expect_operator(",");
      if (cursor_.take_operator("]")) break;
    }
    items.push_back(parse());
  }
  return make(ExpressionKind::kList, line, std::move(items));
}

ExpressionPtr ExpressionParser::parse_map() {
  const int line = cursor_.line();
  std::vector<ExpressionPtr> entries;
  while (!cursor_.take_operator("}")) {
    if (!entries.empty()) {
      cursor_.expect_operator(",");
      if (cursor_.take_operator("}")) break;
    }
    entries.push_back(parse());
    cursor_.expect_operator(":");
    entries.push_back(parse());
  }
  return make(ExpressionKind::kMap, line, std::move(entries));
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr operand) {
  for (;;) {
    const int line = cursor_.line();
    if (cursor_.take_operator(".")) {
      const Token name = cursor_.next();
      if (name.kind == TokenKind::kInteger) {
        operand = make(ExpressionKind::kItem, line, operands_of(std::move(operand), parse_number(name)));
      } else if (name.kind == TokenKind::kName) {
        operand = make(ExpressionKind::kAttribute, line, operands_of(std::move(operand)), name.text);
      } else {
        fail_at(line, describe(name) + " instead of an attribute");
      }
    } else if (cursor_.take_operator("[")) {
      operand = parse_brackets(std::move(operand));
    } else if (cursor_.peek().is_operator("(")) {
      auto arguments = parse_arguments();
      operand = make(ExpressionKind::kCall, line, operands_of(std::move(operand)), {}, std::move(arguments));
    } else {
      return operand;
    }
  }
}

// What follows [: an index, or a slice with any of its three parts.
ExpressionPtr ExpressionParser::parse_brackets(ExpressionPtr operand) {
  const int line = cursor_.line();
  std::vector<ExpressionPtr> parts;
  parts.push_back(std::move(operand));
  bool is_slice = false;
  parts.push_back(cursor_.peek().is_operator(":") ? nullptr : parse());
  while (cursor_.take_operator(":")) {
    if (parts.size() == 4) fail_at(line, "a slice has more than three parts");
    is_slice = true;
    const bool absent = cursor_.peek().is_operator(":") || cursor_.peek().is_operator("]");
    parts.push_back(absent ? nullptr : parse());
  }
  cursor_.expect_operator("]");
  parts.resize(is_slice ? 4 : 2);
  return make(is_slice ? ExpressionKind::kSlice : ExpressionKind::kItem, line, std::move(parts));
}

ExpressionPtr ExpressionParser::parse_filters_and_tests(ExpressionPtr operand) {
  for (;;) {
    if (cursor_.take_operator("|")) {
      operand = parse_filter(std::move(operand));
    } else if (cursor_.take_name("is")) {
      operand = parse_test(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr operand) {
  const Token name = cursor_.expect(TokenKind::kName, "the name of a filter");
  std::vector<Argument> arguments;
  if (cursor_.peek().is_operator("(")) arguments = parse_arguments();
  return make(ExpressionKind::kFilter, name.line, operands_of(std::move(operand)), name.text, std::move(arguments));
}

ExpressionPtr ExpressionParser::parse_filters_of_block() {
  ExpressionPtr node = make(ExpressionKind::kVariable, cursor_.line());
  cursor_.take_operator("|");
  do {
    node = parse_filter(std::move(node));
  } while (cursor_.take_operator("|"));
  return node;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr operand) {
  const bool negated = cursor_.take_name("not");
  Token name = cursor_.next();
  if (name.is_operator("==")) name = {TokenKind::kName, "eq", name.line};
  if (name.kind != TokenKind::kName) fail_at(name.line, describe(name) + " instead of the name of a test");
  std::vector<Argument> arguments;
  const Token& next = cursor_.peek();
  const bool is_keyword = next.is_name("else") || next.is_name("or") || next.is_name("and") || next.is_name("is") ||
                          next.is_name("if") || next.is_name("not") || next.is_name("in");
  if (next.is_operator("(")) {
    arguments = parse_arguments();
  } else if (next.kind == TokenKind::kString || next.kind == TokenKind::kInteger || next.kind == TokenKind::kFloat ||
             (next.kind == TokenKind::kName && !is_keyword) || next.is_operator("[") || next.is_operator("{")) {
    arguments.push_back({"", parse_postfix(parse_primary())});  // x is divisibleby 3
  }
  ExpressionPtr test =
      make(ExpressionKind::kTest, name.line, operands_of(std::move(operand)), name.text, std::move(arguments));
  return negated ? make(ExpressionKind::kNot, name.line, operands_of(std::move(test))) : std::move(test);
}

std::vector<Argument> ExpressionParser::parse_arguments() {
  cursor_.expect_operator("(");
  std::vector<Argument> arguments;
  while (!cursor_.take_operator(")")) {
    if (!arguments.empty()) {
      cursor_.expect_operator(",");
      if (cursor_.take_operator(")")) break;
    }
    Argument argument;
    if (cursor_.peek().kind == TokenKind::kName && cursor_.peek(1).is_operator("=")) {
      argument.name = cursor_.next().text;
      cursor_.next();
    } else if (!arguments.empty() && !arguments.back().name.empty()) {
      fail_at(cursor_.line(), "an argument by position after one by name");
    }
    argument.value = parse();
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

}  // namespace carat::text::jinja
