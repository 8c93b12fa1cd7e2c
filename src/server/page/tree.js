// A conversation is a tree: editing a question or asking again makes a branch beside the old one, and `at` says of each
// message which of those that follow it is shown. This file knows no page and no server.
import { randomId } from './dom.js';

export function newConversation(settings) {
  const root = randomId();
  const now = Date.now();
  return { id: randomId(), title: '', isNamed: false, created: now, updated: now, settings: { ...settings }, root,
      nodes: { [root]: { id: root, role: 'root', kids: [], at: 0 } } };
}

// A message after `parent`, as the branch that is shown. Roles are user, assistant and tool.
export function addNode(conversation, parent, node) {
  const made = { id: randomId(), parent, kids: [], at: 0, text: '', ...node };
  const above = conversation.nodes[parent];
  conversation.nodes[made.id] = made;
  above.at = above.kids.push(made.id) - 1;
  if (!conversation.isNamed && !conversation.title && made.role === 'user') conversation.title = titleOf(made.text);
  return made;
}

const titleOf = (text) => {
  const line = text.trim().split('\n')[0];
  return line.length > 60 ? `${line.slice(0, 58).trimEnd()}…` : line;
};

// The messages that are shown, from the first to the last.
export function shownPath(conversation) {
  const path = [];
  for (let node = conversation.nodes[conversation.root]; node.kids.length;) {
    node = conversation.nodes[node.kids[Math.min(node.at, node.kids.length - 1)]];
    path.push(node);
  }
  return path;
}

// {index, of}: which of the branches at its place a message is.
export function branchOf(conversation, node) {
  const { kids } = conversation.nodes[node.parent];
  return { index: kids.indexOf(node.id), of: kids.length };
}

export function walkBranch(conversation, node, step) {
  const above = conversation.nodes[node.parent];
  above.at = Math.max(0, Math.min(above.kids.length - 1, above.kids.indexOf(node.id) + step));
}

const contentOf = ({ text, media }) => (media?.length ? [...media.map((one) => one.part), { type: 'text', text }] : text);

// A message as OpenAI's API and carat's own files have it; null for one that says nothing.
function messageOf(node) {
  if (node.role === 'user') return { role: 'user', content: contentOf(node) };
  if (node.role === 'tool') return { role: 'tool', content: node.text, tool_call_id: node.callId, name: node.name };
  if (!node.text && !node.calls?.length) return null;
  return {
    role: 'assistant',
    content: node.text,
    ...(node.thoughts && { reasoning_content: node.thoughts }),
    ...(node.calls?.length && { tool_calls: node.calls.map(({ id, name, arguments: given }) =>
        ({ id, type: 'function', function: { name, arguments: given } })) }),
  };
}

export function messagesOf(conversation, path) {
  const system = conversation.settings.system?.trim();
  return [...(system ? [{ role: 'system', content: system }] : []), ...path.map(messageOf).filter(Boolean)];
}

// What `carat chat --load` reads: the branch that is shown. Everything else is under a key of its own, which it ignores.
export function exported(conversation, tools) {
  const messages = messagesOf(conversation, shownPath(conversation)).map((message) =>
    (Array.isArray(message.content) ? { ...message, content: message.content.filter((part) => part.type === 'text') } : message));
  const { title, isNamed, created, updated, settings, root, nodes } = conversation;
  return `${JSON.stringify({ messages, ...(tools.length && { tools }), carat_page: { version: 1, title, isNamed, created, updated, settings, root, nodes } }, null, 2)}\n`;
}

const isText = (value) => typeof value === 'string';

// Conversations of a file: this page's, or messages as `carat chat --save` and OpenAI's API have them. Throws where it is neither.
export function imported(text, name, defaults) {
  const file = JSON.parse(text);
  const own = file?.carat_page;
  if (own && checkTree(own)) return { ...newConversation({}), ...own, id: randomId(), title: String(own.title ?? name) };
  const messages = Array.isArray(file) ? file : file?.messages;
  if (!Array.isArray(messages)) throw new Error('it has no list of messages');
  const conversation = newConversation({ ...defaults, system: '', tools: '' });
  if (file.tools) conversation.settings.tools = JSON.stringify([file.tools].flat(), null, 2);
  const system = [];
  let parent = conversation.root;
  for (const [i, message] of messages.entries()) {
    const node = nodeOf(message, i);
    if (node.role === 'system') system.push(node.text);
    else parent = addNode(conversation, parent, node).id;
  }
  conversation.settings.system = system.join('\n\n');
  conversation.title ||= name;
  return conversation;
}

function nodeOf(message, i) {
  const content = message?.content ?? '';
  const parts = Array.isArray(content) ? content.filter((part) => isText(part.text)).map((part) => part.text) : [];
  const text = isText(content) ? content : Array.isArray(content) ? parts.join('\n') : JSON.stringify(content);
  switch (message?.role) {
    case 'system': case 'developer':
      return { role: 'system', text };
    case 'user':
      return { role: 'user', text };
    case 'tool':
      return { role: 'tool', text, callId: message.tool_call_id, name: message.name };
    case 'assistant': case 'model':
      return {
        role: 'assistant', text, thoughts: message.reasoning_content ?? message.reasoning ?? '', isOver: true,
        calls: (message.tool_calls ?? []).map((call, k) => {
          const made = call.function ?? call;
          return { id: call.id ?? `call_${i}_${k}`, name: String(made.name), arguments: isText(made.arguments) ? made.arguments
              : JSON.stringify(made.arguments ?? {}) };
        }),
      };
    default:
      throw new Error(`message ${i} has no role that is known`);
  }
}

// Whether a tree from a file holds together: every message is reached once from the root.
function checkTree({ root, nodes, settings }) {
  if (!nodes?.[root] || typeof settings !== 'object') throw new Error('its carat_page part is damaged');
  const open = [root], seen = new Set();
  while (open.length) {
    const node = nodes[open.pop()];
    const isGood = node && !seen.has(node.id) && Array.isArray(node.kids)
        && (node.id === root || (isText(node.text) && nodes[node.parent]?.kids.includes(node.id)));
    if (!isGood) throw new Error('its carat_page part is damaged');
    seen.add(node.id);
    open.push(...node.kids);
  }
  return true;
}

// Whether the conversation has these words anywhere; marks of emphasis and code do not count.
const plain = (text) => text.replace(/[*_`]/g, '').toLowerCase();
export const hasWords = (conversation, words) =>
  [conversation.title, ...Object.values(conversation.nodes).map((node) => node.text ?? '')].some((text) =>
      plain(text).includes(plain(words)));
