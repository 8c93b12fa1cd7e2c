// Markdown within a block: emphasis, code, links. Time is linear in the text but for the nesting, which is bounded.
import { el } from './dom.js';

const MOST_DEPTH = 6;
const SPECIAL = /[`*_~[!<\\]|https?:\/\//g;
const MARKS = { '***': ['strong', 'em'], '**': ['strong'], '*': ['em'], '___': ['strong', 'em'], '__': ['strong'], '_': ['em'],
    '~~': ['del'] };

// An address that is safe to follow, or null: javascript:, data: and their kin lead nowhere.
export function safeUrl(text) {
  try {
    const url = new URL(text);
    return ['http:', 'https:', 'mailto:'].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

const isWord = (char) => char !== undefined && /[\p{L}\p{N}_]/u.test(char);
const isSpace = (char) => char === undefined || /\s/.test(char);

class Parser {
  constructor(text) {
    this.text = text;
    this.missing = new Map();  // where the search for what closes a mark found nothing
  }

  // The index of `mark` from `at` on; -1 is remembered, so that a text of opening marks costs one search each.
  find(mark, at, end) {
    if (this.missing.get(mark) <= at) return -1;
    const found = this.text.indexOf(mark, at);
    if (found < 0) this.missing.set(mark, at);
    return found < 0 || found + mark.length > end ? -1 : found;
  }

  closing(mark, at, end) {
    const char = mark[0];
    for (let i = this.find(mark, at, end), tries = 0; i >= 0 && tries < 50; i = this.find(mark, i + 1, end), ++tries) {
      let run = mark.length;
      while (this.text[i + run] === char) ++run;
      const fits = run === mark.length || (mark.length === 1 && run === 3) || (mark.length === 2 && run >= 3);
      const right = this.text[i + run];
      if (fits && !isSpace(this.text[i - 1]) && (char !== '_' || !isWord(right))) return i + (run > mark.length ? run - mark.length : 0);
      i += run - 1;
    }
    return -1;
  }

  nodes(from, end, depth) {
    const out = [];
    let plain = from;
    const flush = (to) => to > plain && out.push(this.text.slice(plain, to));
    for (let i = from; i < end;) {
      SPECIAL.lastIndex = i;
      const match = SPECIAL.exec(this.text);
      if (!match || match.index >= end) break;
      i = match.index;
      const made = this.at(i, end, depth);
      if (!made) {
        while (this.text[i + 1] === this.text[i] && i + 1 < end) ++i;  // a run of marks that mean nothing
        ++i;
        continue;
      }
      flush(i);
      out.push(made.node);
      i = plain = made.end;
    }
    flush(end);
    return out;
  }

  at(i, end, depth) {
    const { text } = this;
    switch (text[i]) {
      case '\\':
        return i + 1 < end && /[!-/:-@[-`{-~]/.test(text[i + 1]) ? { node: text[i + 1], end: i + 2 } : null;
      case '`':
        return this.code(i, end);
      case '!':
        return text[i + 1] === '[' ? this.link(i + 1, end, depth, true) : null;
      case '[':
        return this.link(i, end, depth, false);
      case '<':
      case 'h':
        return this.address(i, end);
      default:
        return depth < MOST_DEPTH ? this.emphasis(i, end, depth) : null;
    }
  }

  code(i, end) {
    let ticks = 1;
    while (this.text[i + ticks] === '`') ++ticks;
    const mark = '`'.repeat(ticks);
    let close = this.find(mark, i + ticks, end);
    while (close >= 0 && this.text[close + ticks] === '`') {
      while (this.text[close] === '`') ++close;
      close = this.find(mark, close, end);
    }
    if (close < 0) return null;
    const inner = this.text.slice(i + ticks, close).replace(/^ (.*\S.*) $/s, '$1');
    return { node: el('code', {}, inner), end: close + ticks };
  }

  emphasis(i, end, depth) {
    const char = this.text[i];
    let run = 1;
    while (this.text[i + run] === char) ++run;
    const mark = char.repeat(char === '~' ? 2 : Math.min(run, 3));
    if (!MARKS[mark] || (char === '~' && run !== 2) || run > 3 || isSpace(this.text[i + run])) return null;
    if (char === '_' && isWord(this.text[i - 1])) return null;
    const close = this.closing(mark, i + mark.length, end);
    if (close <= i + mark.length - 1 || close < 0) return null;
    const inner = this.nodes(i + mark.length, close, depth + 1);
    const node = MARKS[mark].reduceRight((children, tag) => [el(tag, {}, ...children)], inner)[0];
    return { node, end: close + mark.length };
  }

  // [words](address). An image is a link as well: the page loads nothing from elsewhere.
  link(i, end, depth, isImage) {
    const close = this.find('](', i + 1, Math.min(end, i + 1000));
    if (close < 0 || depth >= MOST_DEPTH) return null;
    const match = /^([^\s()<>]*(?:\([^\s()]*\)[^\s()]*)*)(?:\s+"[^"\n]*")?\)/.exec(this.text.slice(close + 2, Math.min(end, close + 2050)));
    if (!match) return null;
    const url = safeUrl(match[1]);
    const after = close + 2 + match[0].length;
    if (!url) return null;
    const words = isImage ? [`Image: ${this.text.slice(i + 1, close) || url}`] : this.nodes(i + 1, close, MOST_DEPTH);
    return { node: anchor(url, words.length ? words : [url]), end: after };
  }

  address(i, end) {
    const isBracketed = this.text[i] === '<';
    const match = (isBracketed ? /^<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/ : /^(https?:\/\/[^\s<>"'`\])}]{1,2000})/)
      .exec(this.text.slice(i, Math.min(end, i + 2010)));
    if (!match) return null;
    const shown = isBracketed ? match[1] : match[1].replace(/[.,;:!?*_~]+$/, '');
    const url = safeUrl(shown);
    return url && { node: anchor(url, [shown]), end: i + (isBracketed ? match[0].length : shown.length) };
  }
}

const anchor = (url, words) =>
  el('a', { href: url, title: url, target: '_blank', rel: 'noopener noreferrer', referrerpolicy: 'no-referrer' }, ...words);

export const inline = (text) => new Parser(text).nodes(0, text.length, 0);
