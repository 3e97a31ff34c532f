// Sends requests and reads the streamed answers. Each conversation can have one running answer
// in this tab; it continues while another conversation is shown, and is saved as it grows.
'use strict';
const answers = new Map();  // conversation -> {control, message, saved}
const kSampling = ['temperature', 'top_p', 'top_k', 'min_p', 'repeat_penalty', 'presence_penalty',
  'frequency_penalty', 'max_tokens', 'seed'];
const headers = () => ({'Content-Type': 'application/json',
  ...(settings.key ? {Authorization: 'Bearer ' + settings.key} : {})});

function requestBody(list) {
  const messages = settings.system ? [{role: 'system', content: settings.system}] : [];
  for (const {role, content} of list) {
    if (role === 'assistant' && content === '') continue;  // an error and nothing else
    // Templates want turns: two questions in a row, of which the first failed, are one.
    if (role === 'user' && messages.at(-1)?.role === 'user')
      messages.at(-1).content += '\n\n' + content;
    else messages.push({role, content});
  }
  const body = {...modelField(), messages, stream: true, stream_options: {include_usage: true}};
  for (const name of kSampling) {
    const value = settings[name] ?? '';
    if (value !== '') body[name] = Number(value);
  }
  if (settings.thinking) body.chat_template_kwargs = {enable_thinking: settings.thinking === 'on'};
  return body;
}

// What one event adds to the message.
function takeEvent(message, event) {
  if (event.error) throw new Error(event.error.message);
  const choice = event.choices?.[0], delta = choice?.delta ?? {};
  if (delta.reasoning_content)
    message.reasoning = (message.reasoning ?? '') + delta.reasoning_content;
  if (delta.content) message.content += delta.content;
  for (const piece of delta.tool_calls ?? []) {
    const calls = message.tool_calls ??= [];
    const call = calls[piece.index] ??= {id: piece.id ?? '', function: {name: '', arguments: ''}};
    call.function.name += piece.function?.name ?? '';
    call.function.arguments += piece.function?.arguments ?? '';
  }
  if (choice?.finish_reason) message.state = choice.finish_reason === 'length' ? 'length' : 'done';
  if (event.model && models.length > 1) message.model = event.model;
  if (event.usage) {
    message.context = event.usage.prompt_tokens + event.usage.completion_tokens || undefined;
  }
  if (event.timings) {
    const t = event.timings;
    message.speed =
      `${counted(t.predicted_n, 'token')}, ${t.predicted_per_second.toFixed(1)} t/s · prompt ` +
      `${counted(t.prompt_n, 'token')}, ${t.prompt_per_second.toFixed(0)} t/s, ${t.cache_n} cached`;
  }
}
// The data of each server-sent event, without the end mark. An answer that ends without that mark
// was cut off, however politely the connection was closed.
async function* eventsOf(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let held = '';;) {
    const {done, value} = await reader.read();
    if (done) throw new Error('the connection ended before the answer did');
    const parts = (held + value).split(/\r?\n\r?\n/);
    held = parts.pop();
    for (const part of parts) {
      const data = part.split(/\r?\n/).filter(line => line.startsWith('data:'))
        .map(line => line.slice(5).trimStart()).join('\n');
      if (data === '[DONE]') return;
      if (data) yield JSON.parse(data);
    }
  }
}
async function fetchAnswer(body, message, signal, grown) {
  let reply;
  try {
    reply = await fetch('v1/chat/completions',
      {method: 'POST', headers: headers(), body: JSON.stringify(body), signal});
  } catch (error) {
    throw error.name === 'AbortError' ? error : new Error('the server does not answer');
  }
  if (!reply.ok) {
    const text = await reply.text();
    let said;
    try {
      said = JSON.parse(text).error?.message;
    } catch { /* an answer of something in between */ }
    throw new Error(said ?? `the server answers ${reply.status} ${reply.statusText}`);
  }
  const ended = () => message.state !== 'streaming';
  try {
    for await (const event of eventsOf(reply)) {
      takeEvent(message, event);
      grown();
    }
    if (!ended()) message.state = 'done';
  } catch (error) {
    if (ended() || error.name === 'AbortError') throw error;
    throw error instanceof TypeError ? new Error('the connection to the server was lost') : error;
  }
}

// Answers the question `parent`; `begin`: an answer to go on with, as another version of it.
async function answer(parent, begin = null) {
  const chat = parent.chat, list = tree.path(parent.id);
  if (answers.has(chat)) return;
  const body = requestBody(begin ? [...list, begin] : list);
  const message = {id: newId(), chat, parent: parent.id, seq: tree.nextSeq(), role: 'assistant',
                   content: begin?.content ?? '', state: 'streaming'};
  if (begin?.reasoning) message.reasoning = begin.reasoning;
  const mine = {control: new AbortController(), message, saved: performance.now()};
  answers.set(chat, mine);
  addMessage(message, {used: nextUse()});
  show();
  const paint = paintLater(message);
  const grown = () => {
    paint();
    if (performance.now() - mine.saved > 500) {
      mine.saved = performance.now();
      save({messages: [message]});
    }
  };
  try {
    await fetchAnswer(body, message, mine.control.signal, grown);
  } catch (error) {
    if (error.name === 'AbortError') {
      message.state = 'stopped';
    } else if (message.state !== 'done' && message.state !== 'length') {
      message.state = 'broken';
      message.error = error.message;
    }
  }
  if (answers.get(chat) === mine) answers.delete(chat);
  save({messages: [message]});
  paint(true);
  if (open === chat) $('said').textContent = spoken(message);
  showList();
  busy();
  if (models.length > 1) readModels();
  if (open === chat) showGauge();
}
// What a screen reader says once, at the end: not each token.
function spoken(message) {
  const text = nodeOf(message.id)?.querySelector('.body').innerText ?? '';
  return [text, message.error ?? kEndings[message.state] ?? ''].join(' ').trim() || 'No answer';
}
// Paints what has grown with the next frame, long answers less often than short ones.
function paintLater(message) {
  let due = false, cost = 0;
  const paint = () => {
    due = false;
    const node = open === message.chat && nodeOf(message.id);
    if (!node) return;
    const pane = $('chat'), atEnd = pane.scrollHeight - pane.scrollTop - pane.clientHeight < 60;
    const begin = performance.now();
    update(node, message);
    if (atEnd) pane.scrollTop = pane.scrollHeight;
    cost = performance.now() - begin;
  };
  return (now = false) => {
    if (now) return paint();
    if (due) return;
    due = true;
    if (cost > 8) setTimeout(() => requestAnimationFrame(paint), cost * 5);
    else requestAnimationFrame(paint);
  };
}

function retry(message) {
  const parent = tree.byId.get(message.parent);
  if (parent) answer(parent);
}
function goOn(message) {
  const parent = tree.byId.get(message.parent);
  if (parent) answer(parent, message);
}
const stop = () => answers.get(open)?.control.abort();
// Other tabs hear that an answer is alive, also while a long prompt is computed.
setInterval(() => {
  if (answers.size > 0) tell({live: [...answers.values()].map(a => a.message.id)});
  for (const node of $('messages').querySelectorAll('[aria-busy=true]')) {
    const message = tree.byId.get(node.dataset.id);
    if (message && !isLive(message)) update(node, message);
  }
}, 1500);
