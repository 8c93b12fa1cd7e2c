// Our side of the comparisons: the program encode_texts on a vocabulary file.
import { spawnSync } from "node:child_process";

function run(program, args, input) {
  const result = spawnSync(program, args, { input, maxBuffer: 1 << 30 });
  if (result.error) throw result.error;
  if (result.status !== 0) throw new Error(`${program} failed (${result.status}): ${result.stderr}`);
  return JSON.parse(result.stdout.toString());
}

// requests: [{ text, parse }]; the ids of each, and whether decoding gave each text back.
export const encodeTexts = (program, vocab, requests) => run(program, ["encode", vocab], JSON.stringify(requests));

// { load_seconds, megabytes_per_second, tokens } for one text.
export const measureSpeed = (program, vocab, text) => run(program, ["speed", vocab], text);
