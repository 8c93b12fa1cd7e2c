// What the host says about the rows of a wide pass, and prompt chunks as replays of graphs.
//
// A small chunk is over sooner than its launches would take one by one. It is padded to a bucket of rows, so that few
// graphs serve every length; everything that differs from one chunk to the next lies in the control block, which the
// graph's first node copies to the device. Padding rows belong to the spare sequence and see nothing but one another.
#include <algorithm>

#include "base/error.h"
#include "exec/cuda/executor/executor_state.h"
#include "exec/cuda/kernels/attention/attention.h"
#include "exec/cuda/kernels/attention/hopper/attention_wgmma.h"

namespace carat::cuda {

namespace {

// Consecutive rows of one sequence, cut into tiles of at most `most` rows.
std::vector<Segment> tiles_of(std::span<const exec::Row> rows, uint32_t most) {
  std::vector<Segment> tiles;
  for (uint32_t r = 0; r < rows.size(); ++r) {
    if (r > 0 && continues(rows[r - 1], rows[r]) && tiles.back().count < most) {
      ++tiles.back().count;
    } else {
      tiles.push_back({r, 1, rows[r].position, rows[r].sequence});
    }
  }
  return tiles;
}

// Neighbouring tiles of one sequence together.
template <typename Run>
std::vector<Run> runs_of(std::span<const Segment> tiles) {
  std::vector<Run> runs;
  for (uint32_t i = 0; i < tiles.size(); ++i) {
    const uint32_t end = tiles[i].position + tiles[i].count;
    if (runs.empty() || runs.back().sequence != tiles[i].sequence) runs.push_back({i, 0, tiles[i].sequence, 0});
    ++runs.back().count;
    runs.back().end = std::max(runs.back().end, end);
  }
  return runs;
}

// Tiles of a bucket, however many of its rows are padding: two runs of rows leave two last tiles that are not full.
uint32_t bucket_tiles(uint32_t bucket, uint32_t tile_rows) { return (bucket + tile_rows - 1) / tile_rows + 1; }

}  // namespace

// Rows of a tile in the layers with (or without) a window; 0: there are no such layers.
uint32_t CudaExecutor::tile_rows(bool sliding) const {
  for (const model::Layer& layer : model_->config().layers) {
    if (layer.sliding != sliding) continue;
    const AttentionShape shape = shape_of(layer);
    return attention_by_warpgroups(plan_, shape) ? warpgroup_attention_tile_rows(shape)
                                                 : attention_tile_rows(shape, plan_.attention_shared_memory);
  }
  return 0;
}

// Writes the control block of a pass; enter_prompt_pass() takes it to the device. The pass before must be over. bucket:
// rows to pad the pass to, or 0.
CudaExecutor::PromptPass CudaExecutor::stage_prompt_pass(std::span<const exec::Row> rows, uint32_t slices,
                                                         uint32_t bucket) {
  std::vector<exec::Row> padded(rows.begin(), rows.end());
  while (padded.size() < bucket) {
    padded.push_back({0, static_cast<uint32_t>(padded.size() - rows.size()), plan_.sequences, false});
  }
  PromptPass pass;
  pass.rows = static_cast<uint32_t>(padded.size());
  pass.asked = static_cast<uint32_t>(rows.size());
  pass.slices = slices;
  pass.outputs = static_cast<uint32_t>(
      std::count_if(rows.begin(), rows.end(), [](const exec::Row& row) { return row.wants_logits; }));

  std::vector<Segment> sliding, global;
  const bool singles =
      bucket == 0 && tiles_of(padded, UINT32_MAX).size() == padded.size() && padded.size() <= plan_.outputs;
  for (const bool of_sliding : {true, false}) {
    const uint32_t most = tile_rows(of_sliding);
    if (singles || most == 0) continue;
    std::vector<Segment>& tiles = of_sliding ? sliding : global;
    tiles = tiles_of(padded, most);
    if (!of_sliding) pass.global_runs = runs_of<TileRun>(tiles);
    if (bucket > 0) tiles.resize(bucket_tiles(bucket, most));  // tiles without rows end at once
  }
  write_control(padded, sliding, global, pass);
  return pass;
}

void CudaExecutor::write_control(std::span<const exec::Row> rows, std::span<const Segment> sliding,
                                 std::span<const Segment> global, PromptPass& pass) {
  pass.tiles_sliding = static_cast<uint32_t>(sliding.size());
  pass.tiles_global = static_cast<uint32_t>(global.size());
  const bool cached_ple = plan_.ple_cache_rows > 0;
  const PromptControl::Extent extent{pass.rows, pass.tiles_sliding, pass.tiles_global, pass.outputs, cached_ple};
  PromptControl host;
  host.carve(staging_.data(), extent);
  pass.control_bytes = pass.control.carve(prompt_buffers_.control, extent);
  CARAT_CHECK(pass.control_bytes <= staging_.bytes());
  pass.arrays = prompt_buffers_.rows;
  pass.arrays.point_into(&pass.control);
  uint32_t output = 0;
  for (uint32_t r = 0; r < pass.rows; ++r) {
    host.tokens[r] = rows[r].token;
    host.positions[r] = rows[r].position;
    host.sequences[r] = rows[r].sequence;
    if (rows[r].wants_logits) host.outputs[output++] = r;
  }
  std::copy(sliding.begin(), sliding.end(), host.tiles_sliding);
  std::copy(global.begin(), global.end(), host.tiles_global);
  if (cached_ple) ple_cache_.place({host.tokens, pass.rows}, pass.slices, host.ple_places, host.ple_fetches);
}

void CudaExecutor::run_prompt_bucket(std::span<const exec::Row> rows, const PassClass& shape) {
  const bool wants = rows.back().wants_logits;
  const uint32_t stop = prompt_stop(rows, shape);
  output_count_ = shape.outputs;
  const PromptPass pass = stage_prompt_pass(rows, std::min(stop + 1, widths_.L), shape.rows);
  if (wants) fill_control(rows.last(1), 1);
  PromptGraph& prompt = prompt_graphs_[{shape.rows, wants}];
  if (!plan_.prompt_graphs || profiler_ != nullptr || !prompt.used) {
    // The first chunk of a bucket sets kernel attributes, loads modules and chooses algorithms, which no capture may;
    // recording is left to the second, because many buckets are never met again.
    prompt.used = true;
    prompt_chunk(pass, stop);
  } else {
    if (!prompt.graph.ready()) prompt.graph = Graph::capture(stream_.get(), [&] { prompt_chunk(pass, stop); });
    prompt.graph.launch(stream_.get());
  }
  if (wants) selected_k_ = wanted_k_;
}

// Everything of a chunk but the results' way back: runs eagerly or under capture.
void CudaExecutor::prompt_chunk(PromptPass pass, uint32_t stop) {
  if (pass.outputs > 0) upload_decode_control();
  prompt_layers(pass, stop);
  if (pass.outputs == 0) return;
  finish_prompt_pass({}, pass, stop);
  select_best(out_.logits, pass.outputs, widths_.V, &gemv_buffers_.control->k, out_.select, results_.tokens,
              results_.values, results_.counts, LaunchConfig{stream_.get(), false});
  mark(Step::kSelect, 0, pass.outputs, true);
}

}  // namespace carat::cuda
