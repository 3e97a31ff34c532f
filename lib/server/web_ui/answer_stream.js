// Sends requests and reads the streamed answers. Each conversation can have one running answer
// in this tab; it continues while another conversation is shown, and is saved as it grows.
//
// The server keeps the stream of an answer under the name `message.stream`: after a reload, or when
// the connection was lost, it is read again from its beginning (/v1/stream) and followed to its end.
'use strict';
const answers = new Map();  // conversation -> {control, message, saved}
const kSampling = ['temperature', 'top_p', 'top_k', 'min_p', 'repeat_penalty', 'presence_penalty',
  'frequency_penalty', 'max_tokens', 'seed'];
const headers = () => ({'Content-Type': 'application/json',
  ...(settings.key ? {Authorization: 'Bearer ' + settings.key} : {})});

function requestBody(list) {
  const messages = settings.system ? [{role: 'system', content: settings.system}] : [];
  for (const message of list) {
    const {role} = message, content = contentOf(message), last = messages.at(-1);
    if (role === 'assistant' && content === '') continue;  // an error and nothing else
    // Templates want turns: two questions in a row, of which the first failed, are one.
    if (role === 'user' && last?.role === 'user')
      last.content = joinedContent(last.content, content);
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
class Broken extends Error {}
let leaving = false;  // the page is being unloaded: nothing that fails now says anything
addEventListener('pagehide', () => { leaving = true; });
addEventListener('pageshow', () => { leaving = false; });
// The data of each server-sent event, without the end mark. An answer that ends without that mark
// was cut off, however politely the connection was closed.
async function* eventsOf(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let held = '';;) {
    const {done, value} = await reader.read();
    if (done) throw new Broken('the connection ended before the answer did');
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
async function takeEvents(reply, message, grown) {
  for await (const event of eventsOf(reply)) {
    takeEvent(message, event);
    grown();
  }
  if (message.state === 'streaming') message.state = 'done';
}
async function fetchAnswer(body, message, signal, grown) {
  let reply;
  try {
    reply = await fetch('v1/chat/completions', {
      method: 'POST',
      headers: {...headers(), 'X-Conversation-Id': message.stream},
      body: JSON.stringify(body),
      signal
    });
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
  try {
    await takeEvents(reply, message, grown);
  } catch (error) {
    if (message.state !== 'streaming' || error.name === 'AbortError' || leaving) throw error;
    if (!(error instanceof Broken || error instanceof TypeError)) throw error;
    if (await readAgain(message, signal, grown)) return;
    throw error instanceof TypeError ? kLost : error;
  }
}
const kLost = new Error('the connection to the server was lost');
const streamOf = message => 'v1/stream?conv_id=' + encodeURIComponent(message.stream);
// What the server has of the answer, from its beginning, and what still comes. False: it has nothing.
async function readAgain(message, signal, grown) {
  for (let tries = 0; tries < 120 && !signal.aborted; tries++) {
    try {
      const reply = await fetch(streamOf(message), {headers: headers(), signal});
      if (reply.ok) {
        const {content, reasoning} = message.before;
        Object.assign(message, {content, reasoning, tool_calls: undefined});
        await takeEvents(reply, message, grown);
        return true;
      }
      if (reply.status !== 503) return false;  // 503: it has not begun yet
    } catch (error) {
      const lost = error instanceof Broken || error instanceof TypeError;
      if (!lost || message.state !== 'streaming') throw error;
      if (tries >= 5) throw kLost;
    }
    await new Promise(done => setTimeout(done, 1000));
  }
  signal.throwIfAborted();
  return false;
}
// Whether the server still has it; null where it does not answer.
async function hasStream(message) {
  try {
    const reply = await fetch('v1/streams/lookup', {
      method: 'POST',
      headers: headers(),
      body: JSON.stringify({conversation_ids: [message.stream]})
    });
    return reply.ok ? (await reply.json()).length > 0 : reply.status === 404 ? false : null;
  } catch {
    return null;
  }
}
// One tab follows an answer; the next one does when the first is closed.
const lockOf = message => 'ktx.answer.' + message.id;
async function alone(message, work) {
  if (navigator.locks) return navigator.locks.request(lockOf(message), work);
  // Not there by plain HTTP from another host: what other tabs say of live answers decides.
  await new Promise(done => setTimeout(done, 2000));
  if (!isLive(message)) await work();
}

// Answers the question `parent`; `begin`: an answer to go on with, as another version of it.
async function answer(parent, begin = null) {
  const chat = parent.chat, list = tree.path(parent.id);
  if (answers.has(chat)) return;
  const body = requestBody(begin ? [...list, begin] : list);
  const message = {id: newId(), chat, parent: parent.id, seq: tree.nextSeq(), role: 'assistant',
                   content: begin?.content ?? '', state: 'streaming', stream: newId()};
  if (begin?.reasoning) message.reasoning = begin.reasoning;
  message.before = {content: message.content, reasoning: message.reasoning};
  addMessage(message, {used: nextUse()});
  const followed = follow(message, (signal, grown) => fetchAnswer(body, message, signal, grown));
  navigator.locks?.request(lockOf(message), () => followed);
  await followed;
}
// Answers that were running when the page was left.
const waiting = new Set();
async function resume(left) {
  if (left.state !== 'streaming' || !left.stream || waiting.has(left.id)) return;
  waiting.add(left.id);
  try {
    await alone(left, async () => {
      // Another tab may have followed it to its end meanwhile.
      const kept = (await readMessages(left.chat)).find(each => each.id === left.id);
      if (kept?.state !== 'streaming' || !kept.stream) return;
      const there = await hasStream(kept);
      if (there === null || answers.has(left.chat)) return;
      const message = (open === left.chat && tree.byId.get(left.id)) || kept;
      if (!there) {
        delete message.stream;
        delete message.before;
        return save({messages: [message]});
      }
      await follow(message, async (signal, grown) => {
        if (!await readAgain(message, signal, grown)) delete message.stream;
      });
    });
  } finally {
    waiting.delete(left.id);
  }
}
// Shows and saves an answer while it grows.
async function follow(message, read) {
  const {chat} = message;
  const mine = {control: new AbortController(), message, saved: performance.now()};
  answers.set(chat, mine);
  if (open === chat) show();
  const paint = paintLater(message);
  const grown = () => {
    paint();
    if (performance.now() - mine.saved > 500) {
      mine.saved = performance.now();
      save({messages: [message]});
    }
  };
  try {
    await read(mine.control.signal, grown);
  } catch (error) {
    if (leaving) return;
    if (error.name === 'AbortError') {
      message.state = 'stopped';
    } else if (message.state !== 'done' && message.state !== 'length') {
      message.state = 'broken';
      message.error = error.message;
    }
  }
  if (message.state !== 'streaming') delete message.stream;
  if (!message.stream) delete message.before;
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
// The answer ends at the server, too, which would finish it for a page that comes back.
function stopAnswer(chat) {
  const mine = answers.get(chat);
  if (!mine) return;
  mine.control.abort();
  if (mine.message.stream) {
    fetch(streamOf(mine.message), {method: 'DELETE', headers: headers()}).catch(() => {});
  }
}
const stop = () => stopAnswer(open);
// Other tabs hear that an answer is alive, also while a long prompt is computed.
setInterval(() => {
  if (answers.size > 0) tell({live: [...answers.values()].map(a => a.message.id)});
  for (const node of $('messages').querySelectorAll('[aria-busy=true]')) {
    const message = tree.byId.get(node.dataset.id);
    if (message && !isLive(message)) update(node, message);
  }
}, 1500);
