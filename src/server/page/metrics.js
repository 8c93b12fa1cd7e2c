// Prometheus's text, and the last hour of it in memory.

const HOUR = 3600e3;

// Samples by name: {labels, value} of each. Only carat's own, which are the ones the page draws.
export function parseMetrics(text) {
  const found = new Map();
  for (const line of text.split('\n')) {
    if (!line.startsWith('carat_')) continue;
    const match = /^([a-zA-Z0-9_:]+)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!match) continue;
    const [, name, inner = '', value] = match;
    const labels = {};
    for (const [, key, text] of inner.matchAll(/([a-zA-Z0-9_]+)="((?:[^"\\]|\\.)*)"/g)) labels[key] = text.replace(/\\(.)/g, (_, char) =>
        (char === 'n' ? '\n' : char));
    const number = value === '+Inf' ? Infinity : Number(value);
    found.has(name) ? found.get(name).push({ labels, value: number }) : found.set(name, [{ labels, value: number }]);
  }
  return found;
}

const fits = (labels, wanted) => Object.entries(wanted).every(([key, value]) => labels[key] === value);
export const valueOf = (metrics, name, wanted = {}) =>
  (metrics.get(`carat_${name}`) ?? []).filter(({ labels }) => fits(labels, wanted)).reduce((sum, { value }) => sum + value, 0);

// Cumulative counts of a histogram by upper bound, in order.
function bucketsOf(metrics, name, wanted) {
  const sums = new Map();
  for (const { labels, value } of metrics.get(`carat_${name}_bucket`) ?? []) {
    if (!fits(labels, wanted)) continue;
    const bound = labels.le === '+Inf' ? Infinity : Number(labels.le);
    sums.set(bound, (sums.get(bound) ?? 0) + value);
  }
  return [...sums].sort(([a], [b]) => a - b);
}

// A quantile of what was observed between two scrapes, as Prometheus computes it: linear within its bucket. Null: nothing was.
export function quantile(before, now, name, share, wanted = {}) {
  const old = new Map(bucketsOf(before, name, wanted));
  const buckets = bucketsOf(now, name, wanted).map(([bound, sum]) => [bound, sum - (old.get(bound) ?? 0)]);
  const total = buckets.at(-1)?.[1] ?? 0;
  if (!(total > 0)) return null;
  let low = 0, below = 0;
  for (const [bound, sum] of buckets) {
    if (sum >= share * total) return bound === Infinity ? low
        : low + ((bound - low) * (share * total - below)) / Math.max(sum - below, 1e-9);
    [low, below] = [bound, sum];
  }
  return low;
}

// Used share of each pool of the cache.
function poolsOf(metrics) {
  const pools = {};
  for (const { labels, value } of metrics.get('carat_kv_bytes') ?? []) {
    if (!labels.pool) continue;
    const pool = (pools[labels.pool] ??= { used: 0, all: 0 });
    pool.all += value;
    if (labels.state !== 'free') pool.used += value;
  }
  const shares = Object.entries(pools).filter(([, { all }]) => all > 0).map(([name, { used, all }]) => [name, used / all]);
  return shares.length ? Object.fromEntries(shares) : { cache: valueOf(metrics, 'kv_cache_usage_ratio') };
}

// What the plots show, of one moment and of the time since the scrape before.
export function pointOf(before, now, elapsed) {
  const rate = (name, wanted) => (before ? Math.max(0, valueOf(now, name, wanted) - valueOf(before, name, wanted)) / elapsed : null);
  const at = (name, share, wanted) => (before ? quantile(before, now, name, share, wanted) : null);
  return {
    running: valueOf(now, 'requests_running'), waiting: valueOf(now, 'requests_waiting'),
    prompts: rate('prompt_tokens_total'), answers: rate('generated_tokens_total'),
    pools: poolsOf(now),
    reused: rate('prefix_tokens_total', { result: 'reused' }), recomputed: rate('prefix_tokens_total', { result: 'recomputed' }),
        fresh: rate('prefix_tokens_total', { result: 'new' }),
    lost: Object.fromEntries((now.get('carat_prefix_lost_total') ?? []).map(({ labels }) => labels.reason).map((reason) =>
        [reason, rate('prefix_lost_total', { reason })])),
    pass: { decode: at('pass_seconds', 0.5, { mix: 'decode' }), prompt: at('pass_seconds', 0.5, { mix: 'prompt' }),
        mixed: at('pass_seconds', 0.5, { mix: 'mixed' }), slow: at('pass_seconds', 0.99) },
    gap: at('inter_token_seconds', 0.5), slowGap: at('inter_token_seconds', 0.99), first: at('time_to_first_token_seconds', 0.5),
  };
}

export class History {
  constructor() {
    this.points = [];
    this.last = null;
  }

  // A server that was started anew counts from zero; what came before is not compared with it.
  add(text, now = Date.now()) {
    const metrics = parseMetrics(text);
    const isSame = this.last && valueOf(metrics, 'startup_seconds') === valueOf(this.last.metrics, 'startup_seconds')
        && valueOf(metrics, 'http_connections_total') >= valueOf(this.last.metrics, 'http_connections_total');
    const before = isSame ? this.last : null;
    const point = { time: now, ...pointOf(before?.metrics, metrics, before ? Math.max(0.05, (now - before.time) / 1000) : 1) };
    this.last = { time: now, metrics };
    this.points.push(point);
    while (this.points[0].time < now - HOUR) this.points.shift();
    return point;
  }

  since(milliseconds, now = Date.now()) {
    return this.points.filter((point) => point.time >= now - milliseconds);
  }
}
