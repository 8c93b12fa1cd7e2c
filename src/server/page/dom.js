// Elements by construction: text becomes text nodes, so nothing that a model or a user wrote is ever read as HTML.

const SVG = 'http://www.w3.org/2000/svg';

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name in element && (typeof value === 'boolean' || name === 'value')) element[name] = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const el = (tag, props, ...children) => fill(document.createElement(tag), props, children);
export const svg = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

const ICONS = {
  menu: 'M3 6h18M3 12h18M3 18h18',
  send: 'M12 20V5M5 12l7-7 7 7',
  stop: 'M7 7h10v10H7z',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  check: 'M5 13l4 4L19 7',
  edit: 'M4 20h4L19 9l-4-4L4 16zM13 7l4 4',
  again: 'M4 12a8 8 0 0 1 14-5.3L20 9M20 4v5h-5M20 12a8 8 0 0 1-14 5.3L4 15M4 20v-5h5',
  left: 'M15 5l-7 7 7 7',
  right: 'M9 5l7 7-7 7',
  trash: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10 11v5M14 11v5',
  down: 'M12 4v11M7 10l5 5 5-5M5 20h14',
  sliders: 'M4 7h9M17 7h3M4 17h3M11 17h9M15 4v6M9 14v6',
  theme: 'M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18',
  close: 'M6 6l12 12M18 6L6 18',
  go: 'M6 5l12 7-12 7z',
  clip: 'M8 12l6-6a3 3 0 0 1 4 4l-8 8a5 5 0 0 1-7-7l7-7',
};

export const icon = (name) =>
  svg('svg', { viewBox: '0 0 24 24', class: 'icon', 'aria-hidden': 'true' }, svg('path', { d: ICONS[name] }));

// A button that shows a picture; its name is for screen readers and for the pointer.
export const iconButton = (name, label, onclick, props) =>
  el('button', { type: 'button', class: 'icon-button', 'aria-label': label, title: label, onclick, ...props }, icon(name));

// Clipboards need a secure context, which a server on the local network without TLS is not.
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return;
  } catch { /* the older way follows */ }
  const area = el('textarea', { class: 'offscreen', 'aria-hidden': 'true' });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
}

export function copyButton(getText, label = 'Copy') {
  const button = iconButton('copy', label, async () => {
    await copyText(getText());
    button.replaceChildren(icon('check'));
    say('Copied');
    setTimeout(() => button.replaceChildren(icon('copy')), 1500);
  });
  return button;
}

// What a screen reader should say, politely.
export function say(text) {
  document.getElementById('said').textContent = text;
}

export function download(name, text) {
  const link = el('a', { href: URL.createObjectURL(new Blob([text], { type: 'application/json' })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// Asks in a dialog. `build(close)` makes its content; the promise has what close() was given, undefined for Escape.
export function ask(title, build) {
  return new Promise((resolve) => {
    const dialog = el('dialog', { 'aria-label': title });
    let result;
    dialog.append(el('h2', {}, title), ...[build((value) => ((result = value), dialog.close()))].flat());
    dialog.addEventListener('close', () => (dialog.remove(), resolve(result)));
    document.body.append(dialog);
    dialog.showModal();
  });
}

export const confirmed = (title, text, verb) =>
  ask(title, (close) => [
    el('p', {}, text),
    el('div', { class: 'row end' }, el('button', { type: 'button', onclick: () => close(false) }, 'Cancel'),
      el('button', { type: 'button', class: 'danger', onclick: () => close(true) }, verb)),
  ]);

export const count = (number) => Math.round(number).toLocaleString('en-US');
export const seconds = (value) =>
  value < 1 ? `${value < 0.01 ? (value * 1000).toFixed(1) : Math.round(value * 1000)} ms` : value < 60 ? `${value.toFixed(1)} s`
    : `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
export const plural = (number, one) => `${count(number)} ${one}${number === 1 ? '' : 's'}`;

// Random letters that identify something in this browser; crypto.randomUUID needs a secure context.
export const randomId = () =>
  [...crypto.getRandomValues(new Uint8Array(9))].map((byte) => byte.toString(36).padStart(2, '0')).join('');

// Lets the browser draw and take input before the work goes on.
export const breathe = () => new Promise((resolve) => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => (port1.close(), resolve());
  port2.postMessage(0);
});
