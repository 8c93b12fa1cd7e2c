#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace carat::hub {

// Where models are looked for, in this order.
struct LookupPlaces {
  std::vector<std::filesystem::path> model_folders;  // for bare names
  std::vector<std::filesystem::path> cache_folders;  // for hf:owner/repo
};

struct FoundModel {
  std::string path;  // the file to open; of a split model the first part
  std::string note;  // a choice that was made and is worth saying; may be empty
};

// What `wanted` (the value of -m) means: a file that exists, else hf:owner/repo[:quant] in a cache folder, else a name
// in a model folder with or without .gguf. Never touches the network. Throws kIo saying where was looked and what
// would download the model, kBadArgument when the text could mean several models.
FoundModel find_model(const std::string& wanted, const LookupPlaces& places);

}  // namespace carat::hub
