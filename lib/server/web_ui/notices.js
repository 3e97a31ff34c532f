// Notices to the user: a bar that stays until the problem is solved or dismissed, and a short
// toast.
'use strict';

// One bar for each name; a new text replaces the old one. actions: [[label, onclick]]. What lasts
// and was dismissed does not come back with the same text.
const waved = new Set();
function notice(name, text, actions = []) {
  if (actions.length > 0 && waved.has(text)) return;
  let bar = $('notices').querySelector(`[data-name="${name}"]`);
  if (!bar) {
    bar = element('div', {className: 'notice'});
    bar.dataset.name = name;
    $('notices').append(bar);
  }
  if (bar.dataset.text === text) return;  // a screen reader has read it already
  bar.dataset.text = text;
  bar.replaceChildren(element('span', {textContent: text}),
    ...actions.map(([label, onclick]) => button(label, onclick)),
    button('×', () => {
      waved.add(text);
      bar.remove();
    }, {className: 'quiet', ariaLabel: 'Dismiss'}));
}
function dismiss(name) {
  waved.clear();
  $('notices').querySelector(`[data-name="${name}"]`)?.remove();
}

let toastTimer = 0;
function toast(text, label, onclick) {
  const box = element('div', {}, element('span', {textContent: text, dir: 'auto'}));
  if (label) {
    box.append(button(label, () => { $('toast').replaceChildren(); onclick(); }));
  }
  $('toast').replaceChildren(box);
  clearTimeout(toastTimer);
  // Not while the pointer or the keyboard is on it.
  const end = () => {
    if (box.matches(':hover') || box.contains(document.activeElement))
      toastTimer = setTimeout(end, 2000);
    else
      box.remove();
  };
  toastTimer = setTimeout(end, 10000);
}
