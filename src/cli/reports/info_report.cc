#include "cli/reports/info_report.h"

#include <algorithm>
#include <map>

#include "gguf/tensor_type.h"
#include "model/kv_geometry.h"

namespace carat::cli {

namespace {

constexpr double kHalfFloatBytes = 2.0;

model::Count count_of(const gguf::TensorInfo& info) {
  return {info.ne[0] * info.ne[1] * info.ne[2] * info.ne[3], info.bytes};
}

}  // namespace

std::vector<InfoReport::TypeUse> count_types(const gguf::ModelFile& file) {
  std::map<uint32_t, InfoReport::TypeUse> by_type;
  for (const gguf::TensorView& tensor : file.tensors()) {
    InfoReport::TypeUse& use = by_type[tensor.info.type];
    use.type = gguf::find_tensor_type(tensor.info.type)->name;
    ++use.tensors;
    use.count += count_of(tensor.info);
  }
  std::vector<InfoReport::TypeUse> uses;
  for (const auto& [type, use] : by_type) uses.push_back(use);
  std::ranges::stable_sort(uses, std::greater{}, [](const auto& use) { return use.count.bytes; });
  return uses;
}

model::Census census_of(const gguf::ModelFile& file, const model::Config& config) {
  std::vector<model::CensusTensor> tensors;
  for (const gguf::TensorView& tensor : file.tensors()) tensors.push_back({tensor.info.name, count_of(tensor.info)});
  return model::take_census(tensors, config.n_kv, config.experts, config.experts_used);
}

std::vector<InfoReport::Memory> memory_table(const model::Model& model, std::span<const uint32_t> contexts,
                                             uint32_t chunk) {
  const model::Config& config = model.config();
  if (config.is_drafter()) return {};
  std::vector<uint32_t> wanted(contexts.begin(), contexts.end());
  if (wanted.empty()) {
    for (const uint32_t usual : {4096u, 8192u, 32768u, 131072u}) {
      if (usual < config.context_length) wanted.push_back(usual);
    }
    wanted.push_back(config.context_length);
  }
  std::vector<InfoReport::Memory> table;
  for (const uint32_t context : wanted) {
    InfoReport::Memory row{.context = context, .weight_bytes = model.weight_bytes()};
    const model::KvGeometry geometry(config, context, chunk);
    for (const model::KvGeometry::Group& group : geometry.groups()) {
      const uint64_t values = group.values_per_cell() * group.layers.size() * group.cells;
      const auto bytes = static_cast<uint64_t>(static_cast<double>(values) * kHalfFloatBytes);
      (group.sliding ? row.sliding_bytes : row.global_bytes) += bytes;
    }
    table.push_back(row);
  }
  return table;
}

}  // namespace carat::cli
