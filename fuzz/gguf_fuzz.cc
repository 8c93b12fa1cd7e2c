// gguf::parse on arbitrary bytes: it returns or throws carat::Error, and what it returns keeps its promises.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "fuzz_check.h"
#include "gguf/reader.h"
#include "quant/format.h"

namespace {

using carat::gguf::Array;
using carat::gguf::Header;
using carat::gguf::Metadata;
using carat::gguf::TensorInfo;
using carat::gguf::ValueType;

bool lies_within(std::string_view text, std::span<const std::byte> file) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return text.empty() || (first >= file.data() && first + text.size() <= file.data() + file.size());
}

// Calls a getter; a refusal is fine, a crash is not.
template <typename Getter>
void probe(Getter&& getter) {
  try {
    getter();
  } catch (const carat::Error&) {
  }
}

void check_array(const Array& array, std::span<const std::byte> file) {
  if (array.element == ValueType::kString) {
    FUZZ_CHECK(array.strings.size() == array.count);
    for (const std::string_view text : array.strings) FUZZ_CHECK(lies_within(text, file));
    return;
  }
  FUZZ_CHECK(array.bytes.size() == array.count * carat::gguf::value_type_bytes(array.element));
  for (uint64_t i = 0; i < array.count; ++i) {
    array.number(i);
    probe([&] { array.integer(i); });
  }
}

void check_metadata(const Metadata& metadata, std::span<const std::byte> file) {
  for (const Metadata::Entry& entry : metadata.entries()) {
    FUZZ_CHECK(!entry.key.empty() && lies_within(entry.key, file));
    FUZZ_CHECK(metadata.find(entry.key) == &entry.value);
    probe([&] { metadata.unsigned_integer(entry.key); });
    probe([&] { metadata.number(entry.key); });
    probe([&] { metadata.boolean(entry.key); });
    probe([&] { metadata.string(entry.key); });
    if (const auto* array = std::get_if<Array>(&entry.value.data)) check_array(*array, file);
  }
}

void check_tensors(const Header& header, size_t file_bytes) {
  std::vector<TensorInfo> tensors = header.tensors;
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  uint64_t free_from = 0;
  for (const TensorInfo& tensor : tensors) {
    FUZZ_CHECK(tensor.bytes > 0 && tensor.offset >= free_from && tensor.offset % header.alignment == 0);
    free_from = tensor.offset + tensor.bytes;
  }
  FUZZ_CHECK(tensors.empty() || header.data_start + free_from <= file_bytes);
}

// The first block of each tensor, in memory of exactly its size: any bytes are values, if not always finite ones.
void check_blocks(const Header& header, std::span<const std::byte> file) {
  for (const TensorInfo& tensor : header.tensors) {
    const carat::quant::FormatInfo* format = carat::quant::find_format(tensor.type);
    if (format == nullptr) continue;
    const auto bytes = file.subspan(header.data_start + tensor.offset, format->bytes);
    const std::vector<std::byte> block(bytes.begin(), bytes.end());
    std::vector<float> values(format->block);
    format->dequantise(block.data(), values.data(), values.size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  try {
    const Header header = carat::gguf::parse(file);
    check_metadata(header.metadata, file);
    check_tensors(header, size);
    check_blocks(header, file);
  } catch (const carat::Error&) {
  }
  return 0;
}
