#include "support/hostile_gguf.h"

#include <fmt/format.h>

#include <functional>

namespace carat::test {

namespace {

using Change = std::function<void(GgufSketch&)>;

HostileGguf changed(std::string name, std::string message, const Change& change) {
  GgufSketch sketch = tiny_gguf();
  change(sketch);
  return {std::move(name), sketch.encode(), std::move(message)};
}

void add_wrong_starts(std::vector<HostileGguf>& files) {
  files.push_back(changed("magic", "it is no GGUF file", [](GgufSketch& s) { s.magic = "GGML"; }));
  files.push_back(changed("version 1", "GGUF version 1", [](GgufSketch& s) { s.version = 1; }));
  files.push_back(changed("version 4", "GGUF version 4", [](GgufSketch& s) { s.version = 4; }));
  files.push_back(changed("big-endian", "big-endian", [](GgufSketch& s) { s.version = 3u << 24; }));
  files.push_back(changed("version 0", "version", [](GgufSketch& s) { s.version = 0; }));
}

void add_wrong_counts(std::vector<HostileGguf>& files) {
  const auto counts = {uint64_t{0xffffffff}, uint64_t{1} << 63, ~uint64_t{0}, uint64_t{100}};
  for (const uint64_t count : counts) {
    files.push_back(changed(fmt::format("{} keys", count), count == 100 ? "key" : "the number of keys is",
                            [&](GgufSketch& s) { s.claimed_keys = count; }));
    files.push_back(changed(fmt::format("{} tensors", count), count == 100 ? "tensor" : "the number of tensors is",
                            [&](GgufSketch& s) { s.claimed_tensors = count; }));
  }
}

void add_wrong_lengths(std::vector<HostileGguf>& files) {
  const uint64_t file_size = tiny_gguf().encode().size();
  for (const uint64_t length : {file_size + 1, uint64_t{1} << 63, ~uint64_t{0} - 7, uint64_t{1} << 30}) {
    Bytes key_name;
    append(key_name, length);
    append_text(key_name, "short");
    files.push_back(
        changed(fmt::format("key of {} bytes", length), "key 1 of", [&](GgufSketch& s) { s.keys = {key_name}; }));

    Bytes text;
    append_string(text, "c.text");
    append(text, uint32_t{8});
    append(text, length);
    files.push_back(changed(fmt::format("string of {} bytes", length), "key 'c.text'",
                            [&](GgufSketch& s) { s.keys.push_back(text); }));

    Bytes element;
    append(element, length);
    files.push_back(changed(fmt::format("array element of {} bytes", length), "key 'c.texts'",
                            [&](GgufSketch& s) { s.keys.push_back(encode_array_key("c.texts", 8, 1, element)); }));
    for (const uint32_t type : {0u, 5u, 7u, 8u, 12u}) {
      files.push_back(changed(fmt::format("array of {} elements of type {}", length, type), "key 'c.array'",
                              [&](GgufSketch& s) { s.keys.push_back(encode_array_key("c.array", type, length, {})); }));
    }
    files.push_back(changed(fmt::format("tensor name of {} bytes", length), "tensor ''", [&](GgufSketch& s) {
      Bytes info;
      append(info, length);
      s.keys.push_back(info);  // stands where the first tensor's name should be
      s.claimed_keys = s.keys.size() - 1;
    }));
  }
}

void add_wrong_values(std::vector<HostileGguf>& files) {
  files.push_back(changed("value type 13", "value type 13",
                          [](GgufSketch& s) { s.keys.push_back(encode_key("c.new", 13, uint32_t{0})); }));
  files.push_back(changed("array element type 4000000000", "array element type 4000000000",
                          [](GgufSketch& s) { s.keys.push_back(encode_array_key("c.new", 4000000000u, 1, {})); }));
  files.push_back(changed("array of arrays", "arrays of arrays",
                          [](GgufSketch& s) { s.keys.push_back(encode_array_key("c.deep", 9, 1, {})); }));
  files.push_back(changed("bool of 2", "key 'c.bool' (18 of 18): a bool is 2",
                          [](GgufSketch& s) { s.keys.push_back(encode_key("c.bool", 7, uint8_t{2})); }));
  files.push_back(changed("array with a bool of 255", "a bool is 255", [](GgufSketch& s) {
    s.keys.push_back(encode_array_key("c.bools", 7, 2, {std::byte{1}, std::byte{255}}));
  }));
  files.push_back(changed("empty key", "key 18 of 18 has an empty name",
                          [](GgufSketch& s) { s.keys.push_back(encode_key("", 0, uint8_t{1})); }));
  files.push_back(changed("duplicate key", "key 'a.u8' appears twice",
                          [](GgufSketch& s) { s.keys.push_back(encode_key("a.u8", 0, uint8_t{1})); }));
  files.push_back(changed("key that writes to a terminal", "key '\\x1b[2J' appears twice", [](GgufSketch& s) {
    for (int i = 0; i < 2; ++i) s.keys.push_back(encode_key("\x1b[2J", 0, uint8_t{1}));
  }));
  // In arrays that are too long together, though each by itself is not.
  files.push_back(changed("three arrays of 3 million strings", "array length is 3000000", [](GgufSketch& s) {
    const Bytes zeros(8 * 3000000);
    for (int i = 0; i < 3; ++i) s.keys.push_back(encode_array_key(fmt::format("c.{}", i), 8, 3000000, zeros));
  }));
}

void add_wrong_alignments(std::vector<HostileGguf>& files) {
  for (const uint32_t alignment : {0u, 1u, 3u, 48u, 1u << 31, ~0u}) {
    files.push_back(changed(fmt::format("alignment {}", alignment), fmt::format("general.alignment is {}", alignment),
                            [&](GgufSketch& s) { s.keys.push_back(encode_key("general.alignment", 4, alignment)); }));
  }
  files.push_back(changed("alignment as text", "general.alignment",
                          [](GgufSketch& s) { s.keys.push_back(encode_string_key("general.alignment", "32")); }));
  files.push_back(changed("negative alignment", "general.alignment",
                          [](GgufSketch& s) { s.keys.push_back(encode_key("general.alignment", 5, int32_t{-32})); }));
  files.push_back(changed("offsets that do not fit a larger alignment", "no multiple of the alignment 64",
                          [](GgufSketch& s) { s.keys.push_back(encode_key("general.alignment", 4, 64u)); }));
}

void add_wrong_shapes(std::vector<HostileGguf>& files) {
  const auto shape = [&](std::string name, std::string message, std::vector<uint64_t> ne, uint32_t type = 0) {
    files.push_back(changed(std::move(name), fmt::format("tensor 'first.weight' (1 of 3): {}", message),
                            [&](GgufSketch& s) { s.tensors[0].ne = ne, s.tensors[0].type = type; }));
  };
  constexpr uint64_t kOne = 1;
  shape("shape of 2^64 elements", "the shape [4294967296, 4294967296] has more elements", {kOne << 32, kOne << 32});
  shape("shape (2^63, 2)", "the shape [9223372036854775808, 2] has more elements", {kOne << 63, 2});
  shape("shape (2, 2^63)", "the shape [2, 9223372036854775808] has more elements", {2, kOne << 63});
  shape("2^63 elements", "the shape [9223372036854775808] has more elements", {kOne << 63});
  shape("2^62 elements of 4 bytes", "the shape [4611686018427387904] has more bytes", {kOne << 62});
  shape("zero rows", "the shape [4, 0] has an empty dimension", {4, 0});
  shape("zero columns", "the shape [0, 4] has an empty dimension", {0, 4});
  shape("zero after an overflow", "the shape [9223372036854775808, 2, 0] has an empty dimension", {kOne << 63, 2, 0});
  shape("no dimensions", "0 dimensions", {});
  shape("5 dimensions", "5 dimensions", {1, 1, 1, 1, 1});
  shape("rows of 33 in Q8_0", "rows of 33 elements are no multiple of the 32 that Q8_0", {33}, 8);
  shape("rows of 128 in Q4_K", "rows of 128 elements are no multiple of the 256 that Q4_K", {128, 2}, 12);
  for (const uint32_t type : {4u, 5u, 31u, 36u, 43u, 0xffffffffu}) {
    shape(fmt::format("type {}", type), fmt::format("type {} is unknown", type), {32}, type);
  }
  files.push_back(changed("4294967295 dimensions", "4294967295 dimensions",
                          [](GgufSketch& s) { s.tensors[0].claimed_dimensions = 0xffffffff; }));
}

void add_wrong_places(std::vector<HostileGguf>& files) {
  const auto place = [&](std::string name, std::string message, const Change& change) {
    files.push_back(changed(std::move(name), std::move(message), change));
  };
  place("offset past the end", "tensor 'third' of 32 bytes at offset 192 ends beyond the 160 bytes",
        [](GgufSketch& s) { s.tensors[2].offset = 192; });
  place("one byte missing", "tensor 'third' of 32 bytes at offset 128 ends beyond the 159 bytes",
        [](GgufSketch& s) { s.data_bytes -= 1; });
  place("offset near 2^64", "ends beyond", [](GgufSketch& s) { s.tensors[2].offset = ~uint64_t{0} - 31; });
  place("no data at all", "ends beyond the 0 bytes", [](GgufSketch& s) { s.data_bytes = 0; });
  place("misaligned offset", "tensor 'second.weight' (2 of 3): offset 33 is no multiple of the alignment 32",
        [](GgufSketch& s) { s.tensors[1].offset = 33; });
  place("same offset twice", "overlap at offset 0", [](GgufSketch& s) { s.tensors[1].offset = 0; });
  place("partial overlap", "tensors 'second.weight' and 'third' overlap at offset 96",
        [](GgufSketch& s) { s.tensors[2].offset = 96; });
  place("overlap against the listed order", "tensors 'third' and 'first.weight' overlap at offset 32",
        [](GgufSketch& s) {
          s.tensors = {{"first.weight", {3, 2}, 0, 32}, {"second.weight", {64}, 8, 64}, {"third", {16, 2}, 0, 0}};
        });
  place("duplicate tensor", "tensor 'third' appears twice", [](GgufSketch& s) { s.tensors[1].name = "third"; });
  place("empty tensor name", "tensor '' (2 of 3): the name is empty", [](GgufSketch& s) { s.tensors[1].name = ""; });
  place("tensor name of 64 bytes", "tensor '' (2 of 3): the tensor's name claims 64 bytes",
        [](GgufSketch& s) { s.tensors[1].name = std::string(64, 'x'); });
}

void add_crowds(std::vector<HostileGguf>& files) {
  files.push_back(changed("a million tiny keys", "the number of keys is 1000000", [](GgufSketch& s) {
    s.keys.clear();
    for (int i = 0; i < 1000000; ++i) s.keys.push_back(encode_key(std::to_string(i), 0, uint8_t{0}));
  }));
  files.push_back(changed("65536 keys, the last two equal", "appears twice", [](GgufSketch& s) {
    s.keys.clear();
    for (int i = 0; i < 65535; ++i) s.keys.push_back(encode_key(std::to_string(i), 0, uint8_t{0}));
    s.keys.push_back(s.keys.back());
  }));
  files.push_back(changed("131072 tensors on the same bytes", "overlap", [](GgufSketch& s) {
    s.tensors.clear();
    for (int i = 0; i < 131072; ++i) s.tensors.push_back({std::to_string(i), {1}, 0, 0});
  }));
}

}  // namespace

std::vector<HostileGguf> hostile_ggufs() {
  std::vector<HostileGguf> files;
  add_wrong_starts(files);
  add_wrong_counts(files);
  add_wrong_lengths(files);
  add_wrong_values(files);
  add_wrong_alignments(files);
  add_wrong_shapes(files);
  add_wrong_places(files);
  add_crowds(files);
  return files;
}

}  // namespace carat::test
