#include "exec/cuda/executor/pass_kind.h"

#include <algorithm>
#include <bit>
#include <set>

#include "exec/cuda/kernels/gemv/gemv_rows.h"
#include "exec/cuda/kernels/skinny/skinny_rows.h"
#include "exec/cuda/plan/prompt_bucket.h"

namespace carat::cuda {

namespace {

bool of_different_sequences(std::span<const exec::Row> rows) {
  std::set<uint32_t> seen;
  return std::all_of(rows.begin(), rows.end(), [&](const exec::Row& row) { return seen.insert(row.sequence).second; });
}

// Rows of one prompt in order, of which none but the last wants logits.
bool of_one_prompt(std::span<const exec::Row> rows) {
  for (size_t r = 1; r < rows.size(); ++r) {
    if (!continues(rows[r - 1], rows[r]) || rows[r - 1].wants_logits) return false;
  }
  return true;
}

// Whether passes by matrix products are padded to buckets. Rows that pad a pass have no values from layers on the CPU,
// and sparse attention takes its tiles sequence by sequence, which is another list of launches every time.
bool pads_products(const Plan& plan) { return plan.placement.first_layer == 0 && !plan.sparse; }

}  // namespace

bool continues(const exec::Row& before, const exec::Row& row) {
  return row.sequence == before.sequence && row.position == before.position + 1;
}

PassClass classify(std::span<const exec::Row> rows, const Plan& plan, bool timed) {
  const auto count = static_cast<uint32_t>(rows.size());
  PassClass pass{.kind = PassKind::kPrompt, .rows = count};
  pass.outputs = static_cast<uint32_t>(
      std::count_if(rows.begin(), rows.end(), [](const exec::Row& row) { return row.wants_logits; }));
  const auto as = [&](PassKind kind, uint32_t bucket) {
    pass.kind = kind;
    pass.rows = bucket;
    return pass;
  };
  const bool all_want = pass.outputs == count;
  if (all_want && count >= plan.skinny_from && count <= plan.skinny_rows) {
    pass.single_rows = of_different_sequences(rows);
    return as(PassKind::kDecodeSkinny, skinny_bucket(count));
  }
  if (plan.use_gemv && count <= kGemvRows) {
    if (!all_want) return as(PassKind::kPromptGemv, std::bit_ceil(count));
    const bool megakernel = count == 1 && plan.use_megakernel && !timed;
    return as(megakernel ? PassKind::kDecodeMegakernel : PassKind::kDecodeGemv, std::bit_ceil(count));
  }
  if (!pads_products(plan)) return pass;
  const uint32_t decode_rows = decode_bucket(count);
  if (all_want && decode_rows <= std::min(plan.outputs, plan.chunk) && of_different_sequences(rows)) {
    pass.single_rows = true;
    return as(PassKind::kDecodeGemm, decode_rows);
  }
  // Without matrix-vector kernels the rows that want logits go on in a second pass, which the host describes then.
  if (plan.use_gemv && of_one_prompt(rows)) {
    if (const uint32_t bucket = prompt_bucket(count, plan.chunk); bucket > 0) {
      return as(PassKind::kPromptBucket, bucket);
    }
  }
  return pass;
}

bool runs_as_graph(PassKind kind, const Plan& plan) {
  switch (kind) {
    case PassKind::kPrompt:
    case PassKind::kPromptGemv:
      return false;
    case PassKind::kPromptBucket:
      return plan.prompt_graphs;
    case PassKind::kDecodeMegakernel:
    case PassKind::kDecodeGemv:
    case PassKind::kDecodeSkinny:
    case PassKind::kDecodeGemm:
      return plan.use_graphs;
  }
  return false;
}

}  // namespace carat::cuda
