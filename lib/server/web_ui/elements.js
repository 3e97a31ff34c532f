// Small pieces that every part of the page uses.
'use strict';
const $ = id => document.getElementById(id);
const element = (tag, attributes = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), attributes);
  node.append(...children);
  return node;
};
const button = (textContent, onclick, attributes = {}) =>
  element('button', {type: 'button', textContent, onclick, ...attributes});
const isObject = value => typeof value === 'object' && value !== null && !Array.isArray(value);

// Settings, in localStorage. Conversations are elsewhere: conversation_db.js.
const read = (key, otherwise) => {
  try {
    return JSON.parse(localStorage.getItem('ktx.' + key)) ?? otherwise;
  } catch {
    return otherwise;
  }
};
const store = (key, value) => {
  try {
    localStorage.setItem('ktx.' + key, JSON.stringify(value));
  } catch (error) {
    notice('settings', `The settings hold in this tab only: ${error.message}`);
  }
};

const counted = (count, what) => `${count} ${what}${count === 1 ? '' : 's'}`;
const large = count =>
  count >= 1e9 ? `${(count / 1e9).toFixed(1)} B` : `${(count / 1e6).toFixed(1)} M`;
const human = bytes => {
  let unit = 0;
  for (; bytes >= 1024 && unit < 4; unit++) bytes /= 1024;
  return bytes.toFixed(unit ? 1 : 0) + ' ' + ['B', 'KiB', 'MiB', 'GiB', 'TiB'][unit];
};
// Of 96 random bits. randomUUID is missing where the page comes by plain HTTP from another host.
const newId = () => [...crypto.getRandomValues(new Uint8Array(12))]
  .map(byte => byte.toString(16).padStart(2, '0')).join('');

// The clipboard API is missing by plain HTTP from another host as well.
async function copyText(text, from) {
  let copied = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = element('textarea', {value: text, className: 'unseen'});
    (from.closest('dialog') ?? document.body).append(area);
    area.select();
    copied = document.execCommand('copy');
    area.remove();
    from.focus();
  }
  const label = from.textContent;
  if (label === 'Copy') {
    from.textContent = copied ? 'Copied' : 'Not copied';
    setTimeout(() => { from.textContent = label; }, 1500);
  }
  $('said').textContent = copied ? 'Copied' : 'Not copied';
}
function download(name, parts, type) {
  const url = URL.createObjectURL(new Blob(parts, {type}));
  element('a', {href: url, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}
