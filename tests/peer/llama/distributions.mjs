// node distributions.mjs CARAT DUMP_LOGITS DEVICES PRESET FORMATS [--layers N] [--vocab N] [--positions N]
// Full next-token distributions of llama.cpp and of carat's executors (DEVICES and FORMATS separated by commas) on
// synthetic models of PRESET. Prints a table and fails when a difference is beyond the bounds of bounds.mjs.
// docs/numerics.md, "Against llama.cpp", explains the figures.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { bounds, distanceSlack } from "./bounds.mjs";
import { load, nextTokenProbabilities } from "./llama.mjs";

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: { layers: { type: "string" }, vocab: { type: "string" }, positions: { type: "string", default: "72" } },
});
const [carat, dumpLogits, devices, preset, formats] = positionals;
const positions = Number(flags.positions);

function synthesise(format, file) {
  const shape = ["layers", "vocab"].flatMap((name) => (flags[name] ? [`--${name}`, flags[name]] : []));
  execFileSync(carat, ["synth", preset, format, file, ...shape], { stdio: ["ignore", "ignore", "inherit"] });
}

// Never a control token, which llama.cpp might treat in its own way; the same in every run.
function makeTokens() {
  const others = Array.from({ length: positions - 1 }, (_, i) => 494 + ((i * 389 + 17 * (i % 7)) % 250));
  return [2, ...others];
}

async function theirProbabilities(file, tokens) {
  // Keys and values in F32, and no flash attention, which rounds to F16: what is compared is arithmetic.
  const { model, context, sequence } = await load(file, {
    contextSize: 256,
    flashAttention: false,
    experimentalKvCacheKeyType: "F32",
    experimentalKvCacheValueType: "F32",
  });
  const rows = await nextTokenProbabilities(sequence, tokens);
  await context.dispose();
  await model.dispose();
  return rows;
}

function ourLogProbabilities(folder, file, device, tokens, vocabulary) {
  const list = join(folder, "tokens.txt");
  const out = join(folder, "logits.bin");
  writeFileSync(list, tokens.join(" "));
  execFileSync(dumpLogits, [file, device, "f32", list, out], { stdio: ["ignore", "ignore", "inherit"] });
  const bytes = readFileSync(out);
  const logits = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
  if (logits.length !== tokens.length * vocabulary) throw new Error(`${device} gave ${logits.length} logits`);
  return tokens.map((_, row) => logSoftmax(logits.subarray(row * vocabulary, (row + 1) * vocabulary)));
}

function logSoftmax(logits) {
  const largest = logits.reduce((a, b) => Math.max(a, b));
  let sum = 0;
  for (const logit of logits) sum += Math.exp(logit - largest);
  const normaliser = largest + Math.log(sum);
  return Float64Array.from(logits, (logit) => logit - normaliser);
}

// KL divergence from llama.cpp's distribution, and the largest difference of a log-probability among the tokens that
// llama.cpp gives more than 1e-4.
function comparePosition(theirs, ours) {
  let divergence = 0;
  let difference = 0;
  let best = 0;
  for (let token = 0; token < theirs.length; token++) {
    if (ours[token] > ours[best]) best = token;
    const p = theirs[token];
    if (p <= 0) continue;
    divergence += p * (Math.log(p) - ours[token]);
    if (p > 1e-4) difference = Math.max(difference, Math.abs(Math.log(p) - ours[token]));
  }
  return { divergence, difference, agreed: theirs[best] === theirs.reduce((a, b) => Math.max(a, b)) };
}

function summarise(results) {
  const divergences = results.map((result) => result.divergence).sort((a, b) => a - b);
  return {
    medianKl: divergences[results.length >> 1],
    meanKl: divergences.reduce((a, b) => a + b) / results.length,
    largestKl: divergences.at(-1),
    difference: Math.max(...results.map((result) => result.difference)),
    agreement: results.filter((result) => result.agreed).length / results.length,
  };
}

// How far the first distribution of each position is from the second, on average; both are logarithms.
function meanDivergence(from, to) {
  const rows = from.map((row, i) => row.reduce((sum, logP, token) => sum + Math.exp(logP) * (logP - to[i][token]), 0));
  return rows.reduce((a, b) => a + b) / rows.length;
}

// carat's promise is to be no less exact than the peer; the measure is the distance from exact arithmetic.
function reportDistance(format, theirs, ours) {
  const llama = meanDivergence(ours.reference, theirs.map((row) => row.map((p) => Math.log(Math.max(p, 1e-30)))));
  const cpu = meanDivergence(ours.reference, ours.cpu);
  const good = cpu <= llama * distanceSlack(preset);
  console.log(
    `${preset} ${format}: mean KL from the reference: llama.cpp ${llama.toExponential(1)}, cpu ${cpu.toExponential(1)}` +
      `${good ? "" : "  <-- FAILED, the cpu executor is too far off"}`,
  );
  return good;
}

function report(device, format, found) {
  const bound = bounds(preset, format, device);
  const show = (name) => `${name} ${found[name].toExponential(1)} (bound ${bound[name].toExponential(1)})`;
  const measures = ["medianKl", "meanKl", "difference"];
  // Of a few positions one near-tie would be too large a share.
  const counts = positions >= 50;
  const good = measures.every((name) => found[name] <= bound[name]) && (!counts || found.agreement >= bound.agreement);
  console.log(
    `${preset} ${format} ${device}: ${measures.map(show).join(", ")}, largestKl ${found.largestKl.toExponential(1)}, ` +
      `same best ${(100 * found.agreement).toFixed(1)} %${counts ? ` (bound ${100 * bound.agreement})` : ""}` +
      `${good ? "" : "  <-- FAILED"}`,
  );
  return good;
}

const folder = mkdtempSync(join(tmpdir(), "carat-llama-"));
let good = true;
try {
  for (const format of formats.split(",")) {
    const file = join(folder, `${format}.gguf`);
    synthesise(format, file);
    const tokens = makeTokens();
    const theirs = await theirProbabilities(file, tokens);
    const ours = {};
    for (const device of devices.split(",")) {
      ours[device] = ourLogProbabilities(folder, file, device, tokens, theirs[0].length);
      const results = tokens.map((_, row) => comparePosition(theirs[row], ours[device][row]));
      good = report(device, format, summarise(results)) && good;
    }
    if (ours.reference && ours.cpu) good = reportDistance(format, theirs, ours) && good;
    rmSync(file);
  }
} finally {
  rmSync(folder, { recursive: true });
}
process.exit(good ? 0 : 1);
