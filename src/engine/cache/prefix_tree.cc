#include "engine/cache/prefix_tree.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace carat::engine {

namespace {

using text::TokenId;

// Marks of each kind count as used so many requests later than they were.
constexpr std::array<uint64_t, 5> kBonus = {0, 0, 64, 64, 512};

}  // namespace

PrefixTree::Place PrefixTree::walk(const std::string& salt, std::span<const TokenId> tokens) const {
  const auto root = roots_.find(salt);
  if (root == roots_.end()) return {};
  Place place{root->second.get()};
  while (place.shared < tokens.size()) {
    const auto next = place.node->children.find(tokens[place.shared]);
    if (next == place.node->children.end()) return place;
    const std::vector<TokenId>& edge = next->second->edge;
    const auto rest = tokens.subspan(place.shared);
    const auto parted = std::mismatch(edge.begin(), edge.end(), rest.begin(), rest.end());
    const auto same = static_cast<uint32_t>(parted.first - edge.begin());
    place.shared += same;
    if (same < edge.size()) {
      place.on_edge = same;
      place.next = next->second.get();
      return place;
    }
    place.node = next->second.get();
  }
  return place;
}

// A mark behind the place, or right there, that can be cut to the n tokens before it. Those that begin nearest to it
// are asked first, and no more of them than a few.
std::optional<exec::PrefixId> PrefixTree::mark_to_cut(const Place& place, uint32_t n, const CanCut& can_cut) {
  constexpr size_t kMostNodes = 32;
  std::vector<const Node*> open;
  uint32_t depth = place.shared - place.on_edge;
  for (const Node* node = place.node; node->parent != nullptr && depth >= n; node = node->parent) {
    open.insert(open.begin(), node);
    depth -= static_cast<uint32_t>(node->edge.size());
  }
  const auto add_children = [&](const Node& node) {
    for (const auto& [token, child] : node.children) open.push_back(child.get());
  };
  if (place.next != nullptr) {
    open.push_back(place.next);
  } else if (open.empty()) {
    add_children(*place.node);
  }
  for (size_t i = 0; i < std::min(open.size(), kMostNodes); ++i) {
    const Node& node = *open[i];
    if (node.prefix && can_cut(*node.prefix, n)) return node.prefix;
    if (!node.prefix) add_children(node);
  }
  return std::nullopt;
}

PrefixTree::Match PrefixTree::find(const std::string& salt, std::span<const TokenId> tokens, uint32_t most,
                                   const CanCut& can_cut) const {
  const Place place = walk(salt, tokens);
  Match match;
  match.shared = place.shared;
  if (place.node == nullptr) return match;
  bool has_lost_mark = false;
  uint32_t depth = place.shared - place.on_edge;
  for (const Node* node = place.node; node->parent != nullptr; node = node->parent) {
    if (depth <= most && node->prefix) {
      match.length = depth;
      match.prefix = node->prefix;
      break;
    }
    has_lost_mark |= depth <= most && node->lost_mark;
    depth -= static_cast<uint32_t>(node->edge.size());
  }
  const uint32_t wanted = std::min(match.shared, most);
  if (match.length < wanted && can_cut) {
    if (const auto cut = mark_to_cut(place, wanted, can_cut)) {
      match.length = wanted;
      match.prefix = cut;
    }
  }
  if (match.length < wanted) {
    match.loss = has_lost_mark ? PrefixLoss::kEvicted : PrefixLoss::kWindow;
  }
  return match;
}

// Makes a node in the middle of the edge that leads to `child`.
PrefixTree::Node* PrefixTree::split(Node& child, uint32_t on_edge) {
  Node& parent = *child.parent;
  auto middle = std::make_unique<Node>();
  middle->parent = &parent;
  middle->used = child.used;
  middle->edge.assign(child.edge.begin(), child.edge.begin() + on_edge);
  std::unique_ptr<Node>& place = parent.children.at(child.edge.front());
  child.edge.erase(child.edge.begin(), child.edge.begin() + on_edge);
  child.parent = middle.get();
  middle->children.emplace(child.edge.front(), std::move(place));
  place = std::move(middle);
  return place.get();
}

PrefixTree::Node* PrefixTree::make_node(const std::string& salt, std::span<const TokenId> tokens) {
  std::unique_ptr<Node>& root = roots_[salt];
  if (!root) root = std::make_unique<Node>();
  const Place place = walk(salt, tokens);
  Node* node = place.node;
  if (place.next != nullptr) node = split(*place.next, place.on_edge);
  if (place.shared == tokens.size()) return node;
  auto leaf = std::make_unique<Node>();
  leaf->parent = node;
  leaf->edge.assign(tokens.begin() + place.shared, tokens.end());
  tokens_ += leaf->edge.size();
  return (node->children[tokens[place.shared]] = std::move(leaf)).get();
}

bool PrefixTree::add(const std::string& salt, std::span<const TokenId> tokens, MarkKind kind, exec::PrefixId prefix) {
  CARAT_CHECK(!tokens.empty());
  Node* node = make_node(salt, tokens);
  node->used = ++now_;
  if (node->prefix) {
    node->kind = std::max(node->kind, kind);
    return false;
  }
  node->prefix = prefix;
  node->kind = kind;
  node->lost_mark = false;
  marked_.push_back(node);
  forget_oldest();
  return true;
}

void PrefixTree::use(const std::string& salt, std::span<const TokenId> tokens) {
  const Place place = walk(salt, tokens);
  if (place.node != nullptr && place.shared == tokens.size() && place.on_edge == 0) place.node->used = ++now_;
}

uint64_t PrefixTree::worth(const Node& node) { return node.used + kBonus[static_cast<size_t>(node.kind)]; }

exec::PrefixId PrefixTree::take_mark(Node& node) {
  std::erase(marked_, &node);
  node.lost_mark = true;
  return *std::exchange(node.prefix, std::nullopt);
}

std::optional<exec::PrefixId> PrefixTree::evict(const std::function<bool(exec::PrefixId)>& is_worth_freeing) {
  Node* least = nullptr;
  for (Node* node : marked_) {
    if ((least == nullptr || worth(*node) < worth(*least)) && is_worth_freeing(*node->prefix)) least = node;
  }
  if (least == nullptr) return std::nullopt;
  return take_mark(*least);
}

bool PrefixTree::has_marks_below(const Node& node) {
  return std::any_of(node.children.begin(), node.children.end(), [](const auto& child) {
    return child.second->prefix.has_value() || has_marks_below(*child.second);
  });
}

std::optional<exec::PrefixId> PrefixTree::evict_last() {
  Node* least = nullptr;
  for (Node* node : marked_) {
    if ((least == nullptr || worth(*node) < worth(*least)) && !has_marks_below(*node)) least = node;
  }
  if (least == nullptr) return std::nullopt;
  return take_mark(*least);
}

// Leaves without a mark, from the one that was used longest ago on, until the rest is small enough.
void PrefixTree::forget_oldest() {
  while (tokens_ > remembered_) {
    Node* oldest = nullptr;
    std::vector<Node*> open;
    for (const auto& [salt, root] : roots_) open.push_back(root.get());
    while (!open.empty()) {
      Node* node = open.back();
      open.pop_back();
      for (const auto& [token, child] : node->children) open.push_back(child.get());
      const bool is_forgettable = node->parent != nullptr && node->children.empty() && !node->prefix;
      if (is_forgettable && (oldest == nullptr || node->used < oldest->used)) oldest = node;
    }
    if (oldest == nullptr) return;
    tokens_ -= oldest->edge.size();
    Node* parent = oldest->parent;
    parent->children.erase(oldest->edge.front());
    if (parent->parent == nullptr)
      std::erase_if(roots_, [](const auto& root) { return root.second->children.empty(); });
  }
}

}  // namespace carat::engine
