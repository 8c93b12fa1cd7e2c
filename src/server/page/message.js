// One message on the screen. What belongs to an answer that is being written changes with update(); drawing it is left
// to draw(), which is called when the browser has time.
import { callForm, callNode } from './calls.js';
import { copyButton, count, el, icon, iconButton, plural, seconds } from './dom.js';
import { MarkdownView } from './markdown.js';
import { JsonScanner, unchecked, validate } from './schema.js';
import { branchOf } from './tree.js';

const ENDINGS = {
  stop: 'complete', stop_string: 'stopped by its stop text', stop_token: 'stopped by a stop token', tool_calls: 'waits for results',
  length: 'token limit reached', context_full: 'the context is full', loop: 'stopped: it repeated itself', you: 'stopped by you',
  left: 'interrupted: the page was left', cut: 'cut off: the connection was lost', error: 'failed',
};

// Markdown of a text that grows, drawn as far as it was needed.
class GrowingText {
  constructor(root, prefix = '') {
    this.view = new MarkdownView(root);
    if (prefix) this.view.add(prefix);
    this.taken = 0;
  }
  draw(text, isOver, milliseconds) {
    if (text.length > this.taken) {
      this.view.add(text.slice(this.taken));
      this.taken = text.length;
    }
    if (isOver) this.view.end();
    return this.view.draw(milliseconds);
  }
}

function branchButtons(conversation, node, act) {
  const { index, of } = branchOf(conversation, node);
  if (of < 2) return null;
  return el('span', { class: 'branches', role: 'group', 'aria-label': 'Branches' },
    iconButton('left', 'The branch before', () => act.walk(node, -1), { disabled: index === 0 }),
    el('span', {}, `${index + 1} / ${of}`),
    iconButton('right', 'The next branch', () => act.walk(node, 1), { disabled: index === of - 1 }));
}

// A question, or the result of a call.
export class WrittenView {
  constructor(conversation, node, act) {
    const isTool = node.role === 'tool';
    this.message = node;
    this.text = el('div', { class: 'written' }, node.text);
    const media = (node.media ?? []).map((one) => (one.kind === 'image' ? el('img', { src: one.url, alt: one.name })
        : el('audio', { src: one.url, controls: true })));
    this.node = el('article', { class: `message ${node.role}`, 'aria-label': isTool ? `Result of ${node.name}` : 'You' },
      isTool && el('div', { class: 'call-name' }, 'Result of ', el('code', {}, node.name ?? 'a call')), ...media, this.text,
      el('div', { class: 'meta' }, el('span', { class: 'actions' },
        copyButton(() => node.text, 'Copy the message'), !isTool
            && iconButton('edit', 'Edit: makes a new branch', () => this.edit(node, act)),
        branchButtons(conversation, node, act))));
  }

  edit(node, act) {
    const area = el('textarea', { 'aria-label': 'Edit the message', rows: Math.min(12, node.text.split('\n').length + 1),
        value: node.text });
    const back = () => form.replaceWith(this.text);
    const submit = (event) => (event?.preventDefault(), area.value.trim() && act.edit(node, area.value));
    const keys = (event) => {
      if (event.key === 'Escape') event.stopPropagation(), back();
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) submit(event);
    };
    const form = el('form', { class: 'editor', onsubmit: submit }, area, el('div', { class: 'row end' },
      el('button', { type: 'button', onclick: back }, 'Cancel'), el('button', { class: 'primary' }, 'Send')));
    area.addEventListener('keydown', keys);
    this.text.replaceWith(form);
    area.focus();
  }

  update() {}
  draw() {
    return true;
  }
}

export class AnswerView {
  constructor(conversation, node, act) {
    Object.assign(this, { conversation, message: node, act });
    this.body = el('div', { class: 'md' });
    this.thoughts = el('div', { class: 'md' });
    this.summary = el('summary');
    this.folded = el('details', { class: 'thoughts', hidden: true, ontoggle: () => act.redraw() }, this.summary, this.thoughts);
    this.skip = el('button', { type: 'button', class: 'skip', hidden: true, onclick: () => (this.skip.disabled = true, act.skip(node)) },
        'Skip thinking');
    this.progress = el('progress', { hidden: true, max: 1, 'aria-label': 'Reading the prompt' });
    this.status = el('p', { class: 'status', hidden: true });
    this.calls = el('div', { class: 'calls' });
    this.check = el('p', { class: 'check', hidden: true });
    this.meta = el('div', { class: 'meta' });
    this.node = el('article', { class: 'message assistant', 'aria-label': 'Answer' },
        el('div', { class: 'thinking' }, this.folded, this.skip),
      this.progress, this.status, this.body, this.calls, this.check, this.meta);
    this.answer = new GrowingText(this.body, node.schema ? '```json\n' : '');
    this.thought = new GrowingText(this.thoughts);
    this.scanner = node.schema ? new JsonScanner() : null;
    this.scanned = 0;
    this.shownCalls = 0;
    this.update();
  }

  // What is cheap to change: everything but the texts.
  update(live = {}) {
    const { message } = this;
    const isThinking = Boolean(live.isThinking);
    this.folded.hidden = !message.thoughts;
    this.skip.hidden = !(isThinking && live.id);
    if (message.thoughts) {
      const time = message.thinkSeconds >= 0.001 ? seconds(message.thinkSeconds) : '';
      const words = isThinking ? `Thinking… ${time}` : `Thought${time && ` for ${time}`}`;
      if (this.summary.textContent !== words) this.summary.textContent = words;
    }
    const isReading = Boolean(live.progress) && !message.text && !message.thoughts;
    this.progress.hidden = !isReading;
    if (isReading) this.progress.value = live.progress.processed / live.progress.total;
    const status = message.isOver || message.text || message.thoughts ? '' : isReading
      ? `Reading the prompt: ${count(live.progress.processed)} of ${count(live.progress.total)} tokens, ${count(live.progress.cache)} reused`
      : live.isSent ? 'Waiting for the model…' : '';
    this.status.hidden = !status;
    this.status.textContent = status;
    this.node.setAttribute('aria-busy', String(!message.isOver));
    this.showCalls();
    this.showCheck();
    this.meta.replaceChildren(...(message.isOver ? this.footer() : this.running(live)));
  }

  running({ tokens, rate }) {
    return tokens ? [el('span', { class: 'muted' }, `${plural(tokens, 'token')} · ${rate} t/s`)] : [];
  }

  footer() {
    const { message, act } = this;
    const { stats } = message;
    const facts = [];
    if (stats) {
      facts.push(plural(stats.completion, 'token'), stats.rate > 0 && `${stats.rate >= 10 ? count(stats.rate) : stats.rate.toFixed(1)} t/s`,
        stats.first !== undefined && `first after ${seconds(stats.first)}`, `prompt ${count(stats.prompt)}, ${count(stats.cached)} reused`);
    }
    facts.push(ENDINGS[message.ending] ?? message.ending);
    const isBroken = ['you', 'left', 'cut', 'length'].includes(message.ending) && message.text && !message.calls?.length && !message.schema;
    return [
      message.error && el('p', { class: 'problem', role: 'alert' }, message.error),
      ...(message.notes ?? []).map((note) => el('p', { class: 'note' }, note)),
      stats?.again && el('p', { class: 'again' }, icon('again'), el('span', {}, stats.again)),
      el('span', { class: 'muted facts' }, facts.filter(Boolean).join(' · ')),
      el('span', { class: 'actions' }, copyButton(() => message.text, 'Copy the answer'),
        iconButton('again', 'Answer again: makes a new branch', () => act.again(message)),
        isBroken && iconButton('go', 'Continue the answer', () => act.goOn(message)), branchButtons(this.conversation, message, act)),
    ].filter(Boolean);
  }

  showCalls() {
    const { message } = this;
    const calls = message.calls ?? [];
    for (; this.shownCalls < calls.length; ++this.shownCalls) this.calls.append(callNode(calls[this.shownCalls]));
    const wantsResults = message.isOver && calls.length > 0 && message.kids.length === 0;
    if (wantsResults && !this.form) this.calls.append((this.form = callForm(calls, (results) => this.act.results(message, results))));
    if (!wantsResults && this.form) this.form = void this.form.remove();
  }

  // The live check: whether what there is can become JSON, and at the end whether it matches the schema.
  showCheck() {
    const { message, scanner } = this;
    if (!scanner || !(message.text || message.isOver)) return;
    scanner.feed(message.text.slice(this.scanned));
    this.scanned = message.text.length;
    let problem = scanner.problem, words = 'valid JSON so far';
    if (message.isOver && !problem) {
      if (!scanner.isWhole) problem = 'the JSON is not complete';
      else ({ problem, words } = this.validated());
    }
    this.check.hidden = false;
    this.check.className = `check ${problem ? 'bad' : message.isOver ? 'good' : ''}`;
    const text = problem ? `✗ ${problem}` : `✓ ${words}`;
    if (this.check.textContent !== text) this.check.textContent = text;
  }

  validated() {
    const schema = JSON.parse(this.message.schema);
    const left = [...unchecked(schema)];
    return { problem: validate(JSON.parse(this.message.text), schema),
        words: `matches the schema${left.length ? ` (the page does not check ${left.join(', ')})` : ''}` };
  }

  // Draws for about so long; returns whether all there is is on the screen. Folded thoughts wait until they are wanted.
  draw(milliseconds) {
    const { message } = this;
    const isDone = !this.folded.open || this.thought.draw(message.thoughts ?? '', message.isOver || Boolean(message.text),
        milliseconds / 2);
    return this.answer.draw(message.text, message.isOver, milliseconds) && isDone;
  }
}
