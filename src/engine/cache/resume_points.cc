#include "engine/cache/resume_points.h"

#include <string>

namespace carat::engine {

namespace {

constexpr size_t kLongestRole = 16;  // tokens

struct Turn {
  std::string role;
  size_t begin;  // of its mark
  size_t body;   // behind the line with its role
};

// The turn whose mark is at `begin`; nothing where no line with a role follows.
std::optional<Turn> turn_at(std::span<const text::TokenId> prompt, size_t begin, const text::Vocab& vocab) {
  Turn turn{{}, begin, 0};
  for (size_t i = begin + 1; i < std::min(prompt.size(), begin + 1 + kLongestRole); ++i) {
    if (vocab.is_special(prompt[i])) return std::nullopt;
    turn.role += vocab.text(prompt[i]);
    if (!turn.role.ends_with('\n')) continue;
    turn.role.pop_back();
    turn.body = i + 1;
    return turn;
  }
  return std::nullopt;
}

}  // namespace

std::vector<ResumePoint> resume_points_of(std::span<const text::TokenId> prompt, const text::Vocab& vocab) {
  const auto mark = vocab.find("<|turn>");
  if (!mark) return {};
  std::vector<Turn> turns;
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] != *mark) continue;
    if (auto turn = turn_at(prompt, i, vocab)) turns.push_back(std::move(*turn));
  }
  std::vector<ResumePoint> points;
  if (turns.size() > 1 && turns.front().role == "system") {
    points.push_back({static_cast<uint32_t>(turns[1].begin), MarkKind::kSystem});
  }
  for (size_t i = turns.size(); i > 1; --i) {
    if (turns[i - 2].role != "user" || turns[i - 1].role != "model") continue;
    points.push_back({static_cast<uint32_t>(turns[i - 1].body), MarkKind::kTurn});
    break;
  }
  return points;
}

}  // namespace carat::engine
