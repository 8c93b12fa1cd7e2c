// Markdown while it streams. What can no longer change is drawn once and left alone; only the last, open block is drawn
// again. Blocks that grow without end (code, tables, paragraphs without a break) are cut into pieces, so that no text
// makes one step long.
import { copyButton, el } from './dom.js';
import { Highlighter } from './highlight.js';
import { inline } from './inline.js';

const MOST_PARAGRAPH = 2000;  // characters of an open block before a part of it is final
const MOST_BLOCK = 4000;      // the same of other blocks, where a line counts as LINE more
const LINE = 80;
const PIECE_LINES = 50;       // of code that are laid out together
const PIECE_TEXT = 4000;
const CHUNK_TEXT = 4000;      // of blocks that are laid out together, counted as MOST_BLOCK is
const MOST_COLUMNS = 40;
const MOST_DEPTH = 6;         // of lists and quotes in one another

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})(?=[ \t]|$)/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:( {1,4})(?=\S)|[ \t]*$)/;
const DELIMITER = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

const sizeOf = (lines) => lines.reduce((sum, line) => sum + line.length + LINE, 0);
const isBlank = (line) => !line.trim();
const begins = (line) => FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line);
const isTable = (lines, i) =>
  i + 1 < lines.length && lines[i].includes('|') && lines[i + 1].includes('-') && lines[i + 1].length < 1000
      && DELIMITER.test(lines[i + 1]) &&
  cells(lines[i]).length === cells(lines[i + 1]).length && cells(lines[i]).length <= MOST_COLUMNS;

function cells(line) {
  const out = [];
  let cell = '';
  const text = line.trim().replace(/^\|/, '').replace(/\|$/, '');
  for (let i = 0; i < text.length; ++i) {
    if (text[i] === '\\' && text[i + 1] === '|') cell += text[++i];
    else if (text[i] === '|') out.push(cell), (cell = '');
    else cell += text[i];
  }
  return [...out, cell];
}

// The kind of the block that begins at lines[i], and where it ends: the index of the first line that is not its own.
function blockAt(lines, i) {
  const line = lines[i];
  const fence = FENCE.exec(line);
  if (fence) {
    let end = i + 1;
    while (end < lines.length && !closes(lines[end], fence[1])) ++end;
    return { kind: 'code', end: Math.min(end + 1, lines.length), fence };
  }
  if (HEADING.test(line)) return { kind: 'heading', end: i + 1 };
  if (RULE.test(line)) return { kind: 'rule', end: i + 1 };
  let end = i + 1;
  if (QUOTE.test(line)) {
    while (end < lines.length && QUOTE.test(lines[end])) ++end;
    return { kind: 'quote', end };
  }
  const item = ITEM.exec(line);
  if (item) return { kind: 'list', end: listEnd(lines, i, item) };
  if (isTable(lines, i)) {
    for (end = i + 2; end < lines.length && lines[end].includes('|') && !isBlank(lines[end]);) ++end;
    return { kind: 'table', end };
  }
  while (end < lines.length && !isBlank(lines[end]) && !begins(lines[end]) && !isTable(lines, end)) ++end;
  return { kind: 'paragraph', end };
}

const closes = (line, fence) => line.trim().startsWith(fence) && !line.trim().replaceAll(fence[0], '');
const listKind = (mark) => (/\d/.test(mark) ? 'ol' : 'ul');
const indent = (line) => line.length - line.trimStart().length;

function listEnd(lines, i, first) {
  const kind = listKind(first[2]);
  let end = i + 1;
  for (let wasBlank = false; end < lines.length; ++end) {
    const line = lines[end];
    if (isBlank(line)) {
      wasBlank = true;
      continue;
    }
    const item = ITEM.exec(line);
    const goesOn = indent(line) >= 2 || (item ? listKind(item[2]) === kind && !RULE.test(line) : !wasBlank && !begins(line));
    if (!goesOn) break;
    wasBlank = false;
  }
  while (end > i + 1 && isBlank(lines[end - 1])) --end;
  return end;
}

function listNode(lines, depth) {
  const kind = listKind(ITEM.exec(lines[0])[2]);
  const start = kind === 'ol' ? parseInt(ITEM.exec(lines[0])[2], 10) : 1;
  const items = [];
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && (!items.length || item[1].length <= items.at(-1).column + 1)) {
      items.push({ column: item[1].length, width: item[0].length, lines: [line.slice(item[0].length)] });
    } else {
      items.at(-1).lines.push(line.slice(Math.min(indent(line), items.at(-1).width)));
    }
  }
  return el(kind, start !== 1 && { start }, ...items.map((item) => {
    const task = /^\[([ xX])\] /.exec(item.lines[0]);
    if (task) item.lines[0] = item.lines[0].slice(4);
    const inner = blocks(item.lines, depth + 1);
    const box = task && el('input', { type: 'checkbox', disabled: true, checked: task[1] !== ' ', 'aria-label': task[1] === ' ' ? 'open'
        : 'done' });
    // A tight item is its text, without the paragraph around it.
    const isTight = inner[0]?.tagName === 'P' && (inner.length === 1 || inner[1].tagName !== 'P');
    return el('li', task && { class: 'task' }, box, ...(isTight ? [...inner[0].childNodes] : inner.slice(0, 1)), ...inner.slice(1));
  }));
}

function tableNode(head, delimiter, rows) {
  const aligns = cells(delimiter).map((cell) => (/:\s*$/.test(cell) ? (/^\s*:/.test(cell) ? 'center' : 'right') : ''));
  const row = (tag, line) => {
    const all = cells(line).slice(0, aligns.length);
    while (all.length < aligns.length) all.push('');
    return el('tr', {}, ...all.map((cell, i) => el(tag, { class: aligns[i], ...(tag === 'th' && { scope: 'col' }) },
        ...inline(cell.trim()))));
  };
  return el('div', { class: 'table', tabindex: '0', role: 'group', 'aria-label': 'Table' },
    el('table', {}, el('thead', {}, row('th', head)), el('tbody', {}, ...rows.map((line) => row('td', line)))));
}

// A block of code that may still grow. Whole lines are coloured; the one that is being written is plain.
class CodeBlock {
  constructor(name) {
    this.name = name.slice(0, 40);
    this.text = '';
    this.highlighter = new Highlighter(this.name);
    this.tail = document.createTextNode('');
    this.code = el('code');
    this.pre = el('pre', { tabindex: '0', 'aria-label': `Code${name && `, ${this.name}`}` }, this.code);
    this.node = el('div', { class: 'code' },
      el('div', { class: 'code-head' }, el('span', {}, this.name || 'text'), copyButton(() => this.text, 'Copy the code')), this.pre);
    this.newPiece();
  }

  newPiece() {
    this.piece = el('span', { class: 'piece' }, this.tail);
    this.lines = this.size = 0;
    this.code.append(this.piece);
  }

  addLine(line) {
    this.text += `${line}\n`;
    // Without a break, the layout of one line would take longer with every word.
    for (let i = 0; i === 0 || i < line.length; i += PIECE_TEXT) {
      const part = line.length > PIECE_TEXT ? line.slice(i, i + PIECE_TEXT) : line;
      if (this.lines >= PIECE_LINES || this.size + part.length > PIECE_TEXT * 1.5) this.newPiece();
      this.tail.before(...this.highlighter.line(part), '\n');
      ++this.lines;
      this.size += part.length;
    }
    this.tail.data = '';
  }

  showTail(text) {
    if (this.tail.data !== text) this.tail.data = text;
  }

  // What was taken of an endless line becomes final.
  addPart(text) {
    this.text += text;
    if (this.size > PIECE_TEXT) this.newPiece();
    this.tail.before(text);
    this.size += text.length;
    this.tail.data = '';
  }
}

function codeNode(lines, fence) {
  const block = new CodeBlock(fence[2]);
  const isClosed = lines.length > 1 && closes(lines.at(-1), fence[1]);
  for (const line of lines.slice(1, isClosed ? -1 : undefined)) block.addLine(line);
  return block.node;
}

function blockNode(kind, lines, depth) {
  switch (kind) {
    case 'heading': {
      const [all, marks] = HEADING.exec(lines[0]);
      const text = lines[0].slice(all.length).trim().replace(/(^|[ \t])#+$/, '');
      // Below the page's own heading.
      return el('div', { class: `h h${marks.length}`, role: 'heading', 'aria-level': Math.min(marks.length + 1, 6) }, ...inline(text));
    }
    case 'rule':
      return el('hr');
    case 'quote':
      return el('blockquote', {}, ...blocks(lines.map((line) => line.replace(QUOTE, '')), depth + 1));
    case 'list':
      return listNode(lines, depth);
    case 'table':
      return tableNode(lines[0], lines[1], lines.slice(2));
    default:
      return el('p', {}, ...inline(lines.map((line) => line.trimStart()).join('\n').trimEnd()));
  }
}

function blocks(lines, depth) {
  if (depth > MOST_DEPTH) return [el('p', {}, lines.join('\n'))];
  const out = [];
  for (let i = 0; i < lines.length;) {
    if (isBlank(lines[i])) {
      ++i;
      continue;
    }
    const { kind, end, fence } = blockAt(lines, i);
    const own = lines.slice(i, end);
    out.push(kind === 'code' ? codeNode(own, fence) : blockNode(kind, own, depth));
    i = end;
  }
  return out;
}

export class MarkdownView {
  constructor(root) {
    this.rest = '';      // of the text: from the beginning of the open block on
    this.code = null;    // the open block, where it is code
    this.carry = '';     // the head of a table that was cut
    this.isEnded = false;
    this.open = el('div', { class: 'open' });
    root.append(this.open);
    this.newChunk();
  }

  add(text) {
    this.rest += text;
  }
  end() {
    this.isEnded = true;
  }

  newChunk() {
    this.chunk = el('div', { class: 'chunk' });
    this.chunkSize = 0;
    this.open.before(this.chunk);
  }

  freeze(node, size) {
    if (this.chunkSize > 0 && this.chunkSize + size > CHUNK_TEXT) this.newChunk();
    this.chunk.append(node);
    this.chunkSize += size;
  }

  // Draws what has come, for at most `milliseconds`. Returns whether everything is drawn.
  draw(milliseconds) {
    const until = performance.now() + milliseconds;
    for (;;) {
      const goesOn = this.code ? this.drawCode(until) : this.drawBlock();
      if (!goesOn) return true;
      if (performance.now() > until) return false;
    }
  }

  // One more step of the open code; false: all of it is there.
  drawCode(until) {
    for (;;) {
      const end = this.rest.indexOf('\n');
      if (end < 0) break;
      const line = this.rest.slice(0, end);
      this.rest = this.rest.slice(end + 1);
      if (closes(line, this.fence)) return this.closeCode();
      this.code.addLine(line);
      if (performance.now() > until) return true;
    }
    if (this.isEnded) {
      if (this.rest && !closes(this.rest, this.fence)) this.code.addLine(this.rest);
      this.rest = '';
      return this.closeCode();
    }
    if (this.rest.length > PIECE_TEXT) {
      this.code.addPart(this.rest.slice(0, PIECE_TEXT));
      this.rest = this.rest.slice(PIECE_TEXT);
      return true;
    }
    this.code.showTail(this.fence.startsWith(this.rest.trim()) ? '' : this.rest);  // perhaps its end
    return false;
  }

  closeCode() {
    this.code.showTail('');
    this.code = null;
    this.newChunk();
    return true;
  }

  // One more block that is final, or the open one as it is now; false: nothing is left to do.
  drawBlock() {
    if (!this.carry) this.rest = this.rest.replace(/^(?:[ \t]*\n)+/, '');
    if (!this.rest) return this.showOpen([]);
    const window = this.carry + this.rest.slice(0, 2 * MOST_BLOCK);
    const isAll = this.rest.length <= 2 * MOST_BLOCK;
    const lines = window.split('\n');
    const isWhole = this.isEnded && isAll;
    if (isBlank(lines[0])) return this.showOpen([]);
    const { kind, end, fence } = blockAt(lines, 0);
    if (this.carry && (kind !== 'table' || (end === 2 && lines.length > 3))) {
      this.carry = '';  // the table had ended exactly where it was cut
      return true;
    }
    if (kind === 'code') {
      if (lines.length < 2 && !isWhole) return this.showOpen([]);  // its language is being written
      this.fence = fence[1];
      this.code = new CodeBlock(fence[2]);
      this.newChunk();
      this.chunk.append(this.code.node);
      this.take(lines.slice(0, 1));
      return true;
    }
    // What comes in the middle of the next line may still belong to the block.
    const isClosed = end < lines.length - 1 || isWhole;
    const own = lines.slice(0, end);
    const size = sizeOf(own);
    if (isClosed && size <= MOST_BLOCK) {
      this.freeze(blockNode(kind, own, 0), size);
      this.carry = '';
      this.take(own);
      return true;
    }
    if (size > (kind === 'paragraph' ? MOST_PARAGRAPH : MOST_BLOCK)) return this.cut(kind, own);
    return this.showOpen([blockNode(kind, own, 0)]);
  }

  // A part of a block that became too long is final; the rest goes on as a block of the same kind where it can.
  cut(kind, lines) {
    const most = kind === 'paragraph' ? MOST_PARAGRAPH : MOST_BLOCK;
    let taken = 0, size = 0;
    while (taken < lines.length - 1 && size + lines[taken].length < most) size += lines[taken++].length + LINE;
    const least = kind === 'table' ? 3 : 1;
    if (taken >= least) {
      const own = lines.slice(0, taken);
      this.freeze(blockNode(kind, own, 0), size);
      this.take(own);
      this.carry = kind === 'table' ? `${lines[0]}\n${lines[1]}\n` : '';
      return true;
    }
    const space = lines[0].lastIndexOf(' ', most);
    const end = space > most / 2 ? space + 1 : most;
    this.freeze(el('p', {}, ...inline(lines[0].slice(0, end))), end);
    this.rest = (this.carry + this.rest).slice(end);
    this.carry = '';
    return true;
  }

  // Removes lines from the rest; those of a carried head are not part of it.
  take(lines) {
    const size = lines.join('\n').length - this.carry.length;
    this.carry = '';
    this.rest = this.rest.slice(Math.max(size, 0)).replace(/^\n/, '');
    this.open.replaceChildren();
  }

  showOpen(nodes) {
    this.open.replaceChildren(...nodes);
    return false;
  }
}
