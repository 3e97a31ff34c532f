// Imports conversations of earlier pages, which kept at most 200 as one text in localStorage
// (ktx.chats). They are merged into the database, and the text is removed only after it can be
// read back from there. A text that cannot be parsed, in whole or in part, stays for the user
// to save.
'use strict';

const stateOf = record => record.error ? 'broken' : record.streaming ? 'streaming' : 'done';
// {chats: [{chat, messages}], damaged}: `damaged` counts what is no conversation or no message.
function readOldConversations(text) {
  let list;
  try {
    list = JSON.parse(text);
  } catch {
    return {chats: [], damaged: 1};
  }
  if (list === null) return {chats: [], damaged: 0};
  if (!Array.isArray(list)) return {chats: [], damaged: 1};
  let damaged = 0;
  const chats = [];
  for (const old of list) {
    if (!isObject(old) || !isId(old.id) || !Array.isArray(old.messages)) {
      damaged++;
      continue;
    }
    const messages = [];
    for (const [index, record] of old.messages.entries()) {
      const message = isObject(record) && tidyMessage({
                        ...record,
                        id: `${old.id}.${index}`,
                        chat: old.id,
                        parent: messages.at(-1)?.id ?? null,
                        seq: index,
                        state: stateOf(record),
                      });
      if (message) messages.push(message);
      else damaged++;
    }
    chats.push({chat: tidyChat({id: old.id, title: old.title || titleOf(messages[0]?.content ?? ''),
                                leaf: messages.at(-1)?.id}), messages});
  }
  return {chats, damaged};
}

// Adds conversations to what is kept, newest first in `incoming`. Nothing kept is changed.
async function mergeConversations(incoming, revive = false) {
  const result = {chats: 0, messages: 0, known: 0};
  const changes = {chats: [], messages: []};
  let used = nextUse() + incoming.length;
  for (const {chat, messages} of incoming) {
    used--;
    if (gone.has(chat.id) && !revive) continue;  // deleted for good since
    const known = conversations.has(chat.id);
    const added =
      missingMessages(new Tree(known ? await readMessages(chat.id) : []), messages, chat.id);
    if (!known) {
      conversations.set(chat.id, {...chat, used});
      changes.chats.push({...chat, used, revive});
      result.chats++;
    } else if (added.length === 0) {
      result.known++;
    } else {
      result.chats++;
    }
    changes.messages.push(...added);
    result.messages += added.length;
  }
  await save(changes);
  return result;
}

async function takeOldConversations() {
  let text = null;
  try {
    text = localStorage.getItem('ktx.chats');
  } catch { /* forbidden: there is nothing then */ }
  if (text === null) return;
  const {chats, damaged} = readOldConversations(text);
  await mergeConversations(chats);
  if (damaged > 0) {
    notice('damaged', 'Some conversations of an earlier version of this page are damaged: ' +
      'what could be read is in the list, the rest is kept as it was.', [
      ['Save as a file', () => download('ktx-damaged.json', [text], 'application/json')],
      ['Remove', () => { localStorage.removeItem('ktx.chats'); dismiss('damaged'); }]]);
    return;
  }
  if (await allAreStored(chats) && localStorage.getItem('ktx.chats') === text) {
    localStorage.removeItem('ktx.chats');
  }
}
async function allAreStored(chats) {
  if (unsaved.chats.size + unsaved.messages.size > 0) return false;
  for (const {chat, messages} of chats) {
    if (missingMessages(new Tree(await readMessages(chat.id)), messages, chat.id).length > 0)
      return false;
  }
  return true;
}
