#include "exec/cuda/kernels/gemv/host_activations.h"

#include <algorithm>
#include <cmath>

#include "exec/cuda/device/gpu_fixture.h"

namespace carat::cuda {

namespace {

constexpr double kSumRounding = 1e-5;  // of |w| |x|
constexpr float kLevels = 16319.0f;    // 127 * 128 + 63
constexpr uint32_t kRun = HostQuantised::kScaleColumns;

// Position of a column's high part within the words of its row, in activation.h's order; its low part is kLowPart words
// further on.
size_t word_of(uint32_t column) {
  const uint32_t step = column / kStep, block = column % kStep / 32, i = column % 32 / 16, w = column % 16 / 4;
  return size_t{step} * kStepWords + (i * 8 + block) * 4 + w;
}
constexpr size_t kLowPart = 64;

// 128 h + l with both in int8.
int32_t high_part(int32_t q) { return static_cast<int32_t>(std::floor((q + 64) / 128.0)); }

uint32_t byte_in_word(int32_t value, uint32_t column) {
  return static_cast<uint32_t>(static_cast<uint8_t>(value)) << (8 * (column % 4));
}
int32_t byte_of_word(uint32_t word, uint32_t column) {
  return static_cast<int8_t>(static_cast<uint8_t>(word >> (8 * (column % 4))));
}

}  // namespace

HostQuantised quantise_host(const std::vector<float>& values, uint32_t rows, uint32_t cols) {
  HostQuantised out{.rows = rows, .cols = cols, .steps = steps_of(cols)};
  const size_t width = out.width();
  out.q.assign(rows * width, 0);
  out.scales.assign(rows * width / kRun, 0.0f);
  out.values.assign(rows * width, 0.0f);
  for (size_t r = 0; r < rows; ++r) std::copy_n(&values[r * cols], cols, &out.values[r * width]);
  for (size_t run = 0; run < out.scales.size(); ++run) {
    const float* from = &out.values[run * kRun];
    float largest = 0.0f;
    for (size_t e = 0; e < kRun; ++e) largest = std::max(largest, std::abs(from[e]));
    out.scales[run] = largest * (1.0f / kLevels);
    const float inverse = largest > 0.0f ? kLevels / largest : 0.0f;
    for (size_t e = 0; e < kRun; ++e) out.q[run * kRun + e] = static_cast<int32_t>(std::nearbyint(from[e] * inverse));
  }
  return out;
}

DeviceQuantised upload_quantised(const HostQuantised& rows) {
  const size_t width = rows.width(), row_words = size_t{rows.steps} * kStepWords;
  std::vector<uint32_t> words(rows.rows * row_words, 0);
  std::vector<BlockMeta> meta(rows.rows * width / 32, BlockMeta{});
  for (size_t r = 0; r < rows.rows; ++r) {
    for (uint32_t c = 0; c < width; ++c) {
      const int32_t q = rows.q[r * width + c], high = high_part(q);
      uint32_t* word = &words[r * row_words + word_of(c)];
      word[0] |= byte_in_word(high, c);
      word[kLowPart] |= byte_in_word(q - 128 * high, c);
      BlockMeta& block = meta[(r * width + c) / 32];
      block.scale[c % 32 / kRun] = rows.scale(r, c);
      block.sum[c % 32 / kRun] += q;
    }
  }
  return {rows.rows, rows.cols, upload(words), upload(meta), upload(rows.values)};
}

DeviceQuantised unwritten_quantised(uint32_t rows, uint32_t cols) {
  const size_t steps = steps_of(cols), width = steps * kStep;
  std::vector<uint32_t> words(rows * steps * kStepWords, 0);
  std::vector<BlockMeta> meta(rows * width / 32, BlockMeta{});
  std::vector<float> values(rows * width, 0.0f);
  for (size_t r = 0; r < rows; ++r) {
    for (uint32_t c = 0; c < (cols + kRun - 1) / kRun * kRun; ++c) {
      uint32_t* word = &words[r * steps * kStepWords + word_of(c)];
      word[0] = word[kLowPart] = 0xffffffffu;
      BlockMeta& block = meta[(r * width + c) / 32];
      block.scale[c % 32 / kRun] = NAN;
      block.sum[c % 32 / kRun] = -1;
      values[r * width + c] = NAN;
    }
  }
  return {rows, cols, upload(words), upload(meta), upload(values)};
}

HostQuantised download_quantised(const DeviceQuantised& rows, bool with_values) {
  HostQuantised out{.rows = rows.rows, .cols = rows.cols, .steps = steps_of(rows.cols)};
  const size_t width = out.width();
  const auto words = download(rows.words);
  const auto meta = download(rows.meta);
  if (with_values) out.values = download(rows.values);
  out.q.resize(rows.rows * width);
  out.scales.resize(rows.rows * width / kRun);
  int wrong_sums = 0;
  for (size_t run = 0; run < out.scales.size(); ++run) {
    const size_t r = run * kRun / width;
    int32_t sum = 0;
    for (size_t e = 0; e < kRun; ++e) {
      const auto c = static_cast<uint32_t>(run * kRun % width + e);
      const uint32_t* word = &words[r * out.steps * kStepWords + word_of(c)];
      out.q[run * kRun + e] = 128 * byte_of_word(word[0], c) + byte_of_word(word[kLowPart], c);
      sum += out.q[run * kRun + e];
    }
    out.scales[run] = meta[run / 2].scale[run % 2];
    wrong_sums += sum != meta[run / 2].sum[run % 2];
  }
  EXPECT_EQ(wrong_sums, 0) << "runs of columns whose sum does not fit their quants";
  return out;
}

Expected product_reference(const std::vector<float>& weights, uint32_t outputs, const HostQuantised& x,
                           bool float_weights) {
  const size_t cols = x.cols;
  std::vector<double> activations(x.rows * cols);
  std::vector<double> norms(x.rows);
  for (size_t r = 0; r < x.rows; ++r) {
    for (uint32_t c = 0; c < cols; ++c) {
      activations[r * cols + c] = float_weights ? static_cast<double>(x.values[r * x.width() + c]) : x.quantised(r, c);
    }
    norms[r] = norm_double(&activations[r * cols], cols);
  }
  Expected expected;
  expected.values.resize(x.rows * size_t{outputs});
  expected.allowance.resize(expected.values.size());
  on_host_cores(outputs, [&](size_t o) {
    const float* w = &weights[o * cols];
    const double norm = norm_double(w, cols);
    for (size_t r = 0; r < x.rows; ++r) {
      expected.values[r * outputs + o] = dot_double(w, &activations[r * cols], cols);
      expected.allowance[r * outputs + o] = kSumRounding * norm * norms[r];
    }
  });
  return expected;
}

std::vector<double> exact_product(const std::vector<float>& weights, uint32_t outputs, const HostQuantised& x) {
  std::vector<double> out(x.rows * size_t{outputs});
  on_host_cores(outputs, [&](size_t o) {
    for (size_t r = 0; r < x.rows; ++r) {
      out[r * outputs + o] = dot_double(&weights[o * x.cols], &x.values[r * x.width()], x.cols);
    }
  });
  return out;
}

Expected geglu_reference(const Expected& gate, const Expected& up) {
  Expected expected;
  for (size_t i = 0; i < gate.values.size(); ++i) {
    const double activated = gelu_double(gate.values[i]), value = activated * up.values[i];
    expected.values.push_back(value);
    // The slope of GELU stays below 1.13; 1e-6 for tanhf and the products.
    expected.allowance.push_back(1.13 * gate.allowance[i] * (std::abs(up.values[i]) + up.allowance[i]) +
                                 std::abs(activated) * up.allowance[i] + 1e-6 * std::abs(value) + 1e-30);
  }
  return expected;
}

void expect_within(const std::vector<float>& found, uint32_t leading, const Expected& expected, uint32_t outputs,
                   const char* what) {
  size_t failures = 0;
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const size_t r = i / outputs, o = i % outputs;
    const double value = found[r * leading + o], error = std::abs(value - expected.values[i]);
    if (error <= expected.allowance[i]) continue;
    if (++failures == 1) {
      ADD_FAILURE() << what << ": row " << r << " output " << o << " is " << value << ", expected "
                    << expected.values[i] << " +- " << expected.allowance[i];
    }
  }
  EXPECT_EQ(failures, 0u) << what << ": results outside their allowance, of " << expected.values.size();
}

void expect_quantised(const HostQuantised& found, const Expected& expected, bool with_values, const char* what) {
  const size_t width = found.width(), cols = found.cols;
  size_t failures = 0;
  const auto fail = [&](size_t r, size_t c, const char* part, double value, double wanted) {
    if (++failures == 1) {
      ADD_FAILURE() << what << ": " << part << " of row " << r << " column " << c << " is " << value << ", expected "
                    << wanted;
    }
  };
  for (size_t r = 0; r < expected.values.size() / cols; ++r) {
    for (uint32_t first = 0; first < width; first += kRun) {
      double largest = 0.0, allowance = 0.0;
      for (size_t c = first; c < std::min<size_t>(cols, first + kRun); ++c) {
        largest = std::max(largest, std::abs(expected.values[r * cols + c]));
        allowance = std::max(allowance, expected.allowance[r * cols + c]);
      }
      const double scale = found.scale(r, first);
      if (!(std::abs(scale - largest / double{kLevels}) <= allowance / double{kLevels} + 1e-6 * scale)) {
        fail(r, first, "scale", scale, largest / double{kLevels});
      }
      for (uint32_t c = first; c < first + kRun; ++c) {
        const bool padding = c >= cols;
        const double wanted = padding ? 0.0 : expected.values[r * cols + c];
        const double off = padding ? 0.0 : expected.allowance[r * cols + c];
        const double value = found.quantised(r, c);
        if (!(std::abs(value - wanted) <= (padding ? 0.0 : 0.502 * scale + off + allowance))) {
          fail(r, c, "quant", value, wanted);
        }
        if (with_values && !(std::abs(double{found.values[r * width + c]} - wanted) <= off)) {
          fail(r, c, "value", found.values[r * width + c], wanted);
        }
      }
    }
  }
  EXPECT_EQ(failures, 0u) << what << ": quantised results outside their allowance";
}

}  // namespace carat::cuda
