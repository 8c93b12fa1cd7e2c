#!/usr/bin/env node
// Runs the agents people use against the server, each once: Claude Code, Codex and opencode, from npm (1 GB, so `make
// test` leaves them out). The model plays a part: it calls the agent's own tool to read a file that holds a random word,
// and says the word once it has come back. docs/server.md has the table that this prints.
//
// usage: node scripts/real_agents.mjs [--folder DIR] [--latest] [--show] [--record DIR] [claude|codex|opencode ...]
//   --folder DIR  where npm puts the agents; kept, and used again. Without it a temporary folder that is removed
//   --latest      the newest versions instead of those of the table
//   --show        the rest of what each agent wrote
//   --record DIR  all requests and answers, as DIR/claude.json and so on
// Environment: CARAT_SCRIPTED_SERVER (default: build/release/tests/server/scripted_server).
//
// Agents run with an empty environment, a HOME of their own, and, where the machine lets us make one, in a network that
// has nothing but loopback. Whom else they wanted to reach is read from a proxy that refuses everything.
import { spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { call, thought } from '../tests/server/clients/support/script.mjs';
import { startScripted } from '../tests/server/clients/support/server.mjs';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');
const kInstallSeconds = 900;
const kAgentSeconds = 120;
const kMostRequests = 40;  // an agent that goes round in circles gets no further answer
const kQuestion = 'Read the file note.txt with a tool and tell me the word in it.';

// How each agent is set up for a server at `url`, as in docs/server.md; `call` is what the model calls to read `file`.
const agents = {
  claude: {
    name: 'Claude Code',
    package: '@anthropic-ai/claude-code',
    version: '2.1.197',
    command: ['-p', kQuestion],
    call: (file) => call('Read', { file_path: file }),
    environment: (url) => ({
      ANTHROPIC_BASE_URL: url,
      ANTHROPIC_AUTH_TOKEN: 'none',
      ANTHROPIC_MODEL: 'gemma',
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
    }),
  },
  codex: {
    name: 'Codex',
    package: '@openai/codex',
    version: '0.169.0',
    command: ['exec', '--skip-git-repo-check', kQuestion],
    call: (file) => call('exec_command', { cmd: `cat ${file}` }),
    files: (url) => ({
      '.codex/config.toml': `model = "gemma"
model_provider = "carat"
model_context_window = 65536
model_reasoning_effort = "medium"

[model_providers.carat]
name = "carat"
base_url = "${url}/v1"
wire_api = "responses"

[analytics]
enabled = false

[features]
plugins = false
`,
    }),
  },
  opencode: {
    name: 'opencode',
    package: 'opencode-ai',
    version: '1.18.33',
    command: ['run', kQuestion],
    call: (file) => call('read', { filePath: file }),
    files: (url) => ({
      '.config/opencode/opencode.json': JSON.stringify({
        provider: {
          carat: {
            npm: '@ai-sdk/openai-compatible',
            options: { baseURL: `${url}/v1` },
            models: {
              gemma: {
                limit: { context: 65536, output: 8192 }, reasoning: true, options: { reasoningEffort: 'medium' },
              },
            },
          },
        },
        model: 'carat/gemma',
      }),
    }),
    environment: () => ({ OPENCODE_DISABLE_MODELS_FETCH: '1' }),
  },
};

// Stands between an agent and the server and keeps what both say. As a proxy for anywhere else it only notes the host.
class Recorder {
  requests = [];
  elsewhere = new Set();
  #http = http.createServer((request, response) => this.#pass(request, response));

  async open(target) {
    this.target = new URL(target);
    this.#http.on('connect', (request, socket) => {
      this.elsewhere.add(request.url);
      socket.on('error', () => {});
      socket.end('HTTP/1.1 403 Forbidden\r\n\r\n');
    });
    await new Promise((resolve) => this.#http.listen(0, '127.0.0.1', resolve));
    this.url = `http://127.0.0.1:${this.#http.address().port}`;
    return this;
  }

  close() {
    this.#http.closeAllConnections();
    this.#http.close();
  }

  #pass(request, response) {
    if (!request.url.startsWith('/')) {
      this.elsewhere.add(new URL(request.url).host);
      response.writeHead(403).end();
      return;
    }
    const entry = { what: `${request.method} ${request.url}`, status: 0, asked: '', answered: '' };
    this.requests.push(entry);
    if (this.requests.length > kMostRequests) {
      response.destroy();
      return;
    }
    const onward = http.request(
      { host: this.target.hostname, port: this.target.port, path: request.url, method: request.method,
        headers: { ...request.headers, host: this.target.host } },
      (answer) => {
        entry.status = answer.statusCode;
        response.writeHead(answer.statusCode, answer.rawHeaders);
        answer.setEncoding('utf8').on('data', (data) => {
          entry.answered += data;
          response.write(data);
        });
        answer.on('end', () => response.end()).on('error', () => response.destroy());
      });
    onward.on('error', () => response.destroy());
    response.on('close', () => onward.destroy());
    request.setEncoding('utf8').on('data', (data) => {
      entry.asked += data;
      onward.write(data);
    });
    request.on('end', () => onward.end());
  }
}

// JSON of an exchange that may have been cut off in its middle.
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

// Every value of an answer, whether it is one object or a stream of events.
function objects(text) {
  const parts = text.startsWith('{') ? [text] : text.split('\n').filter((line) => line.startsWith('data: {'));
  return parts.map((part) => parsed(part.replace(/^data: /, '')));
}

// Tokens of the prompt and how many of them the server had, in the words of whichever dialect.
function usageOf({ answered }) {
  let all = {};
  for (const value of objects(answered)) {
    Object.assign(all, value.usage ?? value.response?.usage ?? value.message?.usage ?? {});
  }
  const reused = all.cache_read_input_tokens ?? (all.prompt_tokens_details ?? all.input_tokens_details)?.cached_tokens;
  const cached = (all.cache_read_input_tokens ?? 0) + (all.cache_creation_input_tokens ?? 0);
  const prompt = all.prompt_tokens ?? (all.input_tokens === undefined ? undefined : all.input_tokens + cached);
  return { prompt, reused };
}

// The shortest text in a request's JSON that has `word`: the result of the tool, without what stands around it.
function textWith(value, word) {
  if (typeof value === 'string') return value.includes(word) ? value : undefined;
  if (value === null || typeof value !== 'object') return undefined;
  const found = Object.values(value).map((inner) => textWith(inner, word)).filter((text) => text !== undefined);
  return found.sort((a, b) => a.length - b.length)[0];
}

const toolName = (tool) => tool.name ?? tool.function?.name ?? tool.type;

// Runs a program for a limited time; it and what it started are ended by the number of their process group.
async function runFor(seconds, program, args, options) {
  const child = spawn(program, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'], detached: true });
  const end = (signal) => {
    try {
      process.kill(-child.pid, signal);
    } catch (error) {
      if (error.code !== 'ESRCH') throw error;
    }
  };
  const timer = setTimeout(() => end('SIGKILL'), 1000 * seconds);
  const atExit = () => end('SIGKILL');
  process.once('exit', atExit);
  let out = '';
  let log = '';
  child.stdout.setEncoding('utf8').on('data', (data) => (out += data));
  child.stderr.setEncoding('utf8').on('data', (data) => (log += data));
  const status = await new Promise((resolve) => {
    child.on('error', (error) => resolve(`${error}`));
    child.on('exit', (code, signal) => resolve(code ?? signal));
  });
  clearTimeout(timer);
  if (child.pid) end('SIGTERM');
  process.off('exit', atExit);
  return { status, out, log };
}

// A server whose model reads `file` with the agent's own tool, and says `word` once it has come back.
function startReader(agent, file, word) {
  return startScripted(
    [
      { prompt: 'You are a title generator', say: 'A word in a file' },
      { prompt: word, say: [thought('There it is.\n'), `The word is ${word}.`] },
      { prompt: agent.call(file), say: 'The tool did not give me the word.' },
      // As Gemma writes: thoughts, then the call without a word before it.
      { prompt: 'note.txt', say: [thought('I have to read the file.\n'), agent.call(file)] },
    ],
    '-c', '65536');
}

function write(file, text) {
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, text);
}

async function runAgent(id, folder) {
  const agent = agents[id];
  const home = mkdtempSync(path.join(tmpdir(), `carat-${id}-`));
  const file = path.join(home, 'work/note.txt');
  const word = `heron-${randomBytes(4).toString('hex')}`;
  const recorder = new Recorder();
  let server;
  try {
    write(file, `The word is ${word}.\n`);
    server = await startReader(agent, file, word);
    await recorder.open(server.url);
    for (const [name, text] of Object.entries(agent.files?.(recorder.url) ?? {})) write(path.join(home, name), text);
    const env = {
      PATH: process.env.PATH, HOME: home, TMPDIR: home, TERM: 'dumb', LANG: 'C.UTF-8',
      HTTP_PROXY: recorder.url, HTTPS_PROXY: recorder.url, NO_PROXY: '127.0.0.1,localhost',
      ...agent.environment?.(recorder.url),
    };
    const started = Date.now();
    const program = path.join(folder, 'node_modules/.bin', id);
    const run = await runFor(kAgentSeconds, program, agent.command, { cwd: path.dirname(file), env });
    return { ...run, seconds: (Date.now() - started) / 1000, requests: recorder.requests, word,
      elsewhere: [...recorder.elsewhere] };
  } finally {
    recorder.close();
    await server?.close();
    rmSync(home, { recursive: true, force: true });
  }
}

function report(id, folder, run, { show, record }) {
  if (record) writeFileSync(path.join(record, `${id}.json`), JSON.stringify(run, null, 1));
  const { package: name } = agents[id];
  const { version } = JSON.parse(readFileSync(path.join(folder, 'node_modules', name, 'package.json'), 'utf8'));
  // Requests of the agent's loop: those that bring its tools.
  const turns = run.requests.map((request) => ({ ...request, body: parsed(request.asked) }))
    .filter(({ body }) => body.tools?.length > 0);
  const result = turns.map(({ body }) => textWith(body, run.word)).find((text) => text !== undefined);
  const works = run.status === 0 && result !== undefined && run.out.includes(run.word);
  console.log(`\n${agents[id].name} ${version}: ${works ? 'the loop works' : 'THE LOOP DOES NOT WORK'}`);
  console.log(`  exit status ${run.status} after ${run.seconds.toFixed(1)} s`);
  const shown = run.requests.slice(0, 8).map((request) => `${request.what} ${request.status}`);
  console.log(`  ${run.requests.length} requests: ${shown.join(', ')}${run.requests.length > 8 ? ', …' : ''}`);
  console.log(`  ${turns[0]?.body.tools.length ?? 0} tools: ${turns[0]?.body.tools.map(toolName).join(', ') ?? ''}`);
  console.log(`  the tool's result: ${result === undefined ? 'NEVER CAME BACK' : JSON.stringify(result)}`);
  console.log(`  final text: ${JSON.stringify(run.out.trim().slice(-200))}`);
  turns.slice(0, 8).forEach((turn, i) => {
    const { prompt, reused } = usageOf(turn);
    const read = prompt === undefined ? 'no usage' : `${prompt} tokens of prompt, ${reused} of them reused`;
    console.log(`  request ${i + 1} with tools: ${Buffer.byteLength(turn.asked)} bytes, ${read}`);
  });
  console.log(`  wanted to reach besides: ${run.elsewhere.join(', ') || 'nobody'}`);
  if (show || !works) {
    console.log(run.log.trim().slice(-4000).replace(/^/gm, '  | '));
  }
  return works;
}

function install(folder, names, latest) {
  if (spawnSync('npm', ['--version']).error) {
    throw new Error('npm is missing: the agents come from there. Install Node.js 20 or newer with npm, and run this again');
  }
  const wanted = names.filter((id) => latest || !existsSync(path.join(folder, 'node_modules/.bin', id)))
    .map((id) => `${agents[id].package}@${latest ? 'latest' : agents[id].version}`);
  if (wanted.length === 0) return;
  console.log(`installing ${wanted.join(', ')} in ${folder} (up to 1 GB)`);
  const npm = spawnSync('npm', ['install', '--no-audit', '--no-fund', '--prefix', folder, ...wanted],
    { encoding: 'utf8', timeout: 1000 * kInstallSeconds });
  if (npm.status !== 0) {
    throw new Error(`npm could not install them${npm.error ? ` (${npm.error.code})` : ''}:\n${npm.stderr.slice(-2000)}`);
  }
}

// Runs this script again where nothing but loopback can be reached. Undefined: the machine does not let us.
function runAlone(args) {
  const inside = ['-rn', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh'];
  if (spawnSync('unshare', [...inside, 'true']).status !== 0) return undefined;
  return spawnSync('unshare', [...inside, process.execPath, fileURLToPath(import.meta.url), '--alone', ...args],
    { stdio: 'inherit' }).status ?? 1;
}

async function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { folder: { type: 'string' }, record: { type: 'string' }, latest: { type: 'boolean' }, show: { type: 'boolean' },
      alone: { type: 'boolean' } },
  });
  const unknown = positionals.find((id) => !(id in agents));
  if (unknown) throw new Error(`no agent is called ${unknown}; known are ${Object.keys(agents).join(', ')}`);
  const scripted = process.env.CARAT_SCRIPTED_SERVER ?? path.join(root, 'build/release/tests/server/scripted_server');
  if (!existsSync(scripted)) throw new Error(`there is no ${scripted}; build it with --target scripted_server`);
  const names = positionals.length > 0 ? positionals : Object.keys(agents);
  const folder = values.folder ? path.resolve(values.folder) : mkdtempSync(path.join(tmpdir(), 'carat-agents-'));
  try {
    if (!values.alone) {
      install(folder, names, values.latest);
      const status = runAlone(['--folder', folder, ...(values.show ? ['--show'] : []),
        ...(values.record ? ['--record', values.record] : []), ...names]);
      if (status !== undefined) return status;
      console.log('no network of our own could be made (unshare): only the proxy keeps the agents from the internet');
    }
    let all = true;
    for (const id of names) all = report(id, folder, await runAgent(id, folder), values) && all;
    return all ? 0 : 1;
  } finally {
    if (!values.folder) rmSync(folder, { recursive: true, force: true });
  }
}

try {
  process.exitCode = await main();
} catch (error) {
  console.error(`real_agents: ${error.message}`);
  process.exitCode = 2;
}
