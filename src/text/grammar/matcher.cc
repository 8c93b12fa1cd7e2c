#include "text/grammar/matcher.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace carat::text::grammar {

namespace {

std::unique_ptr<StateTable> new_table(const CompiledGrammar& grammar, uint64_t max_work) {
  return std::make_unique<StateTable>(grammar.automaton(), grammar.trie().longest_token(), max_work);
}

}  // namespace

GrammarMatcher::GrammarMatcher(std::shared_ptr<const CompiledGrammar> grammar, uint64_t max_work)
    : grammar_(std::move(grammar)),
      max_work_(max_work),
      table_(new_table(*grammar_, max_work)),
      state_(table_->start()),
      none_(grammar_->trie().vocab().size()) {
  if (grammar_->automaton()->has_checks()) checker_.emplace(grammar_->automaton()->string_quote());
}

GrammarMatcher::GrammarMatcher(const GrammarMatcher& other)
    : grammar_(other.grammar_),
      max_work_(other.max_work_),
      table_(new_table(*grammar_, max_work_)),
      state_(table_->import(*other.table_, other.state_)),
      none_(other.none_),
      checker_(other.checker_),
      finished_(other.finished_) {}

GrammarMatcher& GrammarMatcher::operator=(GrammarMatcher other) noexcept {
  std::swap(grammar_, other.grammar_);
  std::swap(max_work_, other.max_work_);
  std::swap(table_, other.table_);
  std::swap(masks_, other.masks_);
  std::swap(state_, other.state_);
  std::swap(none_, other.none_);
  std::swap(checker_, other.checker_);
  std::swap(finished_, other.finished_);
  return *this;
}

void GrammarMatcher::make_room() {
  if (table_->bytes() > kMatcherCacheBytes) {
    auto fresh = new_table(*grammar_, max_work_);
    state_ = fresh->import(*table_, state_);
    table_ = std::move(fresh);
    masks_.clear();  // they are known by numbers of the old table
  }
  if (masks_.size() * none_.words().size_bytes() > kMaskCacheBytes) masks_.clear();
}

const TokenMask& GrammarMatcher::allowed() {
  if (finished_) return none_;
  make_room();
  table_->begin_work();
  const StateId state = table_->canonical(state_);
  const auto known = masks_.find(state);
  if (known != masks_.end()) return narrowed(known->second);
  TokenMask mask(none_.size());
  fill_mask(state, mask);
  return narrowed(masks_.emplace(state, std::move(mask)).first->second);
}

const TokenMask& GrammarMatcher::narrowed(const TokenMask& mask) {
  if (!checker_ || !checker_->is_watching(*table_, state_)) return mask;
  narrowed_ = mask;
  checker_->narrow(*table_, state_, grammar_->trie(), narrowed_);
  return narrowed_;
}

void GrammarMatcher::fill_mask(StateId state, TokenMask& mask) {
  const TokenTrie& trie = grammar_->trie();
  if (table_->at_bottom(state)) {
    for (const TokenId stop : trie.vocab().stops()) mask.set(stop);
  }
  // A copy: walking adds states.
  const std::vector<Reading> readings(table_->readings(state).begin(), table_->readings(state).end());
  if (readings.size() > kMaxReadingsForLocalMasks) {
    static constexpr uint32_t kRoot = 0;
    return add_matching_tokens(trie, *table_, {&kRoot, 1}, state, mask);
  }
  for (const Reading& reading : readings) {
    if (reading.node == StateTable::kBottom) continue;
    const auto local = grammar_->local_mask(reading.node, *table_);
    local->add_to(mask);
    if (local->exits.empty()) continue;
    const StateId outside = table_->after_return(reading.returns);
    add_matching_tokens(trie, *table_, local->exits, outside, mask);
  }
}

void GrammarMatcher::accept(TokenId token) {
  const TokenTrie& trie = grammar_->trie();
  const auto refuse = [&] { throw std::logic_error(fmt::format("token {} is not allowed by the grammar", token)); };
  if (finished_ || !trie.vocab().contains(token)) refuse();
  if (trie.vocab().is_stop(token)) {
    if (!can_end()) refuse();
    finished_ = true;
    return;
  }
  make_room();
  table_->begin_work();
  StateId state = trie.bytes(token).empty() ? StateTable::kDead : state_;
  std::optional<JsonChecker> checker = checker_;
  for (const char byte : trie.bytes(token)) {
    const StateId next = table_->step(state, static_cast<uint8_t>(byte));
    if (next == StateTable::kDead) refuse();
    if (checker && !checker->read(*table_, state, next, static_cast<uint8_t>(byte))) refuse();
    state = next;
  }
  if (state == StateTable::kDead) refuse();
  if (checker && checker->is_watching(*table_, state) && !checker->can_go_on(*table_, state)) refuse();
  state_ = state;
  checker_ = std::move(checker);
}

}  // namespace carat::text::grammar
