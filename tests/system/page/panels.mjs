// The tabs beside the chat, and a server that wants a key.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startScripted, until } from '../../server/clients/support/server.mjs';
import { answered, ask, Browser } from './support/browser.mjs';

const KEY = 'a-key-for-tests';
const script = [{ when: 'slowly', say: [{ repeat: 'word and ', times: 300 }], token_ms: 10 }, { when: 'apples', say: 'Apples are red.' }];
const server = await startScripted(script, '--no-loop-guard', '-a', 'gemma');
const locked = await startScripted(script, '--api-key', KEY);
const browser = await Browser.open({ permissions: ['clipboard-read', 'clipboard-write'] });
after(async () => {
  try {
    await browser.close();
  } finally {
    await server.close();
    await locked.close();
  }
});
const tab = (page, name) => page.getByRole('tab', { name }).click();
const copied = (page) => page.evaluate(() => navigator.clipboard.readText());

test('the server tab shows what runs, and draws it', async () => {
  const page = await browser.page(server.url);
  await ask(page, 'Say it slowly');
  await page.getByRole('button', { name: 'Stop the answer' }).waitFor();
  await tab(page, 'Server');
  const card = (name) => page.locator('.cards > div', { has: page.getByText(name, { exact: true }) }).locator('dd');
  await until(async () => (await card('Running').innerText()) === '1', 'the running request');
  assert.equal(await card('State').innerText(), 'ready');
  assert.equal(await card('On').innerText(), 'scripted');
  for (const title of ['Requests', 'Tokens', 'Cache in use, by pool', 'Tokens of prompts', 'Read again, by reason', 'Time of a pass', 'Gap between tokens', 'Time to the first token']) {
    assert.equal(await page.getByRole('img', { name: title, exact: true }).count(), 1, title);
  }
  const gaps = page.locator('.plot', { hasText: 'Gap between tokens' });
  await until(async () => /half [\d.]+ m?s/.test(await gaps.locator('.legend').innerText()), 'the gaps of the running answer');
  const tokens = page.locator('.plot', { hasText: 'Tokens' }).first();
  await until(async () => ((await tokens.locator('path').first().getAttribute('d')) ?? '').includes('L'), 'a line');
  assert.match(await tokens.locator('.legend').innerText(), /of answers\s*[1-9][\d.]*k?\/s/);
  await tokens.locator('svg').hover();
  assert.equal(await tokens.locator('.cursor').getAttribute('visibility'), 'visible');
  await page.getByLabel('The last').selectOption('60');
  await tab(page, 'Chat');
  await page.keyboard.press('Escape');
  await answered(page);
  await page.close();
});

test('the connect tab has settings that work, with this server’s address and model', async () => {
  const page = await browser.page(server.url);
  await tab(page, 'Connect');
  for (const name of ['Claude Code', 'Codex', 'opencode', 'Open WebUI', 'Python', 'JavaScript', 'curl']) {
    const section = page.getByRole('region', { name, exact: true });
    assert.ok((await section.locator('pre').innerText()).includes(server.url), name);
    await section.getByRole('button').click();
    assert.equal(await copied(page), await section.locator('pre').innerText(), name);
  }
  const opencode = JSON.parse(await page.getByRole('region', { name: 'opencode' }).locator('pre').innerText());
  assert.equal(opencode.provider.carat.options.baseURL, `${server.url}/v1`);
  assert.ok(!('apiKey' in opencode.provider.carat.options));
  assert.ok(Object.values(opencode.provider.carat.models)[0].limit.context > 0);
  await page.getByText('This server wants no key').waitFor();
  // What curl is told to send is a request that the server answers.
  const curl = await page.getByRole('region', { name: 'curl' }).locator('pre').innerText();
  const answer = await fetch(/(http\S+)/.exec(curl)[1], { method: 'POST', body: /-d '(.*)'/.exec(curl)[1] });
  assert.equal(answer.status, 200);
  await page.close();
});

test('a key is asked for once, kept for the tab, and shown only when asked', async () => {
  const page = await browser.page(locked.url, { isReady: false });
  const dialog = page.getByRole('dialog', { name: 'This server needs a key' });
  await dialog.getByLabel('API key').fill('wrong');
  await dialog.getByRole('button', { name: 'Use the key' }).click();
  await page.getByText('The server does not know this key.').waitFor();
  await dialog.getByLabel('API key').fill(KEY);
  await page.keyboard.press('Enter');
  await page.locator('#model', { hasText: 'demo' }).waitFor();
  await ask(page, 'apples');
  assert.match(await (await answered(page)).innerText(), /Apples are red/);
  await page.reload();
  await page.locator('#model', { hasText: 'demo' }).waitFor();
  assert.equal(await page.locator('dialog').count(), 0);
  await tab(page, 'Connect');
  const python = page.getByRole('region', { name: 'Python' });
  assert.ok(!(await python.innerText()).includes(KEY));
  await python.getByRole('button').click();
  assert.ok((await copied(page)).includes(KEY));
  await page.getByRole('button', { name: 'Show the key' }).click();
  assert.ok((await python.innerText()).includes(KEY));
  await tab(page, 'Server');
  await page.locator('.cards dd').first().waitFor();
  assert.deepEqual(await page.evaluate((key) => Object.values(localStorage).filter((value) => value.includes(key)), KEY), []);
  browser.expectProblem(/status of 401/);
  await page.close();
});

test('who gives no key is told what to do', async () => {
  const page = await browser.page(locked.url, { isReady: false });
  await page.getByRole('dialog').waitFor();
  await page.keyboard.press('Escape');
  await page.getByText('This server needs a key. Reload the page to give one.').waitFor();
  browser.expectProblem(/status of 401/);
  await page.close();
});

test('a server that goes away is said, and comes back', async () => {
  const page = await browser.page(server.url);
  await page.route('**/metrics', (route) => route.abort());
  await tab(page, 'Server');
  await page.getByText('The server cannot be reached.').waitFor();
  await page.unroute('**/metrics');
  await page.locator('.cards dd').first().waitFor();
  await tab(page, 'Chat');
  await page.route('**/v1/chat/completions', (route) => route.abort());
  await ask(page, 'apples');
  assert.match(await (await answered(page)).innerText(), /The server cannot be reached\.[^]*failed/);
  browser.expectProblem(/ERR_FAILED/);
  await page.close();
});

test('while the model is loaded the page is there and says how far it is', async () => {
  const page = await browser.context.newPage();
  let progress = 0.25;
  const loading = (route) => route.fulfill({ status: 503, json: { status: 'loading', progress, error: { code: 503, message: 'Loading model', type: 'unavailable_error' } } });
  for (const path of ['**/props', '**/v1/models', '**/health']) await page.route(path, loading);
  await page.goto(server.url);
  await page.getByText('The model is being loaded: 25 %').waitFor();
  progress = 0.75;
  await page.getByText('The model is being loaded: 75 %').waitFor();
  await page.unrouteAll();
  await page.locator('#model', { hasText: 'gemma' }).waitFor();
  assert.ok(await page.locator('#banner').isHidden());
  await page.close();
});
