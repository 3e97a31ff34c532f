// What the server does by itself: its values for empty settings, and the length of its context, of
// which the gauge below the input box shows how much the conversation takes.
'use strict';
let contextTokens = 0;

// The setting of the page, and its name in the server's answer to GET /props.
const kDefaultNames = {
  temperature: 'temperature', top_p: 'top_p', top_k: 'top_k', min_p: 'min_p',
  repeat_penalty: 'repeat_penalty', presence_penalty: 'presence_penalty',
  frequency_penalty: 'frequency_penalty', max_tokens: 'max_tokens', seed: 'seed'
};
async function readDefaults() {
  let props;
  try {
    const reply = await fetch('props' + modelQuery(), {headers: headers()});
    if (!reply.ok) return;
    const all = await reply.json();
    $('fetch').hidden = all.allow_pull !== true;
    sees = all.modalities?.vision === true;
    props = all.default_generation_settings ?? {};
  } catch {
    return;  // the page works without
  }
  contextTokens = Number(props.n_ctx) || 0;
  for (const [field, name] of Object.entries(kDefaultNames)) {
    const value = props.params?.[name];
    const unlimited = field === 'max_tokens' && value === -1;
    const random = field === 'seed' && (value === -1 || value === 4294967295);
    $('s-' + field).placeholder = typeof value !== 'number' ? ''
      : unlimited ? 'as many as fit' : random ? 'another each time'
      : String(Number(value.toFixed(4)));
  }
  showGauge();
}

// The last answer on the path says how many tokens the conversation had with it.
function showGauge() {
  const used = path().findLast(message => message.context)?.context ?? 0;
  $('gauge').hidden = !used || !contextTokens;
  if ($('gauge').hidden) return;
  const [meter, text] = $('gauge').children, share = used / contextTokens;
  Object.assign(meter, {max: contextTokens, high: 0.8 * contextTokens, optimum: 0, value: used});
  text.textContent =
    `${used.toLocaleString()} of ${contextTokens.toLocaleString()} tokens` +
    (share >= 0.95 ? ': nearly full, begin a new chat soon' : '');
  $('gauge').classList.toggle('full', share >= 0.95);
}
