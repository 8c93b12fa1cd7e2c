// The connect tab: settings to copy into other programs, with this server's address, model and key.
import { baseUrl, savedKey } from './api.js';
import { copyButton, el } from './dom.js';

const quoted = (text) => JSON.stringify(text);

// Each: name, where it goes, and the text. `key` is what programs send, also where none is needed: most insist on one.
const CLIENTS = [
  ['Claude Code', 'In a shell', ({ url, key, model }) =>
    `ANTHROPIC_BASE_URL=${url} \\\n  ANTHROPIC_AUTH_TOKEN=${key} ANTHROPIC_MODEL=${model} \\\n  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 claude`],
  ['Codex', '~/.codex/config.toml', ({ url, model, context, hasKey }) =>
    `model = ${quoted(model)}\nmodel_provider = "carat"\nmodel_context_window = ${context}\n\n[model_providers.carat]\nname = "carat"\nbase_url = "${url}/v1"\nwire_api = "responses"${hasKey ? '\nenv_key = "CARAT_API_KEY"' : ''}`],
  ['opencode', 'opencode.json', ({ url, model, context, key, hasKey }) => JSON.stringify({
    provider: { carat: { npm: '@ai-sdk/openai-compatible', options: { baseURL: `${url}/v1`, ...(hasKey && { apiKey: key }) },
        models: { [model]: { limit: { context, output: 8192 } } } } }, model: `carat/${model}`,
  }, null, 2)],
  ['Open WebUI', 'Settings › Connections › OpenAI', ({ url, key }) => `URL  ${url}/v1\nKey  ${key}`],
  ['Python', 'With the openai package', ({ url, model, key }) =>
    `from openai import OpenAI\n\nclient = OpenAI(\n    base_url="${url}/v1",\n    api_key=${quoted(key)},\n)\nanswer = client.chat.completions.create(\n    model=${quoted(model)},\n    messages=[{"role": "user", "content": "What is nginx?"}],\n)\nprint(answer.choices[0].message.content)`],
  ['JavaScript', 'With the openai package', ({ url, model, key }) =>
    `import OpenAI from 'openai';\n\nconst client = new OpenAI({\n  baseURL: '${url}/v1',\n  apiKey: ${quoted(key)},\n});\nconst answer = await client.chat.completions.create({\n  model: ${quoted(model)},\n  messages: [{ role: 'user', content: 'What is nginx?' }],\n});\nconsole.log(answer.choices[0].message.content);`],
  ['curl', 'In a shell', ({ url, model, key, hasKey }) =>
    `curl ${url}/v1/chat/completions \\\n  ${hasKey ? `-H 'Authorization: Bearer ${key}' \\\n  ` : ''}-d '{"model": ${quoted(model)}, "messages": [{"role": "user", "content": "What is nginx?"}]}'`],
];

export function showConnect(root, facts) {
  const hasKey = Boolean(savedKey());
  let isShown = false;
  const cards = el('div', { class: 'clients' });
  const values = (reveals) => ({ url: baseUrl(), model: facts?.model ?? 'gemma', context: facts?.context ?? 32768, hasKey, key: hasKey ? (reveals ? savedKey() : '•••••••')
      : 'none' });
  const draw = () => cards.replaceChildren(...CLIENTS.map(([name, place, make]) => el('section', { class: 'client', 'aria-label': name },
    el('div', { class: 'row between' }, el('h3', {}, name), copyButton(() => make(values(true)), `Copy the settings for ${name}`)),
    el('p', { class: 'muted' }, place), el('pre', { tabindex: '0', 'aria-label': `Settings for ${name}` },
        el('code', {}, make(values(isShown)))))));
  const reveal = el('button', { type: 'button', 'aria-pressed': 'false', onclick: () => {
    isShown = !isShown;
    reveal.setAttribute('aria-pressed', String(isShown));
    reveal.textContent = isShown ? 'Hide the key' : 'Show the key';
    draw();
  } }, 'Show the key');
  root.replaceChildren(...[el('h2', {}, 'Connect'),
    el('p', {}, 'One server, four dialects: OpenAI’s chat, completions and responses, Anthropic’s messages, Ollama’s API. ',
      hasKey ? 'This server wants a key; what you copy has yours in it.'
          : 'This server wants no key; where a program insists on one, write anything.'),
    hasKey && reveal, cards].filter(Boolean));
  draw();
}
