// All conversations as one file, and back:
//
//   {"format": "ktx-conversations", "version": 1,
//    "chats": [{"id", "title", "used", "leaf", "trashed",
//               "messages": [{"id", "parent", "role", "content", ...}]}]}
//
// An import adds what is missing and changes nothing. The file of an earlier page, a bare list, is
// read as well.
'use strict';

async function exportConversations() {
  const parts = ['{"format": "ktx-conversations", "version": 1, "chats": ['];
  for (const [index, chat] of [...conversations.values()].sort(byUse).entries()) {
    const messages = await readMessages(chat.id);
    parts.push((index ? ',\n' : '\n') + JSON.stringify({...chat, messages}));
  }
  parts.push('\n]}\n');
  return parts;
}
async function exportAll() {
  download(`ktx-conversations-${new Date().toISOString().slice(0, 10)}.json`,
           await exportConversations(), 'application/json');
}

// Throws where the text is no such file.
function parseConversations(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch (error) {
    throw new Error(`it is not JSON (${error.message})`);
  }
  if (Array.isArray(file)) return readOldConversations(text);
  if (file?.format !== 'ktx-conversations' || !Array.isArray(file.chats)) {
    throw new Error('it holds no conversations of this page');
  }
  if (file.version !== 1) throw new Error(`its version is ${file.version}, and this page reads 1`);
  let damaged = 0;
  const chats = [];
  for (const record of file.chats) {
    const chat = tidyChat(record);
    if (!chat || !Array.isArray(record.messages)) {
      damaged++;
      continue;
    }
    const messages =
      record.messages.map(m => isObject(m) ? tidyMessage({...m, chat: chat.id}) : null);
    damaged += messages.filter(m => !m).length;
    chats.push({chat, messages: messages.filter(Boolean)});
  }
  return {chats: chats.sort((a, b) => byUse(a.chat, b.chat)), damaged};
}
async function importConversations(text) {
  const {chats, damaged} = parseConversations(text);
  const {chats: added, messages, known} = await mergeConversations(chats, true);
  await refresh();
  return `Imported ${counted(added, 'conversation')} with ${counted(messages, 'message')}` +
    (known ? `; ${known} were here already` : '') +
    (damaged ? `; ${counted(damaged, 'part')} could not be read` : '');
}
async function importFile(file) {
  try {
    notice('import', await importConversations(await file.text()));
  } catch (error) {
    notice('import', `${file.name} was not imported: ${error.message}`);
  }
}
