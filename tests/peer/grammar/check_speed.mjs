// node check_speed.mjs GRAMMAR_PEER VOCAB.gguf...: what masks cost. The goal after warm-up is 30 microseconds a token
// with the demo vocabulary, where a decoded token takes about a millisecond.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";

const [program, ...vocabs] = process.argv.slice(2);
for (const vocab of vocabs) {
  const result = spawnSync(program, ["speed", vocab], { maxBuffer: 1 << 30 });
  assert.equal(result.status, 0, String(result.stderr));
  const speed = JSON.parse(result.stdout.toString());
  console.log(JSON.stringify(speed));
  const large = speed.tokens > 100000;
  assert.ok(speed.long_answer_microseconds < (large ? 300 : 30), "a long answer is too slow");
  assert.ok(speed.first_worst_milliseconds < (large ? 150 : 10), "a first mask is too slow");
  assert.ok(speed.tools_milliseconds < 50, "55 kB of tools take too long to compile");
  assert.ok(speed.largest_compile_milliseconds < 500, "compiling is too slow");
}
