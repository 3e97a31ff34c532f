// Shows messages. A node belongs to one message and is updated block by block: unchanged blocks
// keep their selection, position and keyboard focus.
'use strict';
const nodeOf = id => [...$('messages').children].find(node => node.dataset.id === id);

// What a message says about how it ended; the text of an error is its own.
const kEndings = {
  streaming: 'Cut off: the page was closed before the answer ended.',
  length: 'Ended at the limit of tokens.',
  stopped: 'Stopped.',
};
function endingOf(message) {
  if (message.error) return element('div', {className: 'error', textContent: message.error});
  const waits = message.content || message.reasoning ? '' : 'Waiting for the server…';
  const text = !isLive(message) ? kEndings[message.state] ?? ''
    : answers.has(message.chat) ? waits : 'Being answered in another tab…';
  return text ? element('div', {className: 'soft', textContent: text}) : '';
}

function render(message) {
  const part = className => element('div', {className});
  const parts = {thoughts: part('thoughts'), body: part('body'), calls: part('calls'),
                 ending: part('ending'), foot: part('foot')};
  parts.body.dir = 'auto';
  const node = element('article', {className: 'message ' + message.role, parts},
    element('h2', {className: 'unseen', textContent: message.role === 'user' ? 'You' : 'Answer'}),
    ...Object.values(parts));
  node.dataset.id = message.id ?? '';
  node.html = [];
  update(node, message);
  return node;
}
function update(node, message) {
  const versions = tree.versions(message), live = isLive(message);
  const stamp = JSON.stringify([
    message.content.length, message.reasoning?.length, message.tool_calls, message.error,
    message.state, message.speed, message.model, live, versions.length, versions.indexOf(message)
  ]);
  if (node.stamp === stamp) return;
  node.stamp = stamp;
  const {thoughts, body, calls, ending, foot} = node.parts;
  node.setAttribute('aria-busy', live);
  if (message.reasoning) {
    if (!thoughts.firstChild) {
      thoughts.append(
        element('details', {}, element('summary', {textContent: 'Reasoning'}), element('div')));
    }
    const details = thoughts.firstChild;
    // Open while nothing else is there to read, unless the user has set it.
    details.firstChild.onclick = () => { details.dataset.set = 'yes'; };
    if (!details.dataset.set) details.open = live && message.content === '';
    details.lastChild.textContent = message.reasoning;
  }
  if (message.role === 'user')
    body.replaceChildren(
      ...(message.images ?? []).map((url, at) => pictureNode(url, `Image ${at + 1}`)),
      message.content);
  else updateBody(node, body, blocks(message.content));
  calls.replaceChildren(
    ...(message.tool_calls ?? [])
      .filter(Boolean)
      .map(
        call => element(
          'details', {open: true}, element('summary', {textContent: 'Calls ' + call.function.name}),
          element('div', {textContent: call.function.arguments}))));
  ending.replaceChildren(endingOf(message));
  const focus = foot.contains(document.activeElement) && document.activeElement.dataset.action;
  foot.replaceChildren(...(live ? [] : footOf(message, versions)));
  if (focus) focusAction(node, focus);
}
function updateBody(node, body, html) {
  const old = node.html;
  for (let i = 0; i < html.length; i++) {
    if (html[i] === old[i]) continue;
    const fresh = blockNode(html[i]);
    for (const code of fresh.matches('.code') ? [fresh] : fresh.querySelectorAll('.code')) {
      code.append(button('Copy', event => copyText(code.firstChild.textContent, event.target)));
    }
    if (body.children[i]) body.children[i].replaceWith(fresh);
    else body.append(fresh);
  }
  while (body.children.length > html.length) body.lastChild.remove();
  node.html = html;
}

function footOf(message, versions) {
  const act = (text, action, onclick, attributes = {}) => {
    const made = button(text, onclick, {className: 'quiet', ...attributes});
    made.dataset.action = action;
    return made;
  };
  const parts = [];
  if (versions.length > 1) {
    const at = versions.indexOf(message);
    const walk = (text, action, step, label) => act(text, action, () => {
      const depth = path().indexOf(message);
      showVersion(message, step);
      focusAction($('messages').children[depth], action);
      $('said').textContent = `Version ${at + 1 + step} of ${versions.length}`;
    }, {ariaLabel: label, disabled: !versions[at + step]});
    parts.push(element(
      'span', {className: 'versions'}, walk('‹', 'previous', -1, 'Previous version'),
      element('span', {
        textContent: `${at + 1}/${versions.length}`,
        ariaLabel: `Version ${at + 1} of ${versions.length}`,
        role: 'img'
      }),
      walk('›', 'next', 1, 'Next version')));
  }
  parts.push(act('Copy', 'copy', event => copyText(message.content, event.target)));
  if (message.role === 'user') {
    parts.push(act('Edit', 'edit', () => edit(message)));
  } else {
    parts.push(act('Retry', 'retry', () => retry(message)));
    if (message.state !== 'done' && message.content && !message.tool_calls) {
      parts.push(act('Continue', 'continue', () => goOn(message)));
    }
  }
  const about = [message.model, message.speed].filter(Boolean).join(' · ');
  if (about) parts.push(element('span', {textContent: about}));
  return parts;
}
// Focus on a button of a message; where it is disabled, on the other direction.
function focusAction(node, action) {
  const find = name => node?.querySelector(`[data-action="${name}"]:enabled`);
  (find(action) ?? find(action === 'next' ? 'previous' : 'next') ?? find('copy'))?.focus();
}

// What an empty conversation shows.
function greeting() {
  const node = element(
    'div', {className: 'empty'}, element('h2', {textContent: 'What can I do for you?'}),
    element('p', {textContent: 'Everything stays between this page and its server.'}));
  for (const text of ['Tell me a story about a fox.', 'What is 12 + 30?', 'Name three rivers.']) {
    node.append(button(text, () => askFrom(text, null)));
  }
  return node;
}
// stay: leave the reader where they are.
function show({stay = false} = {}) {
  showList();
  document.title = current()?.title ? `${current().title} · ktx` : 'ktx';
  const messages = path(), pane = $('messages');
  pane.querySelector('.empty')?.remove();
  messages.forEach((message, i) => {
    const node = pane.children[i];
    if (node?.dataset.id === message.id) update(node, message);
    else if (node) node.replaceWith(render(message));
    else pane.append(render(message));
  });
  while (pane.children.length > messages.length) pane.lastChild.remove();
  if (messages.length === 0) pane.append(greeting());
  busy();
  showGauge();
  if (!stay) $('chat').scrollTop = $('chat').scrollHeight;
}

// ---- editing: a box in place of the message; until it is sent, nothing changes ----
function edit(message) {
  const node = nodeOf(message.id), {body, foot} = node.parts;
  const box =
    element('textarea', {value: message.content, dir: 'auto', ariaLabel: 'Edit the message'});
  const end = () => {
    editor.remove();
    body.hidden = foot.hidden = false;
    focusAction(node, 'edit');
  };
  const send = () => {
    const text = box.value.trim();
    if (!text || answers.has(message.chat)) return;
    end();
    if (text !== message.content) askFrom(text, message.parent, message.images);
  };
  const editor = element('div', {className: 'editor'}, box, element('div', {className: 'row'},
    button('Cancel', end), button('Send', send, {className: 'main'})));
  box.oninput = () => fit(box);
  box.onkeydown = event => {
    if (sends(event)) { event.preventDefault(); send(); }
    if (event.key === 'Escape' && !composing(event)) { event.stopPropagation(); end(); }
  };
  body.hidden = foot.hidden = true;
  body.after(editor);
  fit(box);
  box.focus();
}
