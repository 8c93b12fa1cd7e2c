// Products of warpgroups on the emulated machine.
#include <cuda_fp16.h>

#include <cstring>

#include "exec/cuda/emulated/machine_state.h"

namespace carat::cuda::emulated {
namespace {

constexpr uint32_t kWarpgroup = 128;

// Of an operand with 128-byte swizzle. by_rows: rows are k, otherwise columns (or rows of A) are.
float element(uint32_t rank, uint64_t descriptor, bool by_rows, uint32_t k, uint32_t column) {
  const auto field = [&](int shift) { return static_cast<uint32_t>(descriptor >> shift & 0x3fff) << 4; };
  const uint32_t start = field(0), leading = field(16), stride = field(32);
  if (descriptor >> 62 != 1) refuse("only operands with 128-byte swizzle are known");
  const uint32_t at = by_rows ? start + column / 64 * leading + k / 8 * stride + k % 8 * 128 + column % 64 * 2
                              : start + column / 8 * stride + column % 8 * 128 + k * 2;
  __half value;
  std::memcpy(&value, shared_of(rank, swizzled(at), sizeof value), sizeof value);
  return __half2float(value);
}

// Row and k of a warp's 16 x 16 part of A, of which lane l holds pairs of rows g and g + 8 (g = l / 4).
float register_element(const StartedProduct& product, uint32_t row, uint32_t k) {
  const uint32_t lane = row % 8 * 4 + k % 8 / 2;
  const uint32_t word = product.a_registers[lane][row / 8 + k / 8 * 2];
  __half_raw raw;
  raw.x = static_cast<unsigned short>(k % 2 == 0 ? word & 0xffff : word >> 16);
  return __half2float(__half(raw));
}

void carry_out(uint32_t rank, uint32_t warp, const StartedProduct& product) {
  constexpr uint32_t kDepth = 16, kRows = 16;
  const uint32_t n = product.what.n, first_row = warp % (kWarpgroup / kWarp) * kRows;
  const bool in_registers = product.a_registers[0] != nullptr;
  std::vector<float> a(kRows * kDepth), b(size_t{n} * kDepth);
  for (uint32_t k = 0; k < kDepth; ++k) {
    for (uint32_t r = 0; r < kRows; ++r) {
      a[r * kDepth + k] =
          in_registers ? register_element(product, r, k) : element(rank, product.what.a, false, k, first_row + r);
    }
    for (uint32_t c = 0; c < n; ++c) b[c * kDepth + k] = element(rank, product.what.b, product.what.b_by_rows, k, c);
  }
  for (uint32_t lane = 0; lane < kWarp; ++lane) {
    for (uint32_t i = 0; i < n / 2; ++i) {
      const uint32_t row = i / 2 % 2 * 8 + lane / 4, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      float sum = product.what.add ? product.d[lane][i] : 0.0f;
      for (uint32_t k = 0; k < kDepth; ++k) sum += a[row * kDepth + k] * b[column * kDepth + k];
      product.d[lane][i] = sum;
    }
  }
}

Warp& my_warp() { return my_block().warps[machine->current->index.x / kWarp]; }

void carry_out_until(Warp& warp, size_t count) {
  const Thread& thread = *machine->current;
  for (; warp.done < count; ++warp.done) {
    const StartedProduct& product = warp.products[warp.done];
    // All warps of a warpgroup start the same products in the same order.
    const uint32_t number = thread.index.x / kWarp, first = number / 4 * 4;
    for (uint32_t other = first; other < first + 4; ++other) {
      const std::vector<StartedProduct>& products = my_block().warps[other].products;
      if (warp.done < products.size() && products[warp.done].what != product.what) {
        refuse("the warps of a warpgroup start different products");
      }
    }
    carry_out(thread.rank, number, product);
  }
}

}  // namespace

void start_product(const WarpgroupProduct& product, float* d, const uint32_t* a_registers) {
  Thread& thread = *machine->current;
  Warp& warp = my_warp();
  const size_t index = thread.products++;
  if (index == warp.products.size()) warp.products.push_back({product, machine->random.below(2) == 0, 0, {}, {}});
  StartedProduct& started = warp.products[index];
  if (started.what != product) refuse("the lanes of a warp start different products");
  started.d[thread.index.x % kWarp] = d;
  started.a_registers[thread.index.x % kWarp] = a_registers;
  if (++started.threads == kWarp && started.at_once && warp.done == index) carry_out_until(warp, index + 1);
}

void commit_products() { machine->current->committed.push_back(machine->current->products); }

void wait_for_products(uint32_t pending) {
  const std::vector<size_t>& committed = machine->current->committed;
  if (committed.size() <= pending) return;
  const size_t until = committed[committed.size() - 1 - pending];
  meet({});  // lanes wait together; with it all of them have started what comes before
  carry_out_until(my_warp(), until);
}

}  // namespace carat::cuda::emulated
