// Markdown as elements, block by block: marked reads it, DOMPurify keeps what is allowed, highlight.js
// colours code, KaTeX sets formulas (as MathML, which needs no fonts). HTML that a model writes is
// text. The build puts these libraries in place where it finds them (page_libraries.cmake); without
// marked and DOMPurify everything is plain text.
//
//   blocks('# A <b>\ntext')  ->  ['<h1>A &lt;b&gt;</h1>\n', '<p>text</p>\n']
//
// Each string is one block; message_view.js replaces only those that changed, by blockNode().
'use strict';
const kHasMarkdown = typeof marked !== 'undefined' && typeof DOMPurify !== 'undefined';
const kLongestColoured = 20000;  // characters of code

const escapeHtml = s => s.replace(/[&<>"']/g, c => '&#' + c.charCodeAt(0) + ';');

// $…$, $$…$$, \(…\) and \[…\]. A single $ with a space within, or a digit behind, is money.
const kFormulas = [
  {rule: /^\$\$((?:\\[^]|[^\\$])+?)\$\$/, display: true},
  {rule: /^\\\[((?:\\[^\]]|[^\\])+?)\\\]/, display: true},
  {rule: /^\\\(((?:\\[^)]|[^\\])+?)\\\)/, display: false},
  {rule: /^\$(?![\s$])((?:\\[^\n]|[^\\$\n]){1,400}?)(?<!\s)\$(?![\d$])/, display: false},
];
const kLongestFormula = 4000;
function formulaToken(type, src, onlyDisplay) {
  const head = src.slice(0, kLongestFormula);
  for (const {rule, display} of kFormulas) {
    const match = (display || !onlyDisplay) && head.match(rule);
    if (!match) continue;
    const behind = src.slice(match[0].length);
    if (onlyDisplay && !/^[ \t]*(?:\n|$)/.test(behind)) continue;
    return {type, raw: match[0], tex: match[1], display};
  }
}
const formulaHtml = ({tex, display, raw}) =>
  `<code class="formula${display ? ' display' : ''}" title="${escapeHtml(tex)}">` +
  `${escapeHtml(raw)}</code>`;
const kFormulaExtensions = [
  {
    name: 'formulaBlock',
    level: 'block',
    start: src => src.match(/\n(?:\$\$|\\\[)/)?.index,
    tokenizer: src => formulaToken('formulaBlock', src, true),
    renderer: token => `<p>${formulaHtml(token)}</p>\n`
  },
  {
    name: 'formula',
    level: 'inline',
    start: src => src.match(/\$|\\[([]/)?.index,
    tokenizer: src => formulaToken('formula', src, false),
    renderer: formulaHtml
  }
];
if (kHasMarkdown) {
  marked.use({
    gfm: true,
    breaks: true,
    mangle: false,
    headerIds: false,
    extensions: kFormulaExtensions,
    tokenizer: {html: () => undefined, tag: () => undefined}
  });
}

// DOMPurify 2.4.1 of Debian 12 reads a variable that its patch for CVE-2024-47875 does not declare, and
// throws. It limits the depth, which is limited here (kDeepest), and nothing is written out again.
globalThis.shadowNode ??= {__depth: 0};
const kAllowed = {
  ALLOWED_TAGS: [
    'p', 'br', 'hr', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'ul', 'ol', 'li', 'blockquote', 'pre',
    'code', 'em', 'strong', 'del', 'table', 'thead', 'tbody', 'tr', 'th', 'td', 'a', 'img', 'input'
  ],
  ALLOWED_ATTR: ['href', 'src', 'alt', 'title', 'class', 'align', 'start', 'type', 'checked'],
  RETURN_DOM_FRAGMENT: true
};

// The deepest lists and quotes that are read: deeper ones take a time of their square.
const kDeepest = 60;
const kTooDeep = new RegExp(`^(?:[ \\t]*(?:[-*+>]|\\d{1,9}[.)])[ \\t]?){${kDeepest}}`, 'm');
const kTooIndented = new RegExp(`^[ \\t]{${4 * kDeepest}}[ \\t]*[-*+]`, 'm');
// Marks of one paragraph are looked at in pairs: these many in one, or as much work in many.
const kMostMarks = 4000;
const marksOf = text => text.match(/[*_~[]/g)?.length ?? 0;
const isTooMuch = text => kTooDeep.test(text) || kTooIndented.test(text) ||
  marksOf(text) > kMostMarks &&
    text.split(/\n[ \t]*\n/).reduce((sum, part) => sum + marksOf(part) ** 2, 0) > kMostMarks ** 2;
function blocks(text) {
  const clean = text.replace(/\u0000/g, '');
  if (!kHasMarkdown || isTooMuch(clean)) return plainBlocks(clean);
  try {
    // A line end behind it: a code block that is still being written needs one (marked 4).
    return marked.lexer(clean + '\n').map(token => marked.parser([token])).filter(html => html.trim());
  } catch {
    return plainBlocks(clean);
  }
}
// Fenced code is code, all else is shown as it was written.
function plainBlocks(text) {
  return text.split(/^(```[^\n]*\n[^]*?(?:\n```[ \t]*$|(?![^])))/m).filter(part => part.trim())
    .map(part => {
      const code = part.match(/^```[^\n]*\n([^]*?)(?:\n```[ \t]*)?$/);
      return code ? `<pre><code>${escapeHtml(code[1])}</code></pre>`
                  : `<p class="plain">${escapeHtml(part.trim())}</p>`;
    });
}

// The element of a block.
function blockNode(html) {
  let parts;
  if (kHasMarkdown) {
    parts = DOMPurify.sanitize(html, kAllowed);
  } else {
    const template = element('template');
    template.innerHTML = html;  // of plainBlocks, which has escaped all of the text
    parts = template.content;
  }
  parts.querySelectorAll('pre').forEach(finishCode);
  parts.querySelectorAll('code.formula').forEach(finishFormula);
  parts.querySelectorAll('a').forEach(finishLink);
  parts.querySelectorAll('img').forEach(finishImage);
  parts.querySelectorAll('input').forEach(box => {
    if (box.type === 'checkbox') box.disabled = true;
    else box.remove();
  });
  for (const table of parts.querySelectorAll('table')) {
    const frame = element('div', {className: 'table'});
    table.replaceWith(frame);
    frame.append(table);
  }
  // The page has headings of its own: those of an answer stand below them.
  for (const heading of parts.querySelectorAll('h1, h2, h3, h4, h5, h6')) {
    const level = Math.min(6, Number(heading.tagName[1]) + 2);
    heading.replaceWith(element('h' + level, {}, ...heading.childNodes));
  }
  const nodes = [...parts.childNodes].filter(
    node => node.nodeType === Node.ELEMENT_NODE || node.textContent.trim());
  return nodes.length === 1 && nodes[0].nodeType === Node.ELEMENT_NODE ? nodes[0]
    : element('div', {}, ...nodes);
}

function finishCode(pre) {
  const code = pre.querySelector('code') ?? pre;
  const lang = code.className.match(/language-(\S+)/)?.[1] ?? '';
  code.textContent = code.textContent.replace(/\n$/, '');
  if (typeof hljs !== 'undefined' && hljs.getLanguage(lang) &&
      code.textContent.length <= kLongestColoured) {
    try {
      (hljs.highlightElement ?? hljs.highlightBlock)(code);
    } catch { /* it stays without colours */ }
  }
  pre.dataset.lang = lang;
  const frame = element('div', {className: 'code'});
  pre.replaceWith(frame);
  frame.append(pre);
}
function finishFormula(code) {
  if (typeof katex === 'undefined') return;
  const display = code.classList.contains('display');
  const box = element('span', {className: display ? 'formula display' : 'formula'});
  try {
    katex.render(code.title, box, {
      displayMode: display, output: 'mathml', throwOnError: true, strict: 'ignore', trust: false,
      maxExpand: 200, maxSize: 50
    });
  } catch {
    code.removeAttribute('title');
    return;
  }
  code.replaceWith(box);
}
function finishLink(link) {
  if (!/^https?:$/.test(link.protocol)) return link.replaceWith(...link.childNodes);
  link.target = '_blank';
  link.rel = 'noopener noreferrer';
}
// Nothing is fetched from elsewhere: an image is a link to it.
function finishImage(image) {
  const link = element('a', {href: image.src, textContent: image.alt || image.src});
  image.replaceWith(link);
  finishLink(link);
}
const markdown = text => {
  const box = element('div', {}, ...blocks(text).map(blockNode));
  return box.innerHTML;
};
