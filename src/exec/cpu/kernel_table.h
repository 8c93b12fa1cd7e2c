#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/format.h"

// The hot loops of the CPU executor, once for each instruction set. This header is read by translation units that are
// compiled for different instruction sets, so it holds plain data and declarations only: an inline function here could
// be emitted with AVX-512 code and then be picked by the linker for everyone.

namespace carat::exec::cpu {

inline constexpr uint32_t kBlock = 32;  // activations share one scale per block, and all weight formats divide it

// Rows of activations as integers: x ~ scale * q, one fp32 scale for 32 values. q has 8 bits, or 15 (int16 mode), which
// makes the rounding of activations negligible.
//
// Rows are stored in tiles of `width` rows (kernel width, or the powers of two that make up the rest) so that the inner
// loop reads one stream: every array below has its rows innermost within a tile, and a tile that begins at row r begins
// at r * (entries of one row).
struct QuantisedRows {
  int8_t* narrow;      // int8 mode: [cols / 4][width][4]
  uint8_t* wide;       // int16 mode: [cols / 4][width][8], four quants in eight bytes as KernelTable::int16_layout says
  float* scales;       // [cols / 32][width]
  int32_t* offsets32;  // [cols / 32][width]: -128 * sum of q over the block, what unsigned weights add too much
  int32_t* offsets16;  // [cols / 16][width]: the same over each half block
  float* sums32;       // [cols / 32][width]: scale * sum of q, for formats with a minimum
  float* sums16;       // [cols / 16][width]
};

// What a matrix is multiplied with. Integer kernels read `quantised`, those of float weights `values`.
struct Activations {
  QuantisedRows quantised;
  const float* values;  // [*, stride]; row r of the product is row index[r] of it (row r when index is null)
  size_t stride;
  const uint32_t* index;
  uint32_t rows;
  uint32_t cols;
};

// As many rows of a weight matrix as the kernels have lanes. When a matrix has no multiple of that many, its last tile
// overlaps the one before and `skip` lanes of it are left out of the result.
struct WeightTile {
  const uint8_t* data;
  size_t row_bytes;
  uint32_t skip;
};

// out[r * out_stride + lane - skip] = dot(weight row `lane`, activation row r) for lanes [skip, lanes). The bits of one
// result depend on its weight row and its activation row alone, not on the number of rows beside it.
// scratch: KernelTable::matmul_scratch bytes aligned to 64.
using MatmulTile = void (*)(const WeightTile& weights, const Activations& activations, float* out, size_t out_stride,
                            void* scratch);

// Where the cache keeps the rows of one sequence and key/value head: position p in page table[p / positions % entries],
// which begins page * page_bytes behind the plane's pointer, row p % positions of it. A block of kKeyBlock keys lies in
// one page.
struct KvPagesView {
  const uint32_t* table;
  uint32_t entries;
  uint32_t positions;
  size_t page_bytes;
};

// The queries of one key/value head against a span of its cache, softmax not yet divided by its sum, so that spans can
// be merged. Scores are q . k (Gemma 4 scales by 1).
struct AttentionSpan {
  const float* const* queries;  // [count] vectors of hd values
  const uint32_t* positions;    // [count]; not decreasing
  uint32_t count;               // at most kQueryTile
  uint32_t hd;                  // a multiple of nothing in particular
  uint32_t window;              // keys with position - key >= window are hidden
  KvPagesView pages;
  const void* keys;      // plane of rows of hd elements of `format`
  const void* values;    // likewise
  quant::Format format;  // F32, F16 or Q8_0; the last only where hd is a multiple of 32
  uint32_t begin, end;   // key positions [begin, end)
  float* peaks;          // [count] out: largest score, -infinity when no key is visible
  float* totals;         // [count] out: sum of exp(score - peak)
  float* outputs;        // [count, hd] out: sum of exp(score - peak) * value
  float* scratch;        // kKeyBlock * hd + kQueryTile * kKeyBlock floats
};

inline constexpr uint32_t kQueryTile = 32;
// Keys between two updates of the running maximum. Blocks begin at multiples of it in every pass, so a row's result
// does not depend on which rows came with it.
inline constexpr uint32_t kKeyBlock = 32;

// How four quants of 15 bits are stored, in the form the dot product of the instruction set wants.
enum class Int16Layout {
  kPairs,   // as 16-bit numbers in the order 0, 2, 1, 3, in which weights are widened
  kPlanes,  // the high bytes of all four, then the low bytes: q = 128 * high + low
};

struct KernelTable {
  const char* name;
  uint32_t lanes;      // weight rows of a tile
  uint32_t tile_rows;  // activation rows of a full tile
  Int16Layout int16_layout;

  size_t (*matmul_scratch)(uint32_t max_rows);
  MatmulTile (*find_matmul)(quant::Format format, bool int16);        // int16: see QuantisedRows; nullptr: no kernel
  MatmulTile (*find_panel_matmul)(quant::Format format, bool int16);  // few rows like many

  // Quantises `width` rows of `cols` values (a multiple of 32) at rows[0 .. width) into one tile. Not-a-number and
  // infinity make the scale of their block so, and with it every result: they are reported, never hidden.
  void (*quantise_tile)(const float* const* rows, uint32_t width, uint32_t cols, const QuantisedRows& tile);

  // out = x / sqrt(mean(x^2) + eps) * weight; a null weight is all ones. out may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, size_t n, float* out);
  // residual += rms_norm(x) * weight
  void (*add_rms_norm)(const float* x, const float* weight, float eps, size_t n, float* residual);
  void (*gelu_multiply)(const float* gate, const float* up, size_t n, float* out);  // gelu(gate) * up
  void (*scale)(float* x, float factor, size_t n);
  void (*add_scaled)(const float* x, float factor, size_t n, float* sum);  // sum += factor * x
  // x[j], x[j + half] turned by the angle whose cosine and sine are given.
  void (*rotate)(float* x, const float* cosines, const float* sines, size_t half);
  void (*to_halves)(const float* x, size_t n, uint16_t* out);
  // cap * tanh(x / cap); 0 leaves values alone. False when a value was not finite before.
  bool (*softcap)(float* x, float cap, size_t n);
  void (*softmax)(float* x, size_t n);

  void (*attend)(const AttentionSpan& span);
  // Merges the span (peak, total, output[hd]) of one query into another, in place.
  void (*merge_span)(float peak, float total, const float* output, size_t hd, float* into_peak, float* into_total,
                     float* into_output);
};

// One table for each instruction set. The avx2 one must not be used on a machine without AVX2, FMA and F16C, the avx512
// one not without AVX-512 F, BW, DQ, VL and VNNI: see instruction_set.h.
const KernelTable& portable_kernels();
MatmulTile find_matmul_portable(quant::Format format, bool int16);
size_t matmul_scratch_portable(uint32_t max_rows);
#if defined(__x86_64__)
const KernelTable& avx2_kernels();
MatmulTile find_matmul_avx2(quant::Format format, bool int16);
MatmulTile find_panel_matmul_avx2(quant::Format format, bool int16);
size_t matmul_scratch_avx2(uint32_t max_rows);
const KernelTable& avx512_kernels();
MatmulTile find_matmul_avx512(quant::Format format, bool int16);
MatmulTile find_panel_matmul_avx512(quant::Format format, bool int16);
size_t matmul_scratch_avx512(uint32_t max_rows);
#endif

}  // namespace carat::exec::cpu
