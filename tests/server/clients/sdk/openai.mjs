// The package `openai` and carat with its demo model.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import OpenAI from 'openai';
import { zodResponseFormat, zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { startCarat } from '../support/server.mjs';
import { cityTool, flatTool } from '../support/script.mjs';

const server = await startCarat('--temp', '0', '-c', '4096', '--store-responses', '4');
after(() => server.close());
const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none' });
const question = [{ role: 'user', content: 'What is nginx?' }];
const chat = (more) => client.chat.completions.create({ model: 'gpt-4o', messages: question, max_tokens: 40, ...more });
const answer = (await chat()).choices[0].message.content;

test('a plain answer, the same streamed', async () => {
  assert.match(answer, /server/i);
  const stream = client.chat.completions.stream({ model: 'gpt-4o', messages: question, max_tokens: 40 });
  let said = '';
  stream.on('content', (delta) => (said += delta));
  const whole = await stream.finalChatCompletion();
  assert.equal(said, answer);
  assert.equal(whole.choices[0].message.content, answer);
  assert.equal(whole.model, 'gpt-4o');
});

test('usage of a stream, asked for and not, and cached tokens', async () => {
  const messages = [{ role: 'user', content: 'nginx is a web server. '.repeat(20) }];
  const known = (more) => chat({ messages, max_tokens: 4, ...more });
  await known();
  const usages = async (more) => {
    const list = [];
    for await (const chunk of await known({ stream: true, ...more })) if (chunk.usage) list.push([chunk.choices.length, chunk.usage]);
    return list;
  };
  const [[choices, usage], ...rest] = await usages({ stream_options: { include_usage: true } });
  assert.deepEqual([choices, rest], [0, []]);
  assert.equal((await usages({}))[0][0], 1);
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
  assert.equal(usage.prompt_tokens_details.cached_tokens, usage.prompt_tokens - 1);
  const salted = await known({ cache_salt: 'a tenant' });
  assert.equal(salted.usage.prompt_tokens_details.cached_tokens, 0);
  assert.equal((await known({ cache_prompt: false })).usage.prompt_tokens_details.cached_tokens, 0);
});

test('several answers; the first is that of one alone with the same seed', async () => {
  const drawn = { temperature: 1.5, top_p: 1, top_k: 0, seed: 7, max_tokens: 12 };
  const three = await chat({ n: 3, ...drawn });
  assert.deepEqual(three.choices.map((choice) => choice.index), [0, 1, 2]);
  assert.equal(new Set(three.choices.map((choice) => choice.message.content)).size, 3);
  const alone = await chat(drawn);
  assert.equal(alone.choices[0].message.content, three.choices[0].message.content);
  assert.equal((await chat({ ...drawn, seed: 8 })).choices[0].message.content, three.choices[1].message.content);
  assert.equal(alone.system_fingerprint, three.system_fingerprint);
});

test('stop strings end the answer before them', async () => {
  const stop = answer.split(' ')[3];
  const { choices: [choice] } = await chat({ stop: [stop] });
  assert.equal(choice.message.content, answer.slice(0, answer.indexOf(stop)));
  assert.equal(choice.finish_reason, 'stop');
});

test('lengths', async () => {
  const { choices: [choice], usage } = await chat({ max_tokens: undefined, max_completion_tokens: 5 });
  assert.equal(choice.finish_reason, 'length');
  assert.equal(usage.completion_tokens, 5);
  assert.equal((await chat({ max_tokens: 0 })).usage.completion_tokens, 0);
});

test('log-probabilities are logarithms of probabilities, the chosen token among the best', async () => {
  const { choices: [{ message, logprobs }] } = await chat({ logprobs: true, top_logprobs: 20, max_tokens: 10 });
  assert.equal(logprobs.content.map((entry) => entry.token).join(''), message.content);
  for (const entry of logprobs.content) {
    assert.ok(entry.logprob <= 0);
    assert.equal(entry.top_logprobs[0].token, entry.token);
    assert.equal(entry.top_logprobs[0].logprob, entry.logprob);
    const mass = entry.top_logprobs.reduce((sum, top) => sum + Math.exp(top.logprob), 0);
    assert.ok(mass > 0.2 && mass <= 1 + 1e-6, `${mass}`);
  }
});

test('logit_bias bans and forces tokens', async () => {
  const first = (await chat({ max_tokens: 1, return_token_ids: true })).choices[0];
  const banned = await chat({ max_tokens: 1, logit_bias: { [first.token_ids[0]]: -100 } });
  assert.notEqual(banned.choices[0].message.content, first.message.content);
  const forced = await chat({ max_tokens: 2, logit_bias: { [first.token_ids[0]]: 100 } });
  assert.equal(forced.choices[0].message.content.trim(), first.message.content.repeat(2).trim());
});

test('structured output', async () => {
  const Server = z.object({ name: z.string().max(20), port: z.number().int().min(1).max(9), open: z.boolean(), kind: z.enum(['web', 'mail']) });
  const parsed = await client.chat.completions.parse({ model: 'gemma', messages: question, response_format: zodResponseFormat(Server, 'server') });
  Server.parse(parsed.choices[0].message.parsed);
  const anything = await chat({ response_format: { type: 'json_object' }, max_tokens: 300 });
  if (anything.choices[0].finish_reason === 'stop') assert.equal(typeof JSON.parse(anything.choices[0].message.content), 'object');
  const response = await client.responses.parse({ model: 'gemma', input: 'What is nginx?', text: { format: zodTextFormat(Server, 'server') } });
  Server.parse(response.output_parsed);
  const choice = await chat({ structured_outputs: { choice: ['a web server', 'a mail server'] } });
  assert.match(choice.choices[0].message.content, /^a (web|mail) server$/);
});

test('structured output after thoughts', async () => {
  const schema = { type: 'object', properties: { port: { type: 'integer', minimum: 1, maximum: 99 } }, required: ['port'], additionalProperties: false };
  const { choices: [{ message }], usage } = await chat({
    max_tokens: 400, reasoning_effort: 'low', thinking_token_budget: 16, response_format: { type: 'json_schema', json_schema: { name: 'port', schema } },
  });
  assert.match(message.content, /^\{"port": ?\d{1,2}\}$/);
  assert.ok(usage.completion_tokens_details.reasoning_tokens <= 32);
});

test('forced calls', async () => {
  const tools = [cityTool('weather'), cityTool('time')];
  const called = async (tool_choice, more) => (await chat({ tools, tool_choice, max_tokens: 400, ...more })).choices[0];
  for (const [tool_choice, names] of [
    ['required', ['weather', 'time']],
    [{ type: 'function', function: { name: 'time' } }, ['time']],
    [{ type: 'allowed_tools', allowed_tools: { mode: 'required', tools: [{ type: 'function', function: { name: 'weather' } }] } }, ['weather']],
  ]) {
    const { message, finish_reason } = await called(tool_choice, { parallel_tool_calls: false });
    assert.equal(finish_reason, 'tool_calls');
    assert.equal(message.content, null);
    assert.equal(message.tool_calls.length, 1);
    assert.ok(names.includes(message.tool_calls[0].function.name));
    assert.equal(typeof JSON.parse(message.tool_calls[0].function.arguments).city, 'string');
  }
  const none = await called('none', { max_tokens: 40 });
  assert.equal(none.message.tool_calls, undefined);
  assert.equal(none.finish_reason === 'stop' || none.finish_reason === 'length', true);
});

test('the SDK’s own loop of tools', async () => {
  let asked = 0;
  const runner = client.chat.completions.runTools({
    model: 'gemma', messages: question, max_tokens: 200, parallel_tool_calls: false,
    tool_choice: { type: 'function', function: { name: 'weather' } },
    tools: [{ type: 'function', function: { ...cityTool('weather').function, parse: JSON.parse, function: ({ city }) => (++asked, `21 degrees in ${city}`) } }],
  });
  const last = await runner.finalChatCompletion();
  assert.equal(asked, 1);
  assert.equal(last.choices[0].message.role, 'assistant');
});

test('responses: plain, streamed, continued, with a forced call', async () => {
  const settings = { model: 'gemma', max_output_tokens: 40 };
  const plain = await client.responses.create({ ...settings, input: 'What is nginx?' });
  assert.equal(plain.output_text, answer);
  const stream = client.responses.stream({ ...settings, input: 'What is nginx?' });
  assert.equal((await stream.finalResponse()).output_text, answer);
  const next = await client.responses.create({ ...settings, previous_response_id: plain.id, input: 'And apache?' });
  assert.ok(next.usage.input_tokens > plain.usage.input_tokens + plain.usage.output_tokens);
  const { output: [item] } = await client.responses.create({
    model: 'gemma', input: 'Go', tools: [flatTool('weather')], tool_choice: { type: 'function', name: 'weather' }, max_output_tokens: 300 });
  assert.equal(item.type, 'function_call');
  assert.equal(typeof JSON.parse(item.arguments).city, 'string');
});

test('completions', async () => {
  const { choices } = await client.completions.create({ model: 'gemma', prompt: ['nginx is', 'A web server'], n: 2, max_tokens: 5, logprobs: 1 });
  assert.deepEqual(choices.map((choice) => choice.index), [0, 1, 2, 3]);
  assert.equal(choices[0].text, choices[1].text);
  let said = '';
  for await (const { choices: [choice] } of await client.completions.create({ model: 'gemma', prompt: 'nginx is', max_tokens: 5, stream: true })) said += choice?.text ?? '';
  assert.equal(said, choices[0].text);
});

test('models', async () => {
  const [model, ...others] = (await client.models.list()).data;
  assert.deepEqual([model.id, others.length, model.max_model_len], ['demo-e-q8_0', 0, 4096]);
  assert.equal((await client.models.retrieve(model.id)).id, model.id);
  await assert.rejects(client.models.retrieve('another'), OpenAI.NotFoundError);
});

test('how many tokens a prompt has', async () => {
  const { usage } = await chat({ max_tokens: 1 });
  const body = { model: 'gemma', messages: question };
  assert.equal((await client.post('/chat/completions/input_tokens', { body })).input_tokens, usage.prompt_tokens);
  assert.equal((await client.responses.inputTokens.count({ model: 'gemma', input: 'What is nginx?' })).input_tokens, usage.prompt_tokens);
});

test('errors are those of the SDK, and name the field', async () => {
  const problem = (more) => chat(more).then(() => assert.fail('no error'), (error) => error);
  for (const [more, param, words] of [
    [{ messages: [] }, 'messages', /empty/],
    [{ temperature: 3 }, 'temperature', /from 0 to 2/],
    [{ n: 100 }, 'n', /--max-n/],
    [{ messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:' } }] }] }, 'messages[0].content[0]', /reads no images/],
    [{ response_format: { type: 'json_schema', json_schema: { name: 'a', schema: { type: 'unknown' } } } }, 'response_format.json_schema.schema', /type/],
    [{ tool_choice: 'required' }, 'tool_choice', /no tools/],
    [{ logit_bias: { 99999999: 1 } }, 'logit_bias', /ids go from 0/],
  ]) {
    const error = await problem(more);
    assert.ok(error instanceof OpenAI.BadRequestError, `${error}`);
    assert.equal(error.type, 'invalid_request_error');
    assert.equal(error.param, param);
    assert.match(error.message, words);
    assert.ok(error.requestID);
  }
  const long = await problem({ messages: [{ role: 'user', content: 'web server '.repeat(5000) }] });
  assert.equal(long.code, 'context_length_exceeded');
  assert.ok(long.error.n_prompt_tokens > long.error.n_ctx);
  await assert.rejects(client.embeddings.create({ model: 'gemma', input: 'a' }), (error) => error.status === 501 && /embedding/.test(error.message));
  await assert.rejects(client.files.list(), OpenAI.NotFoundError);
});
