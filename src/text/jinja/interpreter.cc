#include "text/jinja/interpreter.h"

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/parser.h"
#include "text/jinja/template.h"

namespace carat::text::jinja {

namespace {

// The variable that stands for the text of a block while its filters are applied; no template can name it.
constexpr std::string_view kBlockText = "";

// The variable `loop` takes about as long to make as this many nodes to evaluate.
constexpr uint64_t kLoopVariableSteps = 16;

class Macro : public Callable {
 public:
  explicit Macro(const Statement& statement) : definition(statement) {}
  const Statement& definition;
};

class Function : public Callable {
 public:
  explicit Function(std::string_view function) : name(function) {}
  const std::string name;
};

Value loop_variable(const std::vector<Value>& items, size_t at) {
  ValueMap loop;
  const auto set = [&](std::string_view name, Value value) { loop.set(MarkedText(name, true), std::move(value)); };
  const auto index = static_cast<int64_t>(at);
  const auto count = static_cast<int64_t>(items.size());
  set("index", Value::integer(index + 1));
  set("index0", Value::integer(index));
  set("revindex", Value::integer(count - index));
  set("revindex0", Value::integer(count - index - 1));
  set("first", Value::boolean(index == 0));
  set("last", Value::boolean(index + 1 == count));
  set("length", Value::integer(count));
  if (index > 0) set("previtem", items[at - 1]);
  if (index + 1 < count) set("nextitem", items[at + 1]);
  return Value::map(std::move(loop));
}

}  // namespace

void Scope::set(std::string_view name, Value value) {
  for (auto& [known, old] : variables_) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  variables_.emplace_back(name, std::move(value));
}

const Value* Scope::find(std::string_view name) const {
  for (const auto& [known, value] : variables_) {
    if (known == name) return &value;
  }
  return parent_ == nullptr ? nullptr : parent_->find(name);
}

// Counts how deep evaluation has gone: macros may call themselves.
class Interpreter::Depth {
 public:
  Depth(Interpreter& interpreter, int line) : depth_(interpreter.depth_) {
    if (++depth_ > interpreter.limits_.call_depth) {
      --depth_;
      fail_at(line, "the template calls itself too deeply");
    }
  }
  ~Depth() { --depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  uint32_t& depth_;
};

MarkedText Interpreter::run(const Block& block, const ValueMap& variables) {
  for (const auto& [name, value] : variables.entries()) globals_.set(name.text(), value);
  MarkedText out;
  execute(block, globals_, out);
  return out;
}

void Interpreter::write(const MarkedText& text, int line, MarkedText& out) {
  site(line).spend_bytes(text.size());
  if (text.size() > limits_.output_bytes - std::min(limits_.output_bytes, out.size())) {
    fail_at(line, "the rendered text is too long");
  }
  out.append(text);
}

Interpreter::Flow Interpreter::execute(const Block& block, Scope& scope, MarkedText& out) {
  for (const Statement& statement : block) {
    const Depth depth(*this, statement.line);
    site(statement.line).spend(1);
    const Flow flow = execute_one(statement, scope, out);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_one(const Statement& statement, Scope& scope, MarkedText& out) {
  switch (statement.kind) {
    case StatementKind::kText:
      write(statement.value.as_string(), statement.line, out);
      return Flow::kNext;
    case StatementKind::kOutput:
      write(site(statement.line).printed(evaluate(*statement.expression, scope)), statement.line, out);
      return Flow::kNext;
    case StatementKind::kSet:
      execute_set(statement, scope);
      return Flow::kNext;
    case StatementKind::kIf:
      return execute_if(statement, scope, out);
    case StatementKind::kFor:
      execute_for(statement, scope, out);
      return Flow::kNext;
    case StatementKind::kMacro:
      scope.set(statement.name, Value::callable(std::make_shared<Macro>(statement)));
      return Flow::kNext;
    case StatementKind::kFilter:
      write(site(statement.line).printed(block_text(statement.body, statement.expression, scope)), statement.line, out);
      return Flow::kNext;
    case StatementKind::kGroup:
      return execute(statement.body, scope, out);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_if(const Statement& statement, Scope& scope, MarkedText& out) {
  for (const Branch& branch : statement.branches) {
    if (branch.condition == nullptr || evaluate(*branch.condition, scope).truthy()) {
      return execute(branch.body, scope, out);
    }
  }
  return Flow::kNext;
}

void Interpreter::execute_for(const Statement& statement, Scope& scope, MarkedText& out) {
  const Site here = site(statement.line);
  std::vector<Value> items = elements(evaluate(*statement.expression, scope), here);
  if (statement.condition != nullptr) {
    std::vector<Value> chosen;
    for (const Value& candidate : items) {
      Scope candidate_scope(&scope);
      bind(statement.names, candidate, candidate_scope, here);
      if (evaluate(*statement.condition, candidate_scope).truthy()) chosen.push_back(candidate);
    }
    items = std::move(chosen);
  }
  if (items.empty()) {
    Scope otherwise(&scope);
    execute(statement.otherwise, otherwise, out);
    return;
  }
  for (size_t at = 0; at < items.size(); ++at) {
    // What an iteration sets is gone in the next, and after the loop.
    Scope iteration(&scope);
    here.spend(statement.uses_loop ? kLoopVariableSteps : 1);
    if (statement.uses_loop) iteration.set("loop", loop_variable(items, at));
    bind(statement.names, items[at], iteration, here);
    if (execute(statement.body, iteration, out) == Flow::kBreak) break;
  }
}

void Interpreter::execute_set(const Statement& statement, Scope& scope) {
  const Site here = site(statement.line);
  Value value = statement.expression != nullptr ? evaluate(*statement.expression, scope)
                                                : block_text(statement.body, statement.condition, scope);
  if (statement.attribute.empty()) return bind(statement.names, value, scope, here);
  const Value* target = scope.find(statement.names[0]);
  if (target == nullptr || !target->is_namespace()) here.fail("{} is no namespace", statement.names[0]);
  if (value.is_namespace()) here.fail("a namespace cannot be stored in a namespace");
  target->as_namespace().set(MarkedText(statement.attribute, true), std::move(value));
}

Value Interpreter::block_text(const Block& block, const ExpressionPtr& filters, Scope& scope) {
  Scope inner(&scope);
  MarkedText text;
  execute(block, inner, text);
  if (filters == nullptr) return Value::string(std::move(text));
  inner.set(kBlockText, Value::string(std::move(text)));
  return evaluate(*filters, inner);
}

void Interpreter::bind(const std::vector<std::string>& names, const Value& value, Scope& scope, const Site& site) {
  if (names.size() == 1) return scope.set(names[0], value);
  const std::vector<Value> parts = elements(value, site);
  if (parts.size() != names.size()) site.fail("{} values for {} variables", parts.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) scope.set(names[i], parts[i]);
}

Value Interpreter::evaluate(const Expression& node, const Scope& scope) {
  const Depth depth(*this, node.line);
  site(node.line).spend(1);
  return evaluate_node(node, scope);
}

Value Interpreter::evaluate_node(const Expression& node, const Scope& scope) {
  const Site here = site(node.line);
  const auto operand = [&](size_t i) { return evaluate(*node.operands[i], scope); };
  switch (node.kind) {
    case ExpressionKind::kLiteral:
      return node.value;
    case ExpressionKind::kVariable:
      return evaluate_variable(node, scope);
    case ExpressionKind::kList:
      return evaluate_list(node, scope);
    case ExpressionKind::kMap:
      return evaluate_map(node, scope);
    case ExpressionKind::kAttribute:
      return attribute(operand(0), node.name, here);
    case ExpressionKind::kItem: {
      const Value container = operand(0);
      return item(container, operand(1), here);
    }
    case ExpressionKind::kSlice: {
      const Value container = operand(0), start = evaluate_optional(node.operands[1], scope);
      const Value stop = evaluate_optional(node.operands[2], scope);
      return slice(container, start, stop, evaluate_optional(node.operands[3], scope), here);
    }
    case ExpressionKind::kCall:
      return evaluate_call(node, scope);
    case ExpressionKind::kFilter: {
      const Value input = operand(0);
      return apply_filter(node.name, input, evaluate_arguments(node.arguments, scope, here), here);
    }
    case ExpressionKind::kTest: {
      const Value input = operand(0);
      return Value::boolean(apply_test(node.name, input, evaluate_arguments(node.arguments, scope, here), here));
    }
    case ExpressionKind::kNot:
      return Value::boolean(!operand(0).truthy());
    case ExpressionKind::kNegate:
      return negate(operand(0), here);
    case ExpressionKind::kPlus:
      return operand(0);
    case ExpressionKind::kAnd: {
      Value left = operand(0);
      return left.truthy() ? operand(1) : left;
    }
    case ExpressionKind::kOr: {
      Value left = operand(0);
      return left.truthy() ? left : operand(1);
    }
    case ExpressionKind::kBinary: {
      const Value left = operand(0);
      return binary(node.name, left, operand(1), here);
    }
    case ExpressionKind::kCompare:
      return evaluate_compare(node, scope);
    case ExpressionKind::kConditional:
      return operand(1).truthy() ? operand(0) : evaluate_optional(node.operands[2], scope);
  }
  return Value();
}

Value Interpreter::evaluate_optional(const ExpressionPtr& node, const Scope& scope) {
  return node == nullptr ? Value() : evaluate(*node, scope);
}

Value Interpreter::evaluate_variable(const Expression& node, const Scope& scope) {
  if (const Value* found = scope.find(node.name)) return *found;
  if (is_function(node.name)) return Value::callable(std::make_shared<Function>(node.name));
  return Value::undefined(node.name);
}

Value Interpreter::evaluate_list(const Expression& node, const Scope& scope) {
  std::vector<Value> items;
  for (const ExpressionPtr& operand : node.operands) items.push_back(evaluate(*operand, scope));
  return Value::list(std::move(items));
}

Value Interpreter::evaluate_map(const Expression& node, const Scope& scope) {
  ValueMap entries;
  for (size_t i = 0; i < node.operands.size(); i += 2) {
    const Value key = evaluate(*node.operands[i], scope);
    if (!key.is_string()) site(node.line).fail("a key of a mapping is {}, not a string", key.kind_name());
    entries.set(key.as_string(), evaluate(*node.operands[i + 1], scope));
  }
  return Value::map(std::move(entries));
}

// a < b <= c: each operand is evaluated once, and only as far as needed.
Value Interpreter::evaluate_compare(const Expression& node, const Scope& scope) {
  Value left = evaluate(*node.operands[0], scope);
  for (size_t i = 0; i < node.names.size(); ++i) {
    Value right = evaluate(*node.operands[i + 1], scope);
    if (!compare(node.names[i], left, right, site(node.line))) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_call(const Expression& node, const Scope& scope) {
  const Site here = site(node.line);
  const Expression& callee = *node.operands[0];
  if (callee.kind == ExpressionKind::kAttribute) {
    const Value object = evaluate(*callee.operands[0], scope);
    return call_method(object, callee.name, evaluate_arguments(node.arguments, scope, here), here);
  }
  const Value target = evaluate(callee, scope);
  if (target.is_undefined()) here.fail("{} is undefined, so it cannot be called", target.undefined_name());
  if (!target.is_callable()) here.fail("{} cannot be called", target.kind_name());
  Arguments arguments = evaluate_arguments(node.arguments, scope, here);
  if (const auto* macro = dynamic_cast<const Macro*>(&target.as_callable())) {
    return call_macro(macro->definition, std::move(arguments), here);
  }
  return call_function(static_cast<const Function&>(target.as_callable()).name, std::move(arguments), here);
}

Arguments Interpreter::evaluate_arguments(const std::vector<Argument>& arguments, const Scope& scope,
                                          const Site& site) {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  for (const Argument& argument : arguments) {
    Value value = evaluate(*argument.value, scope);
    if (argument.name.empty()) {
      positional.push_back(std::move(value));
    } else {
      named.emplace_back(argument.name, std::move(value));
    }
  }
  return Arguments(site, std::move(positional), std::move(named));
}

// A macro sees its parameters and the variables of the template, not those of its caller.
Value Interpreter::call_macro(const Statement& macro, Arguments arguments, const Site& site) {
  Scope scope(&globals_);
  for (const Argument& parameter : macro.parameters) {
    Value value = arguments.take(parameter.name);
    if (value.is_undefined() && parameter.value != nullptr) value = evaluate(*parameter.value, scope);
    scope.set(parameter.name, std::move(value));
  }
  arguments.finish();
  MarkedText text;
  execute(macro.body, scope, text);
  return site.string(std::move(text));
}

struct Template::Parsed {
  Limits limits;
  Block block;
};

Template Template::parse(std::string_view source, const Limits& limits) {
  return Template(std::make_shared<const Parsed>(Parsed{limits, jinja::parse(source, limits)}));
}

MarkedText Template::render(const ValueMap& variables) const {
  return Interpreter(parsed_->limits).run(parsed_->block, variables);
}

}  // namespace carat::text::jinja
