// The chat as a user has it, with a model that says what the tests need.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { call, thought } from '../../server/clients/support/script.mjs';
import { startCarat, startScripted, until } from '../../server/clients/support/server.mjs';
import { answered, ask, Browser } from './support/browser.mjs';

const CODE = 'def f(x):\n    return "<b>" + x  # hi\n';
const server = await startScripted({
  prompt_row_ms: 0.5,
  rules: [
    { when: 'slowly', say: [{ repeat: 'word and ', times: 400 }], token_ms: 20 },
    { when: 'think long', say: [`<|channel>thought\n`, { repeat: 'So I go on. ', times: 60 }, '<channel|>', 'At last.'], token_ms: 25 },
    { when: 'think', say: `${thought('Let me see.')}It is seven.`, token_ms: 5 },
    { when: 'markdown', say: `# Head\n\nSome *slanted* **bold** \`code\` and [a link](https://example.org/x).\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n| 3 | 4 |\n\n1. one\n2. two\n   - inner\n\n> quoted\n\n\`\`\`python\n${CODE}\`\`\`\n\nEnd.`, token_ms: 8 },
    { when: '21', say: 'It is 21 degrees.' },
    { when: 'weather', say: [call('weather', { city: 'Paris' })] },
    { when: 'as JSON', say: '{"city": "Paris", "size": 2}' },
    { when: 'as long JSON', say: ['{"list": [', { repeat: '1, ', times: 100 }, '2]}'], token_ms: 15 },
    { when: 'half', say: 'The first half. ' },
    { when: 'fail', say: 'It begins well, ', then: 'non_finite' },
    { when: 'first', say: 'Answer to the first.' },
    { when: 'second', say: 'Answer to the second.' },
    { when: 'changed', say: 'Answer to the changed one.' },
    { when: 'longer than all', say: 'Read.' },
  ],
}, '-np', '1', '--no-loop-guard');
const browser = await Browser.open({ permissions: ['clipboard-read', 'clipboard-write'] });
after(async () => {
  try {
    await browser.close();
  } finally {
    await server.close();
  }
});

// A page with a conversation that nothing was said in, and the body of the last request for text.
async function open() {
  const page = await browser.page(server.url);
  await page.evaluate(() => localStorage.clear());
  await page.getByRole('button', { name: 'New conversation' }).click();
  page.sent = () => page.lastBody;
  page.on('request', (request) => {
    if (request.url().endsWith('/v1/chat/completions')) page.lastBody = request.postDataJSON();
  });
  return page;
}
const settings = (page) => page.getByRole('button', { name: 'Settings of the conversation' }).click();
const last = (page) => page.locator('article.assistant').last();

test('an answer streams, can be stopped, and goes on', async () => {
  const page = await open();
  await ask(page, 'Say it slowly');
  await until(async () => (await last(page).innerText()).split('word').length > 3, 'some words');
  assert.equal(await last(page).getAttribute('aria-busy'), 'true');
  assert.match(await last(page).innerText(), /\d+ tokens? · \S+ t\/s/);  // while it runs
  assert.equal(await page.getByRole('button', { name: 'Send' }).count(), 0);
  await page.getByRole('button', { name: 'Stop the answer' }).click();
  assert.match(await (await answered(page)).innerText(), /stopped by you/);
  await until(async () => (await server.metric('carat_requests_running')) === 0, 'the server stops as well');
  await page.waitForTimeout(100);  // all that came is drawn
  const before = await last(page).locator('.md').last().innerText();
  await page.getByRole('button', { name: 'Continue the answer' }).click();
  await until(async () => (await last(page).locator('.md').last().innerText()).length > before.length + 20, 'more');
  assert.equal(page.sent().continue_final_message, true);
  assert.equal(page.sent().messages.at(-1).content.trimEnd(), before.trimEnd());
  await page.keyboard.press('Escape');
  const whole = await answered(page);
  await until(async () => (await whole.locator('.md').last().innerText()).startsWith(before.trim()), 'both parts');
  await page.close();
});

test('Markdown: tables, lists, coloured code that can be copied', async () => {
  const page = await open();
  await ask(page, 'Show markdown');
  const answer = await answered(page);
  const body = answer.locator('.md').last();
  assert.equal(await body.getByRole('heading', { name: 'Head' }).getAttribute('aria-level'), '2');
  assert.deepEqual(await body.locator('td').allInnerTexts(), ['1', '2', '3', '4']);
  assert.equal(await body.locator('ol > li').count(), 2);
  assert.equal(await body.locator('ol ul li').innerText(), 'inner');
  assert.equal(await body.locator('em').innerText(), 'slanted');
  assert.equal(await body.locator('strong').innerText(), 'bold');
  assert.equal(await body.locator('blockquote').innerText(), 'quoted');
  const link = body.getByRole('link', { name: 'a link' });
  assert.equal(await link.getAttribute('href'), 'https://example.org/x');
  assert.equal(await link.getAttribute('rel'), 'noopener noreferrer');
  assert.deepEqual(await body.locator('pre .k').allInnerTexts(), ['def', 'return']);
  assert.deepEqual(await body.locator('pre .s').allInnerTexts(), ['"<b>"']);
  assert.equal(await body.locator('pre').textContent(), CODE);
  await body.getByRole('button', { name: 'Copy the code' }).click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), CODE);
  await answer.getByRole('button', { name: 'Copy the answer' }).click();
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^# Head\n\nSome \*slanted\*/);
  await page.close();
});

test('thoughts are folded, have their time, and can be skipped', async () => {
  const page = await open();
  await settings(page);
  await page.getByLabel('Think before answering').selectOption('on');
  await page.getByLabel('Most tokens of thoughts').fill('500');
  await ask(page, 'Please think');
  const answer = await answered(page);
  assert.deepEqual(page.sent().chat_template_kwargs, { enable_thinking: true });
  assert.equal(page.sent().thinking_token_budget, 500);
  assert.match(await answer.locator('summary').innerText(), /^Thought for [\d.]+ m?s$/);
  assert.ok(!(await answer.innerText()).includes('Let me see.'));
  await answer.locator('summary').click();
  await answer.getByText('Let me see.').waitFor();
  assert.match(await answer.locator('.md').last().innerText(), /^It is seven\.$/);
  await ask(page, 'Now think long');
  const skip = page.getByRole('button', { name: 'Skip thinking' });
  await skip.waitFor();
  assert.match(await last(page).locator('summary').innerText(), /^Thinking… /);
  await skip.click();
  assert.match(await (await answered(page)).locator('.md').last().innerText(), /At last\./);
  assert.ok(await skip.isHidden());
  await page.close();
});

test('asking again and editing make branches that can be walked', async () => {
  const page = await open();
  await ask(page, 'the first');
  await answered(page);
  await page.getByRole('button', { name: 'Answer again' }).click();
  await answered(page);
  assert.match(await last(page).locator('.branches').innerText(), /2 \/ 2/);
  await page.locator('article.user').hover();
  await page.getByRole('button', { name: 'Edit' }).click();
  await page.getByLabel('Edit the message').fill('the changed one');
  await page.getByRole('button', { name: 'Send', exact: true }).first().click();
  assert.match(await (await answered(page)).innerText(), /Answer to the changed one\./);
  await page.locator('article.user').getByRole('button', { name: 'The branch before' }).click();
  await page.getByText('Answer to the first.').waitFor();
  assert.match(await last(page).locator('.branches').innerText(), /2 \/ 2/);
  await page.locator('article.user').getByRole('button', { name: 'The next branch' }).click();
  await page.getByText('Answer to the changed one.').waitFor();
  await page.reload();
  await page.getByText('Answer to the changed one.').waitFor();
  await page.close();
});

test('figures of a message, and why something was read again', async () => {
  const page = await open();
  await ask(page, 'the first');
  assert.match(await (await answered(page)).locator('.facts').innerText(), /^\d+ tokens( · [\d,.]+ t\/s)? · first after [\d.]+ m?s · prompt \d+, \d+ reused · complete$/);
  await ask(page, 'the second');
  assert.match(await (await answered(page)).innerText(), /prompt \d+, [1-9]\d* reused/);
  await settings(page);
  await page.getByLabel('System prompt').fill('Be brief.');
  await ask(page, 'the first');
  assert.match(await (await answered(page)).innerText(), /\d+ tokens were read again: the system prompt was changed/);
  assert.deepEqual(page.sent().messages[0], { role: 'system', content: 'Be brief.' });
  assert.match(await page.locator('.gauge').innerText(), /[1-9]\d* of 4,096 tokens/);
  assert.ok(await page.getByRole('meter', { name: 'Context used' }).evaluate((meter) => meter.value > 0));
  await page.close();
});

test('the server itself says that the sliding window has moved past', async () => {
  const page = await open();
  await ask(page, `the first ${'many words here '.repeat(1100)}`);
  await answered(page);
  await page.locator('article.user').hover();
  await page.getByRole('button', { name: 'Edit' }).click();
  await page.getByLabel('Edit the message').fill(`the first ${'many words here '.repeat(60)} and other ones`);
  await page.getByLabel('Edit the message').press('Enter');
  assert.match(await (await answered(page)).innerText(), /[\d,]+ tokens were read again: the sliding window had moved past them/);
  await page.close();
});

test('progress while a long prompt is read', async () => {
  const page = await open();
  await ask(page, `longer than all ${'and so on '.repeat(900)}`);
  await page.getByRole('progressbar', { name: 'Reading the prompt' }).waitFor();
  assert.match(await last(page).locator('.status').innerText(), /^Reading the prompt: [\d,]+ of [\d,]+ tokens, [\d,]+ reused$/);
  assert.match(await (await answered(page)).innerText(), /Read\./);
  assert.ok(await page.getByRole('progressbar').isHidden());
  await page.close();
});

test('a schema: enforced by the server, checked by the page', async () => {
  const page = await open();
  await settings(page);
  const box = page.getByLabel('Answer as JSON: schema');
  await box.fill('{"type": "object"');
  await page.getByText(/^Not used yet: /).waitFor();
  assert.equal(await box.getAttribute('aria-invalid'), 'true');
  const schema = { type: 'object', properties: { city: { type: 'string', 'x-note': 'a capital' }, size: { type: 'integer', maximum: 3 } }, required: ['city', 'size'], additionalProperties: false };
  await box.fill(JSON.stringify(schema));
  await ask(page, 'Paris as JSON');
  const answer = await answered(page);
  assert.deepEqual(page.sent().response_format.json_schema.schema, schema);
  assert.equal(await answer.locator('.check').innerText(), '✓ matches the schema (the page does not check x-note)');
  assert.equal(await answer.locator('.code-head span').innerText(), 'json');
  assert.deepEqual(JSON.parse(await answer.locator('pre').innerText()), { city: 'Paris', size: 2 });
  await box.fill('{"type": "object", "properties": {"list": {"type": "array", "items": {"type": "integer"}}}}');
  await ask(page, 'as long JSON');
  await page.getByText('✓ valid JSON so far').waitFor();
  assert.equal(await (await answered(page)).locator('.check').innerText(), '✓ matches the schema');
  await page.close();
});

test('the page finds by itself what does not match', async () => {
  const page = await open();
  await settings(page);
  // The server is told of another schema, so that its answer is wrong.
  await page.route('**/v1/chat/completions', async (route) => {
    const body = route.request().postDataJSON();
    delete body.response_format;
    await route.continue({ postData: JSON.stringify(body) });
  });
  await page.getByLabel('Answer as JSON: schema').fill('{"type": "object", "properties": {"size": {"maximum": 1}}}');
  await ask(page, 'Paris as JSON');
  assert.equal(await (await answered(page)).locator('.check').innerText(), '✗ $.size: too large');
  await ask(page, 'the first');
  assert.match(await (await answered(page)).locator('.check').innerText(), /^✗ no value stands at character 1$/);
  await page.close();
});

test('tools: the page asks for the results of calls', async () => {
  const page = await open();
  await settings(page);
  const tools = [{ name: 'weather', description: 'The weather', parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } }];
  await page.getByLabel('Tools as JSON').fill(JSON.stringify(tools));
  await ask(page, 'How is the weather?');
  const answer = await answered(page);
  assert.deepEqual(page.sent().tools[0], { type: 'function', function: tools[0] });
  assert.match(await answer.innerText(), /Calls weather[^]*"city": "Paris"[^]*waits for results/);
  await page.getByLabel('Result of weather').fill('{"temp":21}');
  await page.getByRole('button', { name: 'Send the result' }).click();
  await page.getByText('It is 21 degrees.').waitFor();
  await answered(page);
  const [asked, result] = page.sent().messages.slice(-2);
  assert.equal(asked.tool_calls[0].function.arguments, '{"city":"Paris"}');
  assert.deepEqual(result, { role: 'tool', content: '{"temp":21}', tool_call_id: asked.tool_calls[0].id, name: 'weather' });
  assert.equal(await page.getByLabel('Result of weather').and(page.locator('textarea')).count(), 0);
  await page.close();
});

test('settings are sent where they were made, and the model has its own', async () => {
  const page = await open();
  await settings(page);
  await page.getByRole('button', { name: 'Back to the model’s defaults' }).click();
  const { params } = (await (await fetch(`${server.url}/props`)).json()).default_generation_settings;
  assert.equal(await page.getByLabel('Temperature').getAttribute('placeholder'), String(Number(params.temperature.toFixed(4))));
  assert.equal(await page.getByLabel('Top k').getAttribute('placeholder'), String(params.top_k));
  await ask(page, 'the first');
  await answered(page);
  for (const name of ['temperature', 'top_k', 'seed', 'max_tokens', 'stop', 'tools', 'chat_template_kwargs']) assert.ok(!(name in page.sent()), name);
  await page.getByLabel('Temperature').fill('0.2');
  await page.getByLabel('Seed').fill('7');
  await page.getByLabel('Most tokens', { exact: true }).fill('3');
  await page.getByLabel('Stop texts, one a line').fill('###\nEND');
  await ask(page, 'the second');
  assert.match(await (await answered(page)).innerText(), /token limit reached/);
  const { temperature, seed, max_tokens: most, stop } = page.sent();
  assert.deepEqual({ temperature, seed, most, stop }, { temperature: 0.2, seed: 7, most: 3, stop: ['###', 'END'] });
  await page.getByRole('button', { name: 'Back to the model’s defaults' }).click();
  assert.equal(await page.getByLabel('Temperature').inputValue(), '');
  await page.close();
});

test('what goes wrong is said, and nothing is lost', async () => {
  const page = await open();
  await ask(page, 'please fail');
  const answer = await answered(page);
  assert.match(await answer.innerText(), /It begins well,[^]*NaN or infinite logits[^]*failed/);
  await ask(page, `too long ${'word '.repeat(5000)}`);
  assert.match(await (await answered(page)).innerText(), /\d+[^]*context/);
  browser.expectProblem(/status of 400/);
  await page.close();
});

test('images and sound: hidden from a model that reads text', async () => {
  const page = await open();
  assert.ok(await page.getByRole('button', { name: 'Attach images or sound' }).isHidden());
  await page.close();
});

// No model here reads images or sound yet: the server's words are changed on their way, and what the page would send is looked at.
test('images and sound: by button, paste and drop, taken back, and sent as parts where the model takes them', async () => {
  const page = await browser.context.newPage();
  await page.route('**/props', async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...(await response.json()), modalities: { vision: true, audio: true } } });
  });
  let sent;
  await page.route('**/v1/chat/completions', (route) => {
    sent = route.request().postDataJSON();
    return route.fulfill({ contentType: 'text/event-stream', body: 'data: {"id":"x","choices":[{"index":0,"delta":{"content":"A dot."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n' });
  });
  await page.goto(server.url);
  await page.locator('body.ready').waitFor();
  await page.getByRole('button', { name: 'New conversation' }).click();
  await page.getByRole('button', { name: 'Attach images or sound' }).waitFor();
  const image = { mimeType: 'image/png', buffer: Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==', 'base64') };
  await page.locator('input[type=file][aria-label=Files]').setInputFiles([{ name: 'a.png', ...image }, { name: 'b.png', ...image }]);
  await page.getByRole('button', { name: 'Remove a.png' }).click();
  // Dropped and pasted files come the same way.
  await page.getByRole('textbox', { name: 'Message' }).evaluate((field) => {
    const data = new DataTransfer();
    data.items.add(new File([new Uint8Array([1])], 'c.png', { type: 'image/png' }));
    data.items.add(new File(['no'], 'd.txt', { type: 'text/plain' }));
    field.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true }));
    field.form.dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
  });
  await until(async () => (await page.locator('.chip').count()) === 3, 'three images');
  await page.locator('input[type=file][aria-label=Files]').setInputFiles({ name: 'e.wav', mimeType: 'audio/wav', buffer: Buffer.from('RIFF') });
  await page.getByRole('button', { name: 'Remove e.wav' }).waitFor();
  await ask(page, 'What is this?');
  await answered(page);
  assert.deepEqual(sent.messages[0].content[3], { type: 'input_audio', input_audio: { data: Buffer.from('RIFF').toString('base64'), format: 'wav' } });
  assert.equal(await page.locator('article.user audio').count(), 1);
  assert.deepEqual(sent.messages[0].content.map((part) => part.type), ['image_url', 'image_url', 'image_url', 'input_audio', 'text']);
  assert.match(sent.messages[0].content[0].image_url.url, /^data:image\/png;base64,iVBOR/);
  assert.equal(await page.locator('article.user img').count(), 3);
  await page.close();
});

test('the demo model, as a newcomer sees it', async (t) => {
  const demo = await startCarat();
  t.after(() => demo.close());
  const other = await Browser.open({}, t);
  const page = await other.page(demo.url);
  await ask(page, 'My name is Clara.');
  assert.match(await (await answered(page)).innerText(), /Clara/);
  await ask(page, 'What is nginx?');
  assert.match(await (await answered(page)).innerText(), /\d+ tokens were read again: the last prompt ended with an empty thought, which the history leaves out/);
  await other.close();
});
