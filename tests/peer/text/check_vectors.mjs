// node check_vectors.mjs PROGRAM VOCAB.gguf VECTORS: all strings of VECTORS.inp give the ids of VECTORS.out. The files are
// llama.cpp's ggml-vocab-gemma-4.gguf.inp and .out (MIT licence, Copyright (c) The ggml authors), described in
// docs/gemma4.md 4.5.
import assert from "node:assert/strict";
import fs from "node:fs";
import { encodeTexts } from "./carat_tokenizer.mjs";

const [program, vocab, vectors] = process.argv.slice(2);
const texts = fs.readFileSync(`${vectors}.inp`, "utf8").split("\n__ggml_vocab_test__\n");
const lines = fs.readFileSync(`${vectors}.out`, "utf8").split("\n").slice(0, texts.length);
assert.equal(texts.length, 46);
assert.equal(lines.length, 46);
const answers = encodeTexts(program, vocab, texts.map((text) => ({ text })));
texts.forEach((text, i) => {
  const expected = lines[i].split(" ").filter((id) => id !== "").map(Number);
  assert.deepEqual(answers[i].ids, expected, `vector ${i}: ${JSON.stringify(text)}`);
  assert.equal(answers[i].decoded, text);
});
console.log(`${texts.length} vectors agree`);
