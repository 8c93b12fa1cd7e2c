#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hub/model_lookup.h"

namespace carat::hub {

// A Gemma 4 model on this machine, or a file that may be one but cannot be read.
struct InventoryEntry {
  std::string name;  // what -m takes
  std::string path;  // the file to open; empty for a download that is not finished
  uint64_t bytes = 0;
  uint32_t parts = 1;
  std::string format;        // "Q4_K_M"; empty when the file cannot be read
  std::string architecture;  // "gemma4"; empty when the file cannot be read
  std::string where;         // the folder it was found in: a model folder or a cache
  std::string problem;       // why it cannot be used; empty when it can
};

struct Inventory {
  std::vector<InventoryEntry> models;
  uint64_t others = 0;  // GGUF files of other kinds
};

// Everything find_model() can find. Reads no more than the headers of files; damaged files are part of the result.
Inventory take_inventory(const LookupPlaces& places);

}  // namespace carat::hub
