#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "gguf/reader.h"
#include "gguf/writer.h"

namespace carat::model {

// A key of a model file and what it is to hold from now on.
struct MetadataEdit {
  std::string key;
  std::variant<int64_t, double, bool, std::string> value;

  // KEY=TYPE:VALUE with int, float, bool or str as TYPE, such as "general.sampling.temp=float:0.2" (llama.cpp's
  // --override-kv). Throws kBadArgument that begins with the text. Keys that say where data lies in the file
  // (general.alignment, split.*) are refused.
  static MetadataEdit parse(std::string_view text);

  // Adds the key to a file. `before` is what it held, or nullptr: numbers keep their stored type, and new ones become
  // i32 (i64 where they do not fit) and f32. Throws kBadArgument when the two are of different kinds, or when an
  // integer does not fit the stored type.
  void write(const gguf::Value* before, gguf::Writer& writer) const;
};

}  // namespace carat::model
