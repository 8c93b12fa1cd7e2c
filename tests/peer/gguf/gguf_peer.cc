// Our side of the comparison with an independent GGUF reader (compare.mjs).
//   gguf_peer write MODEL.gguf EXPECTED.json   writes a file with every value and tensor type, and what it should hold
//   gguf_peer dump MODEL.gguf                  prints what our reader finds
// Integers are JSON strings, because 64 bits do not fit a JavaScript number; so are NaN and infinities.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "gguf/tensor_type.h"
#include "gguf/writer.h"

namespace {

using carat::gguf::Array;
using carat::gguf::Value;
using carat::gguf::ValueType;
using nlohmann::json;

json number_json(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  return number;
}

json element_json(const Array& array, uint64_t i) {
  switch (array.element) {
    case ValueType::kString:
      return std::string(array.strings[i]);
    case ValueType::kF32:
    case ValueType::kF64:
      return number_json(array.number(i));
    case ValueType::kBool:
      return array.integer(i) == 1;
    default:
      return std::to_string(array.integer(i));
  }
}

json value_json(const Value& value) {
  json result = {{"type", static_cast<uint32_t>(value.type)}};
  if (const auto* array = std::get_if<Array>(&value.data)) {
    result["subType"] = static_cast<uint32_t>(array->element);
    json& elements = result["value"] = json::array();
    for (uint64_t i = 0; i < array->count; ++i) elements.push_back(element_json(*array, i));
  } else if (const auto* truth = std::get_if<bool>(&value.data)) {
    result["value"] = *truth;
  } else if (const auto* text = std::get_if<std::string_view>(&value.data)) {
    result["value"] = std::string(*text);
  } else if (const auto* number = std::get_if<double>(&value.data)) {
    result["value"] = number_json(*number);
  } else if (const auto* natural = std::get_if<uint64_t>(&value.data)) {
    result["value"] = std::to_string(*natural);
  } else {
    result["value"] = std::to_string(std::get<int64_t>(value.data));
  }
  return result;
}

json tensor_json(std::string_view name, uint32_t type, std::span<const uint64_t> ne, uint64_t offset) {
  json shape = json::array();
  for (const uint64_t dimension : ne) shape.push_back(std::to_string(dimension));
  return {{"name", std::string(name)}, {"dtype", type}, {"shape", shape}, {"offset", std::to_string(offset)}};
}

json file_json(uint32_t version, const json& metadata, const json& tensors, uint64_t data_start) {
  return {
      {"version", version}, {"metadata", metadata}, {"tensors", tensors}, {"dataStart", std::to_string(data_start)}};
}

// Writes each key and notes what was asked for, without reading anything back.
class Recorder {
 public:
  explicit Recorder(const std::string& path) : writer_(path, kAlignment), path_(path) {}

  void add(std::string_view key, const Value& value) {
    writer_.add(key, value);
    metadata_[std::string(key)] = value_json(value);
  }

  template <typename T>
  void add_array(std::string_view key, ValueType type, const std::vector<T>& values) {
    add(key, {ValueType::kArray, Array{type, values.size(), std::as_bytes(std::span(values)), {}}});
  }

  void declare(std::string_view name, uint32_t type, const std::vector<uint64_t>& ne) {
    writer_.declare_tensor(name, type, ne);
    tensors_.push_back(tensor_json(name, type, ne, data_bytes_));
    const carat::gguf::TensorTypeInfo& info = *carat::gguf::find_tensor_type(type);
    uint64_t bytes = ne[0] / info.block * info.bytes;
    for (size_t i = 1; i < ne.size(); ++i) bytes *= ne[i];
    sizes_.push_back(bytes);
    data_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  json finish() {
    writer_.begin_data();
    for (const uint64_t bytes : sizes_) writer_.write(std::vector<std::byte>(bytes, std::byte{0x5a}));
    writer_.finish();
    metadata_["general.alignment"] = value_json({ValueType::kU32, uint64_t{kAlignment}});
    return file_json(3, metadata_, tensors_, std::filesystem::file_size(path_) - data_bytes_);
  }

 private:
  static constexpr uint32_t kAlignment = 64;  // not the default, so that the key matters
  carat::gguf::Writer writer_;
  std::string path_;
  json metadata_ = json::object();
  json tensors_ = json::array();
  std::vector<uint64_t> sizes_;
  uint64_t data_bytes_ = 0;
};

void add_scalars(Recorder& file) {
  file.add("general.architecture", {ValueType::kString, std::string_view("gemma4")});
  file.add("scalar.u8", {ValueType::kU8, uint64_t{255}});
  file.add("scalar.i8", {ValueType::kI8, int64_t{-128}});
  file.add("scalar.u16", {ValueType::kU16, uint64_t{65535}});
  file.add("scalar.i16", {ValueType::kI16, int64_t{-32768}});
  file.add("scalar.u32", {ValueType::kU32, uint64_t{4294967295}});
  file.add("scalar.i32", {ValueType::kI32, int64_t{-2147483648}});
  file.add("scalar.u64", {ValueType::kU64, std::numeric_limits<uint64_t>::max()});
  file.add("scalar.i64", {ValueType::kI64, std::numeric_limits<int64_t>::min()});
  file.add("scalar.f32", {ValueType::kF32, double{0.1f}});
  file.add("scalar.f32_infinity", {ValueType::kF32, std::numeric_limits<double>::infinity()});
  file.add("scalar.f64", {ValueType::kF64, 0.1});
  file.add("scalar.f64_nan", {ValueType::kF64, std::numeric_limits<double>::quiet_NaN()});
  file.add("scalar.true", {ValueType::kBool, true});
  file.add("scalar.false", {ValueType::kBool, false});
  file.add("scalar.empty", {ValueType::kString, std::string_view()});
  file.add("scalar.text", {ValueType::kString, std::string_view("größer\n模型 🙂 \"quoted\"")});
}

void add_arrays(Recorder& file) {
  file.add_array("array.u8", ValueType::kU8, std::vector<uint8_t>{0, 1, 255});
  file.add_array("array.i8", ValueType::kI8, std::vector<int8_t>{-128, 127});
  file.add_array("array.u16", ValueType::kU16, std::vector<uint16_t>{65535});
  file.add_array("array.i16", ValueType::kI16, std::vector<int16_t>{-32768, 32767});
  file.add_array("array.u32", ValueType::kU32, std::vector<uint32_t>{0, 4294967295});
  file.add_array("array.i32", ValueType::kI32, std::vector<int32_t>{-2147483647, 2147483647});
  file.add_array("array.u64", ValueType::kU64, std::vector<uint64_t>{0, uint64_t{1} << 62});
  file.add_array("array.i64", ValueType::kI64, std::vector<int64_t>{std::numeric_limits<int64_t>::min(), 1});
  file.add_array("array.f32", ValueType::kF32, std::vector<float>{0.1f, -0.0f, 1e-45f, 3e38f});
  file.add_array("array.f64", ValueType::kF64, std::vector<double>{0.1, -1e-300});
  file.add_array("array.bool", ValueType::kBool, std::vector<uint8_t>{1, 0, 1});
  file.add_array("array.empty", ValueType::kF32, std::vector<float>{});
  file.add("array.string", {ValueType::kArray, Array{ValueType::kString, 4, {}, {"a", "", "▁ü", "<0x0A>"}}});
}

json write_everything(const std::string& path) {
  Recorder file(path);
  add_scalars(file);
  add_arrays(file);
  file.declare("plain.one", 0, {5});
  file.declare("plain.two", 1, {5, 3});
  file.declare("plain.three", 30, {5, 3, 2});
  file.declare("plain.four", 24, {5, 3, 2, 7});
  file.declare("plain.ones", 0, {4, 1, 1, 1});
  for (uint32_t id = 0; id < 256; ++id) {
    const carat::gguf::TensorTypeInfo* type = carat::gguf::find_tensor_type(id);
    if (type != nullptr) file.declare(fmt::format("type.{}", type->name), id, {2 * type->block, 3});
  }
  return file.finish();
}

json read_everything(const std::string& path) {
  const auto file = carat::gguf::ModelFile::open(path);
  json metadata = json::object();
  for (const auto& entry : file->metadata().entries()) metadata[std::string(entry.key)] = value_json(entry.value);
  json tensors = json::array();
  for (const auto& [info, data] : file->tensors()) {
    tensors.push_back(tensor_json(info.name, info.type, std::span(info.ne).first(info.dimensions), info.offset));
  }
  return file_json(file->first_header().version, metadata, tensors, file->first_header().data_start);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string mode = argc > 1 ? argv[1] : "";
    if (mode == "write" && argc == 4) {
      std::ofstream(argv[3]) << write_everything(argv[2]).dump();
    } else if (mode == "dump" && argc == 3) {
      fmt::print("{}\n", read_everything(argv[2]).dump());
    } else {
      fmt::print(stderr, "usage: gguf_peer write MODEL.gguf EXPECTED.json | gguf_peer dump MODEL.gguf\n");
      return 1;
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "gguf_peer: {}\n", error.what());
    return 2;
  }
  return 0;
}
