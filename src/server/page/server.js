// The server tab: what the server does now and did in the last hour, from /metrics, drawn by hand as SVG.
import { request } from './api.js';
import { count, el, seconds, svg } from './dom.js';
import { History, valueOf } from './metrics.js';

const WIDTH = 480, HEIGHT = 150, LEFT = 46, BOTTOM = 18, TOP = 8;
const MOST_POINTS = 240;
const EVERY = 2000, EVERY_HIDDEN = 10000;

const percent = (share) => `${(100 * share).toFixed(share < 0.1 && share > 0 ? 1 : 0)} %`;
const perSecond = (value) => `${value >= 1000 ? `${(value / 1000).toFixed(1)}k` : value > 0 && value < 10 ? value.toFixed(1) : count(value)}/s`;
const named = (points, key) => [...new Set(points.flatMap((point) => Object.keys(point[key])))];

const PLOTS = [
  { title: 'Requests', unit: count, least: 4, lines: () => [['running', (p) => p.running], ['waiting', (p) => p.waiting]] },
  { title: 'Tokens', unit: perSecond, least: 10, lines: () => [['of answers', (p) => p.answers], ['of prompts', (p) => p.prompts]] },
  { title: 'Cache in use, by pool', unit: percent, most: 1, least: 1, lines: (points) =>
      named(points, 'pools').map((name) => [name, (p) => p.pools[name] ?? null]) },
  { title: 'Tokens of prompts', unit: perSecond, least: 10, lines: () =>
      [['reused', (p) => p.reused], ['new', (p) => p.fresh], ['read again', (p) => p.recomputed]] },
  { title: 'Read again, by reason', unit: perSecond, least: 10, lines: (points) =>
      named(points, 'lost').map((name) => [name, (p) => p.lost[name] ?? null]) },
  { title: 'Time of a pass', unit: seconds, least: 0.002, lines: () =>
      [['answers', (p) => p.pass.decode], ['prompts', (p) => p.pass.prompt], ['both', (p) => p.pass.mixed],
      ['99 % of all', (p) => p.pass.slow]] },
  { title: 'Gap between tokens', unit: seconds, least: 0.002, lines: () => [['half', (p) => p.gap], ['99 %', (p) => p.slowGap]] },
  { title: 'Time to the first token', unit: seconds, least: 0.02, lines: () => [['half', (p) => p.first]] },
];

// A round number that is not below the value.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

// As many points as can be told apart; of each group the mean of those that have a value.
function thinned(points, read, begin, end) {
  const groups = Array.from({ length: MOST_POINTS }, () => [0, 0]);
  for (const point of points) {
    const value = read(point);
    if (value === null || !Number.isFinite(value)) continue;
    const group = groups[Math.min(MOST_POINTS - 1, Math.max(0, Math.floor(((point.time - begin) / (end - begin)) * MOST_POINTS)))];
    group[0] += value;
    ++group[1];
  }
  return groups.map(([sum, number]) => (number ? sum / number : null));
}

class Plot {
  constructor(plan) {
    this.plan = plan;
    this.legend = el('ul', { class: 'legend' });
    this.grid = svg('g', { class: 'gridlines' });
    this.paths = svg('g', { class: 'lines' });
    this.cursor = svg('line', { class: 'cursor', y1: TOP, y2: HEIGHT - BOTTOM, visibility: 'hidden' });
    this.picture = svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': plan.title }, this.grid, this.paths,
        this.cursor);
    this.picture.addEventListener('pointermove', (event) => this.point(event));
    this.picture.addEventListener('pointerleave', () => this.point(null));
    this.node = el('figure', { class: 'plot' }, el('figcaption', {}, plan.title), this.picture, this.legend);
  }

  draw(points, begin, end) {
    const { plan } = this;
    this.lines = plan.lines(points).map(([name, read]) => ({ name, values: thinned(points, read, begin, end) }));
    const most = Math.max(plan.least, ...this.lines.flatMap(({ values }) => values.filter((value) => value !== null)));
    const top = plan.most ?? roundUp(most);
    const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - TOP);
    const x = (i) => LEFT + (i / (MOST_POINTS - 1)) * (WIDTH - LEFT - 4);
    Object.assign(this, { begin, end, x });
    const minutes = Math.round((end - begin) / 60e3);
    this.grid.replaceChildren(...[0, 0.5, 1].flatMap((share) => [
      svg('line', { x1: LEFT, x2: WIDTH - 4, y1: y(share * top), y2: y(share * top) }),
      svg('text', { x: LEFT - 6, y: y(share * top) + 4, 'text-anchor': 'end' }, share === 0 ? '0' : plan.unit(share * top)),
    ]), svg('text', { x: LEFT, y: HEIGHT - 3 }, `${minutes} min ago`),
        svg('text', { x: WIDTH - 4, y: HEIGHT - 3, 'text-anchor': 'end' }, 'now'));
    this.paths.replaceChildren(...this.lines.map(({ values }, i) => svg('path', { class: `line c${i % 5}`, d: pathOf(values, x, y) })));
    this.point(null);
  }

  // The values under the pointer, or the latest.
  point(event) {
    if (!this.lines) return;
    let at = null;
    if (event) {
      const box = this.picture.getBoundingClientRect();
      const share = (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - 4);
      at = Math.round(Math.max(0, Math.min(1, share)) * (MOST_POINTS - 1));
      this.cursor.setAttribute('x1', this.x(at));
      this.cursor.setAttribute('x2', this.x(at));
    }
    this.cursor.setAttribute('visibility', event ? 'visible' : 'hidden');
    this.legend.replaceChildren(...this.lines.map(({ name, values }, i) => {
      const value = at === null ? values.findLast((one) => one !== null) : nearest(values, at);
      return el('li', {}, el('i', { class: `swatch c${i % 5}` }), `${name} `,
          el('b', {}, value === undefined || value === null ? '–' : this.plan.unit(value)));
    }));
  }
}

const nearest = (values, at) => values[at] ?? values[at - 1] ?? values[at + 1] ?? null;

// Moments without a value are bridged where they are short, and left open where nothing happened for long.
function pathOf(values, x, y) {
  let path = '', gap = Infinity;
  for (const [i, value] of values.entries()) {
    if (value === null) {
      ++gap;
      continue;
    }
    const at = `${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
    path += gap > 12 ? `M${at}h.1` : `L${at}`;
    gap = 0;
  }
  return path;
}

export class ServerTab {
  constructor(root) {
    this.history = new History();
    this.cards = el('dl', { class: 'cards' });
    this.problem = el('p', { class: 'problem', role: 'status' });
    this.range = el('select', { id: 'range', onchange: () => this.draw() },
        ...[[5, '5 minutes'], [15, '15 minutes'], [60, '1 hour']].map(([value, text]) => el('option', { value }, text)));
    this.plots = PLOTS.map((plan) => new Plot(plan));
    root.append(el('div', { class: 'row between' }, el('h2', {}, 'Server'),
        el('div', { class: 'row' }, el('label', { for: 'range' }, 'The last'), this.range)),
      this.problem, this.cards, el('div', { class: 'plots' }, ...this.plots.map((plot) => plot.node)),
      el('p', { class: 'muted' }, 'From /metrics, which Prometheus reads as well. The page keeps the last hour in memory, from when it was opened.'));
  }

  // Reads on while the page is open, faster while the tab is looked at.
  async follow(isShown) {
    for (;;) {
      await this.scrape();
      if (isShown()) this.draw();
      await new Promise((resolve) => {
        this.wake = resolve;
        setTimeout(resolve, isShown() ? EVERY : EVERY_HIDDEN);
      });
    }
  }

  async scrape() {
    try {
      this.history.add(await (await request('metrics')).text());
      this.problem.textContent = '';
    } catch (error) {
      this.problem.textContent = error.message;
    }
  }

  shown() {
    this.draw();
    this.wake?.();
  }

  draw() {
    const end = Date.now(), span = Number(this.range.value) * 60e3;
    const points = this.history.since(span, end);
    if (!points.length) return;
    this.showCards(points.at(-1));
    // A page that was opened just now shows the minutes it has seen.
    const seen = Math.ceil((end - points[0].time) / 60e3) * 60e3;
    for (const plot of this.plots) plot.draw(points, end - Math.min(span, Math.max(60e3, seen)), end);
  }

  showCards(point) {
    const { metrics } = this.history.last;
    const labels = metrics.get('carat_info')?.[0]?.labels ?? {};
    const state = (metrics.get('carat_state') ?? []).find(({ value }) => value === 1)?.labels.state ?? 'unknown';
    const of = (result) => valueOf(metrics, 'prefix_tokens_total', { result });
    const all = of('reused') + of('recomputed') + of('new');
    const lost = (metrics.get('carat_prefix_lost_total') ?? []).filter(({ value }) => value > 0).map(({ labels: { reason }, value }) =>
        `${reason} ${count(value)}`);
    const cards = [
      ['State', state], ['Model', labels.model], ['On', labels.executor], ['Running', count(point.running)],
          ['Waiting', count(point.waiting)],
      ['Cache in use', Object.values(point.pools).length > 1
          ? Object.entries(point.pools).map(([name, share]) => `${name} ${percent(share)}`).join(', ')
          : percent(Object.values(point.pools)[0])],
      ['Prompts reused', all ? percent(of('reused') / all) : '–'], ['Read again', lost.join(', ') || '0'],
      ['Answers', count(valueOf(metrics, 'answers_total'))], ['Tokens written', count(valueOf(metrics, 'generated_tokens_total'))],
    ];
    this.cards.replaceChildren(...cards.map(([name, value]) => el('div', {}, el('dt', {}, name), el('dd', {}, value || '–'))));
  }
}
