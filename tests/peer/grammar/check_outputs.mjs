// node check_outputs.mjs GRAMMAR_PEER VOCAB.gguf: random outputs within the masks of each schema parse and are valid, as
// ajv judges (draft 2020-12, with formats).
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import Ajv from "ajv";
import Ajv2020 from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

const OUTPUTS = 25;
const [program, vocab] = process.argv.slice(2);
const result = spawnSync(program, ["outputs", vocab, String(OUTPUTS)], { maxBuffer: 1 << 30 });
assert.equal(result.status, 0, String(result.stderr));
const cases = JSON.parse(result.stdout.toString());
assert.ok(cases.length >= 60, "at least 60 schemas");

let checked = 0;
let different = 0;
for (const { name, schema, error, outputs } of cases) {
  assert.ok(!error, `${name}: ${error}`);
  // There is no ajv for draft 4; carat's own judge has a look at these.
  if (schema.includes("draft-04")) continue;
  const options = { strict: false, allErrors: false, multipleOfPrecision: 3 };
  const ajv = addFormats(schema.includes("draft-07") ? new Ajv(options) : new Ajv2020(options));
  const validate = ajv.compile(JSON.parse(schema));
  assert.ok(outputs.length >= 10, `${name}: only ${outputs.length} outputs came to an end`);
  for (const output of outputs) {
    assert.ok(validate(JSON.parse(output)), `${name}: ${output}: ${JSON.stringify(validate.errors)}`);
    ++checked;
  }
  different += new Set(outputs).size;
}
console.log(`${checked} outputs of ${cases.length} schemas are valid, ${different} of them different`);
