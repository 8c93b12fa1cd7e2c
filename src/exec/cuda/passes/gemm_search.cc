// Algorithms of matrix products, chosen at load: what an earlier load found is taken from a file, what is missing is
// timed now, on the weights themselves and before any pass (and any graph) has run.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "base/error.h"
#include "exec/cuda/device/check.h"
#include "exec/cuda/executor/executor_state.h"
#include "exec/cuda/kernels/elementwise/probe.h"
#include "exec/cuda/plan/gemm_rows.h"

namespace carat::cuda {

namespace {

using Clock = std::chrono::steady_clock;

// Another algorithm than the ranking's first has to save this share of its time; less is noise.
constexpr double kMargin = 0.02;
// Products with less of a chunk's work take the ranking's first: what they could save would not be seen.
constexpr double kLeastShare = 0.01;
// A search that takes longer is gone on with at the next load.
constexpr double kMostSeconds = 0.4;

double seconds_since(Clock::time_point started) {
  return std::chrono::duration<double>(Clock::now() - started).count();
}

uint64_t bytes_of(GemmElement element) {
  return element == GemmElement::kF32 ? 4 : element == GemmElement::kBF16 ? 2 : 1;
}

uint64_t padded(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

// Activations, their scales and results, one behind the other in `memory`; false: it is too small.
bool place(const GemmProduct& product, const DeviceMemory& memory, GemmTrial& trial) {
  const uint64_t a = padded(uint64_t{product.m} * product.k * bytes_of(product.in)),
                 scales = padded(uint64_t{product.m} * 4),
                 out = uint64_t{product.m} * product.n * bytes_of(product.out);
  if (a + scales + out > memory.bytes()) return false;
  trial.a = memory.data();
  trial.a_scales = reinterpret_cast<const float*>(memory.as<char>() + a);
  trial.out = memory.as<char>() + a + scales;
  return true;
}

}  // namespace

// The dense products of a prompt chunk of `rows` rows that read copies of the weights, each shape once.
std::vector<CudaExecutor::SearchedProduct> CudaExecutor::products_of_chunk(uint32_t rows) const {
  const model::Config& config = model_->config();
  std::vector<SearchedProduct> found;
  const auto add = [&](const GemmProduct& product, const GemmTrial::Weights& weights) {
    auto same = std::find_if(found.begin(), found.end(), [&](const auto& f) { return f.product == product; });
    if (same == found.end()) same = found.insert(found.end(), {product, {}});
    same->trial.weights.push_back(weights);
  };
  const auto add_group = [&](const MatrixGroup& group) {
    const uint32_t n = group.rows(), k = group.cols();
    if (group.path == ProductPath::kFp8) {
      add({rows, n, k, GemmElement::kE4M3, GemmElement::kBF16}, {group.fp8.values, group.fp8.scales});
    } else if (group.path == ProductPath::kBf16) {
      add({rows, n, k, GemmElement::kBF16, GemmElement::kBF16}, {group.bf16, nullptr});
    }
  };
  const bool stops = options_.kv_share_shortcut && config.n_kv < config.L;
  const uint32_t whole = stops ? config.n_kv - 1 : config.L;  // layers that rows of a prompt pass whole
  for (uint32_t i = layers_on_cpu(); i < whole; ++i) {
    for_each_group(*model_, i, [&](const LayerGroup& group) {
      if (!is_expert(group.kind())) add_group(weights_.layers[i][group.kind()]);
    });
  }
  if (widths_.P > 0 && weights_.ple_projection.path == ProductPath::kBf16) {
    const uint32_t columns = (stops ? config.n_kv : config.L) * widths_.P;
    add({rows, columns, widths_.d, GemmElement::kBF16, GemmElement::kBF16}, {weights_.ple_projection.bf16, nullptr});
  }
  // The most work first: a search that takes too long is cut off.
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.work() > b.work(); });
  return found;
}

// What is worth a search, in the order of searched_rows(); and the LM head of a large decode step.
std::vector<CudaExecutor::SearchedProduct> CudaExecutor::searched_products() const {
  std::vector<SearchedProduct> found;
  for (const uint32_t rows : searched_rows(plan_.chunk)) {
    std::vector<SearchedProduct> products = products_of_chunk(rows);
    double all = 0.0;
    for (const SearchedProduct& searched : products) all += searched.work();
    std::erase_if(products, [&](const SearchedProduct& searched) { return searched.work() < kLeastShare * all; });
    std::move(products.begin(), products.end(), std::back_inserter(found));
  }
  if (weights_.head.path == ProductPath::kBf16 && plan_.outputs > kGemvRows) {
    const GemmProduct head{std::min(plan_.outputs, kSkinnyRows), widths_.V, widths_.d, GemmElement::kBF16,
                           GemmElement::kF32};
    found.push_back({head, {}});
    found.back().trial.weights = {{weights_.head.bf16, nullptr}};
  }
  return found;
}

void CudaExecutor::search_algorithms() {
  if (!plan_.search || options_.cache_folder.empty()) return;
  const auto started = Clock::now();
  const auto log = [&](const std::string& text) {
    if (options_.log) options_.log->info(text);
  };
  const GemmMachine machine = gemm_.machine(gpu_.name);
  const auto file = gemm_cache_path(options_.cache_folder, machine);
  GemmCacheContent cache = read_gemm_cache(file, machine);
  if (!cache.problem.empty()) {
    log(fmt::format("algorithms of matrix products in {} are not used: {}", file.string(), cache.problem));
  }
  gemm_.remember(cache.algorithms);

  std::vector<SearchedProduct> missing = searched_products();
  std::erase_if(missing, [&](auto& searched) { return !place(searched.product, scratch_, searched.trial); });
  const size_t all = missing.size();
  std::erase_if(missing, [&](const auto& searched) { return cache.algorithms.contains(searched.product); });
  search_report_.known = static_cast<uint32_t>(all - missing.size());
  if (missing.empty()) return log(fmt::format("algorithms of {} matrix products from {}", all, file.string()));

  check(cudaDeviceSynchronize(), "preparing the GPU");
  fill_probe(scratch_.data(), scratch_.bytes(), stream_.get());
  for (const SearchedProduct& searched : missing) {
    if (seconds_since(started) > kMostSeconds) {
      ++search_report_.postponed;
      continue;
    }
    const GemmFound found = gemm_.search(searched.product, searched.trial, kMargin, stream_.get());
    cache.algorithms[searched.product] = found.algorithm;
    ++search_report_.searched;
    search_report_.changed += found.changed ? 1 : 0;
  }
  // Passes expect it cleared, as it was.
  check(cudaMemsetAsync(scratch_.data(), 0, scratch_.bytes(), stream_.get()), "clearing scratch memory");
  stream_.synchronise();
  const std::string unkept = write_gemm_cache(file, machine, cache.algorithms);
  search_report_.seconds = seconds_since(started);
  log(fmt::format(
      "algorithms of {} matrix products searched in {:.2f} s, {} of them other than the library's first{}; {}",
      search_report_.searched, search_report_.seconds, search_report_.changed,
      search_report_.postponed == 0 ? "" : fmt::format(", {} left to the next load", search_report_.postponed),
      unkept.empty() ? "kept in " + file.string() : fmt::format("not kept in {}: {}", file.string(), unkept)));
}

// Says at load, not in the first prompt, that the library has no such products.
void CudaExecutor::require_fp8() {
  for (const SearchedProduct& searched : products_of_chunk(plan_.chunk)) {
    if (searched.product.in == GemmElement::kE4M3) gemm_.require(searched.product);
  }
}

}  // namespace carat::cuda
