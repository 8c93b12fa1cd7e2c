#include "text/grammar/fit.h"

#include "text/grammar/json_checker.h"
#include "text/grammar/state_table.h"

namespace carat::text::grammar {

Fit fit_of(const std::shared_ptr<const Automaton>& automaton, std::string_view text) {
  StateTable table(automaton, 1);
  JsonChecker checker(automaton->string_quote());
  StateId state = table.start();
  Fit fit;
  for (const char byte : text) {
    table.begin_work();
    const StateId next = table.step(state, static_cast<uint8_t>(byte));
    if (next == StateTable::kDead) return fit;
    if (automaton->has_checks()) {
      if (!checker.read(table, state, next, static_cast<uint8_t>(byte))) return fit;
      if (!checker.can_go_on(table, next)) return fit;
    }
    state = next;
    ++fit.bytes;
  }
  fit.is_complete = table.at_bottom(state);
  return fit;
}

}  // namespace carat::text::grammar
