// Colours for code: comments, strings, numbers, words of the language, calls. One scanner for all languages, which works
// line by line and remembers no more than what was open at the end of the last one, so that it can follow a stream.
import { el } from './dom.js';

const words = (text) => new Set(text.split(' '));
const C = 'break case catch class const continue default delete do else enum for goto if new return static struct switch this throw try typedef union using virtual void volatile while ';
const LANGUAGES = {
  js: { line: ['//'], block: ['/*', '*/'], quotes: '"\'`', words: words(C + 'async await export extends false finally from function import in instanceof let null of super true typeof undefined var yield interface type implements readonly as') },
  c: { line: ['//'], block: ['/*', '*/'], quotes: '"\'', directive: true, words: words(C + 'auto bool char constexpr double explicit extern false float inline int long namespace noexcept nullptr operator override private protected public short signed sizeof template true typename unsigned int8_t size_t uint8_t uint32_t uint64_t std') },
  java: { line: ['//'], block: ['/*', '*/'], quotes: '"\'', words: words(C + 'abstract boolean byte char double extends false final finally float implements import instanceof int interface long null package private protected public short super synchronized throws true var record fun val when object override string') },
  go: { line: ['//'], block: ['/*', '*/'], quotes: '"\'`', words: words('break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct switch type var nil true false string int error') },
  rust: { line: ['//'], block: ['/*', '*/'], quotes: '"', words: words('as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while') },
  python: { line: ['#'], long: ['"""', "'''"], quotes: '"\'', words: words('and as assert async await break class continue def del elif else except False finally for from global if import in is lambda None nonlocal not or pass raise return True try while with yield match case self') },
  shell: { line: ['#'], quotes: '"\'', words: words('if then else elif fi for in do done while until case esac function return export local set unset echo cd exit sudo test read source') },
  sql: { line: ['--'], block: ['/*', '*/'], quotes: '\'"', fold: true, words: words('select from where and or not insert into values update set delete create table drop alter index join left right inner outer full on group by order having limit offset as distinct union all null is in like between case when then else end primary key references default exists with') },
  data: { line: ['#'], quotes: '"\'', words: words('true false null yes no on off') },
  css: { line: [], block: ['/*', '*/'], quotes: '"\'', words: words('important media import supports keyframes from to') },
  markup: { line: [], block: ['<!--', '-->'], quotes: '"\'', words: new Set() },
};
const NAMES = {
  javascript: 'js', js: 'js', jsx: 'js', mjs: 'js', ts: 'js', tsx: 'js', typescript: 'js', c: 'c', h: 'c', cc: 'c', cpp: 'c', 'c++': 'c', cuda: 'c', cu: 'c', hpp: 'c',
  java: 'java', kotlin: 'java', kt: 'java', cs: 'java', csharp: 'java', swift: 'java', scala: 'java', dart: 'java', php: 'js', go: 'go', golang: 'go', rust: 'rust', rs: 'rust',
  python: 'python', py: 'python', ruby: 'python', rb: 'python', sh: 'shell', bash: 'shell', shell: 'shell', zsh: 'shell', console: 'shell', dockerfile: 'shell', makefile: 'shell', cmake: 'shell',
  sql: 'sql', json: 'data', jsonc: 'data', yaml: 'data', yml: 'data', toml: 'data', ini: 'data', css: 'css', scss: 'css', html: 'markup', xml: 'markup', svg: 'markup', vue: 'markup',
};

const LONGEST_LINE = 2000;  // of a line that is coloured
const MOST_LINES = 3000;    // of a block

export class Highlighter {
  constructor(name) {
    this.language = LANGUAGES[NAMES[name.toLowerCase()]];
    this.isDiff = /^(diff|patch)$/i.test(name);
    this.open = null;  // what closes the comment or string that goes on from the line before
    this.lines = 0;
  }

  // The nodes of one line, without its end.
  line(text) {
    ++this.lines;
    if (this.isDiff && /^[-+]/.test(text)) return [el('span', { class: text[0] === '+' ? 's' : 'd' }, text)];
    if (!this.language || text.length > LONGEST_LINE || this.lines > MOST_LINES) return [text];
    return this.scan(text);
  }

  scan(text) {
    const { line, block, long = [], quotes, words: known, fold, directive } = this.language;
    const out = [];
    let plain = '';
    const add = (kind, part) => {
      if (!kind) return void (plain += part);
      if (plain) out.push(plain);
      plain = '';
      out.push(el('span', { class: kind }, part));
    };
    for (let i = 0; i < text.length;) {
      if (this.open) {
        const { close, kind } = this.open;
        const end = text.indexOf(close, i);
        add(kind, text.slice(i, end < 0 ? undefined : end + close.length));
        if (end < 0) break;
        this.open = null;
        i = end + close.length;
        continue;
      }
      const rest = text.slice(i, i + 4);
      if (line.some((mark) => rest.startsWith(mark)) && (line[0] !== '#' || i === 0 || /[\s;]/.test(text[i - 1]))) {
        add('c', text.slice(i));
        break;
      }
      const lasting = long.find((mark) => rest.startsWith(mark));
      if (lasting || (block && rest.startsWith(block[0]))) {
        this.open = lasting ? { close: lasting, kind: 's' } : { close: block[1], kind: 'c' };
        const mark = lasting ?? block[0];
        add(this.open.kind, mark);
        i += mark.length;
        continue;
      }
      const [part, kind] = this.word(text, i, { quotes, known, fold, directive });
      add(kind, part);
      i += part.length;
    }
    if (plain) out.push(plain);
    return out;
  }

  word(text, i, { quotes, known, fold, directive }) {
    const char = text[i];
    if (quotes.includes(char)) {
      let end = i + 1;
      while (end < text.length && text[end] !== char) end += text[end] === '\\' ? 2 : 1;
      return [text.slice(i, Math.min(end + 1, text.length)), 's'];
    }
    const sticky = /[\p{L}_$][\p{L}\p{N}_$]*|\d[\w.]*|\s+|./uy;
    sticky.lastIndex = i;
    const part = sticky.exec(text)?.[0] ?? char;
    if (/^\d/.test(part)) return [part, 'n'];
    if (directive && char === '#' && !text.slice(0, i).trim()) return [text.slice(i).match(/^#\s*\w*/)[0], 'k'];
    if (known.has(fold ? part.toLowerCase() : part)) return [part, 'k'];
    if (this.language === LANGUAGES.markup && /[</]/.test(text[i - 1] ?? '')) return [part, 'k'];
    return [part, /^[\p{L}_]/u.test(part) && text[i + part.length] === '(' ? 'f' : ''];
  }
}
