// The input box: text typed, dropped or attached, kept per conversation until it is sent. Images:
// pictures.js.
'use strict';
const busy = () => {
  $('send').hidden = answers.has(open);
  $('stop').hidden = !answers.has(open);
};
function fit(area) {
  area.style.height = 'auto';
  area.style.height = area.scrollHeight + 2 + 'px';
}
// Enter that chooses a word of an input method is not Enter; Safari reports it as key 229.
const composing = event => event.isComposing || event.keyCode === 229;
// On a touch keyboard Enter begins a line: there is no Shift+Enter.
const touch = matchMedia('(hover: none) and (pointer: coarse)');
const sends = event =>
  event.key === 'Enter' && !event.shiftKey && !composing(event) && !touch.matches;

function ask() {
  const text = $('input').value.trim(), images = pictures;
  if (!text && !images.length || answers.has(open)) return;
  $('input').value = '';
  pictures = [];
  keepDraft();
  showPictures();
  fit($('input'));
  askFrom(text, leaf, images);
}
// A question below `parent`: at the end of what is shown, or beside an edited one.
function askFrom(text, parent, images = []) {
  const chat = current() ?? newChat(titleOf(text || 'Image'));
  const question = {id: newId(), chat: chat.id, parent, seq: tree.nextSeq(), role: 'user',
                    content: text, state: 'done'};
  if (images.length) question.images = images;
  // A conversation that another tab deleted meanwhile comes back when it is gone on with.
  addMessage(question, {used: nextUse(), trashed: false});
  answer(question);
}
function fresh() {
  keepDraft();
  closeChat();
  takeDraft();
  $('side').classList.remove('shown');
  tab('chat');
  $('input').focus();
}

// ---- drafts: of this tab; texts outlive a reload ----
function keepDraft() {
  pictureDrafts.set(open ?? '', pictures);
  try {
    const key = 'ktx.draft.' + (open ?? '');
    if ($('input').value) sessionStorage.setItem(key, $('input').value);
    else sessionStorage.removeItem(key);
  } catch { /* too long or forbidden: it is still in the box */ }
}
function takeDraft() {
  let text = '';
  try {
    text = sessionStorage.getItem('ktx.draft.' + (open ?? '')) ?? '';
  } catch { /* forbidden */ }
  $('input').value = text;
  pictures = pictureDrafts.get(open ?? '') ?? [];
  showPictures();
  fit($('input'));
}

// ---- text files: they become a part of the message ----
const kLargestFile = 1 << 20;
async function attachFiles(files) {
  for (const file of files) {
    if (file.type.startsWith('image/') && file.type !== 'image/svg+xml') {
      await attachPicture(file);
      continue;
    }
    if (file.size > kLargestFile) {
      notice(
        'file',
        `${file.name} is ${human(file.size)}; the largest text taken is ${human(kLargestFile)}`);
      continue;
    }
    let text;
    try {
      text = new TextDecoder('utf-8', {fatal: true}).decode(await file.arrayBuffer());
    } catch {
      text = '\u0000';
    }
    if (text.includes('\u0000')) {
      notice('file', `${file.name} is no UTF-8 text; only text and images can be added`);
      continue;
    }
    // A fence longer than any in the text.
    const fence =
      '`'.repeat(Math.max(3, ...[...text.matchAll(/`{3,}/g)].map(m => m[0].length + 1)));
    const box = $('input'),
          before = box.value && !box.value.endsWith('\n') ? box.value + '\n' : box.value;
    box.value = `${before}${file.name}:\n${fence}\n${text.replace(/\n$/, '')}\n${fence}\n`;
    keepDraft();
    fit(box);
    box.focus();
  }
}
