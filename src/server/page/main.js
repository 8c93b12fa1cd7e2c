// Puts the page together: tabs, theme, the panels beside the chat, and what the server says of itself.
import { getJson, request, savedKey, ServerError } from './api.js';
import { Chat } from './chat.js';
import { showConnect } from './connect.js';
import { icon, say } from './dom.js';
import { ServerTab } from './server.js';
import { keptSettings, Settings } from './settings.js';
import { Sidebar } from './sidebar.js';
import { changed, openStore, recover, save } from './store.js';

const $ = (id) => document.getElementById(id);
const OPEN = 'carat.open', THEME = 'carat.theme';
const wide = matchMedia('(min-width: 60rem)');

const page = {
  facts: null,
  defaults: keptSettings,
  openId: () => chat.conversation?.id,
  inMemory: (id) => (chat.conversation?.id === id ? chat.conversation : chat.runs.get(id)?.conversation),
  opened(conversation) {
    sessionStorage.setItem(OPEN, conversation.id);
    settings.show(conversation.settings);
    sidebar.refresh();
  },
  changed: () => sidebar.refresh(),
  async open(id) {
    showTab('chat');
    await chat.open(id);
    if (!wide.matches) showSide(false);
  },
  fresh() {
    showTab('chat');
    if (!wide.matches) showSide(false);
    chat.fresh();
  },
  closing(id) {
    chat.runs.get(id)?.stop();
    if (chat.conversation.id === id) chat.fresh();
  },
};

const chat = new Chat($('chat'), page);
const sidebar = new Sidebar($('side'), page);
const server = new ServerTab($('server'));
const settings = new Settings($('settings'), async () => {
  if (Object.keys(chat.conversation.nodes).length > 1) await save(chat.conversation);
});

// --- tabs
const tabs = ['chat', 'server', 'connect'];
let shownTab = 'chat';
function showTab(name) {
  shownTab = name;
  for (const tab of tabs) {
    const isShown = tab === name;
    $(tab).hidden = !isShown;
    $(`tab-${tab}`).setAttribute('aria-selected', String(isShown));
    $(`tab-${tab}`).tabIndex = isShown ? 0 : -1;
  }
  document.body.dataset.tab = name;
  if (name === 'server') server.shown();
  if (name === 'connect') showConnect($('connect'), page.facts);
}
for (const tab of tabs) $(`tab-${tab}`).addEventListener('click', () => showTab(tab));
$('tabs').addEventListener('keydown', ({ key }) => {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (!step) return;
  showTab(tabs[(tabs.indexOf(shownTab) + step + tabs.length) % tabs.length]);
  $(`tab-${shownTab}`).focus();
});

// --- panels beside the chat
function showSide(isShown) {
  document.body.classList.toggle('side', isShown);
  $('menu').setAttribute('aria-expanded', String(isShown));
}
function showSettings(isShown) {
  $('settings').hidden = !isShown;
  $('adjust').setAttribute('aria-expanded', String(isShown));
  if (isShown) $('set-system').focus();
  else if (document.activeElement === document.body) $('adjust').focus();
}
$('menu').append(icon('menu'));
$('menu').addEventListener('click', () => showSide(!document.body.classList.contains('side')));
$('adjust').append(icon('sliders'));
$('adjust').addEventListener('click', () => showSettings($('settings').hidden));
showSide(wide.matches);

// --- theme: the system's, until somebody chooses
const dark = matchMedia('(prefers-color-scheme: dark)');
const showTheme = () => (document.documentElement.dataset.theme = localStorage.getItem(THEME) ?? '');
$('theme').append(icon('theme'));
$('theme').addEventListener('click', () => {
  const isDark = (localStorage.getItem(THEME) ?? (dark.matches ? 'dark' : 'light')) === 'dark';
  localStorage.setItem(THEME, isDark ? 'light' : 'dark');
  showTheme();
  say(isDark ? 'Light' : 'Dark');
});
showTheme();

// --- keys
addEventListener('keydown', (event) => {
  if (event.defaultPrevented || document.querySelector('dialog[open]')) return;
  const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key === 'Escape') {
    if (chat.run && shownTab === 'chat') chat.stop();
    else if (!$('settings').hidden) showSettings(false);
    else if (!wide.matches) showSide(false);
  } else if (event.key === '/' && !isTyping && shownTab === 'chat') {
    event.preventDefault();
    chat.field.focus();
  } else if (event.key.toLowerCase() === 'k' && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    showSide(true);
    sidebar.field.focus();
  }
});

// --- the server
function banner(text) {
  $('banner').hidden = !text;
  $('banner').textContent = text;
}

// What the server says of itself, as soon as its model is loaded.
async function meet() {
  for (;;) {
    try {
      const [props, models] = await Promise.all([getJson('props'), getJson('v1/models')]);
      const { params, n_ctx: context } = props.default_generation_settings;
      page.facts = { context, modalities: props.modalities ?? {}, model: props.model_alias || models.data[0]?.id };
      banner('');
      $('model').textContent = page.facts.model;
      $('model').title = `${props.build_info} · context ${context} · ${props.total_slots} at a time`;
      settings.showDefaults(params);
      chat.showState();
      if (shownTab === 'connect') showConnect($('connect'), page.facts);
      return;
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      if (error.status === 401) return banner('This server needs a key. Reload the page to give one.');
      banner(error.status === 503 ? await loading() : error.message);
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }
}

async function loading() {
  try {
    await request('health');
    return '';
  } catch ({ body, message }) {
    return body.progress === undefined ? message : `The model is being loaded: ${Math.round(100 * body.progress)} %`;
  }
}

async function begin() {
  if (!(await openStore())) banner('This browser keeps no data here: conversations are lost when the tab is closed.');
  if (await recover()) setTimeout(async () => (await recover(), chat.reload()), 6000);
  const id = sessionStorage.getItem(OPEN);
  if (!id || !(await chat.open(id))) chat.fresh();
  changed.onmessage = ({ data }) => (sidebar.refresh(), data === page.openId() && chat.reload());
  document.body.classList.add('ready');
  await meet();
  if (savedKey() || page.facts) server.follow(() => shownTab === 'server' && !document.hidden);
}
document.body.dataset.tab = shownTab;
begin();
