// The package `ollama` and carat with its demo model.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Ollama } from 'ollama';
import { startCarat } from '../support/server.mjs';
import { cityTool } from '../support/script.mjs';

const server = await startCarat('-c', '4096');
after(() => server.close());
const client = new Ollama({ host: server.url });
const question = [{ role: 'user', content: 'What is nginx?' }];
const settings = { model: 'demo-e-q8_0', messages: question, options: { temperature: 0, num_predict: 40 } };
const answer = (await client.chat(settings)).message.content;

test('a plain answer, the same streamed, and generate', async () => {
  assert.match(answer, /server/i);
  let said = '', last;
  for await (const part of await client.chat({ ...settings, stream: true })) {
    said += part.message.content;
    last = part;
  }
  assert.equal(said, answer);
  assert.ok(last.done && last.eval_count > 0 && last.prompt_eval_count > 0);
  const { response } = await client.generate({ model: 'gemma', prompt: 'What is nginx?', options: settings.options });
  assert.equal(response, answer);
});

test('what a client asks about the model', async () => {
  assert.match((await client.version()).version, /^\d+\.\d+\.\d+$/);
  const [model, ...others] = (await client.list()).models;
  assert.deepEqual([model.name, others.length], ['demo-e-q8_0:latest', 0]);
  assert.ok(!Number.isNaN(new Date(model.modified_at).getTime()));
  assert.match(model.digest, /^[0-9a-f]{64}$/);
  const shown = await client.show({ model: 'demo-e-q8_0' });
  assert.deepEqual(shown.capabilities, ['completion', 'tools', 'thinking']);
  assert.equal(shown.model_info['gemma4.context_length'], 4096);
  assert.equal((await client.ps()).models[0].name, model.name);
});

test('structured output: any JSON, and a schema', async () => {
  const schema = {
    type: 'object', additionalProperties: false, required: ['port'],
    properties: { port: { type: 'integer', minimum: 1, maximum: 99 } } };
  const { message } = await client.chat({ ...settings, format: schema, options: { temperature: 0 } });
  assert.equal(typeof JSON.parse(message.content).port, 'number');
  const any = await client.chat({ ...settings, format: 'json', options: { temperature: 0, num_predict: 300 } });
  assert.match(any.message.content, /^\{/);
});

test('tools beside a system text and without thoughts', async () => {
  const { message } = await client.chat({
    ...settings, think: false, tools: [cityTool('weather')], messages: [{ role: 'system', content: 'You run a house.' }, ...question] });
  assert.equal(message.thinking, undefined);
  assert.equal(typeof message.content, 'string');
});

test('seeds, lengths and stops', async () => {
  const drawn = async (seed) =>
    (await client.chat({ ...settings, options: { seed, temperature: 1.5, top_k: 0, top_p: 1, num_predict: 12 } })).message.content;
  assert.equal(await drawn(5), await drawn(5));
  assert.notEqual(await drawn(5), await drawn(6));
  const cut = await client.chat({ ...settings, options: { temperature: 0, num_predict: 5 } });
  assert.deepEqual([cut.done_reason, cut.eval_count], ['length', 5]);
  const stop = answer.split(' ')[3];
  assert.equal((await client.chat({ ...settings, options: { temperature: 0, stop: [stop] } })).message.content, answer.slice(0, answer.indexOf(stop)));
});

test('embeddings and changes of the model are refused', async () => {
  await assert.rejects(client.embed({ model: 'gemma', input: 'a' }), (error) => error.status_code === 501 && /embedding/.test(error.message));
  await assert.rejects(client.pull({ model: 'llama3' }), (error) => error.status_code === 403);
  await assert.rejects(client.delete({ model: 'gemma' }), (error) => error.status_code === 403);
});

test('errors are those of the client', async () => {
  await assert.rejects(client.chat({ ...settings, options: { temperature: 9 } }), (error) => error.status_code === 400 && /temperature/.test(error.message));
  await assert.rejects(client.chat({ ...settings, messages: [{ role: 'user', content: 'a', images: ['aGk='] }] }), /reads no images/);
  await assert.rejects(client.chat({ ...settings, messages: [{ role: 'user', content: 'web server '.repeat(5000) }] }), /the context holds 4096/);
});
