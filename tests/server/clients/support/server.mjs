// Starts the programs under test, each on a free port of loopback, and ends them.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../../..');
const carat = process.env.CARAT_PROGRAM ?? path.join(root, 'build/release/src/cli/carat');
const scripted = process.env.CARAT_SCRIPTED_SERVER ?? path.join(root, 'build/release/tests/server/scripted_server');
const model = path.join(root, 'models/demo-e-q8_0.gguf');

// A server that runs. `close()` ends it as Ctrl-C does and throws unless it ends well.
class Server {
  #process;
  #exit;
  #log = '';
  #folder;

  constructor(program, args, folder) {
    this.#folder = folder;
    this.#process = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    this.#process.stderr.on('data', (data) => (this.#log += data));
    this.#exit = new Promise((resolve) => {
      this.#process.on('error', (error) => resolve(`${error}`));
      this.#process.on('exit', (code, signal) => resolve(code ?? signal));
    });
    process.once('exit', () => this.#process.kill('SIGKILL'));
  }

  async open() {
    const line = await new Promise((resolve, reject) => {
      let text = '';
      this.#process.stdout.on('data', (data) => {
        text += data;
        if (text.includes('\n')) resolve(text);
      });
      this.#exit.then((code) => reject(new Error(`the server ended (${code}): ${this.#log}`)));
    });
    this.url = /listening on (http:\/\/\S+)/.exec(line)[1];
    for (;;) {
      const health = await fetch(`${this.url}/health`);
      await health.text();
      if (health.status === 200) return this;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  // What it wrote to standard error so far.
  get log() {
    return this.#log;
  }
  get pid() {
    return this.#process.pid;
  }

  // One number of /metrics; `labels` as they stand there: 'phase="queued"'.
  async metric(name, labels = '') {
    const text = await (await fetch(`${this.url}/metrics`)).text();
    let sum = 0;
    for (const line of text.split('\n')) {
      const [, found, own, value] = /^([a-zA-Z_:]+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
      if (found === name && (own ?? '').includes(labels)) sum += Number(value);
    }
    return sum;
  }

  async close() {
    this.#process.kill('SIGINT');
    const code = await this.#exit;
    if (this.#folder) rmSync(this.#folder, { recursive: true });
    if (code !== 0) throw new Error(`the server ended with ${code}: ${this.#log}`);
  }
}

// `carat serve` with the demo model, on one core: others run tests beside it.
export function startCarat(...flags) {
  return new Server(carat, ['serve', '-m', model, '--port', '0', '-t', '1', ...flags]).open();
}

// The same server with a model that says what `script` tells it to (tests/server/scripted/script.h).
export function startScripted(script, ...flags) {
  const folder = mkdtempSync(path.join(tmpdir(), 'carat-script-'));
  const file = path.join(folder, 'script.json');
  writeFileSync(file, JSON.stringify(script));
  return new Server(scripted, ['--script', file, '-m', model, '--port', '0', ...flags], folder).open();
}

// Waits until `isTrue` says so; fails after ten seconds.
export async function until(isTrue, what) {
  const end = Date.now() + 10000;
  while (!(await isTrue())) {
    if (Date.now() > end) throw new Error(`still not: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
