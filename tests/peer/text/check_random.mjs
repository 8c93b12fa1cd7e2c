// node check_random.mjs PROGRAM VOCAB.gguf: random strings of many scripts, and every line of the documentation of the
// installed packages, give the ids of an independent tokenizer, and decode to themselves.
import assert from "node:assert/strict";
import { encodeTexts } from "./carat_tokenizer.mjs";
import { packageDocumentation } from "./english_text.mjs";
import { independentEncoder, tokenizerFile } from "./real_tokenizer.mjs";

const RANDOM_STRINGS = 12000;

// Mulberry32: the same strings on every run.
function randomNumbers(seed) {
  return (limit) => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % limit;
  };
}

// First and last code point: ASCII, Latin, Greek, Cyrillic, Hebrew, Arabic, Devanagari, Bengali, Thai, Khmer, Georgian,
// Ethiopic, punctuation, arrows and mathematics, kana, Han, Hangul, private use, emoji, rare Han, and controls.
const SCRIPTS = [
  [0x20, 0x7e], [0xa0, 0x24f], [0x370, 0x3ff], [0x400, 0x4ff], [0x590, 0x5ff], [0x600, 0x6ff], [0x900, 0x97f],
  [0x980, 0x9ff], [0xe00, 0xe7f], [0x1780, 0x17ff], [0x10a0, 0x10ff], [0x1200, 0x137f], [0x2000, 0x206f],
  [0x2190, 0x22ff], [0x3040, 0x30ff], [0x4e00, 0x9fff], [0xac00, 0xd7a3], [0xe000, 0xf8ff], [0x1f300, 0x1faff],
  [0x20000, 0x2a6df], [0x00, 0x1f],
];
const RUNS = [" ", "\n", "\t", "a", "-", "=", "\r\n", "ha", "0", "!"];

function randomString(below, tokens) {
  const scripts = Array.from({ length: 1 + below(3) }, () => SCRIPTS[below(SCRIPTS.length)]);
  let text = "";
  for (let left = 1 + below(24); left > 0; left--) {
    const kind = below(8);
    if (kind < 4) {
      text += tokens[below(tokens.length)];
    } else if (kind === 4) {
      const token = [...tokens[below(tokens.length)]];
      text += token.slice(below(token.length), token.length).join("");
    } else if (kind < 7) {
      const [first, last] = scripts[below(scripts.length)];
      for (let n = 1 + below(6); n > 0; n--) text += String.fromCodePoint(first + below(last - first + 1));
    } else {
      text += RUNS[below(RUNS.length)].repeat(1 + below(40));
    }
  }
  return text;
}

const [program, vocab] = process.argv.slice(2);
// Texts of tokens as they appear in a text: spaces instead of U+2581, and those with special meaning too.
const tokens = Object.keys(tokenizerFile().model.vocab).map((text) => text.replaceAll("\u2581", " "));
const below = randomNumbers(20260822);
const texts = Array.from({ length: RANDOM_STRINGS }, () => randomString(below, tokens).replaceAll("\u2581", " "));
const lines = [...new Set(packageDocumentation().split("\n"))].filter((line) => !line.includes("\u2581"));
assert.ok(lines.length > 3000, "the installed packages have documentation");
texts.push(...lines);

const encode = await independentEncoder();
const answers = encodeTexts(program, vocab, texts.map((text) => ({ text })));
let count = 0;
texts.forEach((text, i) => {
  assert.deepEqual(answers[i].ids, encode(text), `text ${i}: ${JSON.stringify(text)}`);
  assert.equal(answers[i].decoded, text);
  count += answers[i].ids.length;
});
console.log(`${RANDOM_STRINGS} random strings and ${lines.length} lines of English agree: ${count} tokens`);
