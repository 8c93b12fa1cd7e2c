// The events of /v1/responses, one by one.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startScripted } from '../support/server.mjs';
import { ask, events } from '../support/streams.mjs';
import { call, flatTool, thought } from '../support/script.mjs';
import { count, joined, like, listOf, number, sameShape, text } from '../support/shapes.mjs';

const server = await startScripted([
  { when: 'Think and answer', say: [thought('Need no tool.'), 'It is 21 degrees.'] },
  { when: 'Call two', say: [thought('Both.'), 'Looking.', call('weather', { city: 'Paris' }), call('time', { city: 'Rome' })] },
  { when: 'Call the shell', say: call('shell', { input: 'ls -l' }) },
  { when: 'Call badly', say: ['Well: ', '<|tool_call>call weather Paris<tool_call|>'] },
  { when: 'Fail', say: 'Half of an', then: 'non_finite', token_ms: 30 },
  { when: 'Count', say: 'one two three four five six seven' },
  { when: 'Long', say: 'never said' },
], '-c', '700');
after(() => server.close());
const url = `${server.url}/v1/responses`;
const asking = (input, more = {}) => ({ model: 'gemma', input, ...more });

const usage = {
  input_tokens: count, input_tokens_details: { cached_tokens: count, cache_write_tokens: count },
  output_tokens: count, output_tokens_details: { reasoning_tokens: count }, total_tokens: count,
};
const response = (status, output, more = {}) => ({
  id: like(/^resp_\w{24}$/), object: 'response', created_at: count, status,
  completed_at: status === 'completed' ? count : null, error: null,
  incomplete_details: null, model: 'gemma', output,
  instructions: null, max_output_tokens: null, parallel_tool_calls: true, previous_response_id: null,
  reasoning: { effort: null, summary: null }, store: false, temperature: number, top_p: number, top_logprobs: 0,
  text: { format: { type: 'text' } }, tool_choice: 'auto', tools: [], truncation: 'disabled', background: false,
  metadata: {}, user: null, usage: status === 'in_progress' || status === 'failed' ? null : usage, ...more,
});

// Events with their numbers, which count from 0.
const numbered = (list) =>
  list.flat().map(({ type, ...data }, i) => ({ event: type, data: { type, sequence_number: i, ...data } }));

const itemId = (prefix) => like(new RegExp(`^${prefix}_\\w{24}_\\d+$`));
const begin = (more) => ['response.created', 'response.in_progress'].map((type) => ({ type, response: response('in_progress', [], more) }));
const reasoning = (output_index, said) => {
  const id = itemId('rs'), place = { item_id: id, output_index, content_index: 0 };
  const done = { type: 'reasoning', id, status: 'completed', summary: [], content: [{ type: 'reasoning_text', text: said }] };
  return { done, events: [
    { type: 'response.output_item.added', output_index, item: { ...done, status: 'in_progress', content: [] } },
    { type: 'response.content_part.added', ...place, part: { type: 'reasoning_text', text: '' } },
    { type: 'response.reasoning_text.delta', ...place, delta: said },
    { type: 'response.reasoning_text.done', ...place, text: said },
    { type: 'response.output_item.done', output_index, item: done },
  ] };
};
const message = (output_index, said, { status = 'completed', logprobs = [] } = {}) => {
  const id = itemId('msg'), place = { item_id: id, output_index, content_index: 0 };
  const part = { type: 'output_text', text: said, annotations: [], logprobs };
  const done = { type: 'message', id, status, role: 'assistant', content: [part] };
  return { done, events: [
    { type: 'response.output_item.added', output_index, item: { ...done, status: 'in_progress', content: [] } },
    { type: 'response.content_part.added', ...place, part: { ...part, text: '', logprobs: [] } },
    { type: 'response.output_text.delta', ...place, delta: said, logprobs },
    { type: 'response.output_text.done', ...place, text: said, logprobs },
    { type: 'response.content_part.done', ...place, part },
    { type: 'response.output_item.done', output_index, item: done },
  ] };
};
const made = (output_index, name, args, custom = false) => {
  const id = itemId(custom ? 'ctc' : 'fc'), place = { item_id: id, output_index };
  const key = custom ? 'input' : 'arguments';
  const event = custom ? 'response.custom_tool_call_input' : 'response.function_call_arguments';
  const item = { type: custom ? 'custom_tool_call' : 'function_call', id, call_id: like(/^call_\w{24}$/), name };
  const done = { ...item, [key]: args, status: 'completed' };
  return { done, events: [
    { type: 'response.output_item.added', output_index, item: { ...item, [key]: '', status: 'in_progress' } },
    { type: `${event}.delta`, ...place, delta: args },
    { type: `${event}.done`, ...place, [key]: args, name },
    { type: 'response.output_item.done', output_index, item: done },
  ] };
};
const whole = (items, more) => [begin(more), ...items.map((item) => item.events),
  { type: 'response.completed', response: response('completed', items.map((item) => item.done), more) }];

async function stream(body) {
  const list = await events(url, { ...body, stream: true });
  const ids = new Set(list.map((event) => event.data.response?.id).filter(Boolean));
  assert.equal(ids.size, 1);
  list.forEach((event, i) => assert.equal(event.data.sequence_number, i));
  const short = joined(list, (a, b) => a.event === b.event && a.event.endsWith('_text.delta'), (a, b) => {
    a.data.delta += b.data.delta;
    a.data.logprobs?.push(...b.data.logprobs);
  });
  short.forEach((event, i) => (event.data.sequence_number = i));
  return short;
}

test('a thought, then a message', async () => {
  const list = await stream(asking('Think and answer'));
  sameShape(list, numbered(whole([reasoning(0, 'Need no tool.'), message(1, 'It is 21 degrees.')])));
  const added = list.filter((event) => event.event === 'response.output_item.added').map((event) => event.data.item.id);
  assert.deepEqual(list.at(-1).data.response.output.map((item) => item.id), added);
  assert.ok(list.at(-1).data.response.usage.output_tokens_details.reasoning_tokens > 0);
});

test('a thought, a message and two calls; the request is repeated in the response', async () => {
  const tools = [flatTool('weather'), flatTool('time')];
  const more = { tools, instructions: 'Be brief.', metadata: { a: 'b' }, parallel_tool_calls: true, temperature: 0.5 };
  sameShape(await stream(asking('Call two', { ...more, store: false })), numbered(whole([
    reasoning(0, 'Both.'), message(1, 'Looking.'), made(2, 'weather', '{"city":"Paris"}'), made(3, 'time', '{"city":"Rome"}'),
  ], { tools, instructions: 'Be brief.', metadata: { a: 'b' }, temperature: 0.5 })));
});

test('a custom tool gets its text', async () => {
  const tools = [{ type: 'custom', name: 'shell', description: 'Runs a line' }];
  sameShape(await stream(asking('Call the shell', { tools })), numbered(whole([made(0, 'shell', 'ls -l', true)], { tools })));
});

test('log-probabilities', async () => {
  const token = { token: text, logprob: number, bytes: listOf(count) };
  const logprobs = listOf({ ...token, top_logprobs: [token] });
  sameShape(await stream(asking('Think and answer', { top_logprobs: 1, include: ['message.output_text.logprobs'] })),
            numbered(whole([reasoning(0, 'Need no tool.'), message(1, 'It is 21 degrees.', { logprobs })], { top_logprobs: 1 })));
});

test('encrypted thoughts are asked for and are empty', async () => {
  const list = await stream(asking('Think and answer', { include: ['reasoning.encrypted_content'] }));
  const done = list.find((event) => event.event === 'response.output_item.done');
  assert.equal(done.data.item.encrypted_content, '');
});

test('an answer that is cut is incomplete, and so is its message', async () => {
  const item = message(0, text, { status: 'incomplete' });
  const list = await stream(asking('Count', { max_output_tokens: 3 }));
  sameShape(list, numbered([begin({ max_output_tokens: 3 }), item.events, { type: 'response.incomplete',
    response: response('incomplete', [item.done], { max_output_tokens: 3, incomplete_details: { reason: 'max_output_tokens' } }) }]));
});

test('a call that cannot be read is text, and is told', async () => {
  const item = message(0, 'Well: call weather Paris');
  const list = await stream(asking('Call badly', { tools: [flatTool('weather')] }));
  assert.deepEqual(list.map((event) => event.event), numbered(whole([item])).map((event) => event.event));
  sameShape(list.at(-1).data.response.output, [item.done]);
  sameShape(list.at(-1).data.response.carat, { bad_tool_call: { text: 'call weather Paris', problem: text } });
});

test('a stream that fails says so and is never completed', async () => {
  const { events: [added, part, delta] } = message(0, 'Half of an');
  sameShape(await stream(asking('Fail')), numbered([begin(), added, part, delta, { type: 'response.failed',
    response: response('failed', [], { error: { code: 'server_error', message: like(/infinite logits$/) } }) }]));
});

test('a prompt that does not fit fails in the stream, in the words Codex knows', async () => {
  const long = 'Long. '.repeat(2000);
  sameShape(await stream(asking(long)), numbered([begin(), { type: 'response.failed', response: response('failed', [], {
    error: { code: 'context_length_exceeded', message: like(/the prompt has \d+ tokens and the context holds 700/) } }) }]));
  const { status, body } = await ask(url, asking(long));
  assert.equal(status, 400);
  assert.equal(body.error.code, 'context_length_exceeded');
});

test('a whole response is that of the stream', async () => {
  const tools = [flatTool('weather'), flatTool('time')];
  const { body } = await ask(url, asking('Call two', { tools }));
  sameShape(body, response('completed', [reasoning(0, 'Both.'), message(1, 'Looking.'), made(2, 'weather', '{"city":"Paris"}'),
    made(3, 'time', '{"city":"Rome"}')].map((item) => item.done), { tools }));
});
