// Fetches a model of a hub into the server's folder, where the server allows that: GET /props says so.
// The fetch ends with the page, and what has arrived is kept for the next one.
'use strict';
let fetching = null;

function showFetch(state, line = {}) {
  $('fetch-state').textContent = line.total
    ? `${state}: ${human(line.completed)} of ${human(line.total)}` : state;
  Object.assign($('fetch-bar'), {hidden: !fetching, max: line.total || 1});
  if (line.total) $('fetch-bar').value = line.completed;
  else $('fetch-bar').removeAttribute('value');
  $('fetch-stop').hidden = !fetching;
  $('fetch-name').disabled = Boolean(fetching);
}

// Shows each line of the answer; fails with the server's words.
async function readPull(reply) {
  const said = body => { if (body.error) throw Error(body.error); };
  if (!reply.ok) said(await reply.json());
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '', last = {};
  for (let part; !(part = await reader.read()).done;) {
    const lines = (rest + part.value).split('\n');
    rest = lines.pop();
    for (const text of lines.filter(Boolean)) {
      last = JSON.parse(text);
      said(last);
      showFetch(last.status, last);
    }
  }
  if (last.status !== 'success') throw Error('the server has broken off');
}

async function fetchModel(model) {
  if (fetching) return;
  fetching = new AbortController();
  showFetch('asking');
  let state = 'is there';
  try {
    await readPull(await fetch('api/pull', {
      method: 'POST', headers: headers(), body: JSON.stringify({model}), signal: fetching.signal}));
  } catch (error) {
    state = error.name === 'AbortError' ? 'stopped' : error.message;
  }
  fetching = null;
  showFetch(`${model}: ${state}`);
  if (state === 'is there') readModels();
}
