// Conversations stay in the browser: what was said survives a reload, can be found, renamed, removed, and taken to
// `carat chat` and back.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { call, thought } from '../../server/clients/support/script.mjs';
import { startScripted, until } from '../../server/clients/support/server.mjs';
import { answered, ask, Browser } from './support/browser.mjs';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../..');
const carat = process.env.CARAT_PROGRAM ?? path.join(root, 'build/release/src/cli/carat');
const folder = mkdtempSync(path.join(tmpdir(), 'carat-page-'));
const words = Array.from({ length: 250 }, (_, i) => `w${i} `).join('');
const server = await startScripted([
  { when: 'slowly', say: words, token_ms: 5 },
  { when: 'think first', say: [`<|channel>thought\n${words}<channel|>Done.`], token_ms: 5 },
  { when: '21', say: 'It is 21 degrees.' },
  { when: 'weather', say: [thought('A call.'), call('weather', { city: 'Paris' })] },
  { when: 'apples', say: 'Apples are **red**.' },
  { when: 'pears', say: 'Pears are green.' },
]);
const browser = await Browser.open();
after(async () => {
  try {
    await browser.close();
  } finally {
    await server.close();
    rmSync(folder, { recursive: true });
  }
});

const fresh = (page) => page.getByRole('button', { name: 'New conversation' }).click();
const titles = (page) => page.locator('.conversations .title').allInnerTexts();
const body = (page) => page.locator('article.assistant').last().locator('.md').last();
const shown = (page) => page.locator('article.assistant').last().evaluate((node) => [...node.querySelectorAll('.md')].at(-1).textContent);

test('a reload in the middle of an answer loses nothing that had arrived', async () => {
  const page = await browser.page(server.url);
  await ask(page, 'Count slowly');
  await until(async () => (await shown(page)).includes('w40 '), 'the fortieth word');
  const before = await shown(page);
  await page.reload();
  await page.getByText('interrupted: the page was left').waitFor();
  await until(async () => (await shown(page)).length >= before.trimEnd().length, 'all of it');
  const now = await shown(page);
  assert.ok(now.startsWith(before.trimEnd()), `${before}\n${now}`);
  assert.ok(words.startsWith(now.trimEnd()), now);
  assert.equal(await page.evaluate(() => Object.keys(localStorage).filter((key) => key.startsWith('carat.journal')).length), 0);
  // Again, in the middle of thoughts, and by going elsewhere and back.
  await fresh(page);
  await ask(page, 'think first');
  await page.locator('summary', { hasText: 'Thinking…' }).waitFor();
  await page.locator('summary').click();
  const thoughts = page.locator('.thoughts .md');
  await until(async () => (await thoughts.textContent()).includes('w20 '), 'some thoughts');
  const thinking = await thoughts.textContent();
  await page.goto('about:blank');
  await page.goBack();
  await page.getByText('interrupted: the page was left').waitFor();
  await page.locator('summary').click();
  await until(async () => (await thoughts.textContent()).startsWith(thinking.trimEnd()), 'the thoughts');
  await page.close();
});

test('an answer whose tab was closed is found by the next tab', async () => {
  const page = await browser.page(server.url);
  await fresh(page);
  await ask(page, 'Count slowly');
  await until(async () => (await shown(page)).includes('w60 '), 'some words');
  await page.close({ runBeforeUnload: true });
  const other = await browser.page(server.url);
  await other.locator('.conversations .title', { hasText: 'Count slowly' }).first().click();
  await other.getByText('interrupted: the page was left').waitFor();
  await until(async () => (await shown(other)).includes('w60 '), 'what had arrived');
  await other.close();
});

test('a journal that another tab still writes to is left alone, until that tab is silent', async () => {
  const [page, other] = [await browser.page(server.url), await browser.page(server.url)];
  await fresh(page);
  await ask(page, 'Count slowly');
  await until(async () => (await shown(page)).includes('w20 '), 'some words');
  await other.reload();
  await other.locator('body.ready').waitFor();
  assert.equal(await page.evaluate(() => Object.keys(localStorage).filter((key) => /^carat\.journal\.[^.]+$/.test(key)).length), 1);
  assert.match(await (await answered(page)).innerText(), /complete/);
  assert.equal(await shown(page), words.trimEnd());
  // A crash tells nobody anything: only the beat stands still.
  await other.evaluate(() => {
    for (const key of Object.keys(localStorage)) if (key.startsWith('carat.journal')) throw new Error('a journal is left');
    localStorage.setItem('carat.journal.gone', JSON.stringify({ conversation: 'gone', node: 'gone', beat: Date.now() - 6000 }));
    localStorage.setItem('carat.journal.gone.0', '{"text":"x","thoughts":""}');
  });
  await other.reload();
  await other.locator('body.ready').waitFor();
  assert.equal(await other.evaluate(() => Object.keys(localStorage).filter((key) => key.startsWith('carat.journal')).length), 0);
  await page.close();
  await other.close();
});

test('list, search, rename and delete', async () => {
  const page = await browser.page(server.url);
  for (const what of ['Tell me of apples', 'Tell me of pears']) {
    await fresh(page);
    await ask(page, what);
    await answered(page);
  }
  await until(async () => (await titles(page)).slice(0, 2).join() === 'Tell me of pears,Tell me of apples', 'both are listed');
  const search = page.getByRole('searchbox', { name: 'Search conversations' });
  await search.fill('are red');  // of an answer
  await until(async () => (await titles(page)).join() === 'Tell me of apples', 'the one with these words');
  await search.fill('nowhere to be found');
  await page.getByText('Nothing found.').waitFor();
  await search.fill('');
  await until(async () => (await titles(page)).length >= 2, 'all are back');
  await page.locator('.conversations li', { hasText: 'apples' }).hover();
  await page.getByRole('button', { name: 'Rename “Tell me of apples”' }).click();
  await page.getByLabel('Name', { exact: true }).fill('Fruit');
  await page.getByRole('button', { name: 'Rename', exact: true }).click();
  await until(async () => (await titles(page)).includes('Fruit'), 'its name');
  await page.getByRole('button', { name: 'Fruit', exact: true }).click();
  await page.getByText('Apples are red.').waitFor();
  await page.locator('.conversations li', { hasText: 'Fruit' }).hover();
  await page.getByRole('button', { name: 'Delete “Fruit”' }).click();
  await page.getByRole('button', { name: 'Cancel' }).click();
  assert.ok((await titles(page)).includes('Fruit'));
  await page.locator('.conversations li', { hasText: 'Fruit' }).hover();
  await page.getByRole('button', { name: 'Delete “Fruit”' }).click();
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  await until(async () => !(await titles(page)).includes('Fruit'), 'it is gone');
  await page.getByText('What would you like to know?').waitFor();
  await page.close();
});

test('another tab sees new conversations', async () => {
  const [one, two] = [await browser.page(server.url), await browser.page(server.url)];
  await fresh(one);
  await ask(one, 'pears in two tabs');
  await until(async () => (await titles(two)).includes('pears in two tabs'), 'the list of the other tab');
  await one.close();
  await two.close();
});

// The file that the button of a conversation saves.
async function exportFile(page, title) {
  await page.locator('.conversations li', { hasText: title }).first().hover();
  const [saved] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: `Export “${title}”` }).first().click()]);
  const file = path.join(folder, saved.suggestedFilename());
  await saved.saveAs(file);
  return file;
}

async function importFile(page, file) {
  await page.locator('input[type=file][aria-label="Files to import"]').setInputFiles(file);
}

const inChat = (file, ...lines) => execFileSync(carat, ['chat', '--load', file, '-m', path.join(root, 'models/demo-e-q8_0.gguf'), '-t', '1', '--no-history'],
  { input: `${lines.join('\n')}\n`, encoding: 'utf8', stdio: ['pipe', 'pipe', 'pipe'], env: { ...process.env, TERM: 'dumb' } });

test('what the page exports, `carat chat` loads; what that saves, the page imports', async () => {
  const page = await browser.page(server.url);
  await fresh(page);
  await page.getByRole('button', { name: 'Settings of the conversation' }).click();
  await page.getByLabel('System prompt').fill('Be brief.');
  await page.getByLabel('Tools as JSON').fill('[{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]');
  await ask(page, 'The weather in Paris?');
  await page.getByRole('textbox', { name: 'Result of weather' }).fill('{"temp": 21}');
  await page.getByRole('button', { name: 'Send the result' }).click();
  await page.getByText('It is 21 degrees.').waitFor();
  await answered(page);
  const file = await exportFile(page, 'The weather in Paris?');
  assert.equal(path.basename(file), 'the-weather-in-paris.json');
  const { messages, tools } = JSON.parse(readFileSync(file, 'utf8'));
  assert.deepEqual(messages.map(({ role }) => role), ['system', 'user', 'assistant', 'tool', 'assistant']);
  assert.equal(messages[2].reasoning_content, 'A call.');
  assert.equal(tools[0].function.name, 'weather');

  const saved = path.join(folder, 'saved.json');
  inChat(file, `/save ${saved}`);
  const there = JSON.parse(readFileSync(saved, 'utf8'));
  assert.deepEqual(there.messages.map(({ role, content }) => [role, content]), messages.map(({ role, content }) => [role, content]));
  assert.deepEqual(there.tools, tools);

  await importFile(page, saved);
  await until(async () => (await titles(page))[0] === 'The weather in Paris?', 'it is listed');
  await page.getByText('It is 21 degrees.').waitFor();
  assert.equal(await page.getByLabel('System prompt').inputValue(), 'Be brief.');
  assert.match(await page.getByLabel('Tools as JSON').inputValue(), /"name": "weather"/);
  assert.equal(await page.locator('article.tool .written').innerText(), '{"temp": 21}');
  await ask(page, 'pears then');
  assert.match(await (await answered(page)).innerText(), /Pears are green\./);
  await page.close();
});

test('an export has all branches and settings; damaged files are refused', async () => {
  const page = await browser.page(server.url);
  await page.evaluate(() => localStorage.removeItem('carat.settings'));
  await fresh(page);
  await ask(page, 'apples with branches');
  await answered(page);
  await page.getByRole('button', { name: 'Answer again' }).click();
  await answered(page);
  const file = await exportFile(page, 'apples with branches');
  await importFile(page, file);
  await until(async () => (await titles(page)).filter((title) => title === 'apples with branches').length === 2, 'a second one');
  assert.match(await page.locator('.branches').innerText(), /2 \/ 2/);
  for (const [text, problem] of [['{', /JSON/], ['{"messages": [{"role": "wizard"}]}', /message 0 has no role/], ['{"a": 1}', /no list of messages/],
    ['{"carat_page": {"root": "a", "settings": {}, "nodes": {"a": {"id": "a", "kids": ["a"]}}}}', /damaged/]]) {
    const bad = path.join(folder, 'bad.json');
    writeFileSync(bad, text);
    await importFile(page, bad);
    await page.getByRole('dialog').getByText(problem).waitFor();
    await page.getByRole('button', { name: 'Close' }).click();
  }
  await page.close();
});

test('a browser that keeps nothing says so, and the chat works', async () => {
  const page = await browser.context.newPage();
  await page.addInitScript(() => Object.defineProperty(window, 'indexedDB', { get() { throw new Error('no'); } }));
  await page.goto(server.url);
  await page.locator('body.ready').waitFor();
  await ask(page, 'apples without a store');
  await answered(page);
  assert.equal(await body(page).innerText(), 'Apples are red.');
  await page.close();
});
