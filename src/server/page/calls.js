// Functions that the model may call: what was pasted is read, and a form takes the results of its calls from whoever
// sits before the page. Nothing is ever carried out.
import { el } from './dom.js';

// A list of tools as OpenAI's API has them, from JSON that may also be one tool, a list of bare functions, an object
// with "tools", or what an MCP server lists. Throws where it is none of these.
export function parseTools(text) {
  if (!text?.trim()) return [];
  const value = JSON.parse(text);
  const list = Array.isArray(value) ? value : [value.tools ?? value].flat();
  const names = new Set();
  return list.map((one, i) => {
    const { name, description, parameters, inputSchema, input_schema: schema, strict } = one?.function ?? one ?? {};
    if (typeof name !== 'string' || !name) throw new Error(`tool ${i + 1} has no name`);
    if (names.has(name)) throw new Error(`two tools are called ${name}`);
    names.add(name);
    return { type: 'function', function: { name, ...(description && { description }),
        parameters: parameters ?? schema ?? inputSchema ?? { type: 'object', properties: {} }, ...(strict !== undefined && { strict }) } };
  });
}

const pretty = (text) => {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
};

export const callNode = (call) =>
  el('div', { class: 'call' }, el('div', { class: 'call-name' }, 'Calls ', el('code', {}, call.name)),
    el('pre', { tabindex: '0', 'aria-label': `Arguments of ${call.name}` }, el('code', {}, pretty(call.arguments))));

// A form with a field for the result of each call; `take` gets [{id, name, text}].
export function callForm(calls, take) {
  const fields = calls.map((call) => el('textarea',
      { id: `result-${call.id}`, rows: 2, required: true, spellcheck: 'false' }));
  const submit = (event) => {
    event.preventDefault();
    take(calls.map((call, i) => ({ id: call.id, name: call.name, text: fields[i].value })));
  };
  return el('form', { class: 'call-form', 'aria-label': 'Results of the calls', onsubmit: submit },
    ...calls.map((call, i) => el('div', {}, el('label', { for: `result-${call.id}` }, `Result of ${call.name}`), fields[i])),
    el('div', { class: 'row end' }, el('button', { class: 'primary' }, calls.length > 1 ? 'Send the results' : 'Send the result')));
}
