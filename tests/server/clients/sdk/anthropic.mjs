// The package `@anthropic-ai/sdk` and carat with its demo model.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { startCarat } from '../support/server.mjs';
import { ask } from '../support/streams.mjs';
import { anthropicTool } from '../support/script.mjs';

const server = await startCarat('--temp', '0', '-c', '4096');
after(() => server.close());
const client = new Anthropic({ baseURL: server.url, authToken: 'none' });
const question = [{ role: 'user', content: 'What is nginx?' }];
const settings = { model: 'claude-opus-4-8', max_tokens: 40, messages: question };
const create = (more, options) => client.messages.create({ ...settings, ...more }, options);
const answer = (await create()).content[0].text;

test('a plain answer, the same streamed', async () => {
  assert.match(answer, /server/i);
  const stream = client.messages.stream(settings);
  let said = '';
  stream.on('text', (delta) => (said += delta));
  const whole = await stream.finalMessage();
  assert.equal(said, answer);
  assert.equal(whole.content[0].text, answer);
  assert.equal(whole.model, settings.model);
  assert.equal(whole.usage.output_tokens, (await create()).usage.output_tokens);
});

test('system texts, as a field and in the middle', async () => {
  const used = async (more) => {
    const { usage } = await create(more);
    return usage.input_tokens + usage.cache_read_input_tokens;
  };
  const plain = await used({});
  assert.ok((await used({ system: 'Be brief.' })) > plain);
  assert.ok((await used({ system: [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } }] })) > plain);
  assert.ok((await used({ messages: [...question, { role: 'system', content: 'Be brief.' }] })) > plain);
});

test('an answer that is continued, as if the model had begun it', async () => {
  const messages = [...question, { role: 'assistant', content: 'It is' }];
  const { content: [block], usage } = await create({ messages, max_tokens: 12 });
  const { body: { prompt } } = await ask(`${server.url}/apply-template`, { messages: question });
  const raw = await ask(`${server.url}/completion`, { prompt: `${prompt}It is`, n_predict: 12 });
  assert.equal(block.text, raw.body.content.trimStart());
  const counted = await client.messages.countTokens({ model: 'gemma', messages });
  assert.equal(usage.input_tokens + usage.cache_read_input_tokens, counted.input_tokens);
});

test('stop sequences and lengths', async () => {
  const stop = answer.split(' ')[3];
  const stopped = await create({ stop_sequences: [stop] });
  assert.deepEqual([stopped.stop_reason, stopped.stop_sequence], ['stop_sequence', stop]);
  assert.equal(stopped.content[0].text, answer.slice(0, answer.indexOf(stop)));
  const cut = await create({ max_tokens: 5 });
  assert.deepEqual([cut.stop_reason, cut.usage.output_tokens], ['max_tokens', 5]);
});

test('forced calls', async () => {
  const tools = [anthropicTool('weather'), anthropicTool('time')];
  const called = (tool_choice) => create({ tools, tool_choice: { ...tool_choice, disable_parallel_tool_use: true }, max_tokens: 400 });
  for (const [tool_choice, names] of [[{ type: 'any' }, ['weather', 'time']], [{ type: 'tool', name: 'time' }, ['time']]]) {
    const { content, stop_reason } = await called(tool_choice);
    assert.equal(stop_reason, 'tool_use');
    assert.equal(content.length, 1);
    assert.ok(names.includes(content[0].name));
    assert.equal(typeof content[0].input.city, 'string');
  }
  const none = await create({ tools, tool_choice: { type: 'none' } });
  assert.ok(none.content.every((block) => block.type === 'text'));
});

test('structured output, also after thoughts', async () => {
  const schema = { type: 'object', properties: { port: { type: 'integer', minimum: 1, maximum: 99 } }, required: ['port'], additionalProperties: false };
  for (const thinking of [{ type: 'disabled' }, { type: 'enabled', budget_tokens: 1024 }]) {
    const { content } = await create({ max_tokens: 2000, thinking, output_config: { format: { type: 'json_schema', schema } } });
    assert.match(content.at(-1).text, /^\{"port": ?\d{1,2}\}$/);
  }
});

test('cached tokens, and the count of a prompt', async () => {
  const messages = [{ role: 'user', content: 'nginx is a web server. '.repeat(20) }];
  const body = { messages, max_tokens: 4 };
  await create(body);
  const { usage } = await create(body);
  assert.equal(usage.input_tokens, 1, 'only the last token of a known prompt is read again');
  const counted = await client.messages.countTokens({ model: 'gemma', messages });
  assert.equal(counted.input_tokens, usage.input_tokens + usage.cache_read_input_tokens);
});

test('models', async () => {
  const models = [];
  for await (const model of client.models.list()) models.push(model);
  assert.deepEqual(models.map((model) => [model.id, model.type]), [['demo-e-q8_0', 'model']]);
  assert.ok(!Number.isNaN(Date.parse(models[0].created_at)));
  assert.equal((await client.models.retrieve('demo-e-q8_0')).id, 'demo-e-q8_0');
  await assert.rejects(client.models.retrieve('another'), Anthropic.NotFoundError);
});

test('errors are those of the SDK, and name the field', async () => {
  const problem = (more) => create(more).then(() => assert.fail('no error'), (error) => error);
  for (const [more, words] of [
    [{ messages: [] }, /messages is empty/],
    [{ temperature: 3 }, /temperature.*from 0 to 1/],
    [{ messages: [{ role: 'user', content: [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: '' } }] }] }, /messages\[0\]\.content\[0\].*reads no images/],
    [{ thinking: { type: 'enabled', budget_tokens: 2000 } }, /less than max_tokens/],
    [{ tool_choice: { type: 'any' } }, /no tools/],
  ]) {
    const error = await problem(more);
    assert.ok(error instanceof Anthropic.BadRequestError, `${error}`);
    assert.equal(error.error.error.type, 'invalid_request_error');
    assert.match(error.error.error.message, words);
    assert.equal(error.requestID, error.error.request_id);
  }
  const long = await problem({ messages: [{ role: 'user', content: 'web server '.repeat(5000) }] });
  assert.match(long.error.error.message, /^prompt is too long: \d+ tokens > 4096 maximum$/);
});
