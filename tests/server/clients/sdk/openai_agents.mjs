// @openai/agents on the Responses API and on chat completions.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, setTracingDisabled, tool } from '@openai/agents';
import OpenAI from 'openai';
import { z } from 'zod';
import { startCarat } from '../support/server.mjs';

setTracingDisabled(true);
const server = await startCarat('-c', '4096', '--temp', '0');
after(() => server.close());
const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none' });
const runner = new Runner({ tracingDisabled: true });
const models = {
  responses: new OpenAIResponsesModel(client, 'gemma'),
  'chat completions': new OpenAIChatCompletionsModel(client, 'gemma'),
};

for (const [name, model] of Object.entries(models)) {
  test(`${name}: a plain answer, streamed`, async () => {
    const agent = new Agent({ name: 'Helper', instructions: 'You help.', model, modelSettings: { maxTokens: 60 } });
    const run = await runner.run(agent, 'What is nginx?', { stream: true });
    let said = '';
    for await (const delta of run.toTextStream()) said += delta;
    await run.completed;
    assert.match(said, /\w/);
    assert.equal(run.finalOutput, said);
    assert.ok(run.state.usage.outputTokens > 0);
  });

  test(`${name}: a forced call, whose result ends the run`, async () => {
    const cities = [];
    const weather = tool({ name: 'weather', description: 'The weather of a city', parameters: z.object({ city: z.string() }),
      execute: async ({ city }) => (cities.push(city), '21 degrees') });
    const agent = new Agent({ name: 'Helper', model, tools: [weather], toolUseBehavior: 'stop_on_first_tool',
      modelSettings: { toolChoice: 'required', parallelToolCalls: false, maxTokens: 300 } });
    const run = await runner.run(agent, 'How warm is it?');
    assert.equal(cities.length, 1);
    assert.equal(run.finalOutput, '21 degrees');
  });

  test(`${name}: an output by a schema`, async () => {
    const outputType = z.object({ port: z.number().int().min(1).max(99), kind: z.enum(['web', 'mail']) });
    const agent = new Agent({ name: 'Helper', model, outputType, modelSettings: { maxTokens: 300 } });
    const run = await runner.run(agent, 'What is nginx?');
    outputType.parse(run.finalOutput);
  });
}
