// node speed.mjs MODEL.gguf [-p 512] [-n 64] [-r 3] [-t THREADS]
// How fast llama.cpp's CPU backend (node-llama-cpp's prebuilt binary) reads a prompt and generates, to set beside
// `carat bench -m MODEL.gguf` on the same machine. Not a test. The first round warms up and is not counted. As in
// llama-bench a prompt is read in batches of 512; generation is greedy and includes choosing the token, which takes
// llama.cpp a pass over the vocabulary.
import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import { load } from "./llama.mjs";

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    prompt: { type: "string", short: "p", default: "512" },
    generate: { type: "string", short: "n", default: "64" },
    rounds: { type: "string", short: "r", default: "3" },
    threads: { type: "string", short: "t", default: String(availableParallelism()) },
  },
});
const [prompt, generate, rounds, threads] = ["prompt", "generate", "rounds", "threads"].map((name) => Number(flags[name]));
if (positionals.length !== 1 || !(prompt > 0 && generate > 0 && rounds > 0 && threads > 0)) {
  console.error("usage: node speed.mjs MODEL.gguf [-p PROMPT] [-n GENERATE] [-r ROUNDS] [-t THREADS]");
  process.exit(2);
}

const { context, sequence } = await load(positionals[0], { threads, contextSize: prompt + generate + 16, batchSize: 512 });
const tokens = Array.from({ length: prompt }, (_, i) => 500 + ((i * 389) % 200));

async function seconds(work) {
  const start = process.hrtime.bigint();
  await work();
  return Number(process.hrtime.bigint() - start) * 1e-9;
}

async function generateTokens(count) {
  let made = 0;
  for await (const _ of sequence.evaluate([tokens[0]], { temperature: 0, yieldEogToken: true })) {
    if (++made === count) return;
  }
  throw new Error(`generation stopped after ${made} tokens`);
}

const speeds = { pp: [], tg: [] };
for (let round = 0; round <= rounds; round++) {
  await sequence.clearHistory();
  const reading = await seconds(() => sequence.evaluateWithoutGeneratingNewTokens(tokens));
  await sequence.clearHistory();
  const generating = await seconds(() => generateTokens(generate));
  if (round === 0) continue;
  speeds.pp.push(prompt / reading);
  speeds.tg.push(generate / generating);
}

function describe(values) {
  const mean = values.reduce((a, b) => a + b) / values.length;
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / Math.max(1, values.length - 1);
  return `${mean.toFixed(2)} ± ${Math.sqrt(variance).toFixed(2)} t/s`;
}

console.log(`${positionals[0]}, llama.cpp on the CPU, ${context.currentThreads} threads`);
console.log(`pp${prompt}: ${describe(speeds.pp)}`);
console.log(`tg${generate}: ${describe(speeds.tg)}`);
process.exit(0);
