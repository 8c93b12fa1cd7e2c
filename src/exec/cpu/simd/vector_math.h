#pragma once

// Norms, activations functions and conversions on rows of fp32 values.
// Included after one of the simd_*.h headers.

#include "exec/cpu/kernel_table.h"

namespace carat::exec::cpu {
namespace {

inline Floats absolute(Floats v) { return as_floats(bit_and(as_ints(v), broadcast_int(0x7fffffff))); }

// e^x within two units of the last place; exactly 0 below -87. NaN stays NaN: the comparisons of largest() and
// smallest() return their second argument for it.
inline Floats exponential(Floats x) {
  const Floats bounded = smallest(broadcast(88.0f), largest(broadcast(-87.0f), x));
  const Ints power = round_to_ints(multiply(bounded, broadcast(1.44269504088896f)));
  const Floats n = to_floats(power);
  // ln 2 in two parts: n times the first is exact, so the remainder has no rounding of its own.
  Floats r = multiply_add(n, broadcast(-0.693359375f), bounded);
  r = multiply_add(n, broadcast(2.12194440e-4f), r);
  Floats p = broadcast(1.9875691500e-4f);
  p = multiply_add(p, r, broadcast(1.3981999507e-3f));
  p = multiply_add(p, r, broadcast(8.3334519073e-3f));
  p = multiply_add(p, r, broadcast(4.1665795894e-2f));
  p = multiply_add(p, r, broadcast(1.6666665459e-1f));
  p = multiply_add(p, r, broadcast(5.0000001201e-1f));
  p = multiply_add(multiply(p, r), r, add(r, broadcast(1.0f)));
  const Floats value = multiply(p, as_floats(shift_left<23>(add(power, broadcast_int(127)))));
  return select_less(x, broadcast(-87.0f), broadcast(0.0f), value);
}

// 0.5 x (1 + tanh(u)) = x / (1 + e^(-2u)) with u = sqrt(2 / pi) x (1 + 0.044715 x^2)
inline Floats gelu(Floats x) {
  const Floats cubic = multiply_add(multiply(x, x), broadcast(0.044715f), broadcast(1.0f));
  const Floats minus_two_u = multiply(multiply(x, broadcast(-1.5957691216057308f)), cubic);
  return divide(x, add(broadcast(1.0f), exponential(minus_two_u)));
}

inline Floats hyperbolic_tangent(Floats x) {
  // Near zero 1 - 2 / (e^2x + 1) would lose digits: an odd polynomial.
  const Floats square = multiply(x, x);
  Floats p = broadcast(-5.70498872745e-3f);
  p = multiply_add(p, square, broadcast(2.06390887954e-2f));
  p = multiply_add(p, square, broadcast(-5.37397155531e-2f));
  p = multiply_add(p, square, broadcast(1.33314422036e-1f));
  p = multiply_add(p, square, broadcast(-3.33332819422e-1f));
  const Floats near = multiply_add(multiply(p, square), x, x);
  const Floats magnitude = absolute(x);
  const Floats grown = exponential(add(magnitude, magnitude));
  const Floats far = subtract(broadcast(1.0f), divide(broadcast(2.0f), add(grown, broadcast(1.0f))));
  const Ints sign = bit_and(as_ints(x), broadcast_int(static_cast<int32_t>(0x80000000u)));
  return select_less(magnitude, broadcast(0.625f), near, as_floats(bit_or(as_ints(far), sign)));
}

// Calls body(index, lanes) over n values: `lanes` whole vectors, then once with a padded copy of the rest.
// body: (const Floats inputs[kInputs]) -> Floats
template <int kInputs, typename Body>
inline void transform(const float* const (&inputs)[kInputs], size_t n, float* out, const Body& body) {
  size_t i = 0;
  for (; n - i >= kLanes; i += kLanes) {
    Floats loaded[kInputs];
    for (int k = 0; k < kInputs; ++k) loaded[k] = load(inputs[k] + i);
    store(out + i, body(loaded));
  }
  if (i == n) return;
  Floats loaded[kInputs];
  float padded[kLanes] = {};
  for (int k = 0; k < kInputs; ++k) {
    __builtin_memcpy(padded, inputs[k] + i, (n - i) * sizeof(float));
    loaded[k] = load(padded);
  }
  store(padded, body(loaded));
  __builtin_memcpy(out + i, padded, (n - i) * sizeof(float));
}

inline float sum_of_squares(const float* x, size_t n) {
  Floats sum = broadcast(0.0f);
  size_t i = 0;
  for (; n - i >= kLanes; i += kLanes) {
    const Floats v = load(x + i);
    sum = multiply_add(v, v, sum);
  }
  if (i < n) {
    float padded[kLanes] = {};
    __builtin_memcpy(padded, x + i, (n - i) * sizeof(float));
    const Floats v = load(padded);
    sum = multiply_add(v, v, sum);
  }
  return reduce_add(sum);
}

inline Floats inverse_rms(const float* x, float eps, size_t n) {
  return broadcast(1.0f / __builtin_sqrtf(sum_of_squares(x, n) / static_cast<float>(n) + eps));
}

void rms_norm(const float* x, const float* weight, float eps, size_t n, float* out) {
  const Floats factor = inverse_rms(x, eps, n);
  if (weight == nullptr) {
    transform<1>({x}, n, out, [&](const Floats* v) { return multiply(v[0], factor); });
  } else {
    transform<2>({x, weight}, n, out, [&](const Floats* v) { return multiply(multiply(v[0], factor), v[1]); });
  }
}

void add_rms_norm(const float* x, const float* weight, float eps, size_t n, float* residual) {
  const Floats factor = inverse_rms(x, eps, n);
  transform<3>({x, weight, residual}, n, residual,
               [&](const Floats* v) { return add(multiply(multiply(v[0], factor), v[1]), v[2]); });
}

void gelu_multiply(const float* gate, const float* up, size_t n, float* out) {
  transform<2>({gate, up}, n, out, [](const Floats* v) { return multiply(gelu(v[0]), v[1]); });
}

void scale(float* x, float factor, size_t n) {
  transform<1>({x}, n, x, [&](const Floats* v) { return multiply(v[0], broadcast(factor)); });
}

void add_scaled(const float* x, float factor, size_t n, float* sum) {
  transform<2>({x, sum}, n, sum, [&](const Floats* v) { return multiply_add(v[0], broadcast(factor), v[1]); });
}

void rotate(float* x, const float* cosines, const float* sines, size_t half) {
  size_t j = 0;
  for (; half - j >= kLanes; j += kLanes) {
    const Floats a = load(x + j), b = load(x + half + j);
    const Floats c = load(cosines + j), s = load(sines + j);
    store(x + j, subtract(multiply(a, c), multiply(b, s)));
    store(x + half + j, add(multiply(a, s), multiply(b, c)));
  }
  for (; j < half; ++j) {
    const float a = x[j], b = x[half + j];
    x[j] = a * cosines[j] - b * sines[j];
    x[half + j] = a * sines[j] + b * cosines[j];
  }
}

void to_halves(const float* x, size_t n, uint16_t* out) {
  size_t i = 0;
  for (; n - i >= kLanes; i += kLanes) store_halves(out + i, load(x + i));
  if (i == n) return;
  float padded[kLanes] = {};
  uint16_t rounded[kLanes];
  __builtin_memcpy(padded, x + i, (n - i) * sizeof(float));
  store_halves(rounded, load(padded));
  __builtin_memcpy(out + i, rounded, (n - i) * sizeof(uint16_t));
}

bool softcap(float* x, float cap, size_t n) {
  // Infinity and NaN have the largest bit patterns of all magnitudes; the integer maximum keeps either.
  Ints peak = broadcast_int(0);
  const Floats capacity = broadcast(cap), inverse = broadcast(1.0f / (cap == 0.0f ? 1.0f : cap));
  transform<1>({x}, n, x, [&](const Floats* v) {
    peak = largest(peak, as_ints(absolute(v[0])));
    return cap == 0.0f ? v[0] : multiply(capacity, hyperbolic_tangent(multiply(v[0], inverse)));
  });
  return reduce_max(peak) < 0x7f800000;
}

void softmax(float* x, size_t n) {
  float peak = x[0];
  for (size_t i = 1; i < n; ++i) peak = x[i] > peak ? x[i] : peak;
  transform<1>({x}, n, x, [&](const Floats* v) { return exponential(subtract(v[0], broadcast(peak))); });
  float total = 0.0f;
  for (size_t i = 0; i < n; ++i) total += x[i];
  scale(x, 1.0f / total, n);
}

// --- activations as integers ----------------------------------------------------------------------------------------

// 32 values as integers of at most `limit`; returns the scale. A block with a value that is not finite becomes zeros
// under a scale that is not finite either, so every product with it is not a number. Values below 1e-30, whose inverse
// would leave fp32's range, count as zero.
inline float quantise_block(const float* x, float limit, Ints quants[kBlock / kLanes]) {
  constexpr int kVectors = static_cast<int>(kBlock) / kLanes;
  Ints peak = broadcast_int(0);
  for (int i = 0; i < kVectors; ++i) peak = largest(peak, as_ints(absolute(load(x + i * kLanes))));
  const int32_t peak_bits = reduce_max(peak);
  float largest_value;
  __builtin_memcpy(&largest_value, &peak_bits, 4);
  const bool finite = peak_bits < 0x7f800000;
  if (!finite || largest_value < 1e-30f) {
    for (int i = 0; i < kVectors; ++i) quants[i] = broadcast_int(0);
    return finite ? 0.0f : largest_value;
  }
  const Floats inverse = broadcast(limit / largest_value);
  for (int i = 0; i < kVectors; ++i) quants[i] = round_to_ints(multiply(load(x + i * kLanes), inverse));
  return largest_value / limit;
}

// Stores 32 quants of 15 bits for one row of a tile; `first` is where its first four go.
inline void store_wide(const Ints quants[kBlock / kLanes], uint8_t* first, uint32_t width) {
  constexpr int kVectors = static_cast<int>(kBlock) / kLanes;
  if constexpr (kInt16Layout == Int16Layout::kPairs) {
    int32_t q[kBlock];
    for (int i = 0; i < kVectors; ++i) store_ints(q + i * kLanes, quants[i]);
    for (uint32_t j = 0; j < kBlock; j += 4) {
      const int16_t four[] = {static_cast<int16_t>(q[j]), static_cast<int16_t>(q[j + 2]),
                              static_cast<int16_t>(q[j + 1]), static_cast<int16_t>(q[j + 3])};
      __builtin_memcpy(first + size_t{2} * j * width, four, 8);
    }
  } else {
    int8_t high[kBlock], low[kBlock];
    for (int i = 0; i < kVectors; ++i) {
      const Ints top = shift_right_signed<7>(add(quants[i], broadcast_int(64)));
      store_bytes(high + i * kLanes, top);
      store_bytes(low + i * kLanes, subtract(quants[i], shift_left<7>(top)));
    }
    for (uint32_t j = 0; j < kBlock; j += 4) {
      __builtin_memcpy(first + size_t{2} * j * width, high + j, 4);
      __builtin_memcpy(first + size_t{2} * j * width + 4, low + j, 4);
    }
  }
}

// Quantises block `block` of row `r` of the tile.
inline void quantise_into(const float* x, uint32_t block, uint32_t r, uint32_t width, const QuantisedRows& tile) {
  constexpr int kVectors = static_cast<int>(kBlock) / kLanes;
  const bool int16 = tile.wide != nullptr;
  Ints quants[kVectors];
  const float block_scale = quantise_block(x, int16 ? 127.0f * 128.0f : 127.0f, quants);
  int32_t half_sums[2] = {0, 0};
  for (int i = 0; i < kVectors; ++i) half_sums[i / (kVectors / 2)] += reduce_add(quants[i]);

  const size_t first = 4 * (size_t{block * (kBlock / 4)} * width + r);
  if (int16) {
    store_wide(quants, tile.wide + 2 * first, width);
  } else {
    int8_t bytes[kBlock];
    for (int i = 0; i < kVectors; ++i) store_bytes(bytes + i * kLanes, quants[i]);
    for (uint32_t j = 0; j < kBlock; j += 4) __builtin_memcpy(tile.narrow + first + size_t{j} * width, bytes + j, 4);
  }
  const size_t at32 = size_t{block} * width + r;
  const int32_t sum = half_sums[0] + half_sums[1];
  tile.scales[at32] = block_scale;
  tile.offsets32[at32] = -128 * sum;
  tile.sums32[at32] = block_scale * static_cast<float>(sum);
  for (uint32_t h = 0; h < 2; ++h) {
    const size_t at16 = size_t{2 * block + h} * width + r;
    tile.offsets16[at16] = -128 * half_sums[h];
    tile.sums16[at16] = block_scale * static_cast<float>(half_sums[h]);
  }
}

void quantise_tile(const float* const* rows, uint32_t width, uint32_t cols, const QuantisedRows& tile) {
  for (uint32_t r = 0; r < width; ++r) {
    for (uint32_t block = 0; block < cols / kBlock; ++block) {
      quantise_into(rows[r] + size_t{block} * kBlock, block, r, width, tile);
    }
  }
}

}  // namespace
}  // namespace carat::exec::cpu
