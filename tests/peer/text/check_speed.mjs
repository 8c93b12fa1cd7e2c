// node check_speed.mjs PROGRAM VOCAB.gguf: how fast the real vocabulary loads and ordinary English is encoded, on one
// core. The goals are 0.3 s and 3 MB/s on an idle machine; the bounds leave room for a busy one.
import assert from "node:assert/strict";
import { measureSpeed } from "./carat_tokenizer.mjs";
import { packageDocumentation } from "./english_text.mjs";

const [program, vocab] = process.argv.slice(2);
const text = packageDocumentation();
const speed = measureSpeed(program, vocab, text);
console.log(
  `loaded in ${(1e3 * speed.load_seconds).toFixed(0)} ms; ${text.length} characters, ${speed.tokens} tokens: ` +
    `${speed.megabytes_per_second.toFixed(1)} MB/s`,
);
assert.ok(text.length > 300000, "enough text to measure with");
assert.ok(speed.megabytes_per_second > 1.5, "encoding is too slow");
assert.ok(speed.load_seconds < 1, "loading is too slow");
