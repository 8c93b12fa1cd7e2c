#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/limits.h"
#include "text/jinja/site.h"
#include "text/output/marked_text.h"
#include "text/value.h"

namespace carat::text::jinja {

// The variables of a block and, through its parent, of those around it.
class Scope {
 public:
  explicit Scope(const Scope* parent = nullptr) : parent_(parent) {}

  void set(std::string_view name, Value value);
  const Value* find(std::string_view name) const;

 private:
  const Scope* parent_;
  std::vector<std::pair<std::string, Value>> variables_;
};

// Runs one template once.
class Interpreter {
 public:
  explicit Interpreter(const Limits& limits) : limits_(limits), budget_{limits.steps, limits.bytes} {}

  MarkedText run(const Block& block, const ValueMap& variables);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class Depth;

  Site site(int line) { return Site(budget_, line); }
  void write(const MarkedText& text, int line, MarkedText& out);

  Flow execute(const Block& block, Scope& scope, MarkedText& out);
  Flow execute_one(const Statement& statement, Scope& scope, MarkedText& out);
  Flow execute_if(const Statement& statement, Scope& scope, MarkedText& out);
  void execute_for(const Statement& statement, Scope& scope, MarkedText& out);
  void execute_set(const Statement& statement, Scope& scope);
  Value block_text(const Block& block, const ExpressionPtr& filters, Scope& scope);
  void bind(const std::vector<std::string>& names, const Value& value, Scope& scope, const Site& site);

  Value evaluate(const Expression& node, const Scope& scope);
  Value evaluate_node(const Expression& node, const Scope& scope);
  Value evaluate_optional(const ExpressionPtr& node, const Scope& scope);
  Value evaluate_variable(const Expression& node, const Scope& scope);
  Value evaluate_list(const Expression& node, const Scope& scope);
  Value evaluate_map(const Expression& node, const Scope& scope);
  Value evaluate_compare(const Expression& node, const Scope& scope);
  Value evaluate_call(const Expression& node, const Scope& scope);
  Arguments evaluate_arguments(const std::vector<Argument>& arguments, const Scope& scope, const Site& site);
  Value call_macro(const Statement& macro, Arguments arguments, const Site& site);

  const Limits& limits_;
  Budget budget_;
  uint32_t depth_ = 0;
  Scope globals_;
};

}  // namespace carat::text::jinja
