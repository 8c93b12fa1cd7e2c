// The events of /v1/messages, one by one.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startScripted } from '../support/server.mjs';
import { ask, events } from '../support/streams.mjs';
import { anthropicTool, call, thought } from '../support/script.mjs';
import { count, joined, like, sameShape, text } from '../support/shapes.mjs';

const server = await startScripted([
  { when: 'Think and answer', say: [thought('Need no tool.'), 'It is 21 degrees.'] },
  { when: 'Call two', say: [thought('Both.'), 'Looking.', call('weather', { city: 'Paris' }), call('time', {})] },
  { when: 'Call badly', say: ['Well: ', '<|tool_call>call weather Paris<tool_call|>'] },
  { when: 'Fail', say: 'Half of an', then: 'non_finite', token_ms: 30 },
  { when: 'Count', say: 'one two three four five six seven' },
  { when: 'Nothing', say: '' },
  { when: 'Be slow', say: 'a b', token_ms: 500 },
], '--sse-ping-interval', '0.2');
after(() => server.close());
const url = `${server.url}/v1/messages`;
const asking = (content, more = {}) => ({ model: 'gemma', max_tokens: 500, messages: [{ role: 'user', content }], ...more });
const thinking = { thinking: { type: 'adaptive' } };

const usage = { input_tokens: count, cache_creation_input_tokens: 0, cache_read_input_tokens: count, output_tokens: count };
const id = like(/^msg_\w{24}$/);
const event = (type, data = {}) => ({ event: type, data: { type, ...data } });
const start = event('message_start', {
  message: { id, type: 'message', role: 'assistant', model: 'gemma', content: [], stop_reason: null, stop_sequence: null, usage },
});
const open = (index, content_block) => event('content_block_start', { index, content_block });
const delta = (index, type, more) => event('content_block_delta', { index, delta: { type, ...more } });
const close = (index) => event('content_block_stop', { index });
const end = (stop_reason, stop_sequence = null) => [
  event('message_delta', { delta: { stop_reason, stop_sequence }, usage }),
  event('message_stop'),
];
const thought_block = (index, thinking) => [
  open(index, { type: 'thinking', thinking: '', signature: '' }),
  ...(thinking ? [delta(index, 'thinking_delta', { thinking })] : []),
  delta(index, 'signature_delta', { signature: '' }),
  close(index),
];
const text_block = (index, text) => [
  open(index, { type: 'text', text: '' }), delta(index, 'text_delta', { text }), close(index),
];
const call_block = (index, name, partial_json) => [
  open(index, { type: 'tool_use', id: like(/^toolu_\w{24}$/), name, input: {} }),
  delta(index, 'input_json_delta', { partial_json }),
  close(index),
];

async function stream(body, keepPings = false) {
  const list = (await events(url, { ...body, stream: true })).filter(({ event }) => keepPings || event !== 'ping');
  const grows = (a, b) => a.event === 'content_block_delta' && b.event === a.event && b.data.delta.type === a.data.delta.type;
  return joined(list, grows, (a, b) => {
    for (const key of ['text', 'thinking']) if (key in a.data.delta) a.data.delta[key] += b.data.delta[key];
  });
}

test('a thought, then the answer', async () => {
  const list = await stream(asking('Think and answer', thinking));
  sameShape(list, [start, ...thought_block(0, 'Need no tool.'), ...text_block(1, 'It is 21 degrees.'), ...end('end_turn')]);
  const before = list[0].data.message.usage, after = list.at(-2).data.usage;
  assert.equal(before.output_tokens, 0);
  assert.equal(before.input_tokens, after.input_tokens);
  assert.ok(after.output_tokens > 5);
});

test('a thought that is not to be shown leaves an empty block', async () => {
  sameShape(await stream(asking('Think and answer', { thinking: { type: 'adaptive', display: 'omitted' } })),
            [start, ...thought_block(0, ''), ...text_block(1, 'It is 21 degrees.'), ...end('end_turn')]);
});

test('blocks do not overlap: thought, text, two calls', async () => {
  sameShape(await stream(asking('Call two', { ...thinking, tools: [anthropicTool('weather'), anthropicTool('time')] })), [
    start, ...thought_block(0, 'Both.'), ...text_block(1, 'Looking.'),
    ...call_block(2, 'weather', '{"city":"Paris"}'), ...call_block(3, 'time', '{}'), ...end('tool_use'),
  ]);
});

test('one call where parallel ones are switched off', async () => {
  const list = await stream(asking('Call two', {
    tools: [anthropicTool('weather'), anthropicTool('time')], tool_choice: { type: 'auto', disable_parallel_tool_use: true },
  }));
  assert.equal(list.filter((e) => e.data.content_block?.type === 'tool_use').length, 1);
});

test('a call that cannot be read is text', async () => {
  sameShape(await stream(asking('Call badly', { tools: [anthropicTool('weather')] })),
            [start, ...text_block(0, 'Well: call weather Paris'), ...end('end_turn')]);
});

test('what ended the answer', async () => {
  sameShape((await stream(asking('Count', { stop_sequences: [' five'] }))).slice(-2), end('stop_sequence', ' five'));
  sameShape((await stream(asking('Count', { max_tokens: 3 }))).slice(-2), end('max_tokens'));
});

test('an answer of nothing has no blocks', async () => {
  sameShape(await stream(asking('Nothing')), [start, ...end('end_turn')]);
});

test('a stream that fails says so and ends without message_stop', async () => {
  sameShape(await stream(asking('Fail')), [
    start, open(0, { type: 'text', text: '' }), delta(0, 'text_delta', { text: 'Half of an' }),
    event('error', { error: { type: 'api_error', message: like(/infinite logits$/) }, request_id: text }),
  ]);
});

test('pings keep a slow stream alive', async () => {
  const list = await stream(asking('Be slow'), true);
  const pings = list.filter((e) => e.event === 'ping');
  assert.ok(pings.length >= 2, JSON.stringify(list));
  pings.forEach((ping) => sameShape(ping, event('ping')));
  assert.equal(list.at(-1).event, 'message_stop');
});

test('a whole answer has the same blocks', async () => {
  const { body, headers } = await ask(url, asking('Call two', { ...thinking, tools: [anthropicTool('weather'), anthropicTool('time')] }));
  sameShape(body, {
    id, type: 'message', role: 'assistant', model: 'gemma',
    content: [
      { type: 'thinking', thinking: 'Both.', signature: '' },
      { type: 'text', text: 'Looking.' },
      { type: 'tool_use', id: like(/^toolu_/), name: 'weather', input: { city: 'Paris' } },
      { type: 'tool_use', id: like(/^toolu_/), name: 'time', input: {} },
    ],
    stop_reason: 'tool_use', stop_sequence: null, usage,
  });
  assert.match(headers.get('request-id'), /^\S+$/);
});

test('cached tokens are not part of input_tokens', async () => {
  const body = asking(`Think and answer. ${'A long question. '.repeat(40)}`);
  const first = (await ask(url, body)).body.usage, second = (await ask(url, body)).body.usage;
  assert.equal(first.input_tokens + first.cache_read_input_tokens, second.input_tokens + second.cache_read_input_tokens);
  assert.equal(second.input_tokens, 1, 'the same prompt again: its last token alone is read');
  const counted = (await ask(`${url}/count_tokens`, { ...body, max_tokens: undefined })).body;
  sameShape(counted, { input_tokens: second.input_tokens + second.cache_read_input_tokens });
});
