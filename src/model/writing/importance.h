#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace carat::model {

// How much each input channel of each weight matrix matters: the mean square of what the matrix was multiplied with
// while a model read some text ("imatrix"). Quantisers weigh the error of each weight with it.
class ImportanceMatrix {
 public:
  // Either kind of file llama.cpp's llama-imatrix writes: GGUF, or the binary one of before. Throws kBadFile naming the
  // path and the entry.
  static ImportanceMatrix load(const std::string& path);

  // Of all slices (experts), one after another, or of one slice that stands for all; empty: nothing is known of this
  // tensor. Channels of a slice that was never used weigh alike.
  std::span<const float> find(std::string_view tensor) const;
  size_t entries() const { return means_.size(); }

 private:
  static ImportanceMatrix load_gguf(const std::string& path);
  static ImportanceMatrix load_legacy(const std::string& path);

  std::map<std::string, std::vector<float>, std::less<>> means_;
};

// Collects one.
class ImportanceCollector {
 public:
  // Sums up squares of one row of activations, the input of slice `slice` of the tensor's `slices`.
  void add(std::string_view tensor, uint64_t slice, uint64_t slices, std::span<const float> row);
  size_t entries() const { return sums_.size(); }
  // Of how many slices (experts) of all nothing was seen.
  uint64_t unused_slices() const;
  // A GGUF file as llama-imatrix writes it. `chunks` of `chunk_size` tokens of `dataset` were read.
  void save(const std::string& path, const std::string& dataset, uint32_t chunks, uint32_t chunk_size) const;

 private:
  struct Sums {
    std::vector<double> squares;  // [slices][columns]
    std::vector<uint64_t> rows;   // [slices]
  };
  std::map<std::string, Sums, std::less<>> sums_;
};

}  // namespace carat::model
