// LangChain's models for OpenAI (chat and responses), Ollama and Anthropic.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { ChatAnthropic } from '@langchain/anthropic';
import { tool } from '@langchain/core/tools';
import { ChatOllama } from '@langchain/ollama';
import { ChatOpenAI } from '@langchain/openai';
import { z } from 'zod';
import { startCarat } from '../support/server.mjs';

const server = await startCarat('-c', '4096');
after(() => server.close());
const openai = (more) =>
  new ChatOpenAI({ model: 'gemma', apiKey: 'none', temperature: 0, maxTokens: 300, maxRetries: 0, configuration: { baseURL: `${server.url}/v1` }, ...more });
const models = {
  openai: openai({}),
  'openai (responses)': openai({ useResponsesApi: true }),
  ollama: new ChatOllama({ model: 'gemma', baseUrl: server.url, temperature: 0, numPredict: 300, maxRetries: 0 }),
  anthropic: new ChatAnthropic({ model: 'claude-sonnet-4-0', apiKey: 'none', anthropicApiUrl: server.url, temperature: 0, maxTokens: 300, maxRetries: 0 }),
};
const weather = tool(async ({ city }) => `21 degrees in ${city}`, {
  name: 'weather', description: 'The weather of a city', schema: z.object({ city: z.string() }) });
const Kind = z.object({ port: z.number().int().min(1).max(99), kind: z.enum(['web', 'mail']) });

for (const [name, model] of Object.entries(models)) {
  test(`${name}: a plain answer, the same streamed, with its usage`, async () => {
    const plain = await model.invoke('What is nginx?');
    assert.match(plain.text, /server/i);
    assert.ok(plain.usage_metadata.output_tokens > 0);
    let whole;
    for await (const chunk of await model.stream('What is nginx?')) whole = whole ? whole.concat(chunk) : chunk;
    assert.equal(whole.text, plain.text);
    assert.equal(whole.usage_metadata.output_tokens, plain.usage_metadata.output_tokens);
    assert.equal(whole.usage_metadata.input_tokens, plain.usage_metadata.input_tokens);
  });

  // Ollama's API has no tool_choice.
  if (name !== 'ollama') {
    test(`${name}: a forced call`, async () => {
      const message = await model.bindTools([weather], { tool_choice: 'weather' }).invoke('Go');
      assert.equal(message.tool_calls[0].name, 'weather');
      assert.equal(typeof message.tool_calls[0].args.city, 'string');
    });
  }

  test(`${name}: structured output`, async () => {
    const method = name === 'anthropic' ? 'functionCalling' : 'jsonSchema';
    Kind.parse(await model.withStructuredOutput(Kind, { name: 'kind', method }).invoke('What is nginx?'));
  });

  test(`${name}: an error`, async () => {
    await assert.rejects(model.invoke('web server '.repeat(5000)), /4096/);
  });
}
