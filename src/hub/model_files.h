#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hub/remote/repo_reference.h"

namespace carat::hub {

// Which model is taken when a repository has several and none is named: the first of these that is there.
inline constexpr std::array<std::string_view, 12> kQuantOrder = {"Q4_K_M", "Q8_0", "Q4_0",   "Q6_K", "Q5_K_M", "Q4_K_S",
                                                                 "Q5_K_S", "Q5_0", "Q3_K_M", "BF16", "F16",    "F32"};

// A file of a repository or folder.
struct ListedFile {
  std::string path;  // relative, with '/'
  uint64_t bytes = 0;
  bool readable = true;  // false: a link to nothing
};

// One model in a folder or repository: a file, or all parts of NAME-00001-of-0000N.gguf.
struct ModelFiles {
  enum class Kind {
    kModel,
    kCompanion,  // a drafter beside the model: picked only by its full name
    kOther,      // vision projectors and importance matrices: never picked
  };

  std::string name;   // path without ".gguf" and the number of the part
  std::string quant;  // upper case, such as "Q4_K_M" or "UD-Q4_K_XL"; empty when the name has none
  Kind kind = Kind::kModel;
  uint32_t part_count = 1;
  std::vector<std::string> parts;  // paths of the readable parts, in order
  std::vector<uint32_t> missing;   // parts that are not there or not readable, from 1
  uint64_t bytes = 0;              // of the readable parts

  bool complete() const { return missing.empty(); }
};

// The models among the files, sorted by name; what does not end in .gguf is left out, and so
// are names with control characters.
std::vector<ModelFiles> group_models(std::span<const ListedFile> files);

struct ModelChoice {
  size_t index = 0;
  std::string note;  // what was chosen out of what, when nothing was asked for; otherwise empty
};

// The model `reference` means: by its file's name, its quantisation, or the end of its name, in this order, without
// regard to case; by kQuantOrder when it names none. nullopt when there is no such model. Throws kBadArgument listing
// them when there are several.
std::optional<ModelChoice> choose_model(std::span<const ModelFiles> models, const RepoReference& reference);

// "Q4_K_M (2.1 GB), Q8_0 (4.3 GB)": what can be asked for.
std::string list_choices(std::span<const ModelFiles> models);

}  // namespace carat::hub
