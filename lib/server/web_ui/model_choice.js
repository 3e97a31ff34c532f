// Which model answers. Where the server has one its name stands in the header; of several, one is
// chosen there, for this tab and those opened later. A model that is not in memory is loaded by the
// question that it is asked.
'use strict';
let models = [];  // of GET /v1/models

const modelState = model => model.status?.value ?? 'loaded';
const chosenModel = () => models.find(each => each.id === settings.model) ??
  models.find(each => modelState(each) === 'loaded') ??
  models.find(each => !each.status?.failed) ?? models[0];
// Only where there is a choice: a server of one model may be called by any name.
const modelField = () => models.length > 1 ? {model: chosenModel().id} : {};
const modelQuery = () =>
  models.length > 1 ? '?model=' + encodeURIComponent(chosenModel().id) : '';

const kModelStates = {loading: 'loading', unloading: 'unloading', unloaded: 'not loaded',
  sleeping: 'not loaded'};
function showModels() {
  const several = models.length > 1, list = $('models');
  $('model').hidden = several;
  list.hidden = !several;
  if (!several) {
    $('model').textContent = models[0]?.id ?? 'no model';
    return;
  }
  list.replaceChildren(...models.map(each => {
    const state = each.status?.failed ? 'cannot be loaded' : kModelStates[modelState(each)];
    return element('option', {value: each.id, title: each.status?.error ?? '',
      textContent: state ? `${each.id} (${state})` : each.id});
  }));
  list.value = chosenModel().id;
}
async function readModels() {
  try {
    const reply = await fetch('v1/models', {headers: headers()});
    const body = await reply.json();
    if (reply.ok) {
      models = body.data;
      showModels();
      readDefaults();
      return;
    }
    $('model').textContent = body.error.message;
    if (reply.status === 503) setTimeout(readModels, 500);
  } catch {
    $('model').textContent = 'the server does not answer';
    setTimeout(readModels, 2000);
  }
}
function chooseModel(id) {
  settings.model = id;
  store('settings', settings);
  showModels();
  readDefaults();
}
