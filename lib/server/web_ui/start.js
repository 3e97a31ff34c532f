// Connects the parts: events, storage notices, and the first view.
'use strict';
let settings = {};
const readSettings = () => {
  const kept = read('settings', {});
  settings = isObject(kept) ? kept : {};
};
const kFields = ['system', ...kSampling, 'thinking', 'key'];

function shade() {
  const dark = settings.dark ?? matchMedia('(prefers-color-scheme: dark)').matches;
  document.documentElement.classList.toggle('dark', dark);
}
function tab(name) {
  for (const other of ['chat', 'server']) {
    $(other).hidden = other !== name;
    $('tab-' + other).setAttribute('aria-selected', other === name);
  }
  $('ask').hidden = name !== 'chat';
  if (name === 'server') {
    figures();
    showPlan().catch(() => {});
  }
}
function drawer(shown) {
  $('side').classList.toggle('shown', shown);
  $('menu').setAttribute('aria-expanded', shown);
}

// ---- storage that fails is said, with what to do ----
let failing = false;
onTrouble = error => {
  failing = true;
  const save = ['Export all', exportAll], again = ['Try again', () => { failure = null; flush(); }];
  if (error.name === 'QuotaExceededError') {
    const trash = [
      'Open the trash',
      () => {
        inTrash = true;
        drawer(true);
        showList();
        focusList();
      }
    ];
    notice(
      'storage',
      "The browser's storage for this page is full; in this tab only: " +
        `${counted(unsaved.messages.size, 'message')}. ` +
        'Export the conversations, then delete some for good in the trash.',
      [save, ...(trashed().length ? [trash] : []), again]);
  } else {
    notice(
      'storage',
      'This browser does not keep conversations here (a private window, or storage is ' +
        'forbidden or broken): they end with this tab. Export what you need. ' +
        `Cause: ${error.message}`,
      [save, again]);
  }
};
onSaved = () => {
  failing = false;
  dismiss('storage');
};
addEventListener('beforeunload', event => {
  if (failing && unsaved.messages.size > 0) event.preventDefault();
});
addEventListener('pagehide', () => saveNow([
  ...unsaved.messages.values(),
  ...[...answers.values()].map(mine => structuredClone(mine.message)),
]));

// ---- events ----
$('new').onclick = fresh;
$('models').onchange = () => chooseModel($('models').value);
$('models').onpointerdown = readModels;  // what is loaded may have changed
$('fetch').onsubmit = event => {
  event.preventDefault();
  fetchModel($('fetch-name').value.trim());
};
$('fetch-stop').onclick = () => fetching?.abort();
$('menu').onclick = event => {
  event.stopPropagation();
  drawer(!$('side').classList.contains('shown'));
  if ($('side').classList.contains('shown')) $('new').focus();
};
document.querySelector('main').onclick = () => drawer(false);
let searchTimer = 0;
$('search').oninput = () => {
  clearTimeout(searchTimer);
  searchTimer = setTimeout(() => search($('search').value), 150);
};
$('trash').onclick = () => { inTrash = !inTrash; shown = kPage; showList(); };
$('stop').onclick = stop;
$('shade').onclick = () => {
  settings.dark = !document.documentElement.classList.contains('dark');
  store('settings', settings);
  shade();
};
for (const each of ['chat', 'server']) {
  $('tab-' + each).onclick = () => tab(each);
  $('tab-' + each).onkeydown = event => {
    if (!['ArrowLeft', 'ArrowRight'].includes(event.key)) return;
    const other = each === 'chat' ? 'server' : 'chat';
    tab(other);
    $('tab-' + other).focus();
  };
}
$('ask').onsubmit = event => { event.preventDefault(); ask(); };
$('input').oninput = () => { fit($('input')); keepDraft(); };
$('input').onkeydown = event => {
  if (sends(event)) { event.preventDefault(); ask(); }
};
$('attach').onclick = () => $('attach-file').click();
$('attach-file').onchange = async () => {
  await attachFiles($('attach-file').files);
  $('attach-file').value = '';
};
// Programs that copy a text often add a picture of it.
$('input').onpaste = event => {
  const {files} = event.clipboardData;
  if (!files.length || event.clipboardData.getData('text/plain')) return;
  event.preventDefault();
  attachFiles([...files]);
};
const hasFiles = event => [...event.dataTransfer?.types ?? []].includes('Files');
document.ondragover = event => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  $('ask').classList.add('drop');
};
document.ondragleave = event => { if (!event.relatedTarget) $('ask').classList.remove('drop'); };
document.ondrop = event => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  $('ask').classList.remove('drop');
  attachFiles(event.dataTransfer.files);
};
const isTyping = node => node.matches?.('input, textarea, select');
const withLast = (role, act) => {
  const message = path().findLast(each => each.role === role);
  if (message && !answers.has(open)) act(message);
};
const walkLast = step => {
  const message = path().findLast(each => tree.versions(each).length > 1);
  if (message && !answers.has(open)) showVersion(message, step);
};
// Those without Ctrl hold outside of text boxes; Escape leaves a box.
const kShortcuts = [
  {key: 'k', ctrl: true, run: fresh},
  {key: '/', run: () => { drawer(true); $('search').focus(); }},
  {key: 'i', run: () => $('input').focus()},
  {key: 'e', run: () => withLast('user', edit)},
  {key: 'r', run: () => withLast('assistant', retry)},
  {key: 'c', run: () => withLast('assistant', m => copyText(m.content, document.activeElement))},
  {key: 'arrowleft', run: () => walkLast(-1)},
  {key: 'arrowright', run: () => walkLast(1)},
];
document.onkeydown = event => {
  if (event.key === 'Escape' && !composing(event) && !$('dialog').open) {
    if ($('side').classList.contains('shown')) {
      drawer(false);
      $('menu').focus();
    } else if (answers.has(open)) {
      stop();
    } else if (isTyping(event.target)) {
      event.target.blur();
    }
  }
  if ($('dialog').open || $('ask').hidden || composing(event)) return;
  const held = event.ctrlKey || event.metaKey;
  const shortcut = kShortcuts.find(
    each => each.key === event.key.toLowerCase() &&
      (each.ctrl ? held : !held && !event.altKey && !isTyping(event.target)));
  if (!shortcut) return;
  event.preventDefault();
  shortcut.run();
};

$('settings').onclick = () => {
  for (const field of kFields) $('s-' + field).value = settings[field] ?? '';
  $('dialog').showModal();
};
// At submit, not at close: that event comes later, and a question could overtake it.
// Escape discards.
document.querySelector('dialog form').onsubmit = () => {
  for (const field of kFields) settings[field] = $('s-' + field).value;
  store('settings', settings);
  readModels();
};
$('export').onclick = exportAll;
$('import').onclick = () => $('import-file').click();
$('import-file').onchange = async () => {
  $('dialog').close();
  for (const file of $('import-file').files) await importFile(file);
  $('import-file').value = '';
};
$('forget').onclick = () => {
  $('dialog').close();
  const ids = kept().map(chat => chat.id);
  if (ids.length) trashWithUndo(ids, `Deleted ${counted(ids.length, 'conversation')}`);
};
matchMedia('(prefers-color-scheme: dark)').onchange = shade;
// Another tab changed the settings.
addEventListener('storage', event => {
  if (event.key === 'ktx.settings') { readSettings(); shade(); showModels(); }
});
document.addEventListener('visibilitychange', () => { if (!document.hidden) refresh(); });

async function start() {
  readSettings();
  shade();
  tab('chat');
  readModels();
  takeDraft();
  conversations = await readChats();
  for (const id of await orphanedChats(conversations)) {
    const chat = {
      id,
      title: titleOf((await readMessages(id))[0]?.content ?? ''),
      used: 0,
      leaf: null,
      trashed: false
    };
    conversations.set(id, chat);
    save({chats: [chat]});
  }
  await takeOldConversations();
  const last = kept()[0];
  // A draft for a new conversation waits there.
  if (last && open === null && !$('input').value) await openChat(last.id);
  else show();
  document.documentElement.dataset.ready = 'yes';
}
setInterval(figures, 1000);
start();
