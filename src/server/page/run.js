// One answer on its way: the request, what its stream brings, and the journal that survives the page.
import { request, stream } from './api.js';
import { parseTools } from './calls.js';
import { Journal, save } from './store.js';
import { messagesOf, shownPath } from './tree.js';

const NUMBERS = ['temperature', 'top_p', 'top_k', 'min_p', 'repeat_penalty', 'presence_penalty', 'frequency_penalty', 'seed', 'max_tokens'];

// The request for the answer after these messages. What the user left empty is not sent: the model's own default holds.
export function requestBody(conversation, path, goesOn = false) {
  const { settings } = conversation;
  const body = { messages: messagesOf(conversation, path), stream: true, stream_options: { include_usage: true }, return_progress: true,
      timings_per_token: true };
  for (const name of NUMBERS) {
    if (settings[name] !== undefined && settings[name] !== '') body[name] = Number(settings[name]);
  }
  const stops = (settings.stop ?? '').split('\n').filter(Boolean);
  if (stops.length) body.stop = stops;
  if (settings.think) body.chat_template_kwargs = { enable_thinking: settings.think === 'on' };
  if (settings.think !== 'off' && settings.budget) body.thinking_token_budget = Number(settings.budget);
  const tools = parseTools(settings.tools);
  if (tools.length) Object.assign(body, { tools, tool_choice: settings.tool_choice || 'auto' });
  if (settings.schema?.trim()) body.response_format = { type: 'json_schema',
      json_schema: { name: 'answer', schema: JSON.parse(settings.schema), strict: true } };
  if (goesOn) body.continue_final_message = true;
  return body;
}

// What stands at the start of every prompt of a conversation: a change of it makes the cache worthless.
const startOf = ({ system = '', tools = '', think = '' }) => ({ system: system.trim(), tools, think });

const LOST = {
  window: 'the sliding window had moved past them',
  evicted: 'another request needed their place in the cache',
  retokenised: 'the last answer is cut into other tokens when it is read back',
  template: 'the template leaves the last thoughts out of the history',
};

// Why tokens that the conversation had before were read again; empty where nothing was. `known` is what the last answer
// left behind. The server's own reason comes first; otherwise the page says what it knows was changed.
export function whyAgain(known, conversation, path, usage) {
  const lost = usage.prompt_tokens_details?.carat_lost;
  const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  const words = (tokens, why) => `${tokens.toLocaleString('en-US')} tokens were read again: ${why}`;
  if (lost) return words(lost.tokens, LOST[lost.reason] ?? lost.reason);
  const last = path.findIndex((node) => node.id === known?.node);
  if (!known || cached >= Math.min(known.tokens, usage.prompt_tokens) - 2) return '';
  const again = Math.min(known.tokens, usage.prompt_tokens) - cached;
  const now = startOf(conversation.settings);
  if (known.start.system !== now.system) return words(again, 'the system prompt was changed, which stands before everything');
  if (known.start.tools !== now.tools) return words(again, 'the tools were changed, which stand before everything');
  if (known.start.think !== now.think) return words(again, 'thinking was switched, which changes the start of the prompt');
  if (last < 0) return '';  // another branch: what differs is new, not read again
  if (path[last].thoughts) return words(again, 'the thoughts of the last answer are not part of the history');
  if (cached >= known.prompt) return words(again, LOST.retokenised);
  if (cached >= known.prompt - 12) return words(again, 'the last prompt ended with an empty thought, which the history leaves out');
  return words(again, 'the cache could not be resumed where the two prompts part (its place was needed, or the sliding window had moved on)');
}

export class Run {
  // `watch(run)` is told of everything that changes.
  constructor(conversation, node, watch, goesOn = false) {
    Object.assign(this, { conversation, node, watch, goesOn, live: { isSent: false } });
    this.abort = new AbortController();
    this.before = goesOn ? node.text : '';
  }

  stop() {
    this.isStopped = true;
    this.abort.abort();
  }

  async skipThinking() {
    await request('v1/chat/completions/control', { body: { id: this.live.id, action: 'reasoning_end' } });
  }

  flush(isLeaving) {
    this.journal?.flush(isLeaving);
  }

  // Never throws: what goes wrong is said in the answer.
  async start() {
    const { node, conversation } = this;
    this.begun = performance.now();
    try {
      const path = shownPath(conversation);
      this.path = path.slice(0, path.indexOf(node) + (this.goesOn ? 1 : 0));
      const body = requestBody(conversation, this.path, this.goesOn);
      Object.assign(node, { isOver: false, ending: undefined, error: undefined, schema: body.response_format
          && JSON.stringify(body.response_format.json_schema.schema) });
      conversation.updated = Date.now();
      await save(conversation);  // the question is safe before anything else happens
      this.journal = new Journal(conversation.id, node.id);
      if (this.before) this.journal.note({ text: this.before });
      this.beat = setInterval(() => this.tick(), 250);
      this.live.isSent = true;
      this.watch(this);
      const isWhole = await stream('v1/chat/completions', body, this.abort.signal, (chunk) => this.take(chunk));
      node.ending = isWhole ? node.ending ?? 'stop' : node.error ? 'error' : 'cut';
    } catch (error) {
      this.fail(error);
    }
    await this.finish();
  }

  fail(error) {
    if (this.isStopped) return void (this.node.ending = 'you');
    const isCut = this.node.text || this.node.thoughts;
    this.node.ending = isCut && !this.node.error ? 'cut' : 'error';
    if (!isCut) this.node.error = error instanceof SyntaxError ? `A setting is no valid JSON: ${error.message}` : error.message;
  }

  async tick() {
    this.flush();
    if (this.journal.isFull && !this.isSaving) {
      this.isSaving = true;
      await save(this.conversation).catch(() => {});
      this.isSaving = false;
    }
  }

  take(chunk) {
    const { node, live } = this;
    live.id ??= chunk.id;
    if (chunk.error) node.error = chunk.error.message ?? String(chunk.error);
    if (chunk.prompt_progress) live.progress = chunk.prompt_progress;
    if (chunk.timings) this.takeTimings(chunk.timings);
    if (chunk.usage) this.takeUsage(chunk);
    if (chunk.carat?.notes) node.notes = chunk.carat.notes;
    const choice = chunk.choices?.[0];
    if (choice) this.takeChoice(choice);
    this.watch(this);
  }

  takeChoice({ delta = {}, finish_reason: finish, stop_reason: stopped, carat }) {
    const { node, live } = this;
    const now = performance.now();
    if (delta.reasoning_content || delta.content || delta.tool_calls) live.first ??= (now - this.begun) / 1000;
    if (delta.reasoning_content) {
      this.thinkingSince ??= now;
      live.isThinking = true;
      node.thinkSeconds = (now - this.thinkingSince) / 1000;
      node.thoughts = (node.thoughts ?? '') + delta.reasoning_content;
      this.journal.note({ thoughts: delta.reasoning_content, thinkSeconds: node.thinkSeconds });
    } else if (live.isThinking && (delta.content || delta.tool_calls || finish)) {
      live.isThinking = false;
      node.thinkSeconds = (now - this.thinkingSince) / 1000;
    }
    if (delta.content) {
      node.text += delta.content;
      this.journal.note({ text: delta.content });
    }
    for (const { id, function: made } of delta.tool_calls ?? []) {
      node.calls = [...(node.calls ?? []), { id, name: made.name, arguments: made.arguments }];
      this.journal.note({ calls: node.calls });
    }
    if (!finish) return;
    node.ending = carat?.ending ?? (stopped === undefined ? finish : typeof stopped === 'string' ? 'stop_string' : 'stop_token');
    if (carat?.bad_tool_call) node.notes = [...(node.notes ?? []), `A call could not be read: ${carat.bad_tool_call.problem}`];
  }

  takeTimings({ predicted_n: tokens, predicted_per_second: rate, cache_n: cached, prompt_n: read }) {
    Object.assign(this.live, { tokens, rate: rate >= 10 ? Math.round(rate) : rate.toFixed(1), context: cached + read + tokens });
  }

  takeUsage({ usage, timings }) {
    const { node, conversation, live } = this;
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    node.stats = {
      prompt: usage.prompt_tokens, cached, completion: usage.completion_tokens,
          thoughts: usage.completion_tokens_details?.reasoning_tokens ?? 0,
      rate: timings?.predicted_per_second ?? 0, first: live.first, again: whyAgain(conversation.known, conversation, this.path, usage),
    };
    const tokens = usage.prompt_tokens + usage.completion_tokens;
    conversation.context = tokens;
    conversation.known = { node: node.id, prompt: usage.prompt_tokens, tokens, start: startOf(conversation.settings) };
  }

  async finish() {
    clearInterval(this.beat);
    const { node, live, conversation } = this;
    live.isThinking = false;
    node.isOver = true;
    if (live.context && !node.stats) conversation.context = live.context;
    if (!node.stats && live.tokens) node.stats = { prompt: live.context - live.tokens, cached: live.progress?.cache ?? 0,
        completion: live.tokens, rate: Number(live.rate), first: live.first };
    conversation.updated = Date.now();
    try {
      await save(conversation);
      this.journal?.end();
    } catch (error) {
      node.notes = [...(node.notes ?? []), `This answer could not be kept: ${error?.message ?? error}`];
    }
    this.watch(this);
  }
}
