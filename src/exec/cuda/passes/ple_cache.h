#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "exec/cuda/plan/buffers.h"
#include "exec/cuda/weights/packed.h"

namespace carat::cuda {

// Which rows of the per-layer-embedding table lie in device memory, where the table itself stays in host memory: a text
// repeats its tokens, and each row then crosses the bus once. Only the bookkeeping, which the host does while it writes
// a pass's control block; fetch_ple_rows() moves the rows.
class PleCache {
 public:
  PleCache() = default;
  explicit PleCache(uint32_t rows) : entries_(rows) {}

  // Gives every token of a pass a place that keeps it until the pass is over. places, fetches: [tokens.size()];
  // fetches[i] says what to bring for row i, or nothing where it is there already or another row brings it. Of a row
  // the embeddings of the first `slices` layers are wanted. A pass may have as many tokens as there are places.
  void place(std::span<const int32_t> tokens, uint32_t slices, int32_t* places, PleFetch* fetches);

  uint64_t fetched() const { return fetched_; }  // rows, since the cache was made

 private:
  struct Entry {
    int32_t token = -1;
    uint32_t slices = 0;      // layers whose embeddings are there
    uint64_t last_pass = 0;   // that used it
    bool used_again = false;  // since the hand was here last
  };
  uint32_t free_place();

  std::vector<Entry> entries_;
  std::unordered_map<int32_t, uint32_t> place_of_;  // by token
  uint32_t hand_ = 0;                               // goes around the entries in search of one to give up
  uint64_t pass_ = 0;
  uint64_t fetched_ = 0;
};

// Places of the cache of passes of `chunk` rows: those of a pass, and as many that passes before it used.
constexpr uint32_t ple_cache_rows(uint32_t chunk) { return 2 * chunk; }

// Device memory for `rows` rows of a table, laid out as the table is.
PackedView carve_ple_rows(Carver& carver, Packing packing, uint32_t cols, uint32_t rows);

}  // namespace carat::cuda
