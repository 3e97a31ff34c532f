// Where conversations are kept: IndexedDB, one record for each conversation and each message.
//
//   chats      by id           {id, title, used, leaf, trashed}
//   messages   by [chat, id]   {chat, id, parent, seq, role, content, reasoning, state, ...}
//
// Tabs do not overwrite each other: only the tab that made a message writes it, and of a
// conversation only changed fields are written, inside one transaction. Other tabs are notified
// by a BroadcastChannel. Data that is not written yet, or could not be, stays in `unsaved`, and
// all reads include it: in a browser without IndexedDB the page keeps everything in memory.
'use strict';
const unsaved = {chats: new Map(), messages: new Map()};  // id -> fields; keyOf -> record
const keyOf = message => JSON.stringify([message.chat, message.id]);
const gone = new Set();  // conversations that were deleted for good
// All keys of one conversation: an empty list sorts behind every text.
const keysOf = chat => IDBKeyRange.bound([chat], [chat, []]);
let database = null, connecting = null, flushing = null;
let onSaved = () => {}, onTrouble = () => {}, onOtherTab = () => {};
const channel = 'BroadcastChannel' in window ? new BroadcastChannel('ktx') : null;
if (channel) channel.onmessage = ({data}) => onOtherTab(isObject(data) ? data : {});
const tell = data => channel?.postMessage(data);

const finished = request => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});
const committed = transaction => new Promise((resolve, reject) => {
  transaction.oncomplete = () => resolve();
  transaction.onabort = () => reject(transaction.error ?? new Error('the write was given up'));
});

function openOnce() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open('ktx', 1);  // throws where storage is forbidden
    request.onupgradeneeded = () => {
      request.result.createObjectStore('chats', {keyPath: 'id'});
      request.result.createObjectStore('messages', {keyPath: ['chat', 'id']});
    };
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(new Error('another tab holds an older form of it'));
    request.onsuccess = () => {
      const opened = request.result;
      opened.onversionchange = () => { opened.close(); if (database === opened) database = null; };
      opened.onclose = () => { if (database === opened) database = null; };
      resolve(database = opened);
    };
    // Some browsers never answer.
    setTimeout(() => reject(new Error('the browser does not answer')), 3000);
  });
}
// A database that went away may be back: tried again with the next use, after a failure only when
// some seconds have passed.
let failure = null, failedAt = 0;
async function connect() {
  if (database) return database;
  if (failure && performance.now() - failedAt < 10000) throw failure;
  connecting ??= openOnce().then(
    opened => { failure = null; return opened; },
    error => { failure = error; failedAt = performance.now(); throw error; },
  ).finally(() => { connecting = null; });
  return connecting;
}

// Null where it cannot be read.
async function readAll(name, fetch) {
  try {
    const transaction = (await connect()).transaction(name, 'readonly');
    return await finished(fetch(transaction.objectStore(name)));
  } catch (error) {
    onTrouble(error);
    return null;
  }
}
// All conversations; those deleted for good are left out, though their ids stay known. Where there
// is no reading, they are what this tab knows.
async function readChats() {
  const records = await readAll('chats', chatStore => chatStore.getAll());
  const chats = new Map();
  for (const record of records ?? conversations.values()) {
    const chat = tidyChat(record);
    if (record.gone) gone.add(record.id);
    else if (chat) chats.set(chat.id, chat);
  }
  for (const [id, fields] of unsaved.chats) {
    if (fields.gone) chats.delete(id);
    else chats.set(id, tidyChat({...chats.get(id), ...fields}));
  }
  return chats;
}
async function readMessages(chat) {
  const records = await readAll('messages', messages => messages.getAll(keysOf(chat))) ??
    (chat === open ? [...tree.byId.values()] : []);
  const byId = new Map(records.map(record => [record?.id, record]));
  for (const message of unsaved.messages.values()) {
    if (message.chat === chat) byId.set(message.id, message);
  }
  // Copies: what waits to be written stays as it is.
  return [...byId.values()].map(record => tidyMessage(record)).filter(Boolean);
}
// Every message, in portions: search must not hold all texts at once.
async function* allMessages() {
  const seen = new Set(unsaved.messages.keys());
  yield [...unsaved.messages.values()];
  for (let last = [];;) {
    const some = await readAll('messages', messages =>
      messages.getAll(IDBKeyRange.lowerBound(last, true), 500));
    if (!some?.length) return;
    last = [some.at(-1).chat, some.at(-1).id];
    yield some.filter(record => !seen.has(keyOf(record))).map(tidyMessage).filter(Boolean);
  }
}
// Conversations of which there are messages only: their own record was lost.
async function orphanedChats(known) {
  const ids = [];
  try {
    const request =
      (await connect()).transaction('messages').objectStore('messages').openKeyCursor();
    for (let cursor; (cursor = await finished(request));) {
      const [chat] = cursor.key;
      if (!known.has(chat) && !gone.has(chat)) ids.push(chat);
      cursor.continue([chat, []]);  // on to the next conversation
    }
  } catch (error) {
    onTrouble(error);
  }
  return ids.filter(isId);
}

// Changes: {chats: [{id, fields...}], messages: [records]}. Resolves when they are written or it
// has failed; failed ones are tried again with the next.
function save({chats = [], messages = []}) {
  for (const fields of chats) {
    unsaved.chats.set(fields.id, {...unsaved.chats.get(fields.id), ...fields});
  }
  for (const message of messages) unsaved.messages.set(keyOf(message), structuredClone(message));
  return flush();
}
async function flush() {
  while (flushing) await flushing;
  if (unsaved.chats.size + unsaved.messages.size === 0) return onSaved();
  flushing = writeUnsaved().then(() => null, error => error);
  const error = await flushing;
  flushing = null;
  if (error) onTrouble(error);
  else onSaved();
}
async function writeUnsaved() {
  const opened = await connect();
  const chats = new Map(unsaved.chats), messages = new Map(unsaved.messages);
  const deleted = [...chats.values()].filter(fields => fields.gone);
  // Deletions by themselves: they must work where the storage is full.
  if (deleted.length > 0) {
    await writeBatch(opened, deleted, []);
    settle(unsaved.chats, new Map(deleted.map(fields => [fields.id, fields])));
  }
  const others = [...chats.values()].filter(fields => !fields.gone);
  await writeBatch(opened, others, [...messages.values()]);
  settle(unsaved.chats, chats);
  settle(unsaved.messages, messages);
  tell({chats: [...new Set([...chats.keys(), ...[...messages.values()].map(m => m.chat)])],
        live: [...messages.values()].filter(m => m.state === 'streaming').map(m => m.id)});
}
// What changed again meanwhile stays unsaved.
function settle(waiting, written) {
  for (const [id, value] of written) {
    if (waiting.get(id) === value) waiting.delete(id);
  }
}
async function writeBatch(opened, changes, messages) {
  // A message that still grows is written again within a second.
  const growing = messages.some(message => message.state === 'streaming');
  const transaction = opened.transaction(['chats', 'messages'], 'readwrite',
                                         {durability: growing ? 'relaxed' : 'strict'});
  const end = committed(transaction);
  end.catch(() => {});  // told below, or by the request that failed
  const chatStore = transaction.objectStore('chats'),
        messageStore = transaction.objectStore('messages');
  for (const {revive, ...fields} of changes) {
    const record = await finished(chatStore.get(fields.id));
    if (fields.gone) {
      chatStore.put({id: fields.id, gone: true});
      messageStore.delete(keysOf(fields.id));
    } else if (!record?.gone || revive) {
      // A record that is missing, say because the browser dropped it, comes from what is shown.
      chatStore.put({...(record?.gone ? null : record) ?? conversations.get(fields.id), ...fields});
    }
  }
  const dead = new Map();
  for (const message of messages) {
    if (!dead.has(message.chat)) {
      dead.set(message.chat, (await finished(chatStore.get(message.chat)))?.gone === true);
    }
    if (!dead.get(message.chat)) messageStore.put(message);
  }
  await end;
}
// While the page goes away there is no time to read first.
function saveNow(messages) {
  if (!database || messages.length === 0) return;
  try {
    const transaction = database.transaction('messages', 'readwrite');
    for (const message of messages) transaction.objectStore('messages').put(message);
    transaction.commit();
  } catch { /* what was saved a moment ago stays */ }
}
