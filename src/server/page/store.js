// Conversations stay in this browser: in its database, or in memory where it has none. An answer that is being written
// is noted piece by piece in a journal that a page can still write to while it is closed, so that a reload loses nothing
// that had arrived.
const PREFIX = 'carat.journal.';
const STALE = 5000;  // milliseconds without a beat after which a journal is an orphan

let database = null;
const memory = new Map();

const promised = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

export async function openStore() {
  try {
    const opening = indexedDB.open('carat', 1);
    opening.onupgradeneeded = () => {
      opening.result.createObjectStore('conversations', { keyPath: 'id' });
      opening.result.createObjectStore('heads', { keyPath: 'id' });
    };
    database = await promised(opening);
    database.onversionchange = () => database.close();
  } catch {
    database = null;
  }
  return database !== null;
}

const headOf = ({ id, title, updated }) => ({ id, title, updated });

export async function save(conversation) {
  if (!database) return void memory.set(conversation.id, structuredClone(conversation));
  const work = database.transaction(['conversations', 'heads'], 'readwrite');
  work.objectStore('conversations').put(conversation);
  work.objectStore('heads').put(headOf(conversation));
  await new Promise((resolve, reject) => {
    work.oncomplete = resolve;
    work.onerror = work.onabort = () => reject(work.error);
  });
  changed.postMessage(conversation.id);
}

export async function load(id) {
  if (!database) return structuredClone(memory.get(id));
  return promised(database.transaction('conversations').objectStore('conversations').get(id));
}

// The newest first.
export async function heads() {
  const all = database ? await promised(database.transaction('heads').objectStore('heads').getAll()) : [...memory.values()].map(headOf);
  return all.sort((a, b) => b.updated - a.updated);
}

export async function remove(id) {
  if (!database) return void memory.delete(id);
  const work = database.transaction(['conversations', 'heads'], 'readwrite');
  work.objectStore('conversations').delete(id);
  work.objectStore('heads').delete(id);
  await new Promise((resolve) => (work.oncomplete = resolve));
  changed.postMessage(id);
}

// Ids of the conversations for which `matches` holds, read one at a time.
export async function search(matches) {
  if (!database) return [...memory.values()].filter(matches).map(({ id }) => id);
  const found = [];
  const request = database.transaction('conversations').objectStore('conversations').openCursor();
  await new Promise((resolve) => {
    request.onsuccess = () => {
      const cursor = request.result;
      if (!cursor) return resolve();
      if (matches(cursor.value)) found.push(cursor.value.id);
      cursor.continue();
    };
    request.onerror = resolve;
  });
  return found;
}

// Tells the page's other tabs that a conversation was changed.
export const changed = new BroadcastChannel('carat');

// --- the journal
// What arrives for one message. note() is cheap and may be called for every token; flush() writes.
export class Journal {
  constructor(conversation, node) {
    this.key = `${PREFIX}${node}`;
    this.head = { conversation, node };
    this.parts = 0;
    this.pending = null;
    this.isFull = false;
    this.beat();
  }

  note(part) {
    this.pending ??= { text: '', thoughts: '' };
    this.pending.text += part.text ?? '';
    this.pending.thoughts += part.thoughts ?? '';
    for (const name of ['calls', 'thinkSeconds']) if (part[name] !== undefined) this.pending[name] = part[name];
  }

  // A page that goes away says so, and its journal is an orphan at once.
  beat(time = Date.now()) {
    this.put(this.key, { ...this.head, beat: time });
  }

  put(key, value) {
    try {
      localStorage.setItem(key, JSON.stringify(value));
      return true;
    } catch {
      this.isFull = true;  // the caller saves the conversation itself from now on
      return false;
    }
  }

  flush(isLeaving) {
    if (this.pending && this.put(`${this.key}.${this.parts}`, this.pending)) {
      ++this.parts;
      this.pending = null;
    }
    this.isGone ||= isLeaving;  // browsers may call once more after that
    this.beat(this.isGone ? 0 : undefined);
  }

  end() {
    forget(this.key);
  }
}

function forget(key) {
  for (let i = 0; localStorage.getItem(`${key}.${i}`) !== null; ++i) localStorage.removeItem(`${key}.${i}`);
  localStorage.removeItem(key);
}

// What journals hold of answers whose page is gone, put into their conversations. Tells whether another tab may still
// write to one: it is, or it crashed.
export async function recover() {
  let isLeft = false;
  const keys = Object.keys(localStorage).filter((key) => key.startsWith(PREFIX) && !key.slice(PREFIX.length).includes('.'));
  for (const key of keys) {
    const head = JSON.parse(localStorage.getItem(key));
    if (Date.now() - head.beat < STALE) {
      isLeft = true;
      continue;
    }
    const conversation = await load(head.conversation);
    const node = conversation?.nodes[head.node];
    if (node && !node.isOver) {
      let text = '', thoughts = '';
      for (let i = 0, part; (part = localStorage.getItem(`${key}.${i}`)) !== null; ++i) {
        const { text: more, thoughts: thought, ...rest } = JSON.parse(part);
        text += more;
        thoughts += thought;
        Object.assign(node, rest);
      }
      // A full journal was helped out by the conversation itself, which then has more.
      if (text.length + thoughts.length >= node.text.length + (node.thoughts ?? '').length) Object.assign(node, { text, thoughts });
      Object.assign(node, { isOver: true, ending: 'left' });
      await save(conversation);
    }
    forget(key);
  }
  return isLeft;
}
