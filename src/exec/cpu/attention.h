#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "exec/cpu/aligned_buffer.h"
#include "exec/cpu/kernel_table.h"
#include "exec/cpu/kv_cache.h"
#include "exec/executor.h"
#include "model/config.h"

namespace carat::exec::cpu {

// Attention of a pass's rows over the cache, on all workers (docs/gemma4.md 3.5).
//
// The keys of a query are cut into spans at fixed positions; spans are computed on their own and merged in order. Many
// queries: a worker takes a tile of queries and all its spans. Few queries and many keys (a decode step): workers share
// the spans. Both add the same numbers in the same order, so neither the batch nor the number of threads shows in the
// result.
class Attention {
 public:
  Attention(const model::Config& config, const KernelTable& kernels, ThreadPool& pool, const KvCache& cache,
            const ExecutorOptions& options);

  // q, out: [rows, H * hd]. The keys and values of all rows are in the cache of layer.kv_source.
  void run(const model::Layer& layer, std::span<const Row> rows, const float* q, float* out);

 private:
  // Up to kQueryTile queries of one key/value head, from consecutive rows of one sequence. Query i of the run is head
  // kv_head * group + i % group of row first_row + i / group.
  struct Task {
    uint32_t first_row;
    uint32_t first_query;
    uint32_t count;
    uint32_t kv_head;
    uint32_t begin, end;    // keys any of them sees
    uint32_t spans;         // and the spans these lie in
    uint32_t first_result;  // where the spans' results are when workers share them
  };
  // The unfinished softmax of a tile.
  struct Result {
    float* peaks;    // [kQueryTile]
    float* totals;   // [kQueryTile]
    float* outputs;  // [kQueryTile, hd]
  };
  struct Pass {
    const model::Layer* layer;
    const Row* rows;
    const float* q;
    float* out;
  };

  void list_tasks(const Pass& pass, uint32_t row_count);
  void add_task(const Pass& pass, uint32_t first_row, uint32_t first_query, uint32_t count, uint32_t kv_head);
  Result worker_result(unsigned worker, uint32_t which);
  Result shared_result(uint32_t index);
  void attend(const Pass& pass, const Task& task, uint32_t span, unsigned worker, const Result& result);
  void merge(const Pass& pass, const Task& task, const Result& from, const Result& into) const;
  void finish(const Pass& pass, const Task& task, const Result& result) const;
  void run_whole(const Pass& pass);
  void run_shared(const Pass& pass);

  const KernelTable* kernels_;
  ThreadPool* pool_;
  const KvCache* cache_;
  uint32_t window_;
  uint32_t span_keys_;      // keys of a span
  uint32_t result_floats_;  // of a Result
  uint32_t max_shared_tasks_;
  std::vector<Task> tasks_;
  std::vector<uint32_t> span_tasks_;           // shared mode: the task of each span
  std::vector<AlignedBuffer<float>> scratch_;  // [workers]: kernel scratch
  std::vector<AlignedBuffer<float>> results_;  // [workers]: two Results
  AlignedBuffer<float> shared_results_;
};

}  // namespace carat::exec::cpu
