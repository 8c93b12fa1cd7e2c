// Takes the pictures of docs/images: node screenshots.mjs [FOLDER]. The answers are a script's, so that the pictures are the
// same every time but for the times in them.
import { mkdirSync, statSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { thought } from '../../server/clients/support/script.mjs';
import { post } from '../../server/clients/support/streams.mjs';
import { startScripted } from '../../server/clients/support/server.mjs';
import { answered, ask, Browser } from './support/browser.mjs';

const MOST = 120000;  // bytes of a picture
const folder = process.argv[2] ?? path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../../docs/images');
mkdirSync(folder, { recursive: true });

const MUTEX = `A **mutex** lets one thread at a time into a part of a program. Three things to know:

| | std::mutex | std::shared_mutex |
|---|---|---|
| readers | one | many |
| writers | one | one |
| costs | least | more |

\`\`\`cpp
std::mutex mutex;
int total = 0;

void add(int value) {
  const std::lock_guard lock(mutex);  // unlocks on every way out
  total += value;
}
\`\`\`

Hold it briefly, and never while you wait for something else.
`;
const server = await startScripted({
  prompt_row_ms: 0.05,
  rules: [
    { when: 'mutex', say: `${thought('They want it short: what it is, which kinds there are, and one example.')}${MUTEX}`, token_ms: 4 },
    { when: 'load', say: [{ repeat: 'one more word of an answer that is of no interest, ', times: 30 }], token_ms: 3 },
    { when: 'semaphore', say: 'When more than one may enter, but not all: a semaphore counts them. A mutex is a semaphore that counts to one, and knows who holds it.', token_ms: 4 },
    { when: '', say: 'Nice to meet you.' },
  ],
}, '-np', '4', '-a', 'gemma-4-E4B-it', '--no-loop-guard', '-c', '8192');

async function shot(page, name) {
  const file = path.join(folder, `${name}.png`);
  await page.mouse.move(0, 0);
  await page.waitForTimeout(250);
  await page.screenshot({ path: file });
  const { size } = statSync(file);
  console.log(`${file}: ${size} bytes`);
  if (size > MOST) throw new Error(`${file} has ${size} bytes; at most ${MOST} are wanted`);
}

// Some work for the plots: rounds of conversations that repeat what they know.
async function work(rounds) {
  for (let round = 0; round < rounds; ++round) {
    await Promise.all(Array.from({ length: 1 + (round % 6) }, async (_, i) => {
      const messages = [{ role: 'user', content: `load ${i} ${'and a long preamble '.repeat(30 + 12 * i)}` }];
      for (let turn = 0; turn < round % 3; ++turn) messages.push({ role: 'assistant', content: 'ok' }, { role: 'user', content: `load again ${turn}` });
      await (await post(`${server.url}/v1/chat/completions`, { messages, max_tokens: 60 + 30 * i })).json();
    }));
    await new Promise((resolve) => setTimeout(resolve, 700 * (round % 4)));
  }
}

async function chat(page) {
  await ask(page, 'My name is Clara.');
  await answered(page);
  await page.evaluate(() => document.querySelector('.new').click());
  await ask(page, 'What is a mutex? Briefly, with an example in C++.');
  await answered(page);
}

for (const scheme of ['light', 'dark']) {
  const browser = await Browser.open({ colorScheme: scheme, viewport: { width: 1120, height: 820 } });
  const page = await browser.page(server.url);
  await chat(page);
  await shot(page, `page-chat-${scheme}`);
  if (scheme === 'light') {
    const working = work(36);
    await page.getByRole('tab', { name: 'Server' }).click();
    await working;
    await page.setViewportSize({ width: 1120, height: 800 });
    await shot(page, 'page-server');
    await page.setViewportSize({ width: 1120, height: 820 });
    await page.getByRole('tab', { name: 'Connect' }).click();
    await shot(page, 'page-connect');
  }
  await browser.close();
}
const phone = await Browser.open({ colorScheme: 'dark', viewport: { width: 360, height: 740 }, deviceScaleFactor: 1.5 });
const page = await phone.page(server.url);
await chat(page);
await shot(page, 'page-phone');
await phone.close();
await server.close();
