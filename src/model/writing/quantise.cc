#include "model/writing/quantise.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/error.h"
#include "gguf/tensor_type.h"
#include "gguf/writer.h"

namespace carat::model {

using quant::Format;

namespace {

constexpr std::string_view kFileType = "general.file_type";
constexpr std::string_view kQuantizationVersion = "general.quantization_version";
constexpr uint32_t kBlockLayoutVersion = 2;  // of llama.cpp's block formats

bool is_float(Format format) { return format == Format::kF32 || format == Format::kF16 || format == Format::kBF16; }

TensorShape shape_of(const gguf::TensorInfo& info) {
  return {std::string(info.name), {info.ne.begin(), info.ne.begin() + info.dimensions}};
}

void check_convertible(const gguf::ModelFile& file, const gguf::TensorInfo& info, Format from, Format to,
                       bool allow_requantise) {
  if (!is_float(from) && !allow_requantise) {
    fail(ErrorCode::kBadArgument,
         "{}: tensor {} is {} already; start from an F32, F16 or BF16 file, or give --allow-requantize to add one "
         "rounding to another",
         file.path(), info.name, quant::info(from).name);
  }
  if (quant::info(to).quantise == nullptr) {
    fail(ErrorCode::kUnsupported, "{}: tensor {} would have to become {}, which carat reads but does not write",
         file.path(), info.name, quant::info(to).name);
  }
}

void copy_metadata(const gguf::ModelFile& file, const QuantisePlan& plan, gguf::Writer& writer) {
  const gguf::Metadata& metadata = file.metadata();
  const auto edit_of = [&](std::string_view key) -> const MetadataEdit* {
    const auto found =
        std::find_if(plan.edits.rbegin(), plan.edits.rend(), [&](const MetadataEdit& edit) { return edit.key == key; });
    return found == plan.edits.rend() ? nullptr : &*found;
  };
  for (const auto& [key, value] : metadata.entries()) {
    if (key.starts_with("split.")) continue;  // the result is one file
    if (const MetadataEdit* edit = edit_of(key)) {
      edit->write(&value, writer);
    } else if (plan.recipe && key == kFileType) {
      writer.add_u32(key, plan.recipe->file_type());
    } else if (plan.recipe && key == kQuantizationVersion) {
      writer.add_u32(key, kBlockLayoutVersion);
    } else {
      writer.add(key, value);
    }
  }
  const auto is_new = [&](std::string_view key) { return metadata.find(key) == nullptr; };
  for (const MetadataEdit& edit : plan.edits) {
    if (is_new(edit.key) && &edit == edit_of(edit.key)) edit.write(nullptr, writer);
  }
  if (!plan.recipe) return;
  if (is_new(kQuantizationVersion) && !edit_of(kQuantizationVersion)) {
    writer.add_u32(kQuantizationVersion, kBlockLayoutVersion);
  }
  if (is_new(kFileType) && !edit_of(kFileType)) writer.add_u32(kFileType, plan.recipe->file_type());
}

// A run of elements of one tensor. Rows are whole blocks, so a tensor is one sequence of blocks in either format.
struct Piece {
  size_t step;
  uint64_t first, count;  // elements
};

// A multiple of every block size; its floats fill a core's second-level cache at most.
constexpr uint64_t kPieceElements = uint64_t{1} << 17;

std::vector<Piece> cut_into_pieces(const QuantisePlan& plan) {
  std::vector<Piece> pieces;
  for (size_t step = 0; step < plan.steps.size(); ++step) {
    const uint64_t elements = shape_of(plan.steps[step].source->info).elements();
    for (uint64_t first = 0; first < elements; first += kPieceElements) {
      pieces.push_back({step, first, std::min(kPieceElements, elements - first)});
    }
  }
  return pieces;
}

// What one worker needs; allocated once.
struct Scratch {
  std::vector<float> values;
  std::vector<float> importance;
  std::vector<std::byte> blocks;
};

// One weight for each element of a piece: that of its column, in files with experts of its expert's. nullptr: none
// known.
const float* importance_of(const QuantisePlan& plan, const QuantiseStep& step, const Piece& piece, Scratch& scratch) {
  if (plan.importance == nullptr) return nullptr;
  const gguf::TensorInfo& info = step.source->info;
  const std::span<const float> means = plan.importance->find(info.name);
  if (means.empty()) return nullptr;
  const uint64_t columns = info.ne[0];
  const uint64_t slice_elements = means.size() == columns ? UINT64_MAX : columns * info.ne[1];
  scratch.importance.resize(piece.count);
  for (uint64_t i = 0; i < piece.count; ++i) {
    const uint64_t at = piece.first + i;
    scratch.importance[i] = means[at / slice_elements * columns + at % columns];
  }
  return scratch.importance.data();
}

std::span<const std::byte> convert(const gguf::ModelFile& file, const QuantisePlan& plan, const QuantiseStep& step,
                                   const Piece& piece, Scratch& scratch) {
  const quant::FormatInfo& from = *quant::find_format(step.source->info.type);
  const quant::FormatInfo& to = *quant::find_format(step.to_type);
  scratch.values.resize(piece.count);
  scratch.blocks.resize(to.row_bytes(piece.count));
  from.dequantise(step.source->data.data() + from.row_bytes(piece.first), scratch.values.data(), piece.count);
  for (const float value : scratch.values) {
    if (!std::isfinite(value)) {
      fail(ErrorCode::kBadFile, "{}: tensor {} has a value that is not finite; the file is damaged", file.path(),
           step.source->info.name);
    }
  }
  to.quantise(scratch.values.data(), scratch.blocks.data(), piece.count, importance_of(plan, step, piece, scratch));
  return scratch.blocks;
}

}  // namespace

uint64_t QuantisePlan::from_bytes() const {
  uint64_t sum = 0;
  for (const QuantiseStep& step : steps) sum += step.source->info.bytes;
  return sum;
}

uint64_t QuantisePlan::to_bytes() const {
  uint64_t sum = 0;
  for (const QuantiseStep& step : steps) sum += step.to_bytes;
  return sum;
}

QuantisePlan plan_quantise(const gguf::ModelFile& file, std::optional<Recipe> recipe, bool allow_requantise) {
  QuantisePlan plan{std::move(recipe), {}, {}, nullptr};
  for (const gguf::TensorView& tensor : file.tensors()) {
    plan.steps.push_back({.source = &tensor, .to_type = tensor.info.type, .to_bytes = tensor.info.bytes});
  }
  if (!plan.recipe) return plan;

  std::vector<TensorShape> shapes;
  for (const gguf::TensorView& tensor : file.tensors()) shapes.push_back(shape_of(tensor.info));
  const std::vector<Format> chosen = plan.recipe->formats(shapes);
  for (size_t i = 0; i < chosen.size(); ++i) {
    const gguf::TensorInfo& info = plan.steps[i].source->info;
    const quant::FormatInfo* from = quant::find_format(info.type);
    const bool keeps = from == nullptr || from->format == chosen[i] ||
                       (is_float(from->format) && plan.recipe->keeps_float_type(info.name));
    if (keeps) continue;
    check_convertible(file, info, from->format, chosen[i], allow_requantise);
    plan.steps[i].to_type = static_cast<uint32_t>(chosen[i]);
    plan.steps[i].to_bytes = quant::info(chosen[i]).row_bytes(shapes[i].elements());
  }
  return plan;
}

void check_importance(const gguf::ModelFile& file, const QuantisePlan& plan) {
  if (plan.importance == nullptr) return;
  size_t used = 0, converted = 0;
  for (const QuantiseStep& step : plan.steps) {
    if (step.copies()) continue;
    ++converted;
    const gguf::TensorInfo& info = step.source->info;
    const std::span<const float> means = plan.importance->find(info.name);
    if (means.empty()) continue;
    ++used;
    const uint64_t slices = info.dimensions > 2 ? info.ne[2] : 1;
    if (means.size() == info.ne[0] || means.size() == info.ne[0] * slices) continue;
    fail(ErrorCode::kBadFile,
         "{}: tensor {} has rows of {} and {} slices, but the importance matrix {} values for it; it "
         "is of another model",
         file.path(), info.name, info.ne[0], slices, means.size());
  }
  if (converted > 0 && used == 0) {
    fail(ErrorCode::kBadFile, "{}: the importance matrix has none of the tensors to convert; it is of another model",
         file.path());
  }
}

void quantise(const gguf::ModelFile& file, const QuantisePlan& plan, const std::string& path, ThreadPool& pool,
              const WriteControl& control) {
  check_importance(file, plan);
  gguf::Writer writer(path, file.first_header().alignment);
  copy_metadata(file, plan, writer);
  for (const QuantiseStep& step : plan.steps) {
    writer.declare_tensor(step.source->info.name, step.to_type, shape_of(step.source->info).ne);
  }
  writer.begin_data();

  const std::vector<Piece> pieces = cut_into_pieces(plan);
  std::vector<Scratch> scratch(pool.size());
  std::atomic<uint64_t> done{0};
  pool.parallel_for(pieces.size(), 1, [&](size_t begin, size_t end, unsigned worker) {
    for (size_t n = begin; n < end; ++n) {
      control.check();
      const Piece& piece = pieces[n];
      const QuantiseStep& step = plan.steps[piece.step];
      const gguf::TensorTypeInfo& from = *gguf::find_tensor_type(step.source->info.type);
      const gguf::TensorTypeInfo& to = *gguf::find_tensor_type(step.to_type);
      const auto source =
          step.source->data.subspan(piece.first / from.block * from.bytes, piece.count / from.block * from.bytes);
      const auto result = step.copies() ? source : convert(file, plan, step, piece, scratch[worker]);
      writer.write_at(piece.step, piece.first / to.block * to.bytes, result);
      const uint64_t sum = done.fetch_add(source.size(), std::memory_order_relaxed) + source.size();
      if (control.progress && worker == 0) control.progress(sum);
    }
  });
  writer.finish();
  if (control.progress) control.progress(done.load());
}

}  // namespace carat::model
