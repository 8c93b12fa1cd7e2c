// The chat: the messages of one conversation, the field below them, and the answers that are being written, of which
// each conversation may have one.
import { breathe, count, el, icon, iconButton, say } from './dom.js';
import { AnswerView, WrittenView } from './message.js';
import { Run } from './run.js';
import { load, save } from './store.js';
import { addNode, newConversation, shownPath, walkBranch } from './tree.js';

const FRAME = 40;   // milliseconds between two drawings of a stream
const BUDGET = 10;  // of them for making elements, at most

export class Chat {
  // `page` has facts (of the server), defaults (settings for a new conversation), and hears of changes: opened(), changed().
  constructor(root, page) {
    this.page = page;
    this.runs = new Map();
    this.views = [];
    this.media = [];
    this.budget = BUDGET;
    this.log = el('div', { class: 'log', role: 'log', 'aria-label': 'Conversation', 'aria-live': 'off' });
    this.scroller = el('div', { class: 'scroller', tabindex: '0', role: 'region', 'aria-label': 'Messages' }, this.log);
    this.toEnd = el('button', { type: 'button', class: 'to-end', hidden: true, onclick: () => this.stickToEnd() }, icon('down'),
        'To the end');
    this.buildComposer();
    root.append(this.scroller, this.toEnd, this.form);
    this.sticks = true;
    this.scroller.addEventListener('scroll', () => this.scrolled(), { passive: true });
    this.scroller.addEventListener('wheel', ({ deltaY }) => deltaY < 0 && (this.sticks = false), { passive: true });
    for (const name of ['pagehide', 'visibilitychange', 'freeze']) addEventListener(name, () => this.flushAll(name === 'pagehide'));
  }

  buildComposer() {
    this.field = el('textarea', { id: 'question', rows: 1, placeholder: 'Ask something', 'aria-label': 'Message', autocomplete: 'off' });
    this.sendButton = iconButton('send', 'Send', undefined, { type: 'submit', class: 'icon-button primary' });
    this.stopButton = iconButton('stop', 'Stop the answer', () => this.stop(), { class: 'icon-button primary', hidden: true });
    this.files = el('input', { type: 'file', hidden: true, multiple: true, 'aria-label': 'Files', onchange: () =>
        this.attach(this.files.files) });
    this.clip = iconButton('clip', 'Attach images or sound', () => this.files.click(), { hidden: true });
    this.attached = el('div', { class: 'attached' });
    this.gauge = el('meter', { min: 0, max: 1, low: 0.7, high: 0.9, optimum: 0, 'aria-label': 'Context used' });
    this.gaugeText = el('span');
    this.form = el('form', { class: 'composer', onsubmit: (event) => (event.preventDefault(), this.send()) }, this.attached,
      el('div', { class: 'field' }, this.clip, this.files, this.field, this.sendButton, this.stopButton),
      el('div', { class: 'gauge' }, el('span', {}, 'Enter sends, Shift+Enter breaks the line'),
          el('span', { class: 'gauge-right' }, this.gaugeText, this.gauge)));
    this.field.addEventListener('keydown', (event) => this.typed(event));
    this.field.addEventListener('input', () => this.grow());
    this.field.addEventListener('paste', (event) => this.attach(event.clipboardData.files, event));
    this.form.addEventListener('dragover', (event) => this.kinds().length && event.preventDefault());
    this.form.addEventListener('drop', (event) => this.attach(event.dataTransfer.files, event));
  }

  typed(event) {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      this.send();
    } else if (event.key === 'ArrowUp' && !this.field.value) {
      const last = this.views.findLast((view) => view instanceof WrittenView)?.node.querySelector('button[aria-label^="Edit"]');
      if (last) event.preventDefault(), last.click();
    }
  }

  grow() {
    this.field.rows = Math.min(10, this.field.value.split('\n').length);
  }

  // --- images and sound, where the model takes them
  kinds() {
    const { vision, audio } = this.page.facts?.modalities ?? {};
    return [vision && 'image', audio && 'audio'].filter(Boolean);
  }

  async attach(files, event) {
    const taken = [...(files ?? [])].filter((file) => this.kinds().includes(file.type.split('/')[0]));
    if (taken.length) event?.preventDefault();
    for (const file of taken) {
      const url = await new Promise((resolve) => {
        const reader = new FileReader();
        reader.onload = () => resolve(reader.result);
        reader.readAsDataURL(file);
      });
      const kind = file.type.split('/')[0];
      const part = kind === 'image' ? { type: 'image_url', image_url: { url } }
        : { type: 'input_audio', input_audio: { data: url.split(',')[1], format: /wav/.test(file.type) ? 'wav' : 'mp3' } };
      this.media.push({ kind, name: file.name, url, part });
    }
    this.files.value = '';
    this.showAttached();
  }

  showAttached() {
    this.attached.replaceChildren(...this.media.map((one) =>
        el('span', { class: 'chip' }, one.kind === 'image' && el('img', { src: one.url, alt: '' }), one.name,
      iconButton('close', `Remove ${one.name}`, () => (this.media = this.media.filter((other) => other !== one), this.showAttached())))));
  }

  // --- the conversation
  async open(id) {
    const conversation = this.runs.get(id)?.conversation ?? (await load(id));
    if (conversation) this.show(conversation);
    return Boolean(conversation);
  }

  // Another tab changed the conversation, or an answer was found in a journal.
  async reload() {
    const { id } = this.conversation;
    if (this.run || !(await load(id)) || id !== this.conversation.id) return;
    await this.open(id);
  }

  fresh() {
    this.show(newConversation(this.page.defaults()));
    this.field.focus();
  }

  show(conversation) {
    this.conversation = conversation;
    this.page.opened(conversation);
    this.render();
    this.stickToEnd();
  }

  get run() {
    return this.runs.get(this.conversation?.id);
  }

  render() {
    const { conversation } = this;
    const path = shownPath(conversation);
    this.views = path.map((node) => (node.role === 'assistant' ? new AnswerView(conversation, node, this)
        : new WrittenView(conversation, node, this)));
    this.log.replaceChildren(...this.views.map((view) => view.node), ...(path.length ? [] : [this.greeting()]));
    if (this.run) this.viewOf(this.run.node)?.update(this.run.live);
    this.showState();
    this.redraw();
  }

  greeting() {
    const examples = ['What is nginx?', 'What is 456 + 378?'];
    return el('div', { class: 'greeting' }, el('h2', {}, 'What would you like to know?'),
      el('p', {}, 'Everything stays between this browser and your server.'),
      el('div', { class: 'examples' }, ...examples.map((text) => el('button', { type: 'button', onclick: () => this.send(text) }, text))));
  }

  viewOf(node) {
    return this.views.find((view) => view.message === node);
  }

  showState() {
    const isRunning = Boolean(this.run);
    const hadFocus = [this.sendButton, this.stopButton].includes(document.activeElement);
    this.sendButton.hidden = isRunning;
    this.stopButton.hidden = !isRunning;
    if (hadFocus) this.field.focus();
    const kinds = this.kinds();
    this.clip.hidden = !kinds.length;
    this.files.accept = kinds.map((kind) => `${kind}/*`).join(',');
    const most = this.page.facts?.context;
    const used = this.run?.live.context ?? this.conversation.context ?? 0;
    this.gauge.hidden = !most;
    if (most) this.gauge.value = used / most;
    this.gaugeText.textContent = most ? `${count(used)} of ${count(most)} tokens` : '';
  }

  // --- what a user does
  send(text = this.field.value) {
    if (!text.trim() || this.run) return;
    const { conversation } = this;
    const parent = shownPath(conversation).at(-1)?.id ?? conversation.root;
    addNode(conversation, parent, { role: 'user', text, ...(this.media.length && { media: this.media }) });
    if (text === this.field.value) this.field.value = '';
    this.media = [];
    this.grow();
    this.showAttached();
    this.answer();
  }

  // The answer to the messages that are shown.
  answer() {
    const parent = shownPath(this.conversation).at(-1);
    this.begin(addNode(this.conversation, parent.id, { role: 'assistant' }));
  }

  begin(node, goesOn = false) {
    if (this.run) return;
    const run = new Run(this.conversation, node, () => this.heard(run), goesOn);
    this.runs.set(this.conversation.id, run);
    run.start().then(() => this.ended(run));
    this.render();
    this.stickToEnd();
    this.page.changed(this.conversation);
  }

  stop() {
    this.run?.stop();
  }

  edit(node, text) {
    if (this.run) return;
    addNode(this.conversation, node.parent, { role: 'user', text, ...(node.media && { media: node.media }) });
    this.answer();
  }

  again(node) {
    if (this.run) return;
    this.begin(addNode(this.conversation, node.parent, { role: 'assistant' }));
  }

  goOn(node) {
    this.begin(node, true);
  }

  results(node, results) {
    let parent = node.id;
    for (const { id, name, text } of results) parent = addNode(this.conversation, parent, { role: 'tool', text, callId: id, name }).id;
    this.answer();
    this.field.focus();
  }

  async walk(node, step) {
    if (this.run) return;
    const at = this.views.findIndex((view) => view.message === node);
    walkBranch(this.conversation, node, step);
    this.render();
    await save(this.conversation);
    // The keyboard stays where it was: on the buttons of the branch that is shown now.
    const buttons = [...(this.views[at]?.node.querySelectorAll('.branches button') ?? [])];
    (buttons[step < 0 ? 0 : 1]?.disabled ? buttons.find((button) => !button.disabled) : buttons[step < 0 ? 0 : 1])?.focus();
  }

  async skip(node) {
    try {
      await this.run?.skipThinking();
    } catch (error) {
      say(error.message);
    }
    this.viewOf(node)?.update(this.run?.live);
  }

  // --- what an answer brings
  heard(run) {
    if (run.conversation !== this.conversation) return;
    this.dirty = true;
    this.redraw();
  }

  ended(run) {
    this.runs.delete(run.conversation.id);
    this.page.changed(run.conversation);
    if (run.conversation !== this.conversation) return;
    this.draw();
    this.viewOf(run.node)?.update();
    this.showState();
    say(run.node.error ? `The answer failed: ${run.node.error}` : run.node.calls?.length ? 'The model waits for the results of its calls'
        : 'The answer is complete');
  }

  flushAll(isLeaving) {
    for (const run of this.runs.values()) run.flush(isLeaving);
  }

  // Draws soon, and again until everything is there.
  redraw() {
    if (this.isDue) return;
    this.isDue = true;
    const wait = Math.max(0, FRAME - (performance.now() - (this.drawn ?? 0)));
    setTimeout(() => requestAnimationFrame(() => this.draw()), wait);
  }

  draw() {
    this.isDue = false;
    this.drawn = performance.now();
    const { run } = this;
    if (this.dirty && run) {
      this.viewOf(run.node)?.update(run.live);
      this.showState();
    }
    this.dirty = false;
    // From the end: the last messages are what is looked at.
    const until = this.drawn + this.budget;
    let isDone = true;
    for (const view of this.views.toReversed()) {
      const left = until - performance.now();
      if (left <= 0) {
        isDone = false;
        break;
      }
      isDone = view.draw(left) && isDone;
    }
    if (this.sticks) this.scroller.scrollTop = this.scroller.scrollHeight;
    this.toEnd.hidden = this.sticks;
    if (!isDone) this.redraw();
    // Laying out may cost more than making: where it does, less is made at a time.
    breathe().then(() => {
      const isSlow = performance.now() - this.drawn > 30;
      this.budget = isSlow ? Math.max(1.5, this.budget / 2) : Math.min(BUDGET, this.budget * 1.3);
    });
  }

  scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    const left = scrollHeight - scrollTop - clientHeight;
    // Growing content makes the distance larger without anybody scrolling; only the way up counts.
    const isUp = scrollTop < (this.lastTop ?? 0) - 1;
    if (isUp ? left > 4 : left < 40) this.sticks = !isUp;
    this.lastTop = scrollTop;
    this.toEnd.hidden = this.sticks;
  }

  stickToEnd() {
    this.sticks = true;
    this.toEnd.hidden = true;
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }
}
