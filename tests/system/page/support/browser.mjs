// The system's chromium, headless, and pages of it on which nothing may go wrong unseen: errors, refused code and requests
// to elsewhere fail the test.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { chromium } from 'playwright-core';

const ARGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];

export class Browser {
  // Each has a folder of its own for what it keeps, which goes with it. With a test, it is gone when that test has failed.
  static async open(options = {}, test = null) {
    const browser = new Browser();
    test?.after(() => browser.end());
    browser.folder = mkdtempSync(path.join(tmpdir(), 'carat-chromium-'));
    browser.context = await chromium.launchPersistentContext(browser.folder, {
      executablePath: process.env.CARAT_CHROMIUM ?? '/usr/bin/chromium', headless: true, args: ARGS,
      viewport: { width: 1280, height: 800 }, acceptDownloads: true, ...options,
    });
    browser.problems = [];
    browser.context.setDefaultTimeout(15000);
    return browser;
  }

  // A page of the server at `url`, as a user sees it once it is there.
  async page(url, { isReady = true } = {}) {
    const page = await this.context.newPage();
    page.on('pageerror', (error) => this.problems.push(`error: ${error.stack ?? error}`));
    page.on('console', (message) => message.type() === 'error' && this.problems.push(`console: ${message.text()}`));
    page.on('request', (request) => {
      if (!request.url().startsWith(url) && !/^(data|blob):/.test(request.url())) this.problems.push(`request to ${request.url()}`);
    });
    await page.goto(`${url}/`);
    if (isReady) await page.locator('body.ready').waitFor();
    return page;
  }

  // A problem that a test has provoked.
  expectProblem(pattern) {
    const left = this.problems.filter((problem) => !pattern.test(problem));
    assert.notEqual(left.length, this.problems.length, `no problem like ${pattern}`);
    this.problems = left;
  }

  async end() {
    await this.context.close();
    rmSync(this.folder, { recursive: true, force: true });
  }

  // Ends it, and fails where something went wrong unseen.
  async close() {
    await this.end();
    assert.deepEqual(this.problems, []);
  }
}

// How long the page's own tasks were, in milliseconds: {wall, cpu} of each of more than 20, the longest first. Others work
// on this machine, too: what the main thread waited for a core is part of `wall`, and no fault of the page.
export async function tasksDuring(browser, page, work) {
  const tracer = browser.context.browser();
  await tracer.startTracing(page, { categories: ['toplevel'] });
  await work();
  const { traceEvents } = JSON.parse((await tracer.stopTracing()).toString());
  const threads = traceEvents.filter((event) => event.name === 'thread_name' && event.args.name === 'CrRendererMain');
  const tasks = threads.map(({ pid, tid }) => traceEvents.filter((event) => event.ph === 'X' && event.pid === pid && event.tid === tid));
  const own = tasks.sort((a, b) => b.length - a.length)[0];
  assert.ok(own?.some((event) => event.tdur > 0), 'the trace has the time of the thread');
  return own.filter((event) => event.dur > 20000).map((event) => ({ wall: Math.round(event.dur / 1000), cpu: Math.round((event.tdur ?? 0) / 1000) })).sort((a, b) => b.wall - a.wall);
}

// What a user does to ask, and the answer once it is complete.
export async function ask(page, text) {
  const field = page.getByRole('textbox', { name: 'Message' });
  await field.fill(text);
  await field.press('Enter');
}
export async function answered(page) {
  await page.locator('article.assistant[aria-busy=true]').waitFor({ state: 'detached' });
  const last = page.locator('article.assistant').last();
  await last.locator('.facts, .problem').first().waitFor();
  // Text is drawn once a frame: the last of it may come with the next one.
  await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
  return last;
}
