// The sidebar: conversations by last use, search results, or the trash. It shows a limited
// number at a time, because there may be thousands.
'use strict';
const kPage = 100;
let shown = kPage;
let inTrash = false;
let hits = null;  // search: id -> {message, snippet}, or null

function rowOf(chat) {
  const title = chat.title || 'New chat', hit = hits?.get(chat.id);
  const go = button(title, () => {
    $('side').classList.remove('shown');
    tab('chat');
    openChat(chat.id, hit?.message ?? null).then(() => {
      if (hit?.message) nodeOf(hit.message)?.scrollIntoView({block: 'start'});
    });
  }, {className: 'quiet title', dir: 'auto', title});
  if (hit?.snippet)
    go.append(element('span', {className: 'snippet', textContent: hit.snippet, dir: 'auto'}));
  const row = element('li', {className: 'item'}, go);
  row.dataset.id = chat.id;
  if (chat.id === open) {
    row.classList.add('open');
    go.setAttribute('aria-current', 'true');
  }
  row.classList.toggle('answering', answers.has(chat.id));
  if (inTrash) {
    row.append(button('Restore', () => {
      restoreChats([chat.id]);
      focusList();
    }, {className: 'quiet'}));
    row.lastChild.setAttribute('aria-label', `Restore: ${title}`);
  }
  if (!inTrash) {
    row.append(button('✎', () => rename(row, chat),
      {className: 'quiet', title: 'Rename (F2)', ariaLabel: 'Rename: ' + title}));
    go.onkeydown = event => {
      if (event.key !== 'F2') return;
      event.preventDefault();
      rename(row, chat);
    };
  }
  row.append(button('×', () => {
    const place = [...$('list').children].indexOf(row);
    if (!inTrash) trashWithUndo([chat.id], `Deleted: ${title}`);
    else if (confirm(`Delete for good: ${title}?`)) forgetChats([chat.id]);
    focusList(place);
  }, {className: 'quiet', ariaLabel: (inTrash ? 'Delete for good: ' : 'Delete: ') + title}));
  return row;
}
// A box in place of the title. Enter or leaving it keeps the new name, Escape the old one.
function rename(row, chat) {
  const box = element('input', {value: chat.title, maxLength: 200, dir: 'auto',
                                ariaLabel: 'New name'});
  let ended = false;
  const end = taken => {
    if (ended) return;
    ended = true;
    const title = box.value.trim().replace(/\s+/g, ' ');
    if (taken && title && title !== chat.title) changeChat(chat.id, {title});
    box.remove();
    showList();
    if (chat.id === open) document.title = `${chat.title} · ktx`;
    [...$('list').children].find(other => other.dataset.id === chat.id)?.firstChild.focus();
  };
  box.onblur = () => end(true);
  box.onkeydown = event => {
    if (composing(event)) return;
    if (event.key === 'Enter') { event.preventDefault(); end(true); }
    if (event.key === 'Escape') { event.stopPropagation(); end(false); }
  };
  row.replaceChildren(box);
  box.select();
}
function showList() {
  // What is being typed in the list stays.
  if ($('list').querySelector('input')?.matches(':focus')) return;
  const trash = trashed();
  if (trash.length === 0) inTrash = false;
  const all = inTrash ? trash : hits ? kept().filter(chat => hits.has(chat.id)) : kept();
  const rows = all.slice(0, shown).map(rowOf);
  if (all.length > shown) {
    rows.push(
      element('li', {}, button(`Show more (${(all.length - shown).toLocaleString()})`, () => {
                const place = shown;
                shown += kPage;
                showList();
                focusList(place);
              }, {className: 'quiet'})));
  }
  if (inTrash) {
    rows.push(element('li', {className: 'row'}, button('Empty the trash', () => {
      if (confirm(`Delete ${counted(trash.length, 'conversation')} for good?`)) {
        forgetChats(trash.map(chat => chat.id));
      }
    })));
  }
  // The keyboard stays where it was.
  const held =
    $('list').contains(document.activeElement) ? document.activeElement.closest('li') : null;
  $('list').replaceChildren(...rows);
  if (held?.dataset.id) rows.find(row => row.dataset.id === held.dataset.id)?.firstChild.focus();
  $('list').setAttribute('aria-label', inTrash ? 'Trash' : 'Conversations');
  $('search').hidden = inTrash;
  $('trash').hidden = trash.length === 0;
  $('trash').textContent = inTrash ? 'Back' : `Trash (${trash.length})`;
  $('found').textContent = inTrash ? 'Trash: kept until you empty it.'
    : hits ? `${counted(all.length, 'conversation')} found` : '';
}
function focusList(place = 0) {
  const rows = $('list').querySelectorAll('.title');
  (rows[Math.min(place, rows.length - 1)] ?? $('new')).focus();
}
function trashWithUndo(ids, text) {
  const was = open;
  trashChats(ids);
  toast(text, 'Undo', () => {
    restoreChats(ids);
    if (ids.includes(was) && open === null) openChat(was);
  });
}

// ---- search: titles and all versions of all messages, as written or in the other case ----
const plain = text => text.normalize('NFKC').toLocaleLowerCase();
let searching = 0;
async function search(text) {
  const turn = ++searching, wanted = plain(text.trim());
  shown = kPage;
  if (!wanted) {
    hits = null;
    return showList();
  }
  const found = new Map();
  for (const chat of kept()) if (plain(chat.title).includes(wanted)) found.set(chat.id, {});
  for await (const messages of allMessages()) {
    if (turn !== searching) return;
    for (const message of messages) {
      if (found.get(message.chat)?.message) continue;
      const content = plain(message.content), at = content.indexOf(wanted);
      if (at < 0) continue;
      const from = Math.max(0, at - 20);
      // As it was written, where folding has not moved it.
      const text = content.length === message.content.length ? message.content : content;
      found.set(message.chat, {message: message.id, snippet: (from ? '…' : '') +
        text.slice(from, at + wanted.length + 60).replace(/\s+/g, ' ')});
    }
  }
  if (turn !== searching) return;
  hits = found;
  showList();
}
