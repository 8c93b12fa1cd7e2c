// How the page looks and is used: on a phone and a desk, dark and light, by keyboard alone, with a screen reader; and what
// the server sends of it.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { call, thought } from '../../server/clients/support/script.mjs';
import { startScripted, until } from '../../server/clients/support/server.mjs';
import { answered, ask, Browser } from './support/browser.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const RICH = `# Head\n\nSome **bold** \`code\`, [a link](https://example.org) and ${'averyverylongword'.repeat(20)}.\n\n| one | two | three | four | five | six | seven |\n|---|---|---|---|---|---|---|\n| a | b | c | d | e | f | g |\n\n- [x] done\n- item\n\n> quoted\n\n\`\`\`python\ndef f(a, b): # comment\n    return "text that is rather long, so that it has to be scrolled" * 100 + a + b\n\`\`\`\n`;
const server = await startScripted([
  { when: 'weather', say: [thought('A call.'), call('weather', { city: 'Paris' })] },
  { when: 'slowly', say: [{ repeat: 'word and ', times: 300 }], token_ms: 10 },
  { when: 'long', say: [{ repeat: 'A paragraph of some words.\n\n', times: 60 }] },
  { when: 'rich', say: `${thought('Let me think of it.')}${RICH}` },
  { when: 'apples', say: 'Apples are red.' },
], '--no-loop-guard');
after(() => server.close());

const SIZES = { phone: { width: 360, height: 740 }, desk: { width: 1280, height: 800 } };

async function violations(page, where) {
  await page.evaluate(axe);
  const { violations: found } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }));
  assert.deepEqual(found.map(({ id, nodes }) => `${where}: ${id}: ${nodes.map(({ html, failureSummary }) => `${html} (${failureSummary})`).join('; ')}`), []);
}
// Nothing sticks out of the window, and all that can be pressed is large enough for a finger.
async function fits(page, where) {
  const wide = await page.evaluate(() => [...document.querySelectorAll('body *')].filter((one) => {
    const { right, left, width } = one.getBoundingClientRect();
    return width > 0 && (right > innerWidth + 1 || left < -1) && one.checkVisibility() && !one.closest('pre, .table, .offscreen, .conversations .actions');
  }).map((one) => one.outerHTML.slice(0, 120)));
  assert.deepEqual(wide, [], where);
  assert.ok(await page.evaluate(() => document.scrollingElement.scrollWidth <= innerWidth), where);
  const small = await page.evaluate(() => [...document.querySelectorAll('button')].filter((one) => {
    const { width, height } = one.getBoundingClientRect();
    return width > 0 && (width < 24 || height < 24);
  }).map((one) => one.outerHTML.slice(0, 120)));
  assert.deepEqual(small, [], where);
}

for (const [name, viewport] of Object.entries(SIZES)) {
  for (const colorScheme of ['light', 'dark']) {
    test(`${name}, ${colorScheme}: every part of the page, without violations`, async (t) => {
      const browser = await Browser.open({ viewport, colorScheme }, t);
      const page = await browser.page(server.url);
      const look = async (where) => {
        await violations(page, where);
        await fits(page, where);
      };
      await look('greeting');
      await ask(page, 'something rich');
      await (await answered(page)).locator('summary').click();
      await ask(page, 'The weather?');
      await answered(page);
      await page.locator('article.user').first().getByRole('button', { name: 'Edit' }).click();
      await look('chat');
      await page.getByRole('button', { name: 'Cancel' }).click();
      if (name === 'phone') {
        await page.getByRole('button', { name: 'Conversations' }).click();
        await page.getByRole('button', { name: 'something rich', exact: true }).waitFor();
        await look('conversations');
        await page.getByRole('button', { name: 'something rich', exact: true }).click();
        await page.locator('#side').waitFor({ state: 'hidden' });  // the chosen one is what is wanted now
      }
      await page.getByRole('button', { name: 'Settings of the conversation' }).click();
      await look('settings');
      await page.getByLabel('Tools as JSON').fill('{');
      await look('settings with a mistake');
      await page.keyboard.press('Escape');
      await page.getByRole('tab', { name: 'Server' }).click();
      await page.locator('.legend b').first().waitFor();
      await look('server');
      await page.getByRole('tab', { name: 'Connect' }).click();
      await look('connect');
      const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      const brightness = Number(/\d+/.exec(ground)[0]);
      assert.ok(colorScheme === 'dark' ? brightness < 60 : brightness > 200, ground);
      await page.getByRole('button', { name: 'Light or dark' }).click();
      assert.notEqual(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), ground);
      await page.reload();
      assert.notEqual(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), ground);
      await browser.close();
    });
  }
}

test('by keyboard alone', async (t) => {
  const browser = await Browser.open({}, t);
  const page = await browser.page(server.url);
  const { keyboard } = page;
  const focused = () => page.evaluate(() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent.trim().slice(0, 40));
  const tabTo = async (name, key = 'Tab') => {
    for (let i = 0; i < 60; ++i) {
      if ((await focused()) === name) return;
      await keyboard.press(key);
      // Whoever has the focus can be seen to have it.
      assert.ok(await page.evaluate(() => document.activeElement === document.body || document.activeElement.closest('.field') !== null || getComputedStyle(document.activeElement).outlineStyle !== 'none'), await focused());
    }
    assert.fail(`no way to ${name}`);
  };
  assert.equal(await focused(), 'Message');
  await tabTo('To the message field', 'Shift+Tab');
  await keyboard.press('Enter');
  await keyboard.type('apples');
  await keyboard.press('Shift+Enter');
  await keyboard.type('and more');
  await keyboard.press('Enter');
  assert.match(await (await answered(page)).innerText(), /Apples are red/);
  assert.equal(await page.locator('.written').innerText(), 'apples\nand more');
  assert.equal(await focused(), 'Message');
  await keyboard.press('ArrowUp');  // edits the last question
  assert.equal(await focused(), 'Edit the message');
  await keyboard.press('ControlOrMeta+a');
  await keyboard.type('Say it slowly');
  await keyboard.press('Enter');
  await page.getByRole('button', { name: 'Stop the answer' }).waitFor();
  await keyboard.press('Escape');
  assert.match(await (await answered(page)).innerText(), /stopped by you/);
  await page.locator('#question').focus();
  await tabTo('The branch before', 'Shift+Tab');
  await keyboard.press('Enter');
  await page.getByText('Apples are red.').waitFor();
  assert.equal(await focused(), 'The next branch');
  await keyboard.press('Enter');
  await page.getByText('stopped by you').waitFor();
  await tabTo('Chat', 'Shift+Tab');
  await keyboard.press('ArrowRight');
  assert.equal(await page.locator('#server').isVisible(), true);
  await keyboard.press('ArrowRight');
  await page.getByRole('heading', { name: 'Claude Code' }).waitFor();
  await tabTo('Copy the settings for Codex');
  await keyboard.press('Enter');
  await until(async () => (await page.locator('#said').textContent()) === 'Copied', 'a screen reader hears of it');
  await tabTo('Connect', 'Shift+Tab');
  await keyboard.press('ArrowRight');
  await keyboard.press('/');
  assert.equal(await focused(), 'Message');
  await tabTo('Settings of the conversation', 'Shift+Tab');
  await keyboard.press('Enter');
  await keyboard.type('Be brief.');
  assert.equal(await page.getByLabel('System prompt').inputValue(), 'Be brief.');
  await keyboard.press('Escape');
  assert.equal(await page.locator('#settings').isVisible(), false);
  await keyboard.press('ControlOrMeta+k');
  await keyboard.type('red');
  await page.locator('.conversations .title').first().waitFor();
  await tabTo('Rename “apples”');
  await keyboard.press('Enter');
  await keyboard.press('ControlOrMeta+a');
  await keyboard.type('Fruit');
  await keyboard.press('Enter');
  await page.getByRole('button', { name: 'Fruit', exact: true }).waitFor();
  await browser.close();
});

test('who scrolls up while an answer comes stays there, and finds the way back', async (t) => {
  const browser = await Browser.open({}, t);
  const page = await browser.page(server.url);
  await ask(page, 'something long');
  await answered(page);
  await ask(page, 'Say it slowly');
  await page.getByRole('button', { name: 'Stop the answer' }).waitFor();
  await page.mouse.move(640, 300);
  await page.mouse.wheel(0, -600);
  await page.getByRole('button', { name: 'To the end' }).waitFor();
  const top = await page.locator('.scroller').evaluate((node) => node.scrollTop);
  await page.waitForTimeout(300);
  assert.ok(Math.abs((await page.locator('.scroller').evaluate((node) => node.scrollTop)) - top) < 5);
  await page.getByRole('button', { name: 'To the end' }).click();
  await until(() => page.locator('.scroller').evaluate((node) => node.scrollHeight - node.scrollTop - node.clientHeight < 5), 'the end');
  await browser.close();
});

test('the first paint takes no longer than 100 ms', async (t) => {
  const browser = await Browser.open({}, t);
  const times = [];
  // The best of some: others may work on this machine.
  for (let i = 0; i < 12 && !times.some((time) => time <= 100); ++i) {
    const page = await browser.page(server.url);
    await until(() => page.evaluate(() => performance.getEntriesByName('first-contentful-paint').length > 0), 'a paint');
    times.push(Math.round(await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime)));
    await page.close();
  }
  t.diagnostic(`first contentful paint: ${times.join(', ')} ms`);
  assert.ok(Math.min(...times) <= 100, `${times}`);
  await browser.close();
});

test('what is sent: nothing from elsewhere, no code but files, and little of it', async () => {
  const get = (path, headers = {}, method = 'GET') => fetch(`${server.url}${path}`, { method, headers });
  const index = await get('/', { accept: 'text/html,application/xhtml+xml' });
  const html = await index.text();
  assert.equal(index.headers.get('content-type'), 'text/html; charset=utf-8');
  const policy = index.headers.get('content-security-policy');
  assert.match(policy, /^default-src 'self';/);
  assert.ok(!/unsafe|https?:|\*/.test(policy), policy);
  assert.equal(index.headers.get('x-content-type-options'), 'nosniff');
  assert.ok(!/ style=| on\w+=|<script>|<style/.test(html));
  // The files that the page names, and those that they name.
  const names = new Set([...html.matchAll(/(?:src|href)="(page\/[^"]+)"/g)].map(([, name]) => `/${name}`));
  let size = html.length;
  for (const name of names) {
    const file = await get(name);
    const text = await file.text();
    size += Buffer.byteLength(text);
    assert.equal(file.headers.get('content-security-policy'), policy);
    const imports = [...text.matchAll(/from '\.\/([^']+)'/g)].map(([, other]) => `/page/${other}`);
    for (const other of imports) names.add(other);
    assert.ok(!/innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function/.test(text), name);
    assert.ok(!/https?:\/\/(?!www\.w3\.org\/2000\/svg)[\w.]/.test(text.replaceAll('https?:', '')), `${name} names an address`);
  }
  assert.ok(size <= 120000, `${size} bytes`);
  const packed = await get('/page/main.js', { 'accept-encoding': 'gzip' });
  assert.equal(packed.headers.get('content-encoding'), 'gzip');
  assert.equal(await packed.text(), await (await get('/page/main.js', { 'accept-encoding': 'identity' })).text());
  const tag = packed.headers.get('etag');
  assert.equal((await get('/page/main.js', { 'accept-encoding': 'gzip', 'if-none-match': tag })).status, 304);
  const head = await get('/page/main.js', { 'accept-encoding': 'gzip' }, 'HEAD');
  assert.deepEqual([head.status, head.headers.get('etag'), await head.text()], [200, tag, '']);
  assert.equal((await get('/page/none.js')).status, 404);
  assert.equal((await get('/page/main.js', {}, 'POST')).status, 405);
  // Ollama's clients are greeted as ever.
  for (const accept of ['*/*', 'application/json', '']) {
    assert.equal(await (await get('/', accept ? { accept } : {})).text(), 'Ollama is running');
  }
});
