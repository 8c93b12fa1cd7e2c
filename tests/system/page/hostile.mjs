// A model that means harm, or means nothing: whatever it writes stays text, and nothing it writes stops the page for more
// than a tenth of a second.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startScripted, until } from '../../server/clients/support/server.mjs';
import { answered, ask, Browser, tasksDuring } from './support/browser.mjs';

// Milliseconds of one task of the page. On a machine that is busy with other things a task is held up, so what the browser
// reports as longer counts only when the page also worked for half of that.
const MOST = 100;
const HTML = [
  '<script>window.harmed = 1</script>', '<img src=x onerror="window.harmed = 1">', '<svg onload="window.harmed = 1">',
  '<iframe srcdoc="<script>parent.harmed = 1</script>"></iframe>', '<style>body { display: none }</style>', '<a href="javascript:window.harmed = 1">link</a>',
  '<form action="https://example.org"><button>send</button></form>', '<meta http-equiv="refresh" content="0;url=https://example.org">',
  '<base href="https://example.org/">', '<link rel="stylesheet" href="https://example.org/x.css">', '<details open ontoggle="window.harmed = 1">',
];
const LINKS = [
  '[a](javascript:window.harmed=1)', '[b](JaVaScRiPt:window.harmed=1)', '[c](data:text/html,<script>alert(1)</script>)', '[d](vbscript:x)',
  '[e](\u0001javascript:window.harmed=1)', '[f](java\tscript:window.harmed=1)', '<javascript:window.harmed=1>', '[g](//example.org)', '[h](file:///etc/passwd)',
  '[i](blob:https://example.org/x)', '![j](https://example.org/track.png)', '![k](javascript:window.harmed=1)', '[l]( javascript:window.harmed=1)',
];
const table = (rows, columns) => {
  const row = (cell) => `|${Array.from({ length: columns }, (_, i) => cell(i)).join('|')}|\n`;
  return row((i) => `h${i}`) + row(() => '--') + Array.from({ length: rows }, (_, r) => row((i) => `${r}.${i}`)).join('');
};
// Each is repeated: the first until it is more than 100,000 tokens long, the others some ten thousand.
const MASS = {
  paragraphs: 'A line of *words* and `code`.\n\n',
  words: 'word and another one, ',
  unbroken: 'abcdefghij',
  'a fence that stays open': 'let x = "text"; // and so on\n',
  items: '- an item with **words**\n',
  marks: '*_`[~<!**__``',
  quotes: '> > > > > > > > > deep\n',
  rows: '| a | b |\n',
};
const START = { 'a fence that stays open': '```js\n', rows: '| a | b |\n|---|---|\n' };

const server = await startScripted([
  { when: 'html', say: `${HTML.join('\n\n')}\n\n${HTML.join(' ')}\n\n\`\`\`html\n${HTML.join('\n')}\n\`\`\`\n` },
  { when: 'links', say: LINKS.join('\n\n') },
  { when: 'half', say: 'Before.\n\n```js\nconst half = 1;' },
  { when: 'wide', say: table(30, 60) },
  { when: 'tall', say: table(1500, 4) },
  { when: 'nested', say: `${Array.from({ length: 200 }, (_, i) => `${'  '.repeat(i)}- deep`).join('\n')}\n\n${'['.repeat(3000)}${'*a '.repeat(3000)}${'`'.repeat(999)}` },
  { when: 'direction', say: 'abc \u202egnp.exe\u202c \u0007\u001b[31m \ud83d\ude00 \u0000end' },
  ...Object.entries(MASS).map(([name, text]) => ({ when: name, say: [START[name] ?? '', { repeat: text, times: name === 'paragraphs' ? 100000 : Math.ceil(80000 / text.length) }] })),
], '--no-loop-guard', '-c', '131072', '-np', '1');
const browser = await Browser.open();
after(async () => {
  try {
    await browser.close();
  } finally {
    await server.close();
  }
});

async function open() {
  const page = await browser.page(server.url);
  await page.evaluate(() => {
    window.tasks = [];
    new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map(({ duration }) => Math.round(duration)))).observe({ type: 'longtask' });
  });
  await page.getByRole('button', { name: 'New conversation' }).click();
  return page;
}

// Does the work and looks how long the page was busy without a break.
async function staysFluent(t, page, work) {
  const tasks = await tasksDuring(browser, page, work);
  const observed = Math.max(0, ...(await page.evaluate(() => window.tasks)));
  const busiest = Math.max(0, ...tasks.map(({ cpu }) => cpu));
  t.diagnostic(`longest task ${observed} ms, at most ${busiest} ms of work in one`);
  assert.ok(busiest <= MOST, `a task worked for ${busiest} ms`);
  assert.ok(observed <= MOST || !tasks.some(({ wall, cpu }) => wall > MOST && cpu > MOST / 2), `a task took ${observed} ms`);
}

async function isHarmless(page) {
  assert.equal(await page.evaluate(() => window.harmed), undefined);
  const log = page.locator('.log');
  assert.equal(await log.locator('script, iframe, style, object, embed, form[action], meta, base, link, video').count(), 0);
  assert.equal(await log.locator('svg:not(.icon)').count(), 0);
  assert.equal(await log.evaluate((node) => [...node.querySelectorAll('*')].filter((one) => [...one.attributes].some(({ name }) => /^(on|style$|srcdoc)/.test(name))).length), 0);
  const targets = await log.locator('a').evaluateAll((links) => links.map((link) => [link.protocol, link.target, link.rel]));
  for (const [protocol, target, rel] of targets) assert.deepEqual([/^(https?|mailto):$/.test(protocol), target, rel], [true, '_blank', 'noopener noreferrer'], protocol);
}

test('HTML and scripts are shown as what they are', async () => {
  const page = await open();
  await ask(page, 'html');
  const answer = await answered(page);
  await until(async () => (await answer.innerText()).includes('ontoggle'), 'all is drawn');
  for (const html of HTML) assert.ok((await answer.innerText()).includes(html), html);
  await isHarmless(page);
  await page.close();
});

test('links lead to the web and nowhere else; pictures are not fetched', async () => {
  const page = await open();
  await ask(page, 'links');
  const answer = await answered(page);
  await until(async () => (await answer.locator('a').count()) > 0, 'the one good link');
  assert.deepEqual(await answer.locator('a').evaluateAll((all) => all.map((one) => one.href)), ['https://example.org/x', 'https://example.org/track.png']);
  assert.equal(await answer.locator('img').count(), 0);
  await isHarmless(page);
  await page.close();
});

test('half a code fence is code, and the next message is not', async () => {
  const page = await open();
  await ask(page, 'half');
  const answer = await answered(page);
  await until(async () => (await answer.locator('pre').innerText()).trim() === 'const half = 1;', 'the code');
  await ask(page, '```');
  await answered(page);
  assert.equal(await page.locator('article.user pre').count(), 0);
  await page.close();
});

for (const what of ['wide', 'tall', 'nested', 'direction']) {
  test(`odd shapes: ${what}`, async (t) => {
    const page = await open();
    await staysFluent(t, page, async () => {
      await ask(page, what);
      await answered(page);
      await page.waitForTimeout(300);
    });
    await isHarmless(page);
    assert.ok(await page.evaluate(() => document.scrollingElement.scrollWidth <= innerWidth), 'the page is not wider than its window');
    await page.close();
  });
}

for (const name of Object.keys(MASS)) {
  test(`tens of thousands of tokens: ${name}`, async (t) => {
    const page = await open();
    await staysFluent(t, page, async () => {
      await ask(page, name);
      await page.locator('.facts').waitFor({ timeout: 60000 });
      // The page is usable in the end, and goes to any place of the answer at once.
      await page.getByRole('textbox', { name: 'Message' }).fill('typed');
      await page.getByRole('region', { name: 'Messages' }).evaluate((node) => (node.scrollTop = 0));
      await page.waitForTimeout(200);
      await page.getByRole('region', { name: 'Messages' }).evaluate((node) => (node.scrollTop = node.scrollHeight / 2));
      await page.waitForTimeout(200);
    });
    const tokens = Number((await page.locator('.facts').innerText()).split(' ')[0].replaceAll(',', ''));
    t.diagnostic(`${tokens} tokens`);
    assert.ok(tokens >= (name === 'paragraphs' ? 100000 : 8000), `only ${tokens} tokens`);
    await isHarmless(page);
    await page.close();
  });
}
