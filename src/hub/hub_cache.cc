#include "hub/hub_cache.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <system_error>

#include "base/error.h"

namespace carat::hub {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kFolderPrefix = "models--";
constexpr int kMaxDepth = 8;

bool is_lower_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string first_line(const fs::path& path) {
  std::ifstream stream(path);
  std::string line;
  std::getline(stream, line);
  return line;
}

// refs/main first, then the newest.
std::vector<fs::path> snapshots_in_order(const fs::path& repo_folder) {
  const fs::path current = repo_folder / "snapshots" / first_line(repo_folder / "refs" / "main");
  std::vector<std::pair<fs::file_time_type, fs::path>> dated;
  std::error_code error;
  for (fs::directory_iterator entry(repo_folder / "snapshots", error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (!entry->is_directory(ignored)) continue;
    dated.emplace_back(fs::last_write_time(entry->path(), ignored), entry->path());
  }
  std::sort(dated.begin(), dated.end(), [&](const auto& a, const auto& b) {
    const bool a_current = a.second == current, b_current = b.second == current;
    if (a_current != b_current) return a_current;
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::vector<fs::path> ordered;
  for (auto& [time, path] : dated) ordered.push_back(std::move(path));
  return ordered;
}

}  // namespace

std::vector<fs::path> cache_folders(const Environment& environment) {
  std::vector<fs::path> folders;
  const auto add = [&](const char* variable, const char* below) {
    const auto value = environment(variable);
    if (!value) return;
    fs::path folder = *value;
    if (*below != '\0') folder /= below;
    folder = folder.lexically_normal();
    if (std::find(folders.begin(), folders.end(), folder) == folders.end()) folders.push_back(std::move(folder));
  };
  add("HF_HUB_CACHE", "");
  add("HUGGINGFACE_HUB_CACHE", "");
  add("HF_HOME", "hub");
  add("XDG_CACHE_HOME", "huggingface/hub");
  add("HOME", ".cache/huggingface/hub");
  return folders;
}

std::string repo_folder_name(const RepoReference& reference) {
  return fmt::format("{}{}--{}", kFolderPrefix, reference.owner, reference.repo);
}

std::vector<RepoReference> cached_repos(const fs::path& cache) {
  std::vector<RepoReference> repos;
  std::error_code error;
  for (fs::directory_iterator entry(cache, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kFolderPrefix)) continue;
    const size_t separator = name.find("--", kFolderPrefix.size());
    if (separator == std::string::npos) continue;
    const std::string id =
        name.substr(kFolderPrefix.size(), separator - kFolderPrefix.size()) + "/" + name.substr(separator + 2);
    try {
      repos.push_back(parse_repo_reference(id));
    } catch (const Error&) {
      continue;  // a folder that only looks like one
    }
  }
  std::sort(repos.begin(), repos.end(), [](const auto& a, const auto& b) { return a.id() < b.id(); });
  return repos;
}

std::vector<ListedFile> list_gguf_files(const fs::path& folder) {
  std::vector<ListedFile> files;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied, error);
  for (const fs::recursive_directory_iterator end; !error && entry != end; entry.increment(error)) {
    if (entry.depth() >= kMaxDepth) entry.disable_recursion_pending();
    std::error_code state;
    if (entry->is_directory(state)) continue;
    ListedFile file{entry->path().lexically_relative(folder).generic_string()};
    file.readable = entry->is_regular_file(state);
    if (file.readable) file.bytes = entry->file_size(state);
    if (file.path.size() > 5 && fs::path(file.path).extension() == ".gguf") files.push_back(std::move(file));
  }
  return files;
}

std::vector<CachedModel> cached_models(const fs::path& repo_folder) {
  std::map<std::string, CachedModel> by_name;
  for (const fs::path& snapshot : snapshots_in_order(repo_folder)) {
    const std::vector<ListedFile> files = list_gguf_files(snapshot);
    for (ModelFiles& model : group_models(files)) {
      const auto known = by_name.find(model.name);
      if (known != by_name.end() && (known->second.files.complete() || !model.complete())) continue;
      const std::string name = model.name;
      by_name.insert_or_assign(name, CachedModel{std::move(model), snapshot});
    }
  }
  std::vector<CachedModel> models;
  for (auto& [name, model] : by_name) models.push_back(std::move(model));
  return models;
}

bool is_commit(std::string_view text) { return (text.size() == 40 || text.size() == 64) && is_lower_hex(text); }
bool is_sha256(std::string_view text) { return text.size() == 64 && is_lower_hex(text); }

}  // namespace carat::hub
