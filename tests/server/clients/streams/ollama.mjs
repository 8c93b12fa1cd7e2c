// The lines of /api/chat and /api/generate, one by one.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startScripted } from '../support/server.mjs';
import { ask, lines } from '../support/streams.mjs';
import { call, cityTool, thought } from '../support/script.mjs';
import { count, joined, like, listOf, number, sameShape, text } from '../support/shapes.mjs';

const server = await startScripted([
  { when: 'Think and answer', say: [thought('Need no tool.'), 'It is 21 degrees.'] },
  { when: 'Call two', say: ['Looking.', call('weather', { city: 'Paris', days: [1, 2.5], b: true }), call('time', { city: 'Rome' })] },
  { when: 'Fail', say: 'Half of an', then: 'non_finite', token_ms: 30 },
  { when: 'Count', say: 'one two three four five six seven' },
  { when: 'Be slow', say: 'a b', token_ms: 500 },
], '--sse-ping-interval', '0.2');
after(() => server.close());
const chat = `${server.url}/api/chat`, generate = `${server.url}/api/generate`;
const asking = (content, more = {}) => ({ model: 'gemma:latest', messages: [{ role: 'user', content }], ...more });

const head = { model: 'gemma:latest', created_at: like(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z$/) };
const message = (content, more = {}) => ({ ...head, message: { role: 'assistant', content, ...more } });
const figures = {
  total_duration: count, load_duration: 0, prompt_eval_count: count, prompt_eval_duration: count, eval_count: count,
  eval_duration: count,
};
const piece = (content, more) => ({ ...message(content, more), done: false });
const end = (done_reason = 'stop') => ({ ...message(''), done: true, done_reason, ...figures });
const calls = (...list) =>
  list.map(([index, name, args]) => ({ id: like(/^call_\w{24}$/), function: { index, name, arguments: args } }));

async function stream(url, body) {
  const list = await lines(url, body);
  const texts = (line) => (line.message ? line.message : line);
  const kind = (line) =>
    line.done || line.error || texts(line).tool_calls ? null : texts(line).thinking ? 'thinking' : line.message ? 'content' : 'response';
  return joined(list, (a, b) => kind(a) && kind(a) === kind(b), (a, b) => {
    texts(a)[kind(a)] += texts(b)[kind(b)];
    a.logprobs?.push(...b.logprobs);
  });
}

test('streams by itself: a thought, the answer, the figures', async () => {
  const list = await stream(chat, asking('Think and answer', { think: true }));
  sameShape(list, [piece('', { thinking: 'Need no tool.' }), piece('It is 21 degrees.'), end()]);
  assert.ok(list[2].prompt_eval_count > 5 && list[2].eval_count > 5 && list[2].total_duration > 0);
});

test('calls come whole, arguments as objects in the order of the model', async () => {
  sameShape(await stream(chat, asking('Call two', { tools: [cityTool('weather'), cityTool('time')] })), [
    piece('Looking.'),
    piece('', { tool_calls: calls([0, 'weather', { city: 'Paris', days: [1, 2.5], b: true }]) }),
    piece('', { tool_calls: calls([1, 'time', { city: 'Rome' }]) }),
    end(),
  ]);
});

test('an answer of one piece', async () => {
  const { body, headers } = await ask(chat, asking('Call two', { tools: [cityTool('weather'), cityTool('time')], stream: false }));
  assert.equal(headers.get('content-type'), 'application/json');
  sameShape(body, {
    ...message('Looking.', { tool_calls: calls([0, 'weather', { city: 'Paris', days: [1, 2.5], b: true }], [1, 'time', { city: 'Rome' }]) }),
    done: true, done_reason: 'stop', ...figures,
  });
});

test('generate', async () => {
  const said = (response, more = {}) => ({ ...head, response, ...more, done: false });
  sameShape(await stream(generate, { model: 'gemma:latest', prompt: 'Think and answer', think: true }), [
    said('', { thinking: 'Need no tool.' }), said('It is 21 degrees.'),
    { ...head, response: '', done: true, done_reason: 'stop', ...figures },
  ]);
});

test('log-probabilities', async () => {
  const token = { token: text, logprob: number, bytes: listOf(count) };
  const list = await stream(chat, asking('Count', { logprobs: true, top_logprobs: 1 }));
  sameShape(list, [{ ...message('one two three four five six seven'),
    logprobs: listOf({ ...token, top_logprobs: [token] }), done: false }, end()]);
  assert.equal(Buffer.from(list[0].logprobs.flatMap((entry) => entry.bytes)).toString(), list[0].message.content);
});

test('what ended the answer', async () => {
  sameShape((await stream(chat, asking('Count', { options: { num_predict: 3 } }))).at(-1), end('length'));
  sameShape(await stream(chat, asking('Count', { options: { stop: [' four'] } })), [piece('one two three'), end('stop')]);
});

test('a stream that fails says so in a line and ends', async () => {
  sameShape(await stream(chat, asking('Fail')), [piece('Half of an'), { error: like(/infinite logits$/) }]);
});

test('a slow stream is kept alive by lines that say nothing', async () => {
  const list = await lines(chat, asking('Be slow'));
  const empty = list.filter((line) => !line.done && line.message.content === '');
  assert.ok(empty.length >= 2, JSON.stringify(list));
  empty.forEach((line) => sameShape(line, piece('')));
});

test('nothing to answer loads and unloads', async () => {
  const idle = (reason) => ({ ...message(''), done: true, done_reason: reason });
  sameShape((await ask(chat, { model: 'gemma:latest', messages: [] })).body, idle('load'));
  sameShape((await ask(chat, { model: 'gemma:latest', messages: [], keep_alive: 0 })).body, idle('unload'));
});
