// node check_real.mjs GRAMMAR_PEER VOCAB.gguf [SEED COUNT]: random outputs within the masks of the schemas of
// real_schemas.mjs are valid, as ajv judges; of schemas put together at random, too, where they have a grammar. With
// SEED and COUNT other random schemas are tried, to fuzz for longer.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Ajv from "ajv";
import Ajv2020 from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { randomSchemas, realSchemas } from "./real_schemas.mjs";

const [program, vocab, seed, count] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), "carat-schemas-"));

function outputsOf(schemas, each) {
  const file = join(folder, "schemas.json");
  writeFileSync(file, JSON.stringify(schemas));
  const result = spawnSync(program, ["outputs", vocab, String(each), file], { maxBuffer: 1 << 30 });
  assert.equal(result.status, 0, String(result.stderr));
  return JSON.parse(result.stdout.toString());
}

function judge(cases) {
  const figures = { schemas: 0, refused: 0, outputs: 0, different: 0, silent: 0 };
  for (const { name, schema, error, outputs } of cases) {
    figures.schemas += 1;
    if (error) {
      figures.refused += 1;
      continue;
    }
    // Multiples of 0.01 are exact in the schema and the text; ajv divides in floating point.
    const options = { strict: false, allErrors: false, multipleOfPrecision: 3, validateSchema: false };
    const parsed = JSON.parse(schema);
    const old = String(parsed.$schema).includes("draft-07");
    const validate = addFormats(old ? new Ajv(options) : new Ajv2020(options)).compile(parsed);
    for (const output of outputs) {
      const isValid = validate(JSON.parse(output));
      // ajv 8 takes "all items are evaluated" (true) for a number of items where that comes out of an anyOf or if.
      if (!isValid && validate.errors.some((each) => each.instancePath.split("/").includes("true"))) continue;
      assert.ok(isValid, `${name}: ${schema}: ${output}: ${JSON.stringify(validate.errors)}`);
    }
    figures.outputs += outputs.length;
    figures.different += new Set(outputs).size;
    figures.silent += outputs.length === 0 ? 1 : 0;
  }
  return figures;
}

try {
  if (seed) {
    console.log(JSON.stringify(judge(outputsOf(randomSchemas(Number(count), Number(seed)), 10))));
  } else {
    const real = realSchemas();
    assert.ok(real.length >= 300, `${real.length} schemas`);
    const figures = judge(outputsOf(real, 34));
    console.log(`real schemas: ${JSON.stringify(figures)}`);
    assert.equal(figures.refused, 0);
    assert.ok(figures.outputs >= 10000, "outputs that came to an end");
    const fuzzed = judge(outputsOf(randomSchemas(400, 20260822), 8));
    console.log(`random schemas: ${JSON.stringify(fuzzed)}`);
    assert.ok(fuzzed.outputs >= 1000, "outputs of random schemas");
  }
} finally {
  rmSync(folder, { recursive: true });
}
