#pragma once

#include <string>
#include <string_view>

namespace carat::hub {

inline constexpr std::string_view kRepoPrefix = "hf:";

// A model repository of the Hugging Face Hub and which of its models is meant: "hf:owner/repo[:quant]".
struct RepoReference {
  std::string owner;
  std::string repo;
  std::string quant;  // a quantisation such as "Q4_K_M" or a file's name; empty: none was given

  std::string id() const { return owner + "/" + repo; }
  std::string text() const;  // as people write it
};

inline bool is_repo_reference(std::string_view text) { return text.starts_with(kRepoPrefix); }

// Also without the prefix. Throws kBadArgument for what can be no repository; names that would not be safe as part of a
// path or an address are refused.
RepoReference parse_repo_reference(std::string_view text);

// "main", a tag, a branch or a commit, as it may stand in paths and addresses. Throws kBadArgument.
void check_revision(std::string_view revision);

}  // namespace carat::hub
