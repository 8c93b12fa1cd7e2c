#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/reader.h"
#include "model/census.h"
#include "model/model.h"

namespace carat::cli {

// Everything `carat info` says about a file, before it is written as text or JSON.
struct InfoReport {
  struct TypeUse {
    std::string_view type;
    uint64_t tensors = 0;
    model::Count count;
  };
  struct Memory {  // of one sequence with this context and a cache of half floats
    uint32_t context = 0;
    uint64_t sliding_bytes = 0;
    uint64_t global_bytes = 0;
    uint64_t weight_bytes = 0;
    uint64_t total() const { return sliding_bytes + global_bytes + weight_bytes; }
  };

  std::shared_ptr<const gguf::ModelFile> file;
  std::vector<TypeUse> types;
  // The rest only for a model carat can run.
  std::shared_ptr<const model::Model> model;
  model::Census census;
  uint32_t chunk = 0;  // rows of a forward pass, which the rings of sliding layers must hold besides the window
  std::vector<Memory> memory;
};

std::vector<InfoReport::TypeUse> count_types(const gguf::ModelFile& file);
model::Census census_of(const gguf::ModelFile& file, const model::Config& config);
// For the given contexts; when there are none, a few usual ones up to what the model was trained for. Empty for a
// drafter, which has no cache of its own.
std::vector<InfoReport::Memory> memory_table(const model::Model& model, std::span<const uint32_t> contexts,
                                             uint32_t chunk);

// The key's value in a few words: arrays by their type, length and first elements, texts cut.
std::string describe_value(const gguf::Value& value);

std::string info_text(const InfoReport& report, bool all_tensors);
nlohmann::ordered_json info_json(const InfoReport& report, bool all_tensors);

}  // namespace carat::cli
