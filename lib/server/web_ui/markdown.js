// Markdown as HTML, block by block. The text is escaped first: nothing a model says becomes HTML.
//
//   blocks('# A <b>\ntext')  ->  ['<h3>A &#60;b&#62;</h3>', '<p>text</p>']
//
// Each string is one element; message_view.js replaces only those that changed.
'use strict';
const escape = s => s.replace(/[&<>"']/g, c => '&#' + c.charCodeAt(0) + ';');

function inline(text) {
  // What must stay as it is waits in `held`: code, links, and marks behind a backslash.
  const held = [];
  const hold = html => '\u0000' + (held.push(html) - 1) + '\u0000';
  let s = escape(text.replaceAll('\u0000', ''));
  s = s.replace(/(`+)(?!`)([^\n]*?[^`])\1(?!`)/g, (_, marks, code) =>
    hold('<code>' + (marks.length > 1 ? code.trim() : code) + '</code>'));
  s = s.replace(/\\([\\*_~`[\]()#+\-.!|])/g, (_, mark) => hold(mark));
  s = s.replace(/\[([^\]\n]+)\]\((https?:[^\s()]+(?:\([^\s()]*\)[^\s()]*)*)\)/g, (_, label, url) =>
    hold(`<a href="${url}" target="_blank" rel="noopener noreferrer">`) + label + hold('</a>'));
  s = s.replace(/\*\*([^*\n]+)\*\*/g, '<b>$1</b>')
       .replace(/(^|[^\w*])\*([^*\s](?:[^*\n]*[^*\s])?)\*/g, '$1<i>$2</i>')
       .replace(/~~([^~\n]+)~~/g, '<s>$1</s>');
  // Held text may hold other held text: code in the label of a link.
  for (let round = 0; round < 3; round++) {
    s = s.replace(/\u0000(\d+)\u0000/g, (_, i) => held[i] ?? '');
  }
  return s;
}

const kItem = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const kFence = /^\s*(`{3,}|~{3,})\s*([^`]*)$/;
const kTableRow = /^\s*\|.*\|\s*$/;
// |---|:-:|
function isTableRule(line) {
  const rule = line.trim();
  return rule.length > 1 && rule[0] === '|' && rule.endsWith('|') && rule.includes('-') &&
    /^[\s:|-]+$/.test(rule);
}

function tableBlock(rows) {
  const row = (line, tag) => '<tr>' + line.trim().slice(1, -1).split(/(?<!\\)\|/)
    .map(cell => `<${tag}>${inline(cell.trim())}</${tag}>`).join('') + '</tr>';
  return '<div class="table"><table>' + row(rows[0], 'th') +
    rows.slice(2).map(line => row(line, 'td')).join('') + '</table></div>';
}

// Items of one list; what is indented under an item is blocks of its own, up to a depth.
function listBlock(lines, at, depth) {
  const [, indent, mark] = lines[at].match(kItem);
  const ordered = /\d/.test(mark), items = [];
  let i = at;
  while (i < lines.length) {
    const item = lines[i].match(kItem);
    if (!item || item[1].length > indent.length + 1 || /\d/.test(item[2]) !== ordered ||
        item[1].length < indent.length) break;
    const under = [];
    for (i++; i < lines.length; i++) {
      const blank = lines[i].trim() === '';
      const deeper = lines[i].search(/\S/) > item[1].length + 1;
      if (blank) {
        // A blank line goes with the item only where the item goes on behind it.
        const next = lines.slice(i, i + 3).find(line => line.trim() !== '');
        if (next === undefined || next.search(/\S/) <= item[1].length + 1) break;
      } else if (!deeper) {
        break;
      }
      under.push(lines[i].slice(Math.min(item[1].length + 2, Math.max(0, lines[i].search(/\S/)))));
    }
    const more = under.length === 0 ? ''
      : depth < 6 ? linesToBlocks(under, depth + 1).join('') : inline(under.join(' '));
    items.push('<li>' + inline(item[3]) + more + '</li>');
    // Blank lines between items of one list.
    let next = i;
    while (next < lines.length && lines[next].trim() === '') next++;
    if (next > i && next < lines.length && kItem.test(lines[next])) i = next;
  }
  const start = ordered && parseInt(mark) !== 1 ? ` start="${parseInt(mark)}"` : '';
  return [ordered ? `<ol${start}>${items.join('')}</ol>` : `<ul>${items.join('')}</ul>`, i];
}

function linesToBlocks(lines, depth) {
  const out = [];
  const startsBlock = line => kFence.test(line) || kItem.test(line) || /^(#{1,6} |>)/.test(line);
  for (let i = 0; i < lines.length;) {
    const line = lines[i], fence = line.match(kFence);
    if (fence) {
      const code = [], close = new RegExp(`^\\s*${fence[1][0]}{${fence[1].length},}\\s*$`);
      const indent = line.search(/\S/);
      for (i++; i < lines.length && !close.test(lines[i]); i++) {
        code.push(lines[i].slice(Math.min(indent, Math.max(0, lines[i].search(/\S|$/)))));
      }
      i++;
      out.push(`<div class="code"><pre data-lang="${escape(fence[2].trim())}"><code>` +
        escape(code.join('\n')) + '</code></pre></div>');
    } else if (/^#{1,6} /.test(line)) {
      const level = Math.min(6, line.match(/^#+/)[0].length + 2);
      out.push(
        `<h${level}>${inline(line.replace(/^#+ /, '').replace(/\s#+\s*$/, ''))}</h${level}>`);
      i++;
    } else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) {
      out.push('<hr>');
      i++;
    } else if (kItem.test(line)) {
      const [list, end] = listBlock(lines, i, depth);
      out.push(list);
      i = end;
    } else if (/^>/.test(line)) {
      const quoted = [];
      for (; i < lines.length && /^>/.test(lines[i]); i++)
        quoted.push(inline(lines[i].replace(/^> ?/, '')));
      out.push('<blockquote>' + quoted.join('<br>') + '</blockquote>');
    } else if (kTableRow.test(line) && isTableRule(lines[i + 1] ?? '')) {
      const from = i;
      while (i < lines.length && kTableRow.test(lines[i])) i++;
      out.push(tableBlock(lines.slice(from, i)));
    } else if (line.trim() === '') {
      i++;
    } else {
      const paragraph = [];
      do paragraph.push(inline(lines[i++]));
      while (i < lines.length && lines[i].trim() && !startsBlock(lines[i]));
      out.push('<p>' + paragraph.join('<br>') + '</p>');
    }
  }
  return out;
}
const blocks = text => linesToBlocks(text.replace(/\r\n?/g, '\n').split('\n'), 0);
const markdown = text => blocks(text).join('');
