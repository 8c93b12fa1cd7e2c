#include "hub/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/byte_size.h"
#include "base/error.h"
#include "gguf/limits.h"
#include "gguf/split_name.h"

namespace carat::hub {

namespace {

constexpr std::string_view kExtension = ".gguf";
constexpr size_t kMaxListed = 40;

std::string upper_case(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return result;
}

std::string_view base_name(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

bool is_delimiter(char c) { return c == '-' || c == '.' || c == '_' || c == '/'; }

// Whether an upper-case text is a quantisation as llama.cpp's tools write them into file names.
bool is_quant_name(std::string_view text) {
  constexpr std::array<std::string_view, 9> kOthers = {"F32",   "F16",       "BF16",  "FP32", "FP16",
                                                       "MXFP4", "MXFP4_MOE", "NVFP4", "F64"};
  if (text.starts_with("UD-")) text.remove_prefix(3);  // "dynamic" mixtures
  if (std::find(kOthers.begin(), kOthers.end(), text) != kOthers.end()) return true;
  if (text.starts_with('I') || text.starts_with('T')) text.remove_prefix(1);
  if (text.size() < 2 || text[0] != 'Q' || text[1] < '1' || text[1] > '8') return false;
  return std::all_of(text.begin() + 2, text.end(),
                     [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }) &&
         (text.size() == 2 || text[2] == '_');
}

// The quantisation at the end of a model's name: the longest ending that is one.
std::string quant_of(std::string_view name) {
  const std::string upper = upper_case(base_name(name));
  for (size_t at = 0; at < upper.size(); ++at) {
    if (at > 0 && !is_delimiter(upper[at - 1])) continue;
    const std::string_view ending = std::string_view(upper).substr(at);
    if (is_quant_name(ending)) return std::string(ending);
  }
  return "";
}

ModelFiles::Kind kind_of(std::string_view name) {
  const std::string upper = upper_case(base_name(name));
  if (upper.find("MMPROJ") != std::string::npos || upper.find("IMATRIX") != std::string::npos) {
    return ModelFiles::Kind::kOther;
  }
  const bool drafter = upper.starts_with("MTP-") || upper.find("-MTP") != std::string::npos ||
                       upper.find("ASSISTANT") != std::string::npos || upper.find("DRAFT") != std::string::npos;
  return drafter ? ModelFiles::Kind::kCompanion : ModelFiles::Kind::kModel;
}

// Such a name could write to the user's terminal.
bool has_control_character(std::string_view path) {
  return std::any_of(path.begin(), path.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

bool ends_with_extension(std::string_view path) {
  return path.size() > kExtension.size() &&
         upper_case(path.substr(path.size() - kExtension.size())) == upper_case(kExtension);
}

// How well a model fits what was asked for; 0 is not at all.
int fit(const ModelFiles& model, const std::string& wanted) {
  if (model.kind == ModelFiles::Kind::kOther) return 0;
  const std::string name = upper_case(model.name);
  std::string stem = wanted;
  if (ends_with_extension(stem)) stem.resize(stem.size() - kExtension.size());
  if (name == stem || base_name(name) == stem) return 3;
  if (model.parts.size() == 1 && upper_case(model.parts.front()) == wanted) return 3;
  if (model.kind == ModelFiles::Kind::kCompanion) return 0;
  if (model.quant == wanted) return 2;
  const bool at_the_end = name.size() > wanted.size() && name.ends_with(wanted);
  return at_the_end && is_delimiter(name[name.size() - wanted.size() - 1]) ? 1 : 0;
}

[[noreturn]] void fail_ambiguous(std::span<const ModelFiles> models, const std::vector<size_t>& fitting,
                                 const RepoReference& reference) {
  std::string list;
  for (size_t i = 0; i < fitting.size() && i < kMaxListed; ++i) {
    list += fmt::format("\n  hf:{}:{}", reference.id(), models[fitting[i]].name);
  }
  if (fitting.size() > kMaxListed) list += fmt::format("\n  and {} more", fitting.size() - kMaxListed);
  fail(ErrorCode::kBadArgument, "{} could be any of {} models; name one of them:{}", reference.text(), fitting.size(),
       list);
}

std::optional<ModelChoice> choose_by_default(std::span<const ModelFiles> models, const RepoReference& reference) {
  std::vector<size_t> candidates;
  for (size_t i = 0; i < models.size(); ++i) {
    if (models[i].kind == ModelFiles::Kind::kModel) candidates.push_back(i);
  }
  if (candidates.empty()) return std::nullopt;
  if (candidates.size() == 1) return ModelChoice{candidates.front(), ""};
  for (const std::string_view quant : kQuantOrder) {
    std::vector<size_t> fitting;
    for (const size_t i : candidates) {
      if (models[i].quant == quant) fitting.push_back(i);
    }
    if (fitting.size() > 1) fail_ambiguous(models, fitting, reference);
    if (fitting.size() == 1) {
      return ModelChoice{fitting.front(),
                         fmt::format("{}: {} of {} models was taken; :QUANT chooses another ({})", reference.text(),
                                     quant, candidates.size(), list_choices(models))};
    }
  }
  fail_ambiguous(models, candidates, reference);
}

}  // namespace

std::vector<ModelFiles> group_models(std::span<const ListedFile> files) {
  std::map<std::pair<std::string, uint32_t>, std::map<uint32_t, const ListedFile*>> groups;
  for (const ListedFile& file : files) {
    if (!ends_with_extension(file.path) || has_control_character(file.path)) continue;
    const auto split = gguf::parse_split_name(file.path);
    const bool is_part = split && split->count > 1 && split->count <= gguf::limits::kMaxSplits && split->part >= 1 &&
                         split->part <= split->count;
    if (is_part) {
      groups[{split->prefix, split->count}][split->part] = &file;
    } else {
      groups[{file.path.substr(0, file.path.size() - kExtension.size()), 1}][1] = &file;
    }
  }
  std::vector<ModelFiles> models;
  for (const auto& [key, parts] : groups) {
    ModelFiles model;
    model.name = key.first;
    model.part_count = key.second;
    model.quant = quant_of(model.name);
    model.kind = kind_of(model.name);
    for (uint32_t number = 1; number <= model.part_count; ++number) {
      const auto part = parts.find(number);
      if (part == parts.end() || !part->second->readable) {
        model.missing.push_back(number);
        continue;
      }
      model.parts.push_back(part->second->path);
      model.bytes += part->second->bytes;
    }
    models.push_back(std::move(model));
  }
  // Where there is nothing else, what looks like a drafter by its name is the model itself.
  const auto is_model = [](const ModelFiles& model) { return model.kind == ModelFiles::Kind::kModel; };
  if (std::none_of(models.begin(), models.end(), is_model)) {
    for (ModelFiles& model : models) {
      if (model.kind == ModelFiles::Kind::kCompanion) model.kind = ModelFiles::Kind::kModel;
    }
  }
  return models;
}

std::optional<ModelChoice> choose_model(std::span<const ModelFiles> models, const RepoReference& reference) {
  if (reference.quant.empty()) return choose_by_default(models, reference);
  const std::string wanted = upper_case(reference.quant);
  int best = 0;
  for (const ModelFiles& model : models) best = std::max(best, fit(model, wanted));
  if (best == 0) return std::nullopt;
  std::vector<size_t> fitting;
  for (size_t i = 0; i < models.size(); ++i) {
    if (fit(models[i], wanted) == best) fitting.push_back(i);
  }
  if (fitting.size() > 1) fail_ambiguous(models, fitting, reference);
  return ModelChoice{fitting.front(), ""};
}

std::string list_choices(std::span<const ModelFiles> models) {
  std::string list;
  size_t listed = 0, left_out = 0;
  for (const ModelFiles& model : models) {
    if (model.kind == ModelFiles::Kind::kOther) continue;
    if (listed == kMaxListed) {
      ++left_out;
      continue;
    }
    const bool by_quant = model.kind == ModelFiles::Kind::kModel && !model.quant.empty();
    list += fmt::format("{}{} ({})", listed++ == 0 ? "" : ", ", by_quant ? model.quant : model.name,
                        byte_size(model.bytes));
  }
  if (left_out > 0) list += fmt::format(" and {} more", left_out);
  return list;
}

}  // namespace carat::hub
