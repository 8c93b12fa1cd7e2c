#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exec/kept_prefixes.h"
#include "text/tokenizer/vocab.h"

namespace carat::engine {

// Why a position can be gone on from, by what it is worth: the later ones outlive the earlier ones (PrefixTree::evict).
enum class MarkKind : uint8_t {
  kInterval,  // so many tokens of a long prompt
  kJunction,  // where two prompts part
  kEnd,       // where an answer ended
  kTurn,      // behind the header of the model's turn, where the history of the next prompt leaves out thoughts
  kSystem,    // behind the system turn, which all conversations with an agent share
};

// Why tokens of a prompt that had been run before have to be run again.
enum class PrefixLoss : uint8_t {
  kNone,
  kWindow,   // they can be gone on from at earlier positions only: no window of sliding layers was kept there
  kEvicted,  // it was kept, and its memory was needed
};

// What is known of prompts and answers, as a tree of tokens for each salt, and the marks in it: positions at which a
// kept prefix of the executor can be gone on from. What a mark keeps is freed with it; the tokens are remembered a
// while longer, so that it can be said why they have to be run again.
//
// Knows no pages and takes none: whoever adds a mark has kept a prefix, and drops what is evicted.
class PrefixTree {
 public:
  // remembered: tokens that all edges of the tree may have together before those without marks are forgotten.
  explicit PrefixTree(size_t remembered = size_t{1} << 22) : remembered_(remembered) {}

  struct Match {
    uint32_t shared = 0;  // tokens the tree knows, from the first on
    uint32_t length = 0;  // of them, those that can be gone on from, at `most` or before it; 0: none
    // Of the mark there, or of one behind it that is to be cut to `length`.
    std::optional<exec::PrefixId> prefix = {};
    PrefixLoss loss = PrefixLoss::kNone;  // why length is less than shared and `most`
  };
  // can_cut(prefix, n): whether n positions of what a mark keeps can be gone on from, though it was not kept for that:
  // true where all of it lies within a window.
  using CanCut = std::function<bool(exec::PrefixId, uint32_t)>;
  Match find(const std::string& salt, std::span<const text::TokenId> tokens, uint32_t most,
             const CanCut& can_cut = nullptr) const;

  // Marks the position behind all of the tokens, of which there is at least one. When it is marked already, the mark
  // stays, is as good as new, and takes the better kind; returns whether the prefix was taken over.
  bool add(const std::string& salt, std::span<const text::TokenId> tokens, MarkKind kind, exec::PrefixId prefix);
  // The mark behind all of the tokens was gone on from.
  void use(const std::string& salt, std::span<const text::TokenId> tokens);

  // Takes away the mark that is worth least among those whose prefix is worth freeing: used longest ago, where marks of
  // the better kinds count as used so many requests later. None: no mark is worth freeing.
  std::optional<exec::PrefixId> evict(const std::function<bool(exec::PrefixId)>& is_worth_freeing);
  // The same among marks with no other behind them, whatever they free.
  std::optional<exec::PrefixId> evict_last();

  size_t marks() const { return marked_.size(); }
  size_t tokens() const { return tokens_; }

 private:
  struct Node {
    std::vector<text::TokenId> edge;  // from the parent to here; empty in a root
    Node* parent = nullptr;
    std::map<text::TokenId, std::unique_ptr<Node>> children;
    std::optional<exec::PrefixId> prefix = {};
    MarkKind kind = MarkKind::kInterval;
    bool lost_mark = false;  // there was one
    uint64_t used = 0;       // when, as counted by now_
  };
  struct Place {  // of as many tokens as the tree knows
    Node* node = nullptr;
    uint32_t shared = 0;   // tokens
    uint32_t on_edge = 0;  // of them, those on the way from the node to the next one
    Node* next = nullptr;  // that one, where there are any
  };

  Place walk(const std::string& salt, std::span<const text::TokenId> tokens) const;
  Node* make_node(const std::string& salt, std::span<const text::TokenId> tokens);
  Node* split(Node& child, uint32_t on_edge);
  static std::optional<exec::PrefixId> mark_to_cut(const Place& place, uint32_t n, const CanCut& can_cut);
  exec::PrefixId take_mark(Node& node);
  void forget_oldest();
  static bool has_marks_below(const Node& node);
  static uint64_t worth(const Node& node);

  size_t remembered_;
  size_t tokens_ = 0;
  uint64_t now_ = 0;
  std::map<std::string, std::unique_ptr<Node>, std::less<>> roots_;
  std::vector<Node*> marked_;
};

}  // namespace carat::engine
