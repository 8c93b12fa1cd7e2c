// Colours for code: comments, strings, numbers, words of the language, calls. One scanner for all languages, line by line;
// it remembers only what was open at the end of the last line, so that it can follow a stream.
import { el } from './dom.js';

const set = (text) => new Set(text.split(' '));
const CURLY = set('as async await auto bool boolean break case catch char class const constexpr continue def default delete do double else enum export extends false final finally float fn for from func function go goto if impl import in inline int interface let loop match mod mut namespace new nil null of operator override package private protected pub public ref return select self static string struct super switch template this throw throws trait true try type typedef typeof undefined unsigned use using val var virtual void where while with yield');
const LANGUAGES = {
  curly: { line: '//', block: ['/*', '*/'], quotes: '"\'`', words: CURLY },
  python: { line: '#', long: ['"""', "'''"], quotes: '"\'', words: set('and as assert async await begin break case class continue def del do elif else elsif end except False finally for from global if import in is lambda match module nil None nonlocal not or pass raise return self True try unless until while with yield') },
  shell: { line: '#', quotes: '"\'', words: set('case cd do done echo elif else esac exit export fi for function if in local read return set source sudo test then unset until while') },
  sql: { line: '--', block: ['/*', '*/'], quotes: '\'"', fold: true, words: set('all alter and as by case create default delete desc distinct drop else end exists foreign from group having in index inner insert into is join key left like limit not null offset on or order outer primary references right select set table then union update values when where with') },
  data: { line: '#', quotes: '"\'', words: set('true false null yes no on off') },
  css: { block: ['/*', '*/'], quotes: '"\'', words: set('') },
  markup: { block: ['<!--', '-->'], quotes: '"\'', words: set('') },
};
const NAMES = {
  python: 'python py ruby rb', shell: 'sh bash shell zsh console dockerfile makefile cmake', sql: 'sql',
      data: 'json jsonc yaml yml toml ini', css: 'css scss', markup: 'html xml svg vue',
  curly: 'js javascript jsx mjs ts tsx typescript c h cc cpp c++ cuda cu hpp java kotlin kt cs csharp swift scala dart php go golang rust rs',
};
const LONGEST_LINE = 2000;  // of a line that is coloured
const MOST_LINES = 3000;    // of a block

export class Highlighter {
  constructor(name) {
    const known = Object.keys(NAMES).find((key) => NAMES[key].split(' ').includes(name.toLowerCase()));
    this.language = LANGUAGES[known];
    this.isMarkup = known === 'markup';
    this.isDiff = /^(diff|patch)$/i.test(name);
    this.open = null;  // what closes the comment or string that goes on from the line before
    this.lines = 0;
  }

  // The nodes of one line, without its end.
  line(text) {
    ++this.lines;
    if (this.isDiff && /^[-+]/.test(text)) return [el('span', { class: text[0] === '+' ? 's' : 'd' }, text)];
    if (!this.language || text.length > LONGEST_LINE || this.lines > MOST_LINES) return [text];
    const out = [];
    let plain = '';
    for (let i = 0; i < text.length;) {
      const [part, kind] = this.next(text, i);
      i += part.length;
      if (!kind) {
        plain += part;
        continue;
      }
      if (plain) out.push(plain);
      plain = '';
      out.push(el('span', { class: kind }, part));
    }
    return plain ? [...out, plain] : out;
  }

  // What stands at i, and its kind.
  next(text, i) {
    const { line, block, long = [], quotes, words, fold } = this.language;
    if (this.open) return this.rest(text, i, i);
    const mark = long.find((one) => text.startsWith(one, i)) ?? (block && text.startsWith(block[0], i) ? block[0] : null);
    if (mark) {
      this.open = mark === block?.[0] ? { close: block[1], kind: 'c' } : { close: mark, kind: 's' };
      return this.rest(text, i, i + mark.length);
    }
    if (line && text.startsWith(line, i) && (line !== '#' || i === 0 || /[\s;]/.test(text[i - 1]))) return [text.slice(i), 'c'];
    if (quotes.includes(text[i])) {
      let end = i + 1;
      while (end < text.length && text[end] !== text[i]) end += text[end] === '\\' ? 2 : 1;
      return [text.slice(i, end + 1), 's'];
    }
    const sticky = /[\p{L}_$][\p{L}\p{N}_$]*|\d[\w.]*|\s+|[^]/uy;
    sticky.lastIndex = i;
    const [part] = sticky.exec(text);
    if (/^\d/.test(part)) return [part, 'n'];
    if (words.has(fold ? part.toLowerCase() : part) || (this.isMarkup && /[</]/.test(text[i - 1] ?? ''))) return [part, 'k'];
    return [part, /^[\p{L}_]/u.test(part) && text[i + part.length] === '(' ? 'f' : ''];
  }

  // The rest of what is open, or what there is of it in this line.
  rest(text, i, from) {
    const { close, kind } = this.open;
    const end = text.indexOf(close, from);
    if (end >= 0) this.open = null;
    return [text.slice(i, end < 0 ? undefined : end + close.length), kind];
  }
}
