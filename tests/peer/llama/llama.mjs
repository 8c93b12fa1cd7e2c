// llama.cpp through node-llama-cpp, on the CPU: what the scripts of this folder share.
import { getLlama } from "node-llama-cpp";

let llama;

export async function load(file, { threads = 2, ...options } = {}) {
  // maxThreads 0: a context's own number of threads is what counts.
  llama ??= await getLlama({ gpu: false, build: "never", maxThreads: 0, logLevel: "error" });
  const model = await llama.loadModel({ modelPath: file });
  const context = await model.createContext({ sequences: 1, threads, ...options });
  return { model, context, sequence: context.getSequence() };
}

// The probabilities of the next token after each token: one array over the vocabulary per position.
export async function nextTokenProbabilities(sequence, tokens) {
  const inputs = tokens.map((token) => [token, { generateNext: { probabilities: true } }]);
  const steps = await sequence.controlledEvaluate(inputs);
  return steps.map(({ next: { probabilities } }) => {
    const row = new Float64Array(probabilities.size);
    for (const [token, probability] of probabilities) row[token] = probability;
    // It adds them up in single precision, which is off by a thousandth over 262,144 tokens.
    const sum = row.reduce((a, b) => a + b);
    if (!(Math.abs(sum - 1) < 5e-3)) throw new Error(`llama.cpp's probabilities add up to ${sum}`);
    return row.map((probability) => probability / sum);
  });
}
