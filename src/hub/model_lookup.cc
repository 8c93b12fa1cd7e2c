#include "hub/model_lookup.h"

#include <fmt/format.h>

#include <optional>
#include <system_error>

#include "base/error.h"
#include "gguf/printable.h"
#include "hub/hub_cache.h"

namespace carat::hub {

namespace fs = std::filesystem;

namespace {

std::string looked_at(const std::vector<fs::path>& folders) {
  if (folders.empty()) return "nowhere: neither HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME nor HOME is set";
  std::string text;
  for (const fs::path& folder : folders) text += (text.empty() ? "" : ", ") + folder.string();
  return text;
}

void check_complete(const CachedModel& model, const RepoReference& reference) {
  if (model.files.complete()) return;
  const std::string again = fmt::format("`carat pull hf:{}:{}` downloads what is missing", reference.id(),
                                        model.files.quant.empty() ? model.files.name : model.files.quant);
  if (model.files.part_count == 1) {
    fail(ErrorCode::kIo, "{}/{}.gguf is a link to a file that is not there; {}", model.snapshot.string(),
         model.files.name, again);
  }
  fail(ErrorCode::kIo, "{} in {} lacks part {} of {}; {}", model.files.name, model.snapshot.string(),
       model.files.missing.front(), model.files.part_count, again);
}

FoundModel find_in_caches(const RepoReference& reference, const std::vector<fs::path>& caches) {
  std::string others;  // models of the repository that are there, but not the one that is wanted
  for (const fs::path& cache : caches) {
    const std::vector<CachedModel> models = cached_models(cache / repo_folder_name(reference));
    std::vector<ModelFiles> files;
    for (const CachedModel& model : models) files.push_back(model.files);
    if (const auto choice = choose_model(files, reference)) {
      check_complete(models[choice->index], reference);
      return {models[choice->index].path(), choice->note};
    }
    const std::string there = list_choices(files);
    if (!there.empty()) others += fmt::format("; of this repository {} has {}", cache.string(), there);
  }
  fail(ErrorCode::kIo, "{} is not on this machine (looked at {}{}); `carat pull {}` downloads it", reference.text(),
       looked_at(caches), others, reference.text());
}

// A file of that name in the folder, also the first part of a split one.
std::optional<std::string> find_in_folder(const std::string& name, const fs::path& folder) {
  std::error_code ignored;
  for (const std::string& candidate : {name, name + ".gguf"}) {
    if (fs::is_regular_file(folder / candidate, ignored)) return (folder / candidate).string();
  }
  std::vector<ListedFile> files;
  for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end; entry.increment(ignored)) {
    std::error_code state;
    if (entry->is_regular_file(state)) files.push_back({entry->path().filename().string()});
  }
  for (const ModelFiles& model : group_models(files)) {
    // Opening any part reports the ones that are missing.
    if (model.name == name && model.part_count > 1) return (folder / model.parts.front()).string();
  }
  return std::nullopt;
}

FoundModel find_by_name(const std::string& name, const LookupPlaces& places) {
  for (const fs::path& folder : places.model_folders) {
    if (auto path = find_in_folder(name, folder)) return {std::move(*path), ""};
  }
  fail(ErrorCode::kIo,
       "{} is neither a file nor the name of a model (looked at {}); `carat ls` lists the models on this machine",
       gguf::printable(name), looked_at(places.model_folders));
}

}  // namespace

FoundModel find_model(const std::string& wanted, const LookupPlaces& places) {
  std::error_code ignored;
  const fs::file_status status = fs::status(wanted, ignored);
  const bool is_folder = fs::is_directory(status);
  if (fs::exists(status) && !is_folder) return {wanted, ""};
  if (is_repo_reference(wanted)) return find_in_caches(parse_repo_reference(wanted), places.cache_folders);
  const bool is_bare_name = !wanted.empty() && wanted.find('/') == std::string::npos && wanted != "." && wanted != "..";
  if (is_bare_name) {
    try {
      return find_by_name(wanted, places);
    } catch (const Error&) {
      if (!is_folder) throw;
    }
  }
  if (is_folder) fail(ErrorCode::kIo, "{} is a directory, not a model file", wanted);
  std::string hint;
  try {
    const std::string repo = parse_repo_reference(wanted).text();
    if (!wanted.ends_with(".gguf")) hint = fmt::format("; a repository of Hugging Face is written {}", repo);
  } catch (const Error&) {
    // It does not look like owner/repo, so there is nothing to suggest.
  }
  fail(ErrorCode::kIo, "there is no file {}{}", gguf::printable(wanted), hint);
}

}  // namespace carat::hub
