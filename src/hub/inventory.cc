#include "hub/inventory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <set>
#include <system_error>

#include "base/error.h"
#include "gguf/printable.h"
#include "gguf/reader.h"
#include "gguf/tensor_type.h"
#include "hub/hub_cache.h"
#include "model/config.h"

namespace carat::hub {

namespace fs = std::filesystem;

namespace {

// general.file_type as llama.cpp numbers mixtures.
std::string_view mixture_name(uint64_t file_type) {
  struct Mixture {
    uint64_t number;
    std::string_view name;
  };
  constexpr std::array<Mixture, 36> kMixtures = {
      {{0, "F32"},     {1, "F16"},      {2, "Q4_0"},    {3, "Q4_1"},    {7, "Q8_0"},     {8, "Q5_0"},
       {9, "Q5_1"},    {10, "Q2_K"},    {11, "Q3_K_S"}, {12, "Q3_K_M"}, {13, "Q3_K_L"},  {14, "Q4_K_S"},
       {15, "Q4_K_M"}, {16, "Q5_K_S"},  {17, "Q5_K_M"}, {18, "Q6_K"},   {21, "Q2_K_S"},  {25, "IQ4_NL"},
       {30, "IQ4_XS"}, {32, "BF16"},    {38, "MXFP4"},  {39, "NVFP4"},  {19, "IQ2_XXS"}, {20, "IQ2_XS"},
       {22, "IQ3_XS"}, {23, "IQ3_XXS"}, {24, "IQ1_S"},  {26, "IQ3_S"},  {27, "IQ3_M"},   {28, "IQ2_S"},
       {29, "IQ2_M"},  {31, "IQ1_M"},   {36, "TQ1_0"},  {37, "TQ2_0"},  {40, "Q1_0"},    {41, "Q2_0"}}};
  const auto* found = std::find_if(kMixtures.begin(), kMixtures.end(),
                                   [&](const Mixture& mixture) { return mixture.number == file_type; });
  return found == kMixtures.end() ? std::string_view() : found->name;
}

// The mixture the file says it has, or the type most of its bytes are in.
std::string format_of(const gguf::ModelFile& file) {
  if (const auto type = file.metadata().unsigned_integer("general.file_type")) {
    const std::string_view name = mixture_name(*type);
    if (!name.empty()) return std::string(name);
  }
  std::map<uint32_t, uint64_t> bytes_by_type;
  for (const gguf::TensorView& tensor : file.tensors()) bytes_by_type[tensor.info.type] += tensor.info.bytes;
  const auto most = std::max_element(bytes_by_type.begin(), bytes_by_type.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes_by_type.end() ? "no tensors" : std::string(gguf::find_tensor_type(most->first)->name);
}

class InventoryTaker {
 public:
  explicit InventoryTaker(const LookupPlaces& places) : places_(places) {}

  Inventory take() {
    for (const fs::path& folder : places_.model_folders) take_folder(folder);
    for (const fs::path& cache : places_.cache_folders) take_cache(cache);
    return std::move(inventory_);
  }

 private:
  void take_folder(const fs::path& folder) {
    if (seen_before(folder)) return;
    for (const ModelFiles& model : group_models(list_gguf_files(folder))) {
      add(model, folder, folder, {model.name, model.name + ".gguf"});
    }
  }

  void take_cache(const fs::path& cache) {
    if (seen_before(cache)) return;
    for (const RepoReference& repo : cached_repos(cache)) {
      const fs::path folder = cache / repo_folder_name(repo);
      for (const CachedModel& model : cached_models(folder)) {
        std::vector<std::string> names;
        if (!model.files.quant.empty()) names.push_back(fmt::format("hf:{}:{}", repo.id(), model.files.quant));
        names.push_back(fmt::format("hf:{}:{}", repo.id(), model.files.name));
        add(model.files, model.snapshot, cache, names);
      }
      add_unfinished(repo, folder / "blobs", cache);
    }
  }

  // ./models and the models of the source tree are often the same folder.
  bool seen_before(const fs::path& folder) {
    std::error_code error;
    const fs::path real = fs::canonical(folder, error);
    return error || !seen_.insert(real).second;
  }

  void add(const ModelFiles& model, const fs::path& folder, const fs::path& place,
           const std::vector<std::string>& names) {
    if (model.kind == ModelFiles::Kind::kOther) {
      ++inventory_.others;
      return;
    }
    InventoryEntry entry;
    entry.bytes = model.bytes;
    entry.parts = model.part_count;
    entry.where = place.string();
    if (!model.complete()) {
      entry.name = names.front();
      entry.problem = model.part_count == 1
                          ? "a link to a file that is not there"
                          : fmt::format("part {} of {} is missing", model.missing.front(), model.part_count);
      inventory_.models.push_back(std::move(entry));
      return;
    }
    entry.path = (folder / model.parts.front()).string();
    if (!read_header(entry)) return;
    entry.name = usable_name(entry.path, names);
    inventory_.models.push_back(std::move(entry));
  }

  // false: a file of another kind, which is only counted.
  bool read_header(InventoryEntry& entry) {
    try {
      const auto file = gguf::ModelFile::open(entry.path);
      const std::string_view architecture = file->metadata().string("general.architecture").value_or("");
      if (architecture != model::kArchitecture && architecture != model::kDrafterArchitecture) {
        ++inventory_.others;
        return false;
      }
      entry.architecture = architecture;
      entry.format = format_of(*file);
    } catch (const Error& error) {
      entry.problem = error.what();
      const std::string prefix = entry.path + ": ";  // the table has the path already
      if (entry.problem.starts_with(prefix)) entry.problem.erase(0, prefix.size());
    }
    return true;
  }

  // The first name that really leads to this file: another folder or another file may have the same.
  std::string usable_name(const std::string& path, const std::vector<std::string>& names) const {
    for (const std::string& name : names) {
      try {
        if (find_model(name, places_).path == path) return name;
      } catch (const Error&) {
        continue;
      }
    }
    return path;
  }

  // The file a blob belongs to is only known to who downloads it; that it is a GGUF file shows in its first bytes.
  void add_unfinished(const RepoReference& repo, const fs::path& blobs, const fs::path& place) {
    std::error_code error;
    for (fs::directory_iterator blob(blobs, error), end; !error && blob != end; blob.increment(error)) {
      std::error_code state;
      if (blob->path().extension() != ".incomplete" || !blob->is_regular_file(state)) continue;
      std::array<char, 4> magic{};
      if (!std::ifstream(blob->path(), std::ios::binary).read(magic.data(), magic.size()) ||
          std::string_view(magic.data(), magic.size()) != "GGUF") {
        continue;
      }
      InventoryEntry entry;
      entry.name = repo.text();
      entry.bytes = blob->file_size(state);
      entry.where = place.string();
      entry.problem = "the download is not finished; `carat pull` with the same name goes on with it";
      inventory_.models.push_back(std::move(entry));
    }
  }

  const LookupPlaces& places_;
  std::set<fs::path> seen_;
  Inventory inventory_;
};

}  // namespace

Inventory take_inventory(const LookupPlaces& places) { return InventoryTaker(places).take(); }

}  // namespace carat::hub
