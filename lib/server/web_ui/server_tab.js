// The second tab: live figures of the server, and how the plan lies on its devices.
'use strict';
const gauges = [
  ['requests_running', 'in the batch'], ['requests_waiting', 'waiting'],
  ['completion_tokens_total', 'tokens/s answered', true],
  ['computed_tokens_total', 'tokens/s computed', true], ['kv_blocks_used', 'cache blocks used'],
  ['kv_blocks_idle', 'kept for reuse'], ['cached_tokens_total', 'prompt tokens from the cache'],
  ['requests_ended_total', 'requests so far'],
  ['time_to_first_token_seconds_mean', 'ms to the first token', false, 1000],
  ['time_between_tokens_seconds_mean', 'ms between tokens', false, 1000],
  ['preemptions_total', 'preemptions'], ['connections', 'connections']
];
let history = {}, last = null;
async function figures() {
  if ($('server').hidden) return;
  try {
    const reply = await fetch('stats' + modelQuery(), {headers: headers()});
    if (!reply.ok) {
      const {error} = await reply.json();
      $('figures').replaceChildren(element('p', {textContent: error.message}));
      return;
    }
    const stats = await reply.json(), now = performance.now();
    $('figures').replaceChildren(...gauges.map(([name, text, rate, scale = 1]) => {
      const value = scale *
        (rate ? (last ? (stats[name] - last.stats[name]) / ((now - last.now) / 1000) : 0) :
                stats[name] ?? 0);
      const list = (history[name] ??= []);
      list.push(value);
      if (list.length > 60) list.shift();
      const top = Math.max(...list, 1e-9);
      const path = list.map((v, i) => `${i ? 'L' : 'M'}${i * 2} ${24 - 22 * v / top}`).join('');
      const card = element(
        'div', {className: 'card'},
        element('b', {textContent: value.toLocaleString(undefined, {maximumFractionDigits: 1})}),
        element('span', {textContent: text}));
      card.insertAdjacentHTML(
        'beforeend',
        `<svg class="spark" viewBox="0 0 120 26" preserveAspectRatio="none">` +
          `<path d="${path}"/></svg>`);
      return card;
    }));
    last = {stats, now};
  } catch { /* the next second may do */ }
}
async function showPlan() {
  // Asking for the plan of a model would load it.
  if (models.length > 1 && modelState(chosenModel()) !== 'loaded') {
    $('plan').replaceChildren(element('p', {
      textContent: `${chosenModel().id} is not loaded; a question to it loads it.`}));
    return;
  }
  const reply = await fetch('plan' + modelQuery(), {headers: headers()});
  if (!reply.ok) return;
  const plan = await reply.json();
  const colors = ['#3867d6', '#20a37c', '#c2571a', '#8e44ad', '#b3392f', '#607d8b'];
  const devices = [...new Set(plan.placement.map(p => p.device))];
  const layers = [...new Set(plan.placement.map(p => p.layer))].sort((a, b) => a - b);
  const picture = element('div', {className: 'layers'});
  for (const layer of layers) {
    const parts = plan.placement.filter(p => p.layer === layer),
          sum = parts.reduce((s, p) => s + p.bytes, 0);
    let at = 0;
    const stops = parts.map(p => {
      const from = at;
      at += 100 * p.bytes / sum;
      return `${colors[devices.indexOf(p.device) % 6]} ${from}% ${at}%`;
    });
    const box = element('div', {textContent: layer < 0 ? '·' : layer,
      title: parts.map(p => `${p.device}: ${human(p.bytes)}`).join('\n')});
    box.style.background = `linear-gradient(${stops.join(',')})`;
    picture.append(box);
  }
  const legend = element('div', {className: 'legend'});
  for (const device of devices) {
    const i = element('i');
    i.style.background = colors[devices.indexOf(device) % 6];
    const bytes = plan.placement.filter(p => p.device === device).reduce((s, p) => s + p.bytes, 0);
    legend.append(element('span', {}, i, `${device}: ${human(bytes)}`));
  }
  $('plan').replaceChildren(
    element('p', {
      textContent: `${plan.model} (${plan.family}), ${large(plan.parameters)} parameters, ` +
        `${counted(plan.max_batch, 'sequence')} of ${plan.ctx} tokens, ` +
        `cache in ${plan.kv_type}, ${counted(plan.threads, 'thread')}, ${plan.isa}`
    }),
    element('p', {
      textContent:
        `weights ${human(plan.memory.weights)}, activations ${human(plan.memory.activations)}, ` +
        `KV cache ${human(plan.memory.kv_cache)}`
    }),
    element('div', {textContent: 'Weights by layer and device (· stands outside of the layers):'}),
    picture, legend);
}
