// Block-sparse prompt attention: the choice of blocks against one made on the host, and the result against a reference
// over the chosen keys only.
#include "exec/cuda/kernels/attention/sparse/attention_sparse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "exec/cuda/kernels/attention/attention_runs.h"

namespace carat::cuda {
namespace {

struct SparseCase {
  AttentionShape shape;
  SparseAttention sparse;
  Prompt prompt;
  CacheType cache = CacheType::kHalf;
  uint64_t seed = 1;
};

struct SparseRun {
  std::vector<Segment> tiles;
  PrefillRun prefill;
  std::vector<std::vector<uint32_t>> lists;  // [tile * Hkv + kv head]
};

class AttentionSparse : public Attention {
 protected:
  void SetUp() override {
    Attention::SetUp();
    if (!IsSkipped() && shared_memory_ < sparse_attention_shared_memory(262144)) {
      GTEST_SKIP() << "skipped: the card has too little shared memory";
    }
  }

  PrefillCase dense_case(const SparseCase& c) const {
    return {c.shape, {c.prompt}, 0, shared_memory_, false, 1.0f, c.seed, c.cache};
  }

  SparseRun run(const SparseCase& c, const TestCache& cache) const {
    const PrefillCase dense = dense_case(c);
    SparseRun run;
    run.tiles = cut(dense, attention_tile_rows(c.shape, shared_memory_));
    run.prefill.q.resize(size_t{c.prompt.count} * c.shape.H * c.shape.hd);
    RandomHalves(query_scale(c.shape.hd)).fill(c.seed + 5, run.prefill.q.data(), run.prefill.q.size());
    const uint32_t end = c.prompt.prior + c.prompt.count;
    const uint32_t length = sparse_most_blocks(c.sparse, end), pooled_blocks = end / kSparseBlock + 1;
    const size_t lists = run.tiles.size() * c.shape.Hkv;
    const DeviceArray<__half> q = to_device(run.prefill.q);
    const DeviceArray<Segment> tiles = to_device(run.tiles);
    const DeviceArray<__half> pooled(size_t{c.shape.Hkv} * pooled_blocks * c.shape.hd, "test scratch");
    const DeviceArray<uint16_t> blocks(lists * length, "test scratch");
    const DeviceArray<uint32_t> counts(lists, "test scratch");
    const DeviceArray<__nv_bfloat16> out(run.prefill.q.size(), "test output");
    for (const auto& [data, bytes] : {std::pair<void*, size_t>{pooled.data(), pooled.bytes()},
                                      {blocks.data(), blocks.bytes()},
                                      {counts.data(), counts.bytes()},
                                      {out.data(), out.bytes()}}) {
      check(cudaMemset(data, 0xff, bytes), "cudaMemset");
    }
    check(cudaDeviceSynchronize(), "test input");
    attention_prefill_sparse(c.shape, c.sparse, q.data(), cache.view(), tiles.data(),
                             static_cast<uint32_t>(run.tiles.size()), 0, end,
                             {pooled.data(), blocks.data(), counts.data(), pooled_blocks, length}, out.data(), {});
    check(cudaDeviceSynchronize(), "attention_prefill_sparse");
    run.prefill.out = to_host(out);
    const std::vector<uint16_t> found = to_host(blocks);
    const std::vector<uint32_t> sizes = to_host(counts);
    for (size_t i = 0; i < lists; ++i) {
      EXPECT_LE(sizes[i], length);
      const auto first = found.begin() + static_cast<ptrdiff_t>(i * length);
      run.lists.emplace_back(first, first + std::min(sizes[i], length));
    }
    return run;
  }
};

// What a block is worth to a tile: the probabilities of its rows over the candidates' mean keys.
std::vector<double> reference_worth(const SparseCase& c, const TestCache& cache, const SparseRun& run, size_t tile,
                                    uint32_t kv_head, uint32_t first, uint32_t last) {
  const uint32_t hd = c.shape.hd, group = c.shape.H / c.shape.Hkv;
  std::vector<std::vector<float>> means(last - first, std::vector<float>(hd));
  for (uint32_t block = first; block < last; ++block) {
    for (uint32_t j = 0; j < hd; ++j) {
      double sum = 0.0;
      for (uint32_t i = 0; i < kSparseBlock; ++i) {
        sum += double{cache.k.values[(size_t{kv_head} * cache.cells + block * kSparseBlock + i) * hd + j]};
      }
      means[block - first][j] = static_cast<float>(sum / kSparseBlock);
    }
  }
  std::vector<double> worth(last - first, 0.0);
  for (uint32_t row = 0; row < run.tiles[tile].count * group; ++row) {
    const uint32_t query = run.tiles[tile].row + row / group, head = kv_head * group + row % group;
    std::vector<float> q(hd);
    for (uint32_t j = 0; j < hd; ++j) q[j] = __half2float(run.prefill.q[(size_t{query} * c.shape.H + head) * hd + j]);
    std::vector<double> scores;
    for (const std::vector<float>& mean : means) scores.push_back(dot(q.data(), mean.data(), hd));
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0.0;
    for (double& score : scores) sum += score = std::exp(score - largest);
    for (size_t i = 0; i < scores.size(); ++i) worth[i] += scores[i] / sum;
  }
  return worth;
}

void expect_best(const SparseCase& c, const TestCache& cache, const SparseRun& run, size_t tile, uint32_t kv_head) {
  const Segment& segment = run.tiles[tile];
  const uint32_t visible = (segment.position + segment.count + kSparseBlock - 1) / kSparseBlock;
  const uint32_t first = c.sparse.first, last = segment.position / kSparseBlock - c.sparse.recent;
  const uint32_t best = std::max(c.sparse.least, visible / c.sparse.divisor);
  const std::vector<uint32_t>& list = run.lists[tile * c.shape.Hkv + kv_head];
  ASSERT_EQ(list.size(), first + best + visible - last);
  ASSERT_TRUE(std::is_sorted(list.begin(), list.end()));
  const std::set<uint32_t> chosen(list.begin(), list.end());
  ASSERT_EQ(chosen.size(), list.size());
  for (uint32_t block = 0; block < first; ++block) ASSERT_TRUE(chosen.contains(block));
  for (uint32_t block = last; block < visible; ++block) ASSERT_TRUE(chosen.contains(block));
  const std::vector<double> worth = reference_worth(c, cache, run, tile, kv_head, first, last);
  std::vector<double> sorted = worth;
  std::nth_element(sorted.begin(), sorted.begin() + best - 1, sorted.end(), std::greater<>());
  const double threshold = sorted[best - 1];
  // Mean keys are fp16 on the device, which moves a score by about 1e-3.
  for (uint32_t block = first; block < last; ++block) {
    if (worth[block - first] > threshold * 1.02) EXPECT_TRUE(chosen.contains(block)) << "block " << block;
    if (worth[block - first] < threshold * 0.98) EXPECT_FALSE(chosen.contains(block)) << "block " << block;
  }
}

// Rows of a tile over the chosen keys, in double precision.
void expect_attention(const SparseCase& c, const TestCache& cache, const SparseRun& run, size_t tile, uint32_t kv_head,
                      Distance& distance) {
  const uint32_t group = c.shape.H / c.shape.Hkv, hd = c.shape.hd;
  const std::vector<uint32_t>& list = run.lists[tile * c.shape.Hkv + kv_head];
  for (const uint32_t i : {0u, run.tiles[tile].count - 1}) {
    const uint32_t position = run.tiles[tile].position + i, head = kv_head * group + (i + 1) % group;
    const size_t offset = (size_t{run.tiles[tile].row + i} * c.shape.H + head) * hd;
    std::vector<float> q(hd);
    for (uint32_t j = 0; j < hd; ++j) q[j] = __half2float(run.prefill.q[offset + j]);
    std::vector<double> out(hd, 0.0), scores;
    std::vector<uint32_t> keys;
    for (const uint32_t block : list) {
      for (uint32_t p = block * kSparseBlock; p < (block + 1) * kSparseBlock && p <= position; ++p) keys.push_back(p);
    }
    const auto at = [&](uint32_t p) { return (size_t{kv_head} * cache.cells + p) * hd; };
    for (const uint32_t p : keys) scores.push_back(dot(q.data(), &cache.k.values[at(p)], hd));
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0.0;
    for (size_t k = 0; k < keys.size(); ++k) {
      const double weight = std::exp(scores[k] - largest);
      sum += weight;
      for (uint32_t j = 0; j < hd; ++j) out[j] += weight * double{cache.v.values[at(keys[k]) + j]};
    }
    for (double& x : out) x /= sum;
    distance.add(out, [&](size_t j) { return double{__bfloat162float(run.prefill.out[offset + j])}; });
  }
}

TEST_F(AttentionSparse, ChoosesTheBestBlocksAndAttendsToThem) {
  const SparseAttention sparse{.from = 1024, .first = 1, .recent = 3, .least = 5, .divisor = 8};
  for (const AttentionShape& shape : {AttentionShape{8, 2, 512, 0}, AttentionShape{16, 1, 512, 0},
                                      AttentionShape{4, 4, 320, 0}, AttentionShape{6, 2, 512, 0}}) {
    for (const Prompt& prompt : {Prompt{5000, 130}, Prompt{9013, 67}}) {
      for (const CacheType type : {CacheType::kHalf, CacheType::kQ8}) {
        SCOPED_TRACE(describe(shape) + " prior " + std::to_string(prompt.prior));
        const SparseCase c{shape, sparse, prompt, type, prompt.prior + shape.H};
        const TestCache cache = prefill_cache(dense_case(c));
        const SparseRun found = run(c, cache);
        Distance distance(1.0 / 256, 2e-3);
        for (const size_t tile : {size_t{0}, found.tiles.size() / 2, found.tiles.size() - 1}) {
          for (uint32_t kv_head = 0; kv_head < shape.Hkv; ++kv_head) {
            expect_best(c, cache, found, tile, kv_head);
            if (HasFatalFailure()) return;
            expect_attention(c, cache, found, tile, kv_head, distance);
          }
        }
        EXPECT_LT(distance.norm(), 2.5e-3);
        EXPECT_LT(distance.worst(), 1.0);
        for (const __nv_bfloat16 x : found.prefill.out) ASSERT_TRUE(std::isfinite(__bfloat162float(x)));
      }
    }
  }
}

TEST_F(AttentionSparse, IsDenseWhereNothingIsLeftOut) {
  // Before `from`, with few candidates, and at the border between: the same bits as dense attention.
  for (const SparseAttention& sparse :
       {SparseAttention{.from = 16384}, SparseAttention{.from = 64, .first = 1, .recent = 2, .least = 100},
        SparseAttention{.from = 64, .first = 1, .recent = 100, .least = 1}}) {
    for (const Prompt& prompt : {Prompt{0, 200}, Prompt{1000, 129}, Prompt{4000, 64}}) {
      const SparseCase c{{8, 2, 512, 0}, sparse, prompt, CacheType::kHalf, prompt.prior + 1};
      const TestCache cache = prefill_cache(dense_case(c));
      const PrefillRun dense = run_prefill(dense_case(c), cache);
      const SparseRun found = run(c, cache);
      ASSERT_EQ(std::memcmp(dense.out.data(), found.prefill.out.data(), dense.out.size() * sizeof dense.out[0]), 0);
    }
  }
}

TEST_F(AttentionSparse, GivesTheSameBitsTwice) {
  const SparseAttention sparse{.from = 1024, .first = 1, .recent = 3, .least = 5, .divisor = 8};
  const SparseCase c{{8, 2, 512, 0}, sparse, {6000, 200}, CacheType::kHalf, 3};
  const TestCache cache = prefill_cache(dense_case(c));
  const SparseRun one = run(c, cache), two = run(c, cache);
  EXPECT_EQ(one.lists, two.lists);
  EXPECT_EQ(std::memcmp(one.prefill.out.data(), two.prefill.out.data(), one.prefill.out.size() * sizeof(__nv_bfloat16)),
            0);
}

TEST(AttentionSparseChoice, ListsHoldWhatAnyTileVisits) {
  const SparseAttention sparse;
  for (uint32_t end = 1; end < 300000; end += 61) {
    const uint32_t visible = (end + kSparseBlock - 1) / kSparseBlock;
    const uint32_t most = sparse_most_blocks(sparse, 300000);
    if (end <= sparse.from) EXPECT_LE(visible, most);
    // The longest list: all candidates but one are too few to choose from.
    EXPECT_LE(sparse.first + sparse_best_blocks(sparse, visible) + sparse.recent + 2, most);
  }
  EXPECT_LT(sparse_most_blocks(sparse, 131072), 131072u / kSparseBlock / 6);
}

}  // namespace
}  // namespace carat::cuda
