#include "hub/remote/repo_reference.h"

#include <algorithm>

#include "base/error.h"
#include "gguf/printable.h"

namespace carat::hub {

namespace {

// The Hub's own limits for names.
constexpr size_t kMaxNameBytes = 96;
constexpr size_t kMaxQuantBytes = 255;
constexpr size_t kMaxRevisionBytes = 255;

bool is_letter_or_digit(char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }
bool is_name_character(char c) { return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.'; }

// "--" separates owner and repository in the cache's folder names, so the Hub allows it in neither.
bool is_hub_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && std::all_of(name.begin(), name.end(), is_name_character) &&
         name.find("--") == std::string_view::npos && name.find("..") == std::string_view::npos &&
         name.front() != '-' && name.front() != '.' && name.back() != '-' && name.back() != '.';
}

bool is_quant(std::string_view quant) {
  return !quant.empty() && quant.size() <= kMaxQuantBytes &&
         std::all_of(quant.begin(), quant.end(), [](char c) { return is_name_character(c) || c == '/' || c == '+'; });
}

}  // namespace

std::string RepoReference::text() const { return std::string(kRepoPrefix) + id() + (quant.empty() ? "" : ":" + quant); }

RepoReference parse_repo_reference(std::string_view text) {
  std::string_view rest = text;
  if (is_repo_reference(rest)) rest.remove_prefix(kRepoPrefix.size());
  const size_t colon = rest.find(':');
  const std::string_view id = rest.substr(0, colon);
  const size_t slash = id.find('/');
  RepoReference reference;
  if (slash != std::string_view::npos) {
    reference.owner = id.substr(0, slash);
    reference.repo = id.substr(slash + 1);
  }
  if (!is_hub_name(reference.owner) || !is_hub_name(reference.repo)) {
    fail(ErrorCode::kBadArgument, "{} names no repository; write hf:owner/repo or hf:owner/repo:quant",
         gguf::printable(text));
  }
  if (colon != std::string_view::npos) {
    reference.quant = rest.substr(colon + 1);
    if (!is_quant(reference.quant)) {
      fail(ErrorCode::kBadArgument, "{}: after the second colon comes a quantisation such as Q4_K_M or a file's name",
           gguf::printable(text));
    }
  }
  return reference;
}

void check_revision(std::string_view revision) {
  const bool fine =
      !revision.empty() && revision.size() <= kMaxRevisionBytes &&
      std::all_of(revision.begin(), revision.end(), [](char c) { return is_name_character(c) || c == '/'; }) &&
      revision.find("..") == std::string_view::npos && revision.find("//") == std::string_view::npos &&
      is_letter_or_digit(revision.front()) && is_letter_or_digit(revision.back());
  if (!fine) {
    fail(ErrorCode::kBadArgument, "{} is no revision; give a branch, a tag or a commit", gguf::printable(revision));
  }
}

}  // namespace carat::hub
