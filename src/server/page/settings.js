// The settings of a conversation. What is left empty is the model's own default, which the field shows.
import { parseTools } from './calls.js';
import { el } from './dom.js';

const KEPT = 'carat.settings';
const SAMPLING = [
  ['temperature', 'Temperature', { min: 0, max: 2, step: 0.05 }],
  ['top_p', 'Top p', { min: 0, max: 1, step: 0.01 }],
  ['top_k', 'Top k', { min: 0, step: 1 }],
  ['min_p', 'Min p', { min: 0, max: 1, step: 0.01 }],
  ['repeat_penalty', 'Repeat penalty', { min: 0.1, max: 10, step: 0.05 }],
  ['presence_penalty', 'Presence penalty', { min: -2, max: 2, step: 0.1 }],
  ['frequency_penalty', 'Frequency penalty', { min: -2, max: 2, step: 0.1 }],
  ['seed', 'Seed', { min: 0, step: 1 }],
  ['max_tokens', 'Most tokens', { min: 1, step: 1 }],
];

// What a new conversation begins with: the settings used last, but for those that belong to one task.
export function keptSettings() {
  try {
    return JSON.parse(localStorage.getItem(KEPT)) ?? {};
  } catch {
    return {};
  }
}

const jsonProblem = (text, read) => {
  try {
    read(text);
    return '';
  } catch (error) {
    return error.message;
  }
};
const readSchema = (text) => {
  const schema = text.trim() ? JSON.parse(text) : {};
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema)) throw new Error('a schema is an object');
};

export class Settings {
  // `changed(settings)` hears of every change.
  constructor(root, changed) {
    this.changed = changed;
    this.fields = {};
    this.problems = {};
    root.append(
      this.area('system', 'System prompt', 'How the model should behave', 4),
      el('fieldset', {}, el('legend', {}, 'Thinking'), this.choice('think', 'Think before answering',
          [['', 'As the server does'], ['on', 'On'], ['off', 'Off']]),
        this.number('budget', 'Most tokens of thoughts', { min: 1, step: 1 }, 'no limit')),
      el('fieldset', { class: 'grid' }, el('legend', {}, 'Sampling'),
          ...SAMPLING.map(([name, label, limits]) => this.number(name, label, limits)),
        this.area('stop', 'Stop texts, one a line', '', 2)),
      this.area('schema', 'Answer as JSON: schema', '{"type": "object", …}', 5, readSchema),
      this.area('tools', 'Tools as JSON', '[{"type": "function", "function": {"name": …}}]', 5, parseTools),
      this.choice('tool_choice', 'Calls', [['', 'when the model wants'], ['required', 'required'], ['none', 'forbidden']]),
      el('p', { class: 'muted' }, 'You carry out the calls: the page asks for their results.'),
      el('button', { type: 'button', onclick: () => this.reset() }, 'Back to the model’s defaults'));
  }

  labelled(name, label, field, problem) {
    this.fields[name] = field;
    field.id = `set-${name}`;
    field.addEventListener('input', () => this.read());
    return el('div', { class: 'setting' }, el('label', { for: field.id }, label), field, problem);
  }
  area(name, label, placeholder, rows, check) {
    const field = el('textarea', { rows, placeholder, spellcheck: check ? 'false' : 'true' });
    if (!check) return this.labelled(name, label, field);
    const problem = el('p', { class: 'problem', id: `problem-${name}`, role: 'status' });
    this.problems[name] = { check, problem };
    field.setAttribute('aria-describedby', problem.id);
    return this.labelled(name, label, field, problem);
  }
  number(name, label, limits, placeholder) {
    return this.labelled(name, label, el('input', { type: 'number', inputmode: 'decimal', placeholder, ...limits }));
  }
  choice(name, label, options) {
    return this.labelled(name, label, el('select', {}, ...options.map(([value, text]) => el('option', { value }, text))));
  }

  show(settings) {
    this.settings = settings;
    for (const [name, field] of Object.entries(this.fields)) field.value = settings[name] ?? '';
    this.checkAll();
  }

  // The model's own values, as the server tells them.
  showDefaults(params) {
    for (const [name] of SAMPLING) {
      const value = params[name];
      this.fields[name].placeholder = name === 'seed' ? 'random' : name === 'max_tokens' ? 'no limit' : value === undefined ? ''
          : String(Number(Number(value).toFixed(4)));
    }
  }

  read() {
    for (const [name, field] of Object.entries(this.fields)) {
      field.value === '' ? delete this.settings[name] : (this.settings[name] = field.value);
    }
    this.checkAll();
    const { schema, tools, tool_choice: choice, ...kept } = this.settings;
    try {
      localStorage.setItem(KEPT, JSON.stringify(kept));
    } catch { /* a full store keeps the old ones */ }
    this.changed(this.settings);
  }

  checkAll() {
    for (const [name, { check, problem }] of Object.entries(this.problems)) {
      const text = jsonProblem(this.fields[name].value, check);
      problem.textContent = text && `Not used yet: ${text}`;
      this.fields[name].setAttribute('aria-invalid', String(Boolean(text)));
    }
  }

  reset() {
    for (const field of Object.values(this.fields)) field.value = '';
    this.read();
  }
}
