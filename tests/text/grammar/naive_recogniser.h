#pragma once

#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "text/grammar/grammar.h"

namespace carat::text::grammar::test {

// The meaning of a grammar in the plainest way: tries everything at every position of the text. For small grammars and
// short texts, to judge the automaton by.
class NaiveRecogniser {
 public:
  explicit NaiveRecogniser(const Grammar& grammar);

  bool matches(std::string_view text);      // the whole text
  bool can_begin(std::string_view prefix);  // some text that begins like this matches

 private:
  bool productive(ExpressionId id) const;
  std::vector<bool> ends(ExpressionId id, size_t at);
  std::vector<bool> compute_ends(ExpressionId id, size_t at);
  std::vector<bool> ends_of_characters(const Expression& expression, size_t at);
  void add_permutations(const Expression& e, size_t at, const std::vector<uint32_t>& read, std::vector<bool>& result);
  std::vector<bool> ends_of_repeat(const Expression& expression, size_t at);
  std::vector<bool> ends_from(ExpressionId id, const std::vector<bool>& starts);

  const Grammar& grammar_;
  std::vector<bool> productive_rules_;
  std::map<ExpressionId, bool> productive_;
  std::string_view text_;
  std::map<std::pair<ExpressionId, size_t>, std::vector<bool>> known_;  // of this text
  bool wants_more_ = false;  // something could still be read at the end of the text
};

}  // namespace carat::text::grammar::test
