#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/value.h"

namespace carat::text::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Argument {
  std::string name;  // empty: by position
  ExpressionPtr value;
};

enum class ExpressionKind {
  kLiteral,    // value
  kVariable,   // name
  kList,       // operands
  kMap,        // operands: key, value, key, value, ...
  kAttribute,  // operands[0].name
  kItem,       // operands[0][operands[1]]
  kSlice,      // operands[0][operands[1]:operands[2]:operands[3]]; absent ones are null
  kCall,       // operands[0](arguments)
  kFilter,     // operands[0] | name(arguments)
  kTest,       // operands[0] is name(arguments)
  kNot,
  kNegate,
  kPlus,
  kAnd,
  kOr,
  kBinary,       // operands[0] name operands[1]: arithmetic and ~
  kCompare,      // operands[0] names[0] operands[1] names[1] operands[2] ...
  kConditional,  // operands[0] if operands[1] else operands[2], which may be null
};

// One kind of node for all expressions: what its fields hold is said at the kind.
struct Expression {
  ExpressionKind kind;
  int line;
  uint32_t depth = 1;  // of the tree below, itself included
  std::string name = {};
  Value value = {};
  std::vector<std::string> names = {};
  std::vector<ExpressionPtr> operands = {};
  std::vector<Argument> arguments = {};
};

struct Statement;
using Block = std::vector<Statement>;

enum class StatementKind {
  kText,    // value
  kOutput,  // expression
  kSet,     // names (or names[0].attribute) = expression, or the text of body through the filters of condition
  kIf,      // branches
  kFor,     // names in expression if condition: body, else otherwise
  kMacro,   // name(parameters): body
  kFilter,  // the text of body through the filters of expression
  kBreak,
  kContinue,
  kGroup,  // body: {% generation %}, which has no meaning outside of training
};

struct Branch {
  ExpressionPtr condition;  // null: else
  Block body;
};

struct Statement {
  StatementKind kind;
  int line;
  std::string name = {};
  std::string attribute = {};
  Value value = {};
  std::vector<std::string> names = {};
  std::vector<Argument> parameters = {};  // of a macro; the value is the default or null
  ExpressionPtr expression = {};
  ExpressionPtr condition = {};
  Block body = {};
  Block otherwise = {};
  std::vector<Branch> branches = {};
  bool uses_loop = false;  // the body of this loop mentions the variable `loop`
};

}  // namespace carat::text::jinja
