// A conversation is a tree of messages: an edited question or a second answer is another child of
// the same parent, and nothing is replaced. What is shown is one path from the root to a leaf:
//
//   question ─┬─ answer ─── next question ─── answer
//             └─ answer 2                              <- leaf: path [question, answer 2]
//
// All data comes from storage or a file, and may be damaged or forged.
'use strict';
const kRoles = ['user', 'assistant', 'system'];
const kStates = ['streaming', 'done', 'length', 'stopped', 'broken'];
const isId = value => typeof value === 'string' && value.length > 0 && value.length <= 128;
// Order of conversations and of versions is a count, not a time: clocks jump.
const isCount = value => Number.isSafeInteger(value) && value >= 0 && value < 2 ** 50;

// The record with every field in its type, or null where it is no message.
function tidyMessage(record) {
  if (!isObject(record) || !isId(record.id) || !isId(record.chat)) return null;
  if (!kRoles.includes(record.role) || typeof record.content !== 'string') return null;
  const message = {id: record.id, chat: record.chat, role: record.role, content: record.content,
                   parent: isId(record.parent) ? record.parent : null,
                   seq: isCount(record.seq) ? record.seq : 0,
                   state: kStates.includes(record.state) ? record.state : 'done'};
  for (const name of ['reasoning', 'error', 'speed', 'model']) {
    if (typeof record[name] === 'string') message[name] = record[name];
  }
  if (message.state === 'streaming' && isId(record.stream)) {
    message.stream = record.stream;
    const {content, reasoning} = isObject(record.before) ? record.before : {};
    message.before = {content: typeof content === 'string' ? content : '',
                      reasoning: typeof reasoning === 'string' ? reasoning : undefined};
  }
  if (isCount(record.context)) message.context = record.context;
  if (Array.isArray(record.images)) {
    const images = record.images.filter(isPicture).slice(0, kMostPictures);
    if (images.length) message.images = images;
  }
  if (Array.isArray(record.tool_calls)) {
    message.tool_calls = record.tool_calls.filter(call => isObject(call?.function)).map(call => (
      {id: String(call.id ?? ''), function: {name: String(call.function.name ?? ''),
                                             arguments: String(call.function.arguments ?? '')}}));
  }
  return message;
}
function tidyChat(record) {
  if (!isObject(record) || !isId(record.id)) return null;
  return {
    id: record.id,
    title: typeof record.title === 'string' ? record.title : '',
    used: isCount(record.used) ? record.used : 0,
    leaf: isId(record.leaf) ? record.leaf : null,
    trashed: record.trashed === true
  };
}

class Tree {
  constructor(messages) {
    this.byId = new Map();
    this.below = new Map([[null, []]]);  // id -> children, oldest first
    this.chosen = new Map();             // parent -> the child that was looked at last
    for (const message of messages) this.byId.set(message.id, message);
    const fromRoot = new Set([null]);
    for (const message of this.byId.values()) {
      // Up to what is known to hang on the root; a missing parent or a ring of them is cut there.
      const way = new Set();
      let at = message;
      while (!fromRoot.has(at.id)) {
        way.add(at.id);
        if (at.parent === null) break;
        const parent = this.byId.get(at.parent);
        if (!parent || way.has(parent.id)) {
          at.parent = null;
          break;
        }
        at = parent;
      }
      for (const id of way) fromRoot.add(id);
    }
    for (const message of this.byId.values()) this.#hang(message);
    for (const list of this.below.values()) this.#sort(list);
  }
  #hang(message) {
    const list = this.below.get(message.parent) ?? [];
    list.push(message);
    this.below.set(message.parent, list);
    return list;
  }
  #sort(list) { list.sort((a, b) => a.seq - b.seq || (a.id < b.id ? -1 : 1)); }
  add(message) {
    this.byId.set(message.id, message);
    this.#sort(this.#hang(message));
  }
  // All children of the same parent: the versions of one message.
  versions(message) { return this.below.get(message.parent) ?? [message]; }
  nextSeq() {
    let most = 0;
    for (const message of this.byId.values()) most = Math.max(most, message.seq);
    return most + 1;
  }
  // The leaf under a message: by the versions looked at last, else by the newest ones.
  descend(id) {
    for (let list; (list = this.below.get(id))?.length;) {
      const chosen = this.chosen.get(id);
      id = (list.find(m => m.id === chosen) ?? list.at(-1)).id;
    }
    return id;
  }
  path(leaf) {
    const list = [];
    for (let at = this.byId.get(leaf); at; at = this.byId.get(at.parent)) list.push(at);
    return list.reverse();
  }
  choose(leaf) {
    for (const message of this.path(leaf)) this.chosen.set(message.parent, message.id);
  }
}

const sameMessage = (a, b) => a.role === b.role && a.content === b.content &&
  (a.reasoning ?? '') === (b.reasoning ?? '') &&
  (a.images ?? []).join() === (b.images ?? []).join();

// What of `incoming` (of one conversation) `tree` lacks, as records to add. A message that is
// there already stays as it is; one of the same id with another text becomes another version.
function missingMessages(tree, incoming, chat) {
  const arriving = new Tree(incoming), added = [], place = new Map([[null, null]]);
  const seq = tree.nextSeq();
  const walk = [...arriving.below.get(null)];
  for (let message; (message = walk.shift());) {
    const parent = place.get(message.parent);
    const twin = (tree.below.get(parent) ?? []).find(other => sameMessage(other, message));
    if (twin) {
      place.set(message.id, twin.id);
    } else {
      const id = tree.byId.has(message.id) ? newId() : message.id;
      const record = {...message, id, chat, parent, seq: seq + added.length};
      added.push(record);
      tree.add(record);
      place.set(message.id, id);
    }
    walk.push(...arriving.below.get(message.id) ?? []);
  }
  return added;
}
