// The state of this tab: which conversations exist, which one is open, and which versions of
// its messages are shown. Changes go to conversation_db.js and from there to other tabs.
'use strict';
let conversations = new Map();  // id -> {id, title, used, leaf, trashed}
let open = null;                // id of the one shown
let tree = new Tree([]);        // its messages
let leaf = null;                // the last message shown
let opening = 0;

const current = () => conversations.get(open);
const path = () => tree.path(leaf);
const byUse = (a, b) => b.used - a.used || (a.id < b.id ? 1 : -1);
const kept = () => [...conversations.values()].filter(chat => !chat.trashed).sort(byUse);
const trashed = () => [...conversations.values()].filter(chat => chat.trashed).sort(byUse);
const nextUse = () =>
  1 + [...conversations.values()].reduce((most, c) => Math.max(most, c.used), 0);
const titleOf = text => [...text.trim().replace(/\s+/g, ' ').slice(0, 200)].slice(0, 60).join('');

function changeChat(id, fields, messages = []) {
  const chat = conversations.get(id);
  if (chat) Object.assign(chat, fields);
  return save({chats: [{id, ...fields}], messages});
}
function newChat(title) {
  const chat = {id: newId(), title, used: nextUse(), leaf: null, trashed: false};
  conversations.set(chat.id, chat);
  open = chat.id;
  tree = new Tree([]);
  leaf = null;
  save({chats: [{...chat}]});
  // Browsers may drop what pages keep when a disk is full, unless the page has a promise.
  navigator.storage?.persist?.().catch(() => {});
  return chat;
}
// Shows a conversation, with `at` on the path if given.
async function openChat(id, at = null) {
  const turn = ++opening;
  const messages = id === null ? [] : await readMessages(id);
  if (turn !== opening) return;  // another one was opened meanwhile
  if (open !== id) keepDraft();
  const moved = open !== id;
  open = id;
  plantTree(messages);
  leaf = tree.descend(at ?? current()?.leaf ?? null);
  if (!tree.byId.has(leaf)) leaf = tree.descend(null);
  tree.choose(leaf);
  if (moved) takeDraft();
  show();
  for (const message of path()) resume(message);
}
// Messages of answers that this tab is writing are the live ones, not copies.
function plantTree(messages) {
  const chosen = tree.chosen;
  tree = new Tree(messages.map(m => answers.get(m.chat)?.message.id === m.id
    ? answers.get(m.chat).message : m));
  const mine = answers.get(open)?.message;
  if (mine && !tree.byId.has(mine.id)) tree.add(mine);
  tree.chosen = chosen;
}
function addMessage(message, fields = {}) {
  tree.add(message);
  leaf = message.id;
  tree.choose(leaf);
  return changeChat(message.chat, {leaf, ...fields}, [message]);
}
function showVersion(message, step) {
  const versions = tree.versions(message);
  const other = versions[versions.indexOf(message) + step];
  if (!other) return;
  leaf = tree.descend(other.id);
  tree.choose(leaf);
  changeChat(open, {leaf});
  show({stay: true});
}

// ---- deleting: into the trash, from there back or away for good ----
function trashChats(ids) {
  for (const id of ids) stopAnswer(id);
  for (const id of ids) conversations.get(id).trashed = true;
  save({chats: ids.map(id => ({id, trashed: true}))});
  if (ids.includes(open)) closeChat();
  showList();
}
function restoreChats(ids) {
  for (const id of ids) {
    if (conversations.has(id)) conversations.get(id).trashed = false;
  }
  save({chats: ids.filter(id => conversations.has(id)).map(id => ({id, trashed: false}))});
  showList();
}
function forgetChats(ids) {
  for (const id of ids) conversations.delete(id);
  for (const [key, message] of unsaved.messages) {
    if (ids.includes(message.chat)) unsaved.messages.delete(key);
  }
  save({chats: ids.map(id => ({id, gone: true}))});
  showList();
}
function closeChat() {
  open = null;
  leaf = null;
  tree = new Tree([]);
  opening++;
  show();
}

// ---- other tabs ----
const liveElsewhere = new Map();  // message -> when another tab last wrote it, by this tab's clock
const isLive = message => message.state === 'streaming' &&
  (answers.get(message.chat)?.message.id === message.id ||
   performance.now() - (liveElsewhere.get(message.id) ?? -1e9) < 4000);
let refreshing = null;
async function refresh() {
  if (refreshing) return refreshing.again = true;
  refreshing = {again: false};
  conversations = await readChats();
  if (open !== null && !conversations.has(open)) closeChat();
  if (open !== null) {
    const before = leaf, id = open;
    const messages = await readMessages(id);
    if (open === id) {
      plantTree(messages);
      // Along with the other tab where it went on from here, else where this tab was.
      leaf = tree.byId.has(before) ? tree.descend(before) : tree.descend(null);
      show({stay: leaf === before});
    }
  }
  showList();
  const again = refreshing.again;
  refreshing = null;
  if (again) refresh();
}
onOtherTab = ({chats = [], live = []}) => {
  const unknown = live.some(id => !liveElsewhere.has(id));
  for (const id of live) liveElsewhere.set(id, performance.now());
  if (chats.length > 0 || unknown) refresh();
};
