#include "text/grammar/json_checker.h"

#include <algorithm>

namespace carat::text::grammar {

namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// How far a partial item is open.
struct Shape {
  size_t depth = 0;
  bool in_string = false, escaped = false;

  void read(char c, char quote) {
    if (in_string) {
      if (escaped) {
        escaped = false;
      } else if (c == quote) {
        in_string = false;
      } else {
        escaped = c == '\\' && quote == '"';
      }
    } else if (c == quote) {
      in_string = true;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
};

// Looks for a way out of the tree of the texts that are known.
class WayOut {
 public:
  WayOut(StateTable& table, const std::set<std::string, std::less<>>& known, bool is_name, char quote)
      : table_(table), known_(known), is_name_(is_name), quote_(quote) {}

  bool exists(StateId state, const std::string& text) {
    if (!begins_known(text)) return true;
    Shape shape;
    if (!is_name_) {
      for (const char c : text) shape.read(c, quote_);
    }
    return from(state, text, shape);
  }

 private:
  bool begins_known(const std::string& text) const {
    const auto next = known_.lower_bound(text);
    return next != known_.end() && next->starts_with(text);
  }

  bool from(StateId state, const std::string& text, const Shape& shape) {
    const bool is_whole = is_name_ || (shape.depth == 0 && !shape.in_string && !text.empty());
    if (is_whole && !known_.contains(text) && can_end(state)) return true;
    for (int value = 0; value < 256; ++value) {
      const auto byte = static_cast<char>(value);
      if (is_whole && (is_name_ ? byte == quote_ : byte == ',' || byte == ']')) continue;
      if (!is_name_ && !shape.in_string && is_space(byte)) continue;
      table_.count_work(1);
      const StateId next = table_.step(state, static_cast<uint8_t>(value));
      if (next == StateTable::kDead) continue;
      Shape next_shape = shape;
      if (!is_name_) next_shape.read(byte, quote_);
      const std::string longer = text + byte;
      if (!begins_known(longer) || from(next, longer, next_shape)) return true;
    }
    return false;
  }

  bool can_end(StateId state) {
    const auto reads = [&](char byte) { return table_.step(state, static_cast<uint8_t>(byte)) != StateTable::kDead; };
    return is_name_ ? reads(quote_) : reads(',') || reads(']');
  }

  StateTable& table_;
  const std::set<std::string, std::less<>>& known_;
  bool is_name_;
  char quote_;
};

}  // namespace

bool JsonChecker::is_unique_at(StateTable& table, StateId state, size_t depth) {
  return (table.nesting(state).unique >> std::min<size_t>(depth, 63) & 1) != 0;
}

// False when it is there already.
bool JsonChecker::add(Level& level, const std::string& text) {
  if (level.known->contains(text)) return false;
  if (level.known.use_count() > 1) level.known = std::make_shared<Texts>(*level.known);
  level.known->insert(text);
  return true;
}

// To the items around what is being read.
void JsonChecker::append(char byte) {
  for (Level& level : levels_) {
    if (level.has_item && level.is_unique) level.item += byte;
  }
}

bool JsonChecker::end_item(Level& level) {
  const bool is_new = !level.has_item || !level.is_unique || add(level, level.item);
  level.has_item = false;
  level.item.clear();
  return is_new;
}

void JsonChecker::begin_item(StateTable& table, StateId before) {
  if (levels_.empty() || levels_.back().is_object || levels_.back().has_item) return;
  Level& level = levels_.back();
  level.has_item = true;
  level.is_unique = is_unique_at(table, before, levels_.size());
}

bool JsonChecker::read_in_string(StateTable& table, StateId after, char byte) {
  append(byte);
  const bool ends = byte == quote_ && !is_escaped_;
  is_escaped_ = !is_escaped_ && byte == '\\' && quote_ == '"';
  if (in_name_ && !ends) levels_.back().item += byte;
  if (!ends) return true;
  in_string_ = false;
  if (!in_name_) return true;
  in_name_ = false;
  Level& level = levels_.back();
  level.expects_name = false;
  const bool is_new = !table.nesting(after).free_name || add(level, level.item);
  level.item.clear();
  return is_new;
}

bool JsonChecker::read(StateTable& table, StateId before, StateId after, uint8_t value) {
  const auto byte = static_cast<char>(value);
  if (in_string_) return read_in_string(table, after, byte);
  if (is_space(byte)) return true;
  bool is_new = true;
  if (byte == ',' || byte == ']' || byte == '}') {
    if (levels_.empty()) return true;
    Level& level = levels_.back();
    if (!level.is_object) is_new = end_item(level);
    if (byte == ',') {
      level.expects_name = level.is_object;
    } else {
      levels_.pop_back();
    }
    append(byte);
    return is_new;
  }
  begin_item(table, before);
  append(byte);
  if (byte == quote_) {
    in_string_ = true;
    in_name_ = !levels_.empty() && levels_.back().expects_name;
    if (in_name_) levels_.back().item.clear();
  } else if (byte == '[' || byte == '{') {
    levels_.emplace_back();
    levels_.back().is_object = levels_.back().expects_name = byte == '{';
  }
  return true;
}

bool JsonChecker::can_go_on(StateTable& table, StateId state) const {
  for (size_t i = 0; i < levels_.size(); ++i) {
    const Level& level = levels_[i];
    if (level.known->empty()) continue;
    const bool is_top = i + 1 == levels_.size();
    if (level.is_object) {
      if (!is_top || !level.expects_name) continue;
      const StateId inside = in_name_ ? state : table.step(state, static_cast<uint8_t>(quote_));
      const StateId begun = inside == StateTable::kDead ? after_space(table, state) : inside;
      if (begun == StateTable::kDead) continue;
      if (!WayOut(table, *level.known, true, quote_).exists(begun, level.item)) return false;
    } else if (level.has_item ? level.is_unique : is_top && is_unique_at(table, state, i + 1)) {
      if (!WayOut(table, *level.known, false, quote_).exists(state, level.item)) return false;
    }
  }
  return true;
}

StateId JsonChecker::after_space(StateTable& table, StateId state) const {
  const StateId spaced = table.step(state, ' ');
  return spaced == StateTable::kDead ? spaced : table.step(spaced, static_cast<uint8_t>(quote_));
}

bool JsonChecker::is_watching(StateTable& table, StateId state) const {
  for (const Level& level : levels_) {
    if (!level.known->empty()) return true;
  }
  return table.nesting(state).unique != 0;
}

bool JsonChecker::allows(StateTable& table, StateId state, std::string_view bytes) const {
  JsonChecker ahead = *this;
  for (const char byte : bytes) {
    const StateId next = table.step(state, static_cast<uint8_t>(byte));
    if (!ahead.read(table, state, next, static_cast<uint8_t>(byte))) return false;
    state = next;
  }
  return ahead.can_go_on(table, state);
}

// The tokens along one of the texts that are known.
void JsonChecker::follow(StateTable& table, StateId state, const TokenTrie& trie, std::string_view rest,
                         TokenMask& mask) const {
  const auto nodes = trie.nodes();
  uint32_t node = 0;
  for (const char c : rest) {
    const uint32_t end = nodes[node].end;
    uint32_t child = node + 1;
    while (child < end && nodes[child].byte != static_cast<uint8_t>(c)) child = nodes[child].end;
    if (child >= end) return;
    for (const TokenId token : trie.tokens(child)) {
      if (mask.allows(token) && !allows(table, state, trie.bytes(token))) mask.clear(token);
    }
    node = child;
  }
}

void JsonChecker::narrow(StateTable& table, StateId state, const TokenTrie& trie, TokenMask& mask) const {
  std::vector<TokenId> removed;
  const auto look_at = [&](TokenId token) {
    if (mask.allows(token) && !trie.bytes(token).empty() && !allows(table, state, trie.bytes(token))) {
      removed.push_back(token);
    }
  };
  if (in_string_) {
    // Tokens without a quote stay in the string, so they matter only along what is known.
    for (const TokenId token : trie.tokens_with(static_cast<uint8_t>(quote_))) look_at(token);
    for (const Level& level : levels_) {
      const bool is_read = level.is_object ? in_name_ && &level == &levels_.back() : level.has_item && level.is_unique;
      if (!is_read) continue;
      for (auto text = level.known->lower_bound(level.item); text != level.known->end(); ++text) {
        if (!text->starts_with(level.item)) break;
        follow(table, state, trie, std::string_view(*text).substr(level.item.size()), mask);
      }
    }
  } else {
    mask.for_each(look_at);
  }
  for (const TokenId token : removed) mask.clear(token);
}

}  // namespace carat::text::grammar
