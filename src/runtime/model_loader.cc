#include "runtime/model_loader.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "hub/hub_cache.h"

namespace carat::runtime {

namespace {
constexpr std::string_view kDemoModel = "demo-e-q8_0.gguf";
}  // namespace

hub::LookupPlaces lookup_places() {
  hub::LookupPlaces places;
  places.model_folders.emplace_back("models");
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  if (!program.empty()) places.model_folders.push_back(program.parent_path().parent_path() / "share/carat/models");
  places.model_folders.emplace_back(CARAT_MODELS);
  places.cache_folders = hub::cache_folders(hub::process_environment());
  return places;
}

std::string demo_model(const hub::LookupPlaces& places) {
  std::string looked;
  // Not the folder the user happens to be in: what a plain `carat run` does must not depend on it.
  for (size_t i = 1; i < places.model_folders.size(); ++i) {
    const std::filesystem::path place = places.model_folders[i] / kDemoModel;
    std::error_code ignored;
    if (std::filesystem::exists(place, ignored)) return place.string();
    looked += (looked.empty() ? "" : ", ") + place.string();
  }
  fail(ErrorCode::kIo, "no model given and no demo model found (looked at {}); name a GGUF file with -m", looked);
}

std::shared_ptr<const text::Vocab> load_vocab(const gguf::ModelFile& file) {
  try {
    return text::Vocab::from_metadata(file.metadata());
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", file.path(), error.what()));
  }
}

LoadedModel load_model(const std::string& path) {
  const auto file = gguf::ModelFile::open(path);
  LoadedModel loaded;
  loaded.model = model::Model::load(file);
  loaded.vocab = load_vocab(*file);
  return loaded;
}

}  // namespace carat::runtime
