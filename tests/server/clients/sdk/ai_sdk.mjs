// AI SDK with its three providers: chat completions, Anthropic's messages and the Responses API.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateObject, generateText, streamText, tool } from 'ai';
import { z } from 'zod';
import { startCarat } from '../support/server.mjs';

globalThis.AI_SDK_LOG_WARNINGS = false;
const server = await startCarat('-c', '4096', '--store-responses', '8');
after(() => server.close());
const baseURL = `${server.url}/v1`;
const providers = {
  'openai-compatible': createOpenAICompatible({ name: 'carat', baseURL, supportsStructuredOutputs: true })('gemma'),
  anthropic: createAnthropic({ baseURL, apiKey: 'none' })('gemma'),
  'openai (responses)': createOpenAI({ baseURL, apiKey: 'none' }).responses('gemma'),
};
// Longer than its answer: what is not worth keeping is not kept.
const prompt = `${'nginx is a web server. '.repeat(20)}What is nginx?`;
const settings = { prompt, temperature: 0, maxOutputTokens: 20, maxRetries: 0 };
const city = tool({ description: 'The weather of a city', inputSchema: z.object({ city: z.string() }) });

for (const [name, model] of Object.entries(providers)) {
  test(`${name}: a plain answer, the same streamed, with its usage`, async () => {
    const plain = await generateText({ model, ...settings });
    assert.match(plain.text, /server/i);
    const stream = streamText({ model, ...settings });
    let said = '';
    for await (const delta of stream.textStream) said += delta;
    assert.equal(said, plain.text);
    const usage = await stream.usage;
    assert.equal(usage.outputTokens, plain.usage.outputTokens);
    assert.equal(usage.inputTokens, plain.usage.inputTokens);
    assert.equal(usage.inputTokenDetails.cacheReadTokens, usage.inputTokens - 1);
    assert.equal(await stream.finishReason, plain.finishReason);
  });

  test(`${name}: a forced call`, async () => {
    const { toolCalls, finishReason } = await generateText({
      model, ...settings, maxOutputTokens: 300, tools: { weather: city, time: city }, toolChoice: { type: 'tool', toolName: 'time' } });
    assert.equal(finishReason, 'tool-calls');
    assert.equal(toolCalls[0].toolName, 'time');
    assert.equal(typeof toolCalls[0].input.city, 'string');
  });

  test(`${name}: an object by a schema`, async () => {
    const schema = z.object({ port: z.number().int().min(1).max(99), kind: z.enum(['web', 'mail']) });
    const { object } = await generateObject({ model, ...settings, maxOutputTokens: 300, schema });
    schema.parse(object);
  });

  test(`${name}: an error is one of the SDK`, async () => {
    await assert.rejects(generateText({ model, ...settings, prompt: 'web server '.repeat(5000) }),
                         (error) => error.statusCode === 400 && /4096/.test(error.message));
  });
}
