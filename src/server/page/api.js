// The server, by its own routes. Addresses are relative, so the page works behind a proxy that adds a path, too.
import { ask, breathe, el } from './dom.js';

const KEY = 'carat.key';
const root = new URL('.', document.baseURI);

export const baseUrl = () => root.href.replace(/\/$/, '');
export const savedKey = () => sessionStorage.getItem(KEY) ?? '';

let asking = null;

// One dialog however many requests were refused at the same time.
function askForKey(wasWrong) {
  asking ??= ask('This server needs a key', (close) => {
    const input = el('input', { type: 'password', id: 'key', autocomplete: 'off', required: true });
    const submit = (event) => (event.preventDefault(), input.value && close(input.value));
    return el('form', { onsubmit: submit },
      el('label', { for: 'key' }, 'API key'), input,
      el('p', { class: 'muted' }, wasWrong ? 'The server does not know this key.'
        : 'It is kept until this tab is closed, and sent to this server only.'),
      el('div', { class: 'row end' }, el('button', { class: 'primary' }, 'Use the key')));
  }).then((key) => {
    asking = null;
    if (key) sessionStorage.setItem(KEY, key.trim());
    return Boolean(key);
  });
  return asking;
}

// Why a request was refused, in the server's words.
export class ServerError extends Error {
  constructor(message, status, body) {
    super(message);
    this.status = status;
    this.body = body;
  }
}

async function failure(response) {
  const text = await response.text();
  try {
    const body = JSON.parse(text);
    return new ServerError(body.error?.message ?? text, response.status, body);
  } catch {
    return new ServerError(text || `status ${response.status}`, response.status, {});
  }
}

// A response with a good status. Asks for a key where one is needed, as often as it takes.
export async function request(path, { body, signal } = {}) {
  for (;;) {
    const key = savedKey();
    const headers = key ? { authorization: `Bearer ${key}` } : {};
    let response;
    try {
      response = await fetch(new URL(path, root), body === undefined ? { headers, signal, cache: 'no-store' }
        : { method: 'POST', headers: { ...headers, 'content-type': 'application/json' }, body: JSON.stringify(body), signal });
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new ServerError('The server cannot be reached.', 0, {});
    }
    if (response.ok) return response;
    const error = await failure(response);
    if (response.status !== 401 || !(savedKey() !== key || await askForKey(Boolean(key)))) throw error;
  }
}

export const getJson = async (path) => (await request(path)).json();

// The data of server-sent events, one after another. Returns whether the stream said that it is whole. A fast server
// must not keep the browser from drawing: after some milliseconds of work it gets a turn.
export async function stream(path, body, signal, take) {
  const response = await request(path, { body, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '', isWhole = false, begun = performance.now();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return isWhole;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith('data: ')) continue;
      if (line === 'data: [DONE]') isWhole = true;
      else take(JSON.parse(line.slice(6)));
      if (performance.now() - begun > 8) {
        await breathe();
        begun = performance.now();
      }
    }
  }
}
