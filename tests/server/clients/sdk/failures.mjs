// Answers that fail, and servers that are full: what the clients make of them.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import Anthropic from '@anthropic-ai/sdk';
import { ChatOpenAI } from '@langchain/openai';
import { streamText } from 'ai';
import { Ollama } from 'ollama';
import OpenAI from 'openai';
import { startScripted, until } from '../support/server.mjs';

const server = await startScripted([
  { when: 'Fail', say: 'Half of an', then: 'non_finite', token_ms: 30 },
  { when: 'Break', say: 'Half of an', then: 'fail', token_ms: 30 },
  { when: 'Slowly', say: { repeat: ' word', times: 60 }, token_ms: 20 },
  { say: 'Fine.' },
], '-np', '1', '--max-queue', '1', '--no-loop-guard', '--lookup', 'off');
after(() => server.close());
const api = { baseURL: `${server.url}/v1`, apiKey: 'none' };
const openai = new OpenAI(api), anthropic = new Anthropic({ baseURL: server.url, authToken: 'none' });
const ollama = new Ollama({ host: server.url });
const asking = (content) => ({ model: 'gemma', messages: [{ role: 'user', content }] });
const claude = (content) => ({ ...asking(content), max_tokens: 100 });
// A request is counted right after its answer was sent, so the count may be late by a moment.
async function failed() {
  const count = () => server.metric('carat_requests_total', 'status="500"');
  for (let last = await count(); ; ) {
    await new Promise((resolve) => setTimeout(resolve, 150));
    const now = await count();
    if (now === last) return now;
    last = now;
  }
}

async function said(stream, text) {
  let whole = '';
  const error = await (async () => {
    for await (const part of stream) whole += text(part) ?? '';
  })().then(() => assert.fail('the stream ended as if it were whole'), (thrown) => thrown);
  assert.equal(whole, 'Half of an');
  return error;
}

test('a stream that fails: what came before, then an error', async () => {
  const chat = await said(await openai.chat.completions.create({ ...asking('Fail'), stream: true }), (chunk) => chunk.choices[0]?.delta.content);
  assert.ok(chat instanceof OpenAI.APIError && /infinite logits/.test(chat.message), `${chat}`);
  const message = await said(anthropic.messages.stream(claude('Fail')), (event) => event.delta?.text);
  assert.ok(message instanceof Anthropic.APIError && /infinite logits/.test(message.message), `${message}`);
  const line = await said(await ollama.chat({ ...asking('Fail'), stream: true }), (part) => part.message.content);
  assert.match(line.message, /infinite logits/);
  const response = await openai.responses.stream({ model: 'gemma', input: 'Fail' }).finalResponse();
  assert.deepEqual([response.status, response.error.code], ['failed', 'server_error']);
  const langchain = new ChatOpenAI({ model: 'gemma', apiKey: 'none', maxRetries: 0, configuration: { baseURL: api.baseURL } });
  assert.match((await said(await langchain.stream('Fail'), (chunk) => chunk.text)).message, /infinite logits/);
  assert.match(server.log, /request \S+: the model produced NaN or infinite logits: the file/, 'the log names the file');
});

for (const [name, model] of Object.entries({
  'openai-compatible': createOpenAICompatible({ name: 'carat', ...api })('gemma'),
  anthropic: createAnthropic(api)('gemma'),
  'openai (responses)': createOpenAI(api).responses('gemma'),
})) {
  test(`AI SDK, ${name}: an error part`, async () => {
    const parts = [];
    for await (const part of streamText({ model, prompt: 'Fail', maxRetries: 0, onError() {} }).fullStream) parts.push(part);
    assert.equal(parts.filter((part) => part.type === 'text-delta').map((part) => part.text).join(''), 'Half of an');
    const error = parts.find((part) => part.type === 'error');
    assert.ok(error, JSON.stringify(parts));
    assert.notEqual(parts.find((part) => part.type === 'finish')?.finishReason, 'stop');
  });
}

test('what would fail again is not tried again; what may work is', async () => {
  for (const [content, attempts] of [['Fail', 1], ['Break', 3]]) {
    let before = await failed();
    await assert.rejects(openai.chat.completions.create(asking(content)), OpenAI.InternalServerError);
    assert.equal((await failed()) - before, attempts, content);
    before = await failed();
    await assert.rejects(anthropic.messages.create(claude(content)), (error) => error.error.error.type === 'api_error');
    assert.equal((await failed()) - before, attempts, content);
  }
  assert.equal((await openai.chat.completions.create(asking('Hi'))).choices[0].message.content, 'Fine.');
});

test('a full server says when to come back, in each dialect, and is asked again then', async () => {
  const slow = async () => {
    for await (const _ of await openai.chat.completions.create({ ...asking('Slowly'), stream: true }));
  };
  const running = slow();
  await until(async () => (await server.metric('carat_requests_running')) === 1, 'one runs');
  const waiting = slow();
  await until(async () => (await server.metric('carat_requests_waiting')) === 1, 'one waits');

  const once = { maxRetries: 0 };
  const full = await openai.chat.completions.create(asking('Hi'), once).catch((error) => error);
  assert.ok(full instanceof OpenAI.RateLimitError, `${full}`);
  assert.deepEqual([full.code, full.type], ['queue_full', 'rate_limit_error']);
  assert.ok(Number(full.headers.get('retry-after')) >= 1);
  assert.ok(Number(full.headers.get('retry-after-ms')) >= 1000);
  const busy = await anthropic.messages.create(claude('Hi'), once).catch((error) => error);
  assert.ok(busy instanceof Anthropic.RateLimitError && busy.error.error.type === 'rate_limit_error', `${busy}`);
  await assert.rejects(ollama.chat(asking('Hi')), (error) => error.status_code === 503 && /server busy/.test(error.message));

  const patient = new OpenAI({ ...api, maxRetries: 8 });
  assert.equal((await patient.chat.completions.create(asking('Hi'))).choices[0].message.content, 'Fine.');
  await Promise.all([running, waiting]);
});
