#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/state_table.h"
#include "text/grammar/token_mask.h"
#include "text/grammar/token_trie.h"

namespace carat::text::grammar {

// Follows what has been written of a JSON text (or of a call's arguments), beside the grammar: the items of arrays
// that must be different and the free names of objects (Scope), which no grammar can remember. Says which tokens would
// repeat one, or lead to where only repetitions are left.
//
// A partial item or name is no danger unless one that was written before begins with it; so only few tokens are looked
// at. Whether something new can still come of it is found exactly: those written before form a tree, and the grammar is
// walked along it until it leads out of it. What leads out can be completed, as every state of the grammar can.
class JsonChecker {
 public:
  explicit JsonChecker(char string_quote) : quote_(string_quote) {}

  // After `byte`, which led from the state `before` to `after`. False when it completes a repetition.
  bool read(StateTable& table, StateId before, StateId after, uint8_t byte);

  // Whether, from `state`, which is where the text so far leads, something new can come of what is being written.
  bool can_go_on(StateTable& table, StateId state) const;

  // Whether some tokens may have to be taken away at all.
  bool is_watching(StateTable& table, StateId state) const;
  // Takes away the tokens of `mask` that must not come after `state`.
  void narrow(StateTable& table, StateId state, const TokenTrie& trie, TokenMask& mask) const;

 private:
  using Texts = std::set<std::string, std::less<>>;
  struct Level {
    bool is_object = false;
    bool expects_name = false;  // the next string is a name
    bool is_unique = false;     // the items read so far had to be different
    bool has_item = false;      // one is being read
    std::string item;           // what is read of it, or of the name; without space between values
    std::shared_ptr<Texts> known = std::make_shared<Texts>();  // the items, or the free names; copied before a change
  };

  static bool is_unique_at(StateTable& table, StateId state, size_t depth);
  static bool add(Level& level, const std::string& text);
  static bool end_item(Level& level);
  void append(char byte);
  void begin_item(StateTable& table, StateId before);
  bool read_in_string(StateTable& table, StateId after, char byte);
  StateId after_space(StateTable& table, StateId state) const;
  bool allows(StateTable& table, StateId state, std::string_view bytes) const;
  void follow(StateTable& table, StateId state, const TokenTrie& trie, std::string_view rest, TokenMask& mask) const;

  char quote_;
  std::vector<Level> levels_;
  bool in_string_ = false, in_name_ = false, is_escaped_ = false;
};

}  // namespace carat::text::grammar
