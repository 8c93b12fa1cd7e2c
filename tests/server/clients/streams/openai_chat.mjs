// The chunks of /v1/chat/completions, one by one.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startScripted } from '../support/server.mjs';
import { ask, events, post } from '../support/streams.mjs';
import { call, cityTool, thought } from '../support/script.mjs';
import { count, joined, like, listOf, number, sameShape, text, timings } from '../support/shapes.mjs';

const server = await startScripted([
  { when: 'Think and answer', say: [thought('Need no tool.'), 'It is 21 degrees in Zürich. 🌞'] },
  { when: 'Call two', say: [thought('Both.'), 'Looking.', call('weather', { city: 'Paris' }), call('time', { city: 'Rome' })] },
  { when: 'Call badly', say: ['Well: ', '<|tool_call>call weather Paris<tool_call|>'] },
  { when: 'Call weather', say: call('weather', { city: 'Oslo' }) },
  { when: 'Call the shell', say: call('shell', { input: 'ls -l' }) },
  { when: 'Fail', say: 'Half of an', then: 'non_finite', token_ms: 30 },
  { when: 'Count', say: 'one two three four five six seven eight nine ten eleven' },
  { when: 'Loop', say: { repeat: ' again and', times: 400 } },
  { when: 'Slowly', say: 'one two three four five six seven', token_ms: 40 },
]);
after(() => server.close());
const url = `${server.url}/v1/chat/completions`;
const asking = (content, more = {}) => ({ model: 'gemma', messages: [{ role: 'user', content }], ...more });

const usage = {
  prompt_tokens: count, completion_tokens: count, total_tokens: count,
  prompt_tokens_details: { cached_tokens: count }, completion_tokens_details: { reasoning_tokens: count },
};

// A chunk with these choices, and what follows them.
const head = {
  id: like(/^chatcmpl-\w{24}$/), object: 'chat.completion.chunk', created: count, model: 'gemma',
  system_fingerprint: like(/^carat-/),
};
const chunk = (choices, more = {}) => ({ data: { ...head, choices, ...more } });
const delta = (content, index = 0) => chunk([{ index, delta: content, finish_reason: null }]);
const role = (index = 0, more = {}) =>
  chunk([{ index, delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null }], more);
const last = (finish_reason, more = {}) => chunk([{ index: 0, delta: {}, finish_reason }], more);
const done = { data: '[DONE]' };

// The stream, with neighbouring pieces of one text joined.
async function stream(body) {
  const list = await events(url, { ...body, stream: true });
  const first = list[0].data;
  for (const { data } of list.slice(0, -1)) {
    if (!data.id) continue;
    assert.deepEqual([data.id, data.created, data.model], [first.id, first.created, first.model]);
  }
  const piece = (event, key) => event.data.choices?.[0]?.delta?.[key];
  const grows = (a, b) => (key) =>
    key && piece(a, key) && piece(b, key) && a.data.choices[0].index === b.data.choices[0].index;
  const key = (a, b) => ['content', 'reasoning_content'].find(grows(a, b));
  return joined(list, key, (a, b) => {
    const shared = key(a, b);
    a.data.choices[0].delta[shared] += piece(b, shared);
    a.data.choices[0].logprobs?.content.push(...b.data.choices[0].logprobs.content);
    a.data.choices[0].token_ids?.push(...b.data.choices[0].token_ids);
  });
}

test('thoughts come before the answer, usage with the end, then [DONE]', async () => {
  sameShape(await stream(asking('Think and answer')), [
    role(),
    delta({ reasoning_content: 'Need no tool.' }),
    delta({ content: 'It is 21 degrees in Zürich. 🌞' }),
    last('stop', { usage, timings }),
    done,
  ]);
});

test('with include_usage, the usage comes alone, after the end', async () => {
  const list = await stream(asking('Think and answer', { stream_options: { include_usage: true } }));
  sameShape(list, [
    role(),
    delta({ reasoning_content: 'Need no tool.' }),
    delta({ content: 'It is 21 degrees in Zürich. 🌞' }),
    last('stop'),
    chunk([], { usage, timings }),
    done,
  ]);
  const { usage: used, timings: times } = list[4].data;
  assert.equal(used.total_tokens, used.prompt_tokens + used.completion_tokens);
  assert.ok(used.completion_tokens_details.reasoning_tokens > 0);
  assert.equal(times.cache_n + times.prompt_n, used.prompt_tokens);
  assert.equal(times.predicted_n, used.completion_tokens);
});

test('each call comes whole, in its turn, under an id of its own', async () => {
  const made = (index, name, args) =>
    delta({ tool_calls: [{ index, id: like(/^call_\w{24}$/), type: 'function', function: { name, arguments: args } }] });
  const list = await stream(asking('Call two', { tools: [cityTool('weather'), cityTool('time')] }));
  sameShape(list, [
    role(),
    delta({ reasoning_content: 'Both.' }),
    delta({ content: 'Looking.' }),
    made(0, 'weather', '{"city":"Paris"}'),
    made(1, 'time', '{"city":"Rome"}'),
    last('tool_calls', { usage, timings }),
    done,
  ]);
  const ids = list.slice(3, 5).map((event) => event.data.choices[0].delta.tool_calls[0].id);
  assert.notEqual(ids[0], ids[1]);
});

test('without parallel calls the turn ends after the first', async () => {
  const list = await stream(
    asking('Call two', { tools: [cityTool('weather'), cityTool('time')], parallel_tool_calls: false }));
  const calls = list.filter((event) => event.data.choices?.[0]?.delta?.tool_calls);
  assert.equal(calls.length, 1);
  assert.equal(list.at(-2).data.choices[0].finish_reason, 'tool_calls');
});

test('a call that cannot be read is text, and is told', async () => {
  const list = await stream(asking('Call badly', { tools: [cityTool('weather')] }));
  sameShape(list, [
    role(),
    delta({ content: text }),
    chunk([{ index: 0, delta: {}, carat: { bad_tool_call: { text, problem: text } }, finish_reason: 'stop' }],
          { usage, timings }),
    done,
  ]);
  assert.equal(list[1].data.choices[0].delta.content, 'Well: call weather Paris');
  assert.equal(list[2].data.choices[0].carat.bad_tool_call.text, 'call weather Paris');
});

test('the old form of functions is answered in its form', async () => {
  sameShape(await stream(asking('Call weather', { functions: [cityTool('weather').function] })), [
    role(),
    delta({ function_call: { name: 'weather', arguments: '{"city":"Oslo"}' } }),
    last('function_call', { usage, timings }),
    done,
  ]);
});

test('a custom tool gets its text', async () => {
  sameShape(await stream(asking('Call the shell', { tools: [{ type: 'custom', custom: { name: 'shell' } }] })), [
    role(),
    delta({ tool_calls: [{ index: 0, id: text, type: 'custom', custom: { name: 'shell', input: 'ls -l' } }] }),
    last('tool_calls', { usage, timings }),
    done,
  ]);
});

test('several answers interleave, each with its role first and its end last', async () => {
  const list = await stream(asking('Think and answer', { n: 3, stream_options: { include_usage: true } }));
  assert.deepEqual(list.at(-1), done);
  sameShape(list.at(-2), chunk([], { usage, timings }));
  for (const index of [0, 1, 2]) {
    const own = list.filter((event) => event.data.choices?.[0]?.index === index);
    assert.ok(own[0].data.choices[0].delta.role, 'the role comes first');
    assert.equal(own.at(-1).data.choices[0].finish_reason, 'stop');
    const whole = (key) => own.map((event) => event.data.choices[0].delta[key] ?? '').join('');
    assert.equal(whole('reasoning_content'), 'Need no tool.');
    assert.equal(whole('content'), 'It is 21 degrees in Zürich. 🌞');
    assert.equal(own.filter((event) => event.data.choices[0].finish_reason).length, 1);
  }
});

test('log-probabilities stand with the text they are of, one for each token of the answer', async () => {
  const token = { token: text, logprob: number, bytes: listOf(count) };
  const list = await stream(asking('Think and answer', { logprobs: true, top_logprobs: 2 }));
  sameShape(list, [
    role(),
    delta({ reasoning_content: 'Need no tool.' }),
    chunk([{ index: 0, delta: { content: text },
      logprobs: { content: listOf({ ...token, top_logprobs: [token, token] }), refusal: null }, finish_reason: null }]),
    last('stop', { usage, timings }),
    done,
  ]);
  const { delta: said, logprobs } = list[2].data.choices[0];
  const bytes = logprobs.content.flatMap((entry) => entry.bytes);
  assert.equal(Buffer.from(bytes).toString(), said.content);
  for (const entry of logprobs.content) {
    assert.ok(entry.logprob <= 0 && entry.logprob > -1e-3, 'the script is sure');
    assert.deepEqual(entry.top_logprobs[0].bytes, entry.bytes);
  }
});

test('tokens of prompt and answer, where they are asked for', async () => {
  const list = await stream(asking('Count', { return_token_ids: true, max_tokens: 4 }));
  assert.ok(list[0].data.prompt_token_ids.length > 5);
  const tokens = list.slice(0, -1).flatMap((event) => event.data.choices[0]?.token_ids ?? []);
  assert.equal(tokens.length, 4);
  const { body } = await ask(url, asking('Count', { return_token_ids: true, max_tokens: 4 }));
  assert.deepEqual(body.choices[0].token_ids, tokens);
  assert.deepEqual(body.prompt_token_ids, list[0].data.prompt_token_ids);
});

test('what ended the answer', async () => {
  const ending = async (content, more) => (await stream(asking(content, more))).at(-2).data.choices[0];
  sameShape(await ending('Count', { stop: [' five', ' six'] }),
            { index: 0, delta: {}, stop_reason: ' five', finish_reason: 'stop' });
  sameShape(await ending('Count', { max_tokens: 3 }), { index: 0, delta: {}, finish_reason: 'length' });
  sameShape(await ending('Loop', {}), { index: 0, delta: {}, carat: { ending: 'loop' }, finish_reason: 'stop' });
  const said = (await stream(asking('Count', { stop: ' five' }))).map((event) => event.data.choices?.[0]?.delta.content ?? '');
  assert.equal(said.join(''), 'one two three four');
});

test('timings of each piece, where they are asked for', async () => {
  const list = await events(url, asking('Count', { stream: true, timings_per_token: true }));
  const pieces = list.filter((event) => event.data.choices?.[0]?.delta.content);
  pieces.forEach((event) => timings(event.data.timings, 'timings'));
});

test('a stream that fails says so and ends without [DONE]', async () => {
  const list = await stream(asking('Fail'));
  sameShape(list, [
    role(),
    delta({ content: 'Half of an' }),
    { data: { error: { message: like(/infinite logits$/), type: 'server_error', param: null, code: null } } },
  ]);
});

test('an answer that fails is an error, and repeating it is of no use', async () => {
  const { status, headers, body } = await ask(url, asking('Fail'));
  assert.equal(status, 500);
  assert.equal(headers.get('x-should-retry'), 'false');
  sameShape(body, { error: { message: like(/infinite logits$/), type: 'server_error', param: null, code: null } });
});

test('headers come with the first token, not with the last', async () => {
  const begin = performance.now();
  const response = await post(url, asking('Slowly', { stream: true }));
  const headers = performance.now() - begin;
  await response.text();
  const whole = performance.now() - begin;
  assert.ok(whole > 250 && headers < 0.5 * whole, `${headers} of ${whole} ms`);
  assert.match(response.headers.get('x-request-id'), /^\S+$/);
});

test('a whole answer has all fields in their places', async () => {
  const { body } = await ask(url, asking('Call two', { tools: [cityTool('weather'), cityTool('time')] }));
  const made = (name, args) => ({ id: like(/^call_/), type: 'function', function: { name, arguments: args } });
  sameShape(body, {
    ...head, object: 'chat.completion',
    choices: [{
      index: 0,
      message: { role: 'assistant', content: 'Looking.', reasoning_content: 'Both.', refusal: null,
        tool_calls: [made('weather', '{"city":"Paris"}'), made('time', '{"city":"Rome"}')] },
      logprobs: null, finish_reason: 'tool_calls',
    }],
    usage, timings,
  });
  const alone = (await ask(url, asking('Call weather', { tools: [cityTool('weather')] }))).body.choices[0].message;
  assert.equal(alone.content, null);
});

test('what the cache knew and had to be read again is said, with the reason', async () => {
  const narrow = await startScripted([{ when: 'Count', say: 'one two three' }], '-np', '1');
  const of = async (content) => (await ask(`${narrow.url}/v1/chat/completions`, asking(content))).body.usage.prompt_tokens_details;
  const long = `Count ${'the many sheep in the field '.repeat(500)}`;
  assert.deepEqual(Object.keys(await of(long)), ['cached_tokens']);
  assert.deepEqual(Object.keys(await of(long)), ['cached_tokens']);  // but for its last token, all of it is reused
  // It parts early, where the sliding layers have nothing any more.
  const lost = await of(`${long.slice(0, 2000)} and no more`);
  sameShape(lost, { cached_tokens: 0, carat_lost: { tokens: (tokens) => tokens > 100, reason: 'window' } });
  assert.equal(await narrow.metric('carat_prefix_lost_total', 'window'), lost.carat_lost.tokens);
  await narrow.close();
});
