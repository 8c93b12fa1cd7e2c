// How far carat may be from llama.cpp on a synthetic model: two to three times what docs/numerics.md, "Against
// llama.cpp", says was measured, for the other rounding of other CPUs. In F32 files nothing is rounded but llama.cpp's
// GELU, which it looks up in a table of halves; in quantised ones both sides round activations to 8 bits, and random
// weights magnify that. In a mixture of experts such a rounding now and then picks another expert.
const dense = {
  f32: { medianKl: 5e-6, meanKl: 1e-5, difference: 3e-2, agreement: 0.95 },
  q8_0: { medianKl: 8e-3, meanKl: 1e-2, difference: 1.2, agreement: 0.8 },
  q4_0: { medianKl: 8e-3, meanKl: 1e-2, difference: 1.2, agreement: 0.8 },
  q4_k: { medianKl: 2e-2, meanKl: 3e-2, difference: 2, agreement: 0.75 },
};
const experts = {
  f32: { medianKl: 5e-6, meanKl: 5e-4, difference: 1.5, agreement: 0.95 },
  q8_0: { medianKl: 2e-2, meanKl: 5e-2, difference: 5, agreement: 0.7 },
  q4_0: { medianKl: 4e-2, meanKl: 8e-2, difference: 6, agreement: 0.7 },
  q4_k: { medianKl: 8e-2, meanKl: 1.2e-1, difference: 6, agreement: 0.65 },
};

const isMixture = (preset) => preset.includes("26b");

// Formats without an entry of their own have Q4_K's: mean KL 2.5e-3 (Q1_0) to 1.4e-2 (IQ4_XS) was measured, differences
// of up to 1.5.
export function bounds(preset, format) {
  const known = isMixture(preset) ? experts : dense;
  return known[format.replace("-pure", "").replace("_m", "")] ?? known.q4_k;
}

// The CPU executor's distance from the reference may be this many times llama.cpp's: both round activations alike, so
// which one comes out nearer is chance where the formats leave no room to be better.
export function distanceSlack(preset) {
  return isMixture(preset) ? 2.5 : 1.25;
}
