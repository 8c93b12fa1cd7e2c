#include "model/quantise.h"

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

void copy_metadata(const gguf::ModelFile& file, const Recipe& recipe, gguf::Writer& writer) {
  bool has_file_type = false, has_version = false;
  for (const auto& [key, value] : file.metadata().entries()) {
    if (key.starts_with("split.")) continue;  // the result is one file
    if (key == kFileType) {
      writer.add_u32(key, recipe.file_type());
      has_file_type = true;
    } else if (key == kQuantizationVersion) {
      writer.add_u32(key, 2);
      has_version = true;
    } else {
      writer.add(key, value);
    }
  }
  if (!has_version) writer.add_u32(kQuantizationVersion, 2);
  if (!has_file_type) writer.add_u32(kFileType, recipe.file_type());
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
  std::vector<std::byte> blocks;
};

std::span<const std::byte> convert(const gguf::ModelFile& file, const QuantiseStep& step, const Piece& piece,
                                   Scratch& scratch) {
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
  to.quantise(scratch.values.data(), scratch.blocks.data(), piece.count, nullptr);
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

QuantisePlan plan_quantise(const gguf::ModelFile& file, Recipe recipe, bool allow_requantise) {
  std::vector<TensorShape> shapes;
  for (const gguf::TensorView& tensor : file.tensors()) shapes.push_back(shape_of(tensor.info));
  const std::vector<Format> chosen = recipe.formats(shapes);

  QuantisePlan plan{std::move(recipe), {}};
  for (size_t i = 0; i < chosen.size(); ++i) {
    const gguf::TensorView& tensor = file.tensors()[i];
    const quant::FormatInfo* from = quant::find_format(tensor.info.type);
    QuantiseStep step{.source = &tensor, .to_type = tensor.info.type, .to_bytes = tensor.info.bytes};
    const bool keeps = from == nullptr || from->format == chosen[i] ||
                       (is_float(from->format) && plan.recipe.keeps_float_type(tensor.info.name));
    if (!keeps) {
      check_convertible(file, tensor.info, from->format, chosen[i], allow_requantise);
      step.to_type = static_cast<uint32_t>(chosen[i]);
      step.to_bytes = quant::info(chosen[i]).row_bytes(shapes[i].elements());
    }
    plan.steps.push_back(step);
  }
  return plan;
}

void quantise(const gguf::ModelFile& file, const QuantisePlan& plan, const std::string& path, ThreadPool& pool,
              const WriteControl& control) {
  gguf::Writer writer(path, file.first_header().alignment);
  copy_metadata(file, plan.recipe, writer);
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
      const auto result = step.copies() ? source : convert(file, step, piece, scratch[worker]);
      writer.write_at(piece.step, piece.first / to.block * to.bytes, result);
      const uint64_t sum = done.fetch_add(source.size(), std::memory_order_relaxed) + source.size();
      if (control.progress && worker == 0) control.progress(sum);
    }
  });
  writer.finish();
  if (control.progress) control.progress(done.load());
}

}  // namespace carat::model
