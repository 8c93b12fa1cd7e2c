// node check_snippets.mjs CHAT_PEER SNIPPETS.json [--write]: each snippet of Jinja must render as @huggingface/jinja
// renders it, in our interpreter and in the file that the unit test reads. --write puts the peer's results there.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { Template } from "@huggingface/jinja";
import { askCarat } from "./carat_chat.mjs";

const [program, file, mode] = process.argv.slice(2);
const snippets = JSON.parse(readFileSync(file, "utf8"));
assert.ok(snippets.length >= 50, "at least 50 snippets");

function peerText({ source, variables = {} }) {
  return new Template(source).render(structuredClone(variables));
}

if (mode === "--write") {
  for (const snippet of snippets) snippet.expected = peerText(snippet);
  writeFileSync(file, `[\n${snippets.map((snippet) => JSON.stringify(snippet)).join(",\n")}\n]\n`);
}

const requests = snippets.map(({ source, variables = {} }) => ({ kind: "jinja", source, variables }));
askCarat(program, requests).forEach((answer, i) => {
  const { source, expected } = snippets[i];
  assert.equal(peerText(snippets[i]), expected, `the committed result of ${source}`);
  assert.equal(answer.text, expected, `${source}: ${answer.error ?? ""}`);
});
console.log(`${snippets.length} snippets agree`);
