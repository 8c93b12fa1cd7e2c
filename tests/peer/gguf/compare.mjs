// node compare.mjs GGUF_PEER MODELS: every field that @huggingface/gguf finds in a file must be what gguf_peer says.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gguf, GGUFValueType } from "@huggingface/gguf";

const [program, models] = process.argv.slice(2);
const FLOATS = [GGUFValueType.FLOAT32, GGUFValueType.FLOAT64];

// Into the form of gguf_peer: integers, NaN and infinities as text.
function plain(value, type) {
  if (Array.isArray(value)) return value.map((element) => plain(element, type));
  if (typeof value === "bigint") return value.toString();
  if (typeof value !== "number") return value;
  return FLOATS.includes(type) && Number.isFinite(value) ? value : value.toString();
}

async function peerView(path) {
  const { typedMetadata, tensorInfos, tensorDataOffset } = await gguf(path, {
    allowLocalFile: true,
    typedMetadata: true,
  });
  const { version, tensor_count, kv_count, ...keys } = typedMetadata;
  assert.equal(Number(kv_count.value), Object.keys(keys).length);
  assert.equal(Number(tensor_count.value), tensorInfos.length);
  const metadata = {};
  for (const [key, { value, type, subType }] of Object.entries(keys)) {
    metadata[key] = { type, value: plain(value, subType ?? type) };
    if (type === GGUFValueType.ARRAY) metadata[key].subType = subType;
  }
  const tensors = tensorInfos.map(({ name, dtype, shape, offset }) => ({
    name,
    dtype,
    shape: shape.map(String),
    offset: offset.toString(),
  }));
  return { version: version.value, metadata, tensors, dataStart: tensorDataOffset.toString() };
}

async function compare(path, expected) {
  const found = await peerView(path);
  assert.deepStrictEqual(found, expected, path);
  console.log(`${path}: ${Object.keys(found.metadata).length} keys and ${found.tensors.length} tensors agree`);
}

const folder = mkdtempSync(join(tmpdir(), "carat-peer-"));
try {
  const written = join(folder, "everything.gguf");
  const json = join(folder, "everything.json");
  execFileSync(program, ["write", written, json], { stdio: "inherit" });
  const expected = JSON.parse(readFileSync(json, "utf8"));
  assert.ok(expected.tensors.length > 30, "the written file has a tensor of every type");
  await compare(written, expected);
} finally {
  rmSync(folder, { recursive: true });
}

const files = readdirSync(models).filter((name) => name.endsWith(".gguf"));
assert.ok(files.length > 0, `no models in ${models}`);
for (const name of files) {
  const path = join(models, name);
  const dump = execFileSync(program, ["dump", path], { encoding: "utf8", maxBuffer: 1 << 30 });
  await compare(path, JSON.parse(dump));
}
