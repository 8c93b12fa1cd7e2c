// node check_conversations.mjs CHAT_PEER TEMPLATES DEMO_MODEL.gguf: conversations must render to the same bytes in
// @huggingface/jinja, in our interpreter and in our native renderer: with the template in the demo model (as revision 2,
// large) and with templates of every revision, small and large, written from the specification.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Template } from "@huggingface/jinja";
import { askCarat } from "./carat_chat.mjs";
import { conversation, randomSource } from "./conversations.mjs";

const [program, folder, model] = process.argv.slice(2);
const EACH = 240;

const [demo] = askCarat(program, [{ kind: "file_template", path: model }]);
assert.ok(demo.text.includes("<|tool_call>call:"), "the demo model has a template");
const macros = readFileSync(join(folder, "macros.jinja"), "utf8");
const written = (revision) => macros + readFileSync(join(folder, `revision${revision}.jinja`), "utf8");

// What carat adds to the official text: a turn to answer in where the last one is closed.
function withModelTurn(text, { generation, thinking, large }) {
  if (!generation) return text;
  text = text.replace(/(<turn\|>\n)<\|channel>thought\n(<channel\|>)?$/, "$1");
  if (!text.endsWith("<turn|>\n")) return text;
  return `${text}<|turn>model\n${large && !thinking ? "<|channel>thought\n<channel|>" : ""}`;
}

// The first template took results in a field of the message that made the calls.
function withToolResponses(messages) {
  const result = [];
  for (const message of messages) {
    if (message.role !== "tool") {
      result.push({ ...message });
      continue;
    }
    const call = result.at(-1);
    const name = call.tool_calls.findLast((c) => c.id === message.tool_call_id)?.function.name ?? message.name;
    const { content } = message;
    const response = Array.isArray(content) ? content.map((part) => part.text).join("") : content;
    call.tool_responses = [...(call.tool_responses ?? []), { name, response }];
  }
  return result;
}

const SUITES = [
  { name: "demo", source: demo.text, revision: 2, large: true, made: { objects: true } },
  ...[false, true].flatMap((large) => [
    { name: "revision 1", source: written(1), revision: 1, large, made: {}, fold: withToolResponses },
    { name: "revision 2", source: written(2), revision: 2, large, made: { objects: true, response: true } },
    { name: "revision 3", source: written(3), revision: 3, large, made: {
      nulls: true, reserved: true, response: true, objects: true, unmatched: true, systemParts: true } },
    { name: "revision 4", source: written(3), revision: 4, large, extra: { fills_history: true }, made: { nulls: true } },
  ]),
];

for (const [number, suite] of SUITES.entries()) {
  const { source, revision, large, extra = {}, fold = (messages) => messages } = suite;
  const template = new Template(source);
  const random = randomSource(7 + number);
  const requests = [];
  const expected = [];
  for (let i = 0; i < EACH; ++i) {
    const { messages, tools } = conversation(random, suite.made);
    const options = { thinking: random.chance(0.4), generation: random.chance(0.8), preserve: random.chance(0.3), large, revision };
    const variables = {
      messages: fold(messages),
      tools: tools.length > 0 ? tools : null,
      enable_thinking: options.thinking,
      preserve_thinking: options.preserve,
      add_generation_prompt: options.generation,
      bos_token: "<bos>",
      large,
      ...extra,
    };
    expected.push([template.render(structuredClone(variables)), options]);
    requests.push({ kind: "jinja", source, variables });
    requests.push({ kind: "native", conversation: { messages, tools }, options });
  }
  const answers = askCarat(program, requests);
  expected.forEach(([text, options], i) => {
    const shown = () => `${suite.name} ${JSON.stringify(requests[2 * i + 1])}`;
    assert.equal(answers[2 * i].text, text, `interpreter: ${answers[2 * i].error ?? ""} ${shown()}`);
    assert.equal(answers[2 * i + 1].text, withModelTurn(text, options), `native: ${answers[2 * i + 1].error ?? ""} ${shown()}`);
  });
  console.log(`${suite.name}, ${large ? "large" : "small"}: ${EACH} conversations agree`);
}

// A file that has the demo model's template gets the native renderer of that revision.
const [known] = askCarat(program, [
  { kind: "embedded", source: demo.text, conversation: { messages: [{ role: "user", content: "Hi" }] }, options: {} },
]);
assert.deepEqual([known.interpreted, known.revision, known.warning], [false, 2, ""], known.error);
