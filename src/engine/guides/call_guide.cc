#include "engine/guides/call_guide.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace carat::engine {

namespace {

void set(std::span<uint64_t> mask, text::TokenId token) {
  mask[static_cast<size_t>(token) / 64] |= uint64_t{1} << static_cast<size_t>(token) % 64;
}

// The tokens that spell a beginning of `text`.
void add_beginnings(const text::grammar::TokenTrie& trie, std::string_view text, std::span<uint64_t> mask) {
  const auto nodes = trie.nodes();
  uint32_t node = 0;
  for (const char c : text) {
    const uint32_t end = nodes[node].end;
    uint32_t child = node + 1;
    while (child < end && nodes[child].byte != static_cast<uint8_t>(c)) child = nodes[child].end;
    if (child >= end) return;
    for (const text::TokenId token : trie.tokens(child)) set(mask, token);
    node = child;
  }
}

}  // namespace

CallGuide::CallGuide(std::vector<text::CallableTool> tools) {
  CARAT_CHECK(!tools.empty());
  for (text::CallableTool& tool : tools) {
    if (!tool.arguments) fail(ErrorCode::kBadArgument, "the tool {} cannot be called: {}", tool.name, tool.problem);
    std::string head = "call:" + tool.name;
    candidates_.push_back({std::move(tool), std::move(head)});
  }
}

void CallGuide::begin() {
  is_in_arguments_ = false;
  set_head({});
}

void CallGuide::set_head(std::string head) {
  head_ = std::move(head);
  arguments_.reset();
  const auto is_it = [this](const Candidate& candidate) { return candidate.head == head_; };
  const auto found = std::find_if(candidates_.begin(), candidates_.end(), is_it);
  if (found != candidates_.end()) arguments_.emplace(found->tool.arguments);
}

void CallGuide::add_allowed(std::span<uint64_t> mask) {
  if (!is_in_arguments_) {
    for (const Candidate& candidate : candidates_) {
      if (!candidate.head.starts_with(head_)) continue;
      add_beginnings(candidate.tool.arguments->trie(), std::string_view(candidate.head).substr(head_.size()), mask);
    }
  }
  if (!arguments_ || is_complete()) return;
  const auto words = arguments_->allowed().words();
  for (size_t i = 0; i < words.size(); ++i) mask[i] |= words[i];
}

void CallGuide::accept(text::TokenId token) {
  if (!is_in_arguments_) {
    const std::string_view bytes = candidates_.front().tool.arguments->trie().bytes(token);
    const std::string longer = head_ + std::string(bytes);
    const auto goes_on = [&](const Candidate& candidate) { return candidate.head.starts_with(longer); };
    if (!bytes.empty() && std::any_of(candidates_.begin(), candidates_.end(), goes_on)) return set_head(longer);
    if (!arguments_) throw std::logic_error("a token that no call begins with");
    is_in_arguments_ = true;  // names hold no brackets, so a token of arguments never continues a name
  }
  arguments_->accept(token);
}

}  // namespace carat::engine
