// The chunks of /v1/completions and of llama-server's /completion, one by one.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startScripted } from '../support/server.mjs';
import { ask, events } from '../support/streams.mjs';
import { count, joined, like, listOf, sameShape, timings } from '../support/shapes.mjs';

const server = await startScripted([
  { prompt: 'Once upon', say: ' a time there was a wörld' },
  { prompt: 'Marks', say: '<|channel>thought\nhidden<channel|>said <|tool_call>call:f{}<tool_call|> more' },
  { prompt: 'Fail', say: ' half', then: 'non_finite', token_ms: 30 },
]);
after(() => server.close());
const openai = `${server.url}/v1/completions`, llama = `${server.url}/completion`;
const usage = {
  prompt_tokens: count, completion_tokens: count, total_tokens: count,
  prompt_tokens_details: { cached_tokens: count }, completion_tokens_details: { reasoning_tokens: 0 },
};
const head = {
  id: like(/^cmpl-\w{24}$/), object: 'text_completion', created: count, model: 'demo-e-q8_0',
  system_fingerprint: like(/^carat-/),
};
const choice = (said, finish_reason = null, more = {}, index = 0) =>
  ({ index, text: said, logprobs: null, ...more, finish_reason });

async function stream(url, body) {
  const list = await events(url, { ...body, stream: true });
  const said = (event) => (event.data.choices ? event.data.choices[0] : event.data);
  const key = (event) => (event.data.choices ? 'text' : 'content');
  const grows = (a, b) => [a, b].every((e) => said(e)?.[key(e)] && !said(e).finish_reason && !said(e).stop) && said(a).index === said(b).index;
  return joined(list, grows, (a, b) => {
    said(a)[key(a)] += said(b)[key(b)];
    said(a).tokens?.push(...said(b).tokens);
    if (said(a).tokens_predicted) said(a).tokens_predicted = said(b).tokens_predicted;
  });
}

test('text in pieces, the end with the usage, [DONE]', async () => {
  sameShape(await stream(openai, { prompt: 'Once upon' }), [
    { data: { ...head, choices: [choice(' a time there was a wörld')] } },
    { data: { ...head, choices: [choice('', 'stop')], usage, timings } },
    { data: '[DONE]' },
  ]);
});

test('echo, and usage by itself', async () => {
  sameShape(await stream(openai, { prompt: 'Once upon', echo: true, max_tokens: 3, stream_options: { include_usage: true } }), [
    { data: { ...head, choices: [choice('Once upon a time there')] } },
    { data: { ...head, choices: [choice('', 'length')] } },
    { data: { ...head, choices: [], usage, timings } },
    { data: '[DONE]' },
  ]);
});

test('several prompts, several answers to each, numbered through', async () => {
  // Who makes the prompts reads the marks, too.
  const raw = '<|channel>thought\nhidden<channel|>said <|tool_call>call:f{}<tool_call|> more';
  const body = { prompt: ['Once upon', 'Marks'], n: 2, max_tokens: 60 };
  const { body: whole } = await ask(openai, body);
  sameShape(whole, { ...head, choices: [
    choice(' a time there was a wörld', 'stop', {}, 0), choice(' a time there was a wörld', 'stop', {}, 1),
    choice(raw, 'stop', {}, 2), choice(raw, 'stop', {}, 3),
  ], usage, timings });
  const list = await stream(openai, body);
  for (const { index, text: said } of whole.choices) {
    const own = list.flatMap((event) => event.data.choices ?? []).filter((each) => each.index === index);
    assert.equal(own.map((each) => each.text).join(''), said);
    assert.equal(own.filter((each) => each.finish_reason === 'stop').length, 1);
  }
});

test('log-probabilities in their old form', async () => {
  const { body } = await ask(openai, { prompt: 'Once upon', logprobs: 2 });
  const { tokens, token_logprobs, top_logprobs, text_offset } = body.choices[0].logprobs;
  assert.equal(tokens.join(''), body.choices[0].text);
  assert.deepEqual([token_logprobs.length, top_logprobs.length, text_offset.length], Array(3).fill(tokens.length));
  let offset = 0;
  tokens.forEach((token, i) => {
    assert.equal(text_offset[i], offset);
    assert.equal(top_logprobs[i][token], token_logprobs[i]);
    offset += [...token].length;
  });
});

test('a stream that fails says so and ends without [DONE]', async () => {
  sameShape(await stream(openai, { prompt: 'Fail' }), [
    { data: { ...head, choices: [choice(' half')] } },
    { data: { error: { message: like(/infinite logits$/), type: 'server_error', param: null, code: null } } },
  ]);
});

test('llama-server’s own route: pieces with their tokens, then the result', async () => {
  const list = await stream(llama, { prompt: 'Once upon', n_predict: 50 });
  const result = {
    index: 0, content: '', tokens: [], stop: true, model: 'demo-e-q8_0', tokens_predicted: count, tokens_evaluated: count,
    generation_settings: (value) => value.n_predict === 50, prompt: 'Once upon', has_new_line: false, truncated: false,
    stop_type: 'eos', stopping_word: '', tokens_cached: count, timings,
  };
  sameShape(list, [
    { data: { index: 0, content: ' a time there was a wörld', tokens: listOf(count), stop: false, tokens_predicted: count, tokens_evaluated: count } },
    { data: result },
  ]);
  const { body } = await ask(llama, { prompt: 'Once upon', n_predict: 50, return_tokens: true });
  sameShape(body, { ...result, content: ' a time there was a wörld', tokens: listOf(count) });
  const { body: back } = await ask(`${server.url}/detokenize`, { tokens: body.tokens });
  assert.equal(back.content, body.content);
  const cut = (await ask(llama, { prompt: 'Once upon', n_predict: 50, stop: [' was'] })).body;
  sameShape([cut.content, cut.stop_type, cut.stopping_word], [' a time there', 'word', ' was']);
  sameShape((await ask(llama, { prompt: 'Once upon', n_predict: 2 })).body.stop_type, 'limit');
});
