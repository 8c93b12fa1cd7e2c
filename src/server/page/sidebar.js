// The conversations of this browser: list, search, rename, delete, export and import.
import { parseTools } from './calls.js';
import { ask, confirmed, download, el, iconButton, say } from './dom.js';
import { heads, load, remove, save, search } from './store.js';
import { exported, hasWords, imported } from './tree.js';

const nameOf = (head) => head.title || 'New conversation';
const fileName = (title) => `${(title || 'conversation').toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, '').slice(0, 50) || 'conversation'}.json`;

export class Sidebar {
  constructor(root, page) {
    this.page = page;
    this.list = el('ul', { class: 'conversations', 'aria-label': 'Conversations' });
    this.field = el('input', { type: 'search', id: 'search', placeholder: 'Search', 'aria-label': 'Search conversations', oninput: () =>
        this.soon() });
    this.none = el('p', { class: 'muted none', hidden: true });
    this.files = el('input', { type: 'file', accept: '.json,application/json', multiple: true, hidden: true,
        'aria-label': 'Files to import', onchange: () => this.import() });
    root.append(el('button', { type: 'button', class: 'new', onclick: () => page.fresh() }, 'New conversation'), this.field, this.list,
        this.none,
      el('div', { class: 'row' }, el('button', { type: 'button', class: 'quiet', onclick: () => this.files.click() }, 'Import…'),
          this.files));
  }

  soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.refresh(), 120);
  }

  async refresh() {
    const words = this.field.value.trim();
    const turn = (this.turn = (this.turn ?? 0) + 1);
    const found = words && new Set(await search((conversation) => hasWords(conversation, words)));
    const shown = (await heads()).filter((head) => !words || found.has(head.id));
    if (turn !== this.turn) return;  // something newer was typed
    this.none.hidden = shown.length > 0;
    this.none.textContent = words ? 'Nothing found.' : 'Your conversations will be listed here. They stay in this browser.';
    this.list.replaceChildren(...shown.map((head) => this.entry(head)));
  }

  entry(head) {
    const isOpen = head.id === this.page.openId();
    const actions = el('span', { class: 'actions' },
      iconButton('edit', `Rename “${nameOf(head)}”`, () => this.rename(head)),
      iconButton('down', `Export “${nameOf(head)}”`, () => this.export(head)),
      iconButton('trash', `Delete “${nameOf(head)}”`, () => this.delete(head)));
    return el('li', { class: isOpen && 'open' },
      el('button', { type: 'button', class: 'title', 'aria-current': isOpen && 'true', title: nameOf(head), onclick: () =>
          this.page.open(head.id) }, nameOf(head)), actions);
  }

  async rename(head) {
    const title = await ask('Rename the conversation', (close) => {
      const input = el('input', { id: 'title', value: head.title, maxlength: 200 });
      return el('form', { onsubmit: (event) => (event.preventDefault(), close(input.value)) }, el('label', { for: 'title' }, 'Name'), input,
        el('div', { class: 'row end' }, el('button', { type: 'button', onclick: () => close() }, 'Cancel'),
            el('button', { class: 'primary' }, 'Rename')));
    });
    if (title === undefined) return;
    const conversation = this.page.inMemory(head.id) ?? (await load(head.id));
    Object.assign(conversation, { title: title.trim(), isNamed: Boolean(title.trim()) });
    await save(conversation);
    this.refresh();
  }

  async delete(head) {
    if (!(await confirmed('Delete the conversation?', `“${nameOf(head)}” is removed from this browser. Nobody else has it.`,
        'Delete'))) return;
    this.page.closing(head.id);
    await remove(head.id);
    say('Deleted');
    this.refresh();
  }

  async export(head) {
    const conversation = this.page.inMemory(head.id) ?? (await load(head.id));
    let tools = [];
    try {
      tools = parseTools(conversation.settings.tools);
    } catch { /* what is no tool is kept among the settings, as it was typed */ }
    download(fileName(conversation.title), exported(conversation, tools));
  }

  async import() {
    const files = [...this.files.files];
    this.files.value = '';  // so that the same file can be chosen again
    for (const file of files) {
      try {
        const conversation = imported(await file.text(), file.name.replace(/\.json$/i, ''), this.page.defaults());
        await save(conversation);
        await this.page.open(conversation.id);
        say('Imported');
      } catch (error) {
        await ask('This file cannot be imported', (close) => [el('p', {}, `${file.name}: ${error.message}`),
          el('div', { class: 'row end' }, el('button', { type: 'button', class: 'primary', onclick: () => close() }, 'Close'))]);
      }
    }
    this.refresh();
  }
}
