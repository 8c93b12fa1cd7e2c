// What a client sees of a stream before its first token: while another request has the only place, and while a long
// prompt is read.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startScripted, until } from '../support/server.mjs';
import { events, lines, parseEvents, post } from '../support/streams.mjs';
import { count, number, sameShape } from '../support/shapes.mjs';

const server = await startScripted({ prompt_row_ms: 2, rules: [{ say: 'Done.' }] }, '-np', '1', '-ub', '64', '--sse-ping-interval', '0.1');
after(() => server.close());
const long = (name) => `${name}: ${'a long question that takes time to read. '.repeat(32)}`;
const chat = (name, more = {}) => ({ model: 'gemma', messages: [{ role: 'user', content: long(name) }], stream: true, cache_prompt: false, ...more });
const url = `${server.url}/v1/chat/completions`;

// A request that has the only place.
async function occupy() {
  const response = post(url, chat('first'));
  await until(async () => (await server.metric('carat_requests_running')) === 1, 'it runs');
  return { text: async () => (await response).text() };
}

test('progress: how much of the prompt was read, more each time', async () => {
  const list = await events(url, chat('progress', { return_progress: true, sse_ping_interval: -1 }));
  const progress = list.filter((event) => event.data.prompt_progress);
  assert.ok(progress.length >= 2, JSON.stringify(list));
  const { prompt_tokens } = list.at(-2).data.usage;
  let before = -1;
  for (const { data } of progress) {
    assert.deepEqual(data.choices, []);
    sameShape(data.prompt_progress, { total: prompt_tokens, cache: 0, processed: count, time_ms: number });
    assert.ok(data.prompt_progress.processed > before && data.prompt_progress.processed < prompt_tokens);
    before = data.prompt_progress.processed;
  }
  assert.deepEqual(list[0].data.choices[0].delta, { role: 'assistant', content: '' });
  assert.ok(list.indexOf(progress.at(-1)) < list.findIndex((event) => event.data.choices?.[0]?.delta.content));
});

test('comments keep a stream alive while its prompt is read', async () => {
  const list = await events(url, chat('comments'));
  assert.ok(list.filter((event) => event.comment === 'keep-alive').length >= 2, JSON.stringify(list));
  assert.ok(list.filter((event) => event.comment).every((event) => event.comment === 'keep-alive'));
  const quiet = await events(url, chat('quiet', { sse_ping_interval: -1 }));
  assert.ok(!quiet.some((event) => event.comment));
});

test('a stream that waits for its place has its headers and is kept alive; then its own beginning comes', async () => {
  const first = await occupy();
  let isOver = false;
  const end = first.text().then(() => (isOver = true));
  const response = await post(url, chat('second'));
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = decoder.decode((await reader.read()).value);
  assert.equal(text.split('\n\n')[0], ': keep-alive');
  assert.ok(!isOver, 'it still waits');
  for (let piece; !(piece = await reader.read()).done; ) text += decoder.decode(piece.value);
  const list = parseEvents(text).filter((event) => !event.comment);
  assert.equal(list[0].data.choices[0].delta.role, 'assistant');
  assert.equal(list.at(-1).data, '[DONE]');
  await end;
});

test('pings of Anthropic’s stream come before its message as well', async () => {
  const first = await occupy();
  const body = { model: 'gemma', max_tokens: 20, stream: true, messages: [{ role: 'user', content: 'Hi' }] };
  const list = await events(`${server.url}/v1/messages`, body);
  assert.equal(list[0].event, 'ping');
  assert.equal(list.find((event) => event.event !== 'ping').event, 'message_start');
  await first.text();
});

test('Ollama’s lines that say nothing do, too', async () => {
  const first = await occupy();
  const list = await lines(`${server.url}/api/chat`, { model: 'gemma', messages: [{ role: 'user', content: 'Hi' }] });
  assert.deepEqual([list[0].message.content, list[0].done], ['', false]);
  assert.equal(list.map((line) => line.message.content).join(''), 'Done.');
  await first.text();
});
