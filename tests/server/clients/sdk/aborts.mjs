// Clients that want no more of an answer: the work on it ends at once, whoever they are and however they asked.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import Anthropic from '@anthropic-ai/sdk';
import { ChatOpenAI } from '@langchain/openai';
import { Agent, OpenAIChatCompletionsModel, Runner } from '@openai/agents';
import { streamText } from 'ai';
import { Ollama } from 'ollama';
import OpenAI from 'openai';
import { startScripted, until } from '../support/server.mjs';

// An answer of at least ten seconds; one that reads its prompt for as long.
const server = await startScripted({ rules: [{ say: { repeat: ' a word and another', times: 500 }, token_ms: 5 }] }, '--no-loop-guard', '--lookup', 'off', '-c', '8192');
const reader = await startScripted({ prompt_row_ms: 5, rules: [{ say: 'Done.' }] }, '--no-loop-guard', '-ub', '16', '-np', '1');
after(() => Promise.all([server.close(), reader.close()]));
const api = { baseURL: `${server.url}/v1`, apiKey: 'none' };
const openai = new OpenAI(api), messages = [{ role: 'user', content: 'Talk' }];

// `work` begins a request, and aborts it. The server then has one more cancelled in `phase`, and nothing to do.
async function isCancelled(work, phase = 'decode', on = server) {
  const cancelled = () => on.metric('carat_requests_cancelled_total', `phase="${phase}"`);
  const before = await cancelled();
  const abort = new AbortController();
  await work(abort).catch((error) => assert.match(`${error.name} ${error.message}`, /abort/i));
  const begin = performance.now();
  await until(async () => (await cancelled()) === before + 1, 'the request is cancelled');
  await until(async () => (await on.metric('carat_requests_running')) === 0, 'nothing runs');
  assert.ok(performance.now() - begin < 2000);
}

const streamed = async (abort, stream) => {
  for await (const _ of stream) abort.abort();
};
const runs = (on = server) => until(async () => (await on.metric('carat_requests_running')) > 0, 'the request runs');
const whole = async (abort, answer, on) => {
  answer.catch(() => {});
  await runs(on);
  abort.abort();
  await answer;
};

test('openai: streamed and not, chat and responses', async () => {
  await isCancelled(async (abort) =>
    streamed(abort, await openai.chat.completions.create({ model: 'gemma', messages, stream: true }, { signal: abort.signal })));
  await isCancelled((abort) => whole(abort, openai.chat.completions.create({ model: 'gemma', messages }, { signal: abort.signal })));
  await isCancelled(async (abort) =>
    streamed(abort, await openai.responses.create({ model: 'gemma', input: 'Talk', stream: true }, { signal: abort.signal })));
  await isCancelled((abort) => whole(abort, openai.responses.create({ model: 'gemma', input: 'Talk' }, { signal: abort.signal })));
});

test('openai: a stream that is left', async () => {
  await isCancelled(async () => {
    for await (const chunk of await openai.chat.completions.create({ model: 'gemma', messages, stream: true })) {
      if (chunk.choices[0].delta.content) break;
    }
  });
});

test('anthropic', async () => {
  const anthropic = new Anthropic({ baseURL: server.url, authToken: 'none' });
  const body = { model: 'gemma', max_tokens: 8000, messages };
  await isCancelled(async (abort) => streamed(abort, anthropic.messages.stream(body, { signal: abort.signal })));
  await isCancelled((abort) => whole(abort, anthropic.messages.create(body, { signal: abort.signal })));
});

test('ollama', async () => {
  const ollama = new Ollama({ host: server.url });
  await isCancelled(async () => {
    for await (const _ of await ollama.chat({ model: 'gemma', messages, stream: true })) ollama.abort();
  });
});

for (const [name, model] of Object.entries({
  'openai-compatible': createOpenAICompatible({ name: 'carat', ...api })('gemma'),
  anthropic: createAnthropic(api)('gemma'),
  'openai (responses)': createOpenAI(api).responses('gemma'),
})) {
  test(`AI SDK: ${name}`, async () => {
    await isCancelled(async (abort) => {
      const stream = streamText({ model, prompt: 'Talk', abortSignal: abort.signal, onError() {} });
      for await (const part of stream.fullStream) if (part.type === 'text-delta') abort.abort();
    });
  });
}

test('langchain', async () => {
  const model = new ChatOpenAI({ model: 'gemma', apiKey: 'none', configuration: { baseURL: api.baseURL } });
  await isCancelled(async (abort) => streamed(abort, await model.stream('Talk', { signal: abort.signal })));
});

test('@openai/agents', async () => {
  const agent = new Agent({ name: 'Helper', model: new OpenAIChatCompletionsModel(openai, 'gemma') });
  await isCancelled(async (abort) => {
    const run = await new Runner({ tracingDisabled: true }).run(agent, 'Talk', { stream: true, signal: abort.signal });
    for await (const _ of run.toTextStream()) abort.abort();
    await run.completed;
  });
});

test('while the prompt is read, and while another one is waited for', async () => {
  const own = new OpenAI({ ...api, baseURL: `${reader.url}/v1` });
  const long = [{ role: 'user', content: 'A long prompt. '.repeat(300) }];
  const ask = (abort) => own.chat.completions.create({ model: 'gemma', messages: long }, { signal: abort.signal });
  await isCancelled((abort) => whole(abort, ask(abort), reader), 'prefill', reader);

  const first = new AbortController(), second = new AbortController();
  const running = ask(first).catch(() => {});
  await runs(reader);
  const waiting = ask(second).catch(() => {});
  await until(async () => (await reader.metric('carat_requests_waiting')) === 1, 'the second waits');
  second.abort();
  await until(async () => (await reader.metric('carat_requests_cancelled_total', 'phase="queued"')) === 1, 'the second is cancelled');
  assert.equal(await reader.metric('carat_requests_running'), 1, 'the first goes on');
  first.abort();
  await Promise.all([running, waiting]);
  await until(async () => (await reader.metric('carat_requests_running')) === 0, 'nothing runs');
});
