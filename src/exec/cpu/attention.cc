#include "exec/cpu/attention.h"

#include <algorithm>

#include "base/error.h"
#include "exec/cpu/threads/parallel.h"

namespace carat::exec::cpu {
namespace {

// Spans are short enough to give a few workers something to do at ordinary lengths, and few enough that their results
// stay small in a long context. Depends on the context alone: a result must not depend on the machine's threads.
constexpr uint32_t kShortestSpan = 256;
constexpr uint32_t kMostSpans = 32;

uint32_t span_keys_for(uint32_t context) {
  const uint32_t needed = (context + kMostSpans - 1) / kMostSpans;
  return std::max(kShortestSpan, (needed + kKeyBlock - 1) / kKeyBlock * kKeyBlock);
}

uint32_t largest_hd(const model::Config& config) {
  uint32_t hd = 0;
  for (const model::Layer& layer : config.layers) hd = std::max(hd, layer.hd);
  return hd;
}

}  // namespace

Attention::Attention(const model::Config& config, const KernelTable& kernels, ThreadPool& pool, const KvCache& cache,
                     const ExecutorOptions& options)
    : kernels_(&kernels), pool_(&pool), cache_(&cache), window_(config.W), span_keys_(span_keys_for(options.context)) {
  const uint32_t hd = largest_hd(config);
  result_floats_ = kQueryTile * (hd + 2);
  for (unsigned worker = 0; worker < pool.size(); ++worker) {
    scratch_.emplace_back(size_t{kKeyBlock} * hd + size_t{kQueryTile} * kKeyBlock);
    results_.emplace_back(size_t{2} * result_floats_);
  }
  size_t most_tasks = 0;  // of one row
  for (const model::Layer& layer : config.layers) {
    const uint32_t group = layer.H / layer.Hkv;
    most_tasks = std::max<size_t>(most_tasks, size_t{layer.Hkv} * ((group + kQueryTile - 1) / kQueryTile));
  }
  tasks_.reserve(most_tasks * options.chunk);
  // With this many tasks every worker is busy without sharing.
  max_shared_tasks_ = pool.size() == 1 ? 0 : 2 * pool.size() - 1;
  const size_t most_spans = size_t{max_shared_tasks_} * ((options.context - 1) / span_keys_ + 1);
  span_tasks_.reserve(most_spans);
  shared_results_ = AlignedBuffer<float>(most_spans * result_floats_);
}

void Attention::run(const model::Layer& layer, std::span<const Row> rows, const float* q, float* out) {
  const Pass pass = {&layer, rows.data(), q, out};
  list_tasks(pass, static_cast<uint32_t>(rows.size()));
  const auto has_many_spans = [](const Task& task) { return task.spans > 1; };
  if (tasks_.size() <= max_shared_tasks_ && std::any_of(tasks_.begin(), tasks_.end(), has_many_spans)) {
    run_shared(pass);
  } else {
    run_whole(pass);
  }
}

void Attention::list_tasks(const Pass& pass, uint32_t row_count) {
  tasks_.clear();
  const uint32_t group = pass.layer->H / pass.layer->Hkv;
  for (uint32_t first = 0; first < row_count;) {
    uint32_t last = first + 1;
    while (last < row_count && pass.rows[last].sequence == pass.rows[first].sequence) ++last;
    const uint32_t queries = (last - first) * group;
    for (uint32_t kv_head = 0; kv_head < pass.layer->Hkv; ++kv_head) {
      for (uint32_t query = 0; query < queries; query += kQueryTile) {
        add_task(pass, first, query, std::min(kQueryTile, queries - query), kv_head);
      }
    }
    first = last;
  }
}

void Attention::add_task(const Pass& pass, uint32_t first_row, uint32_t first_query, uint32_t count, uint32_t kv_head) {
  const uint32_t group = pass.layer->H / pass.layer->Hkv;
  const uint32_t first = pass.rows[first_row + first_query / group].position;
  const uint32_t last = pass.rows[first_row + (first_query + count - 1) / group].position;
  const uint32_t begin = pass.layer->sliding && first >= window_ ? first - window_ + 1 : 0;
  const uint32_t spans = last / span_keys_ - begin / span_keys_ + 1;
  tasks_.push_back({first_row, first_query, count, kv_head, begin, last + 1, spans, 0});
}

Attention::Result Attention::worker_result(unsigned worker, uint32_t which) {
  float* start = results_[worker].data() + size_t{which} * result_floats_;
  return {start, start + kQueryTile, start + 2 * kQueryTile};
}

Attention::Result Attention::shared_result(uint32_t index) {
  float* start = shared_results_.data() + size_t{index} * result_floats_;
  return {start, start + kQueryTile, start + 2 * kQueryTile};
}

void Attention::attend(const Pass& pass, const Task& task, uint32_t span, unsigned worker, const Result& result) {
  const model::Layer& layer = *pass.layer;
  const uint32_t group = layer.H / layer.Hkv;
  const float* queries[kQueryTile];
  uint32_t positions[kQueryTile];
  for (uint32_t i = 0; i < task.count; ++i) {
    const uint32_t query = task.first_query + i;
    const uint32_t row = task.first_row + query / group;
    const uint32_t head = task.kv_head * group + query % group;
    queries[i] = pass.q + (size_t{row} * layer.H + head) * layer.hd;
    positions[i] = pass.rows[row].position;
  }
  const uint32_t sequence = pass.rows[task.first_row].sequence;
  const uint32_t start = (task.begin / span_keys_ + span) * span_keys_;
  const uint32_t begin = std::max(task.begin, start), end = std::min(task.end, start + span_keys_);
  const KvCache::Rows rows = cache_->rows(layer.kv_source, sequence, task.kv_head);
  kernels_->attend({.queries = queries,
                    .positions = positions,
                    .count = task.count,
                    .hd = layer.hd,
                    .window = layer.sliding ? window_ : UINT32_MAX,
                    .pages = rows.pages,
                    .keys = rows.keys,
                    .values = rows.values,
                    .format = cache_->format(),
                    .begin = begin,
                    .end = end,
                    .peaks = result.peaks,
                    .totals = result.totals,
                    .outputs = result.outputs,
                    .scratch = scratch_[worker].data()});
}

void Attention::merge(const Pass& pass, const Task& task, const Result& from, const Result& into) const {
  const size_t hd = pass.layer->hd;
  for (uint32_t i = 0; i < task.count; ++i) {
    kernels_->merge_span(from.peaks[i], from.totals[i], from.outputs + i * hd, hd, &into.peaks[i], &into.totals[i],
                         into.outputs + i * hd);
  }
}

void Attention::finish(const Pass& pass, const Task& task, const Result& result) const {
  const model::Layer& layer = *pass.layer;
  const uint32_t group = layer.H / layer.Hkv;
  for (uint32_t i = 0; i < task.count; ++i) {
    const uint32_t query = task.first_query + i;
    const uint32_t row = task.first_row + query / group;
    const uint32_t head = task.kv_head * group + query % group;
    float* out = pass.out + (size_t{row} * layer.H + head) * layer.hd;
    std::copy_n(result.outputs + size_t{i} * layer.hd, layer.hd, out);
    kernels_->scale(out, 1.0f / result.totals[i], layer.hd);
  }
}

void Attention::run_whole(const Pass& pass) {
  // Later tiles of a prompt see more keys: handing them out last to first lets the short ones fill the gaps.
  for_each(*pool_, tasks_.size(), 1, [&](size_t item, unsigned worker) {
    const Task& task = tasks_[tasks_.size() - 1 - item];
    const Result sum = worker_result(worker, 0), part = worker_result(worker, 1);
    attend(pass, task, 0, worker, sum);
    for (uint32_t span = 1; span < task.spans; ++span) {
      attend(pass, task, span, worker, part);
      merge(pass, task, part, sum);
    }
    finish(pass, task, sum);
  });
}

void Attention::run_shared(const Pass& pass) {
  span_tasks_.clear();
  for (uint32_t t = 0; t < tasks_.size(); ++t) {
    tasks_[t].first_result = static_cast<uint32_t>(span_tasks_.size());
    for (uint32_t span = 0; span < tasks_[t].spans; ++span) span_tasks_.push_back(t);
  }
  for_each(*pool_, span_tasks_.size(), 1, [&](size_t item, unsigned worker) {
    const uint32_t index = static_cast<uint32_t>(item);
    const Task& task = tasks_[span_tasks_[index]];
    attend(pass, task, index - task.first_result, worker, shared_result(index));
  });
  for (const Task& task : tasks_) {
    const Result sum = shared_result(task.first_result);
    for (uint32_t span = 1; span < task.spans; ++span) merge(pass, task, shared_result(task.first_result + span), sum);
    finish(pass, task, sum);
  }
}

}  // namespace carat::exec::cpu
