// node check_prompts.mjs PROGRAM VOCAB.gguf: prompts such as those of docs/gemma4.md 4.5, with special tokens and the words
// of templates.
import assert from "node:assert/strict";
import { encodeTexts } from "./carat_tokenizer.mjs";

const [program, vocab] = process.argv.slice(2);
const plain = [
  ["The capital of France is", [818, 5279, 529, 7001, 563]],
  ["user\nHi", [2364, 107, 10979]],
  ["model\n", [4368, 107]],
  ["system\n", [9731, 107]],
  ["thought\n", [45518, 107]],
  ["call:get_weather{location:", [6639, 236787, 828, 236779, 19323, 236782, 7125, 236787]],
  ["\n".repeat(33), [137, 108]],
  ["<table>", [236820, 5127, 236813]],
];
const turns = "<bos><|turn>user\nHi<turn|>\n<|turn>model\n";
const parsed = [
  [turns, [2, 105, 2364, 107, 10979, 106, 107, 105, 4368, 107]],
  [`${turns}<|channel>thought\n<channel|>`, [2, 105, 2364, 107, 10979, 106, 107, 105, 4368, 107, 100, 45518, 107, 101]],
];
const requests = [
  ...plain.map(([text, ids]) => ({ text, ids })),
  ...parsed.map(([text, ids]) => ({ text, ids, parse: true })),
];
encodeTexts(program, vocab, requests).forEach((answer, i) => {
  assert.deepEqual(answer.ids, requests[i].ids, JSON.stringify(requests[i].text));
  assert.equal(answer.decoded, requests[i].text);
});

// The same texts from a user: not one special token.
const SPECIAL_IDS = new Set([2, 100, 101, 105, 106]);
for (const answer of encodeTexts(program, vocab, parsed.map(([text]) => ({ text })))) {
  assert.ok(answer.ids.every((id) => !SPECIAL_IDS.has(id)));
}
console.log(`${requests.length} prompts agree`);
