"""How people write to the page at / and read from it: input methods, both directions of writing,
files, screen readers, long answers. Run by run.py.
"""

import json
import unittest

from page_case import NOTICES, SHOWN, TITLES, PageCase


class Input(PageCase):
    def show(self, content):
        """An answer as it would be shown, with the id x."""
        message = {"id": "x", "role": "assistant", "state": "done", "parent": None,
                   "content": content}
        self.page.js(f"window.m = {json.dumps(message)}; $('messages').append(render(m))")

    def blocks(self, text):
        return self.page.js(f"blocks({json.dumps(text)})")

    def test_enter_that_chooses_a_word_does_not_send(self):
        page = self.page
        page.js("document.getElementById('input').focus()")
        page.call("Input.imeSetComposition", text="\u306b\u307b", selectionStart=2, selectionEnd=2)
        enter = (
            "document.getElementById('input').dispatchEvent(new KeyboardEvent('keydown', "
            "{key: 'Enter', bubbles: true, cancelable: true, %s}))"
        )
        page.js(enter % "isComposing: true")
        page.call("Input.insertText", text="\u65e5\u672c\u8a9e")
        page.js(enter % "keyCode: 229")  # Safari, after the composition has ended
        self.assertEqual(page.js(SHOWN), [])
        self.assertEqual(page.js("document.getElementById('input').value"), "\u65e5\u672c\u8a9e")
        page.key("Enter", 13, text="\r")
        page.wait(f"{SHOWN}.length === 2 && answers.size === 0")
        self.assertEqual(page.js(SHOWN)[0], "\u65e5\u672c\u8a9e")
        # The same while a message is edited; Escape ends the composition, not the edit.
        self.press(page, "Edit", 0)
        for key in ("Enter", "Escape"):
            page.js(
                "document.querySelector('.editor textarea').dispatchEvent(new KeyboardEvent("
                f"'keydown', {{key: '{key}', bubbles: true, isComposing: true}}))"
            )
            self.assertEqual(page.js("document.querySelectorAll('.editor').length"), 1, key)

    def test_enter_begins_a_line_on_a_touch_keyboard(self):
        page = self.page
        page.call("Emulation.setTouchEmulationEnabled", enabled=True)
        page.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "hover", "value": "none"}, {"name": "pointer", "value": "coarse"}],
        )
        if not page.js("matchMedia('(hover: none) and (pointer: coarse)').matches"):
            self.skipTest("this Chromium does not play a touch screen")
        page.js("document.getElementById('input').focus()")
        page.call("Input.insertText", text="one")
        page.key("Enter", 13, text="\r")
        page.call("Input.insertText", text="two")
        self.assertEqual(page.js("document.getElementById('input').value"), "one\ntwo")

    def test_each_paragraph_runs_its_own_way(self):
        page = self.page
        arabic = "\u0645\u0631\u062d\u0628\u0627 \u0628\u0643"
        self.ask(page, arabic)
        self.show(f"{arabic}\n\nEnglish.\n\n```\nx = 1\n```")
        # Where the first letter of each stands: the right end, the left end.
        edges = page.js("""[...document.querySelectorAll('[data-id=x] p')].map(p => {
            const range = document.createRange();
            range.setStart(p.firstChild, 0);
            range.setEnd(p.firstChild, 1);
            const letter = range.getBoundingClientRect(), box = p.getBoundingClientRect();
            return Math.round(letter.left - box.left < box.right - letter.right);
        })""")
        self.assertEqual(edges, [0, 1])
        self.assertEqual(
            page.js("getComputedStyle(document.querySelector('[data-id=x] .code')).direction"),
            "ltr",
        )
        page.js(f"document.getElementById('input').value = {json.dumps(arabic)}")
        self.assertTrue(page.js("document.getElementById('input').matches(':dir(rtl)')"))
        self.assertTrue(page.js("document.querySelector('.item .title').matches(':dir(rtl)')"))
        page.picture("rtl")

    def test_text_files_become_part_of_the_message(self):
        page = self.page
        page.js("document.getElementById('input').value = 'Explain:'")
        page.js(
            "attachFiles([new File(['a = `b`\\n```\\n'], 'a.py'), new File(['\u00e9'], 'b.txt')])"
        )
        self.assertEqual(
            page.js("document.getElementById('input').value"),
            "Explain:\na.py:\n````\na = `b`\n```\n````\nb.txt:\n```\n\u00e9\n```\n",
        )
        for make, said in (
            ("new File([new Uint8Array([0xff, 0xfe])], 'x.bin')", "x.bin is no UTF-8 text"),
            ("new File([new Uint8Array(9)], 'z.bin')", "z.bin is no UTF-8 text"),
            ("new File([new Uint8Array(2000000)], 'big')", "big is 1.9 MiB"),
        ):
            page.js(f"attachFiles([{make}])")
            self.assertIn(said, page.js(NOTICES))
        self.assertEqual(page.js("document.getElementById('input').value").count("```\n"), 5)

    def test_a_screen_reader_hears_the_answer_once(self):
        page = self.page
        page.js("""window.heard = []; new MutationObserver(() => heard.push($('said').textContent))
            .observe($('said'), {childList: true, characterData: true, subtree: true})""")
        self.ask(page, "slow 10")
        self.assertEqual(
            page.js("heard.map(t => t.trim()).filter(Boolean)"),
            [" ".join(f"word{i}" for i in range(10))],
        )
        self.assertEqual(page.js("document.querySelectorAll('#messages[aria-live]').length"), 0)
        self.assertEqual(
            page.js("[...document.querySelectorAll('.message h2')].map(h => h.innerText)"),
            ["You", "Answer"],
        )
        self.press(page, "Retry")
        page.wait("answers.size === 0 && document.querySelector('.versions') !== null")
        self.press(page, "\u2039")
        self.assertEqual(page.js("$('said').textContent"), "Version 1 of 2")

    def test_an_answer_that_grows_leaves_the_rest_alone(self):
        page = self.page
        self.show("One.\n\nTwo")
        page.js(
            "window.node = $('messages').lastChild;"
            "window.first = node.querySelector('p'); getSelection().selectAllChildren(first);"
            "m.content += ' more.\\n\\n```\\ncode'; update(node, m)"
        )
        self.assertTrue(page.js("node.querySelector('p') === first"))
        self.assertEqual(page.js("getSelection().toString()"), "One.")
        self.assertEqual(
            page.js("node.querySelector('.body').innerText.includes('Two more.')"), True
        )
        self.assertEqual(page.js("node.querySelectorAll('.code button').length"), 1)

    def test_code_is_copied_without_the_clipboard_interface(self):
        """As on a page that came by plain HTTP from another host."""
        page = self.page
        page.js("""Object.defineProperty(navigator, 'clipboard', {value: undefined});
            document.execCommand = command => { window.copied = [command, getSelection().toString()
              || document.activeElement.value]; return true; };
            $('messages').append(render({id: 'x', role: 'assistant', state: 'done', parent: null,
              content: '```\\nlet a = 1;\\n```'}));
            document.querySelector('.code button').click()""")
        page.wait("window.copied")
        self.assertEqual(page.js("copied"), ["copy", "let a = 1;"])
        self.assertEqual(page.js("document.querySelector('.code button').textContent"), "Copied")

    def needs(self, library):
        if not self.page.js(f"typeof {library} !== 'undefined'"):
            self.skipTest(f"built without {library}")

    def html(self, text):
        return self.page.js(f"markdown({json.dumps(text)})").replace("\n", "")

    def test_markdown_of_real_answers(self):
        self.needs("marked")
        for text, html in (
            (
                "1. a\n   - b\n     - c\n2. d",
                "<ol><li>a<ul><li>b<ul><li>c</li></ul></li></ul></li><li>d</li></ol>",
            ),
            ("3. c\n4. d", '<ol start="3"><li>c</li><li>d</li></ol>'),
            ("1. a\n\n2. b", "<ol><li><p>a</p></li><li><p>b</p></li></ol>"),
            (
                "1. a\n   ```\n   x\n   ```\n2. b",
                '<ol><li>a<div class="code"><pre data-lang=""><code>x</code></pre></div></li>'
                "<li>b</li></ol>",
            ),
            # Numbering goes on behind a code block that ends the list.
            (
                "1. a\n```\nx\n```\n2. b",
                '<ol><li>a</li></ol><div class="code"><pre data-lang=""><code>x</code></pre></div>'
                '<ol start="2"><li>b</li></ol>',
            ),
            ("````\n```\n````", '<div class="code"><pre data-lang=""><code>```</code></pre></div>'),
            ("a\n\n---\n\n***\nb", "<p>a</p><hr><hr><p>b</p>"),
            (
                "| a | b |\n|:--|--:|\n| `x|y` | **2** |",
                None,
            ),
            ("`a*b*c` **x**", "<p><code>a*b*c</code> <strong>x</strong></p>"),
            ("2 * 3 * 4", "<p>2 * 3 * 4</p>"),
            (
                "[a](https://b.c/d_(e)*f*)",
                '<p><a href="https://b.c/d_(e)*f*" target="_blank" '
                'rel="noopener noreferrer">a</a></p>',
            ),
            ("\u4e2d\u6587**\u5f3a\u8c03**", "<p>\u4e2d\u6587<strong>\u5f3a\u8c03</strong></p>"),
            ("a \u00000\u0000 b", "<p>a 0 b</p>"),
            ("\\*not\\*", "<p>*not*</p>"),
            ("one\ntwo", "<p>one<br>two</p>"),
            ("List<String> & x", "<p>List&lt;String&gt; &amp; x</p>"),
            (
                "![p](https://x.y/z.png)",
                '<p><a href="https://x.y/z.png" target="_blank" rel="noopener noreferrer">p</a></p>',
            ),
        ):
            if html is not None:
                self.assertEqual(self.html(text), html, text)
        table = self.html("| a | b |\n|:--|--:|\n| 1 | **2** |\n\nbehind")
        self.assertIn('<td align="right"><strong>2</strong></td>', table)
        self.assertTrue(table.startswith('<div class="table"><table>'), table)
        self.assertTrue(table.endswith("</table></div><p>behind</p>"), table)

    def test_formulas_are_set_and_money_is_not(self):
        self.needs("marked")
        self.needs("katex")
        for text, count in (
            ("$a^2$ and \\(b_1\\)", 2),
            ("$$\\int_0^1 x\\,dx$$", 1),
            ("\\[ y = 2 \\]", 1),
            ("text\n$$\na = b\n$$\nmore", 1),
            ("It costs $5 and $10.", 0),
            ("`$x$` and \\$5", 0),
            ("```\n$x$\n```", 0),
        ):
            self.assertEqual(self.html(text).count("<math"), count, text)
        # What is no formula stays as it was written, and asks for nothing.
        self.assertIn("$\\frac{$", self.html("a $\\frac{$ b"))
        html = self.html("$\\href{javascript:alert(1)}{x} \\includegraphics{https://x.y/z}$")
        self.assertNotIn("<a ", html)
        self.assertNotIn("<img", html)

    def test_code_has_colours(self):
        self.needs("marked")
        self.needs("hljs")
        html = self.html("```python\nx = 1 # <b>\n```")
        self.assertIn("hljs-number", html)
        self.assertNotIn("<b>", html)
        self.assertNotIn("hljs-", self.html("```nonsense\nx = 1\n```"))

    def test_without_libraries_answers_are_plain(self):
        html = self.page.js("plainBlocks('a **b** <i>\\n\\n```js\\nx < y\\n```\\nend')")
        self.assertEqual(
            html,
            ['<p class="plain">a **b** &#60;i&#62;</p>', "<pre><code>x &#60; y</code></pre>",
             '<p class="plain">end</p>'],
        )
        self.assertEqual(
            self.page.js("plainBlocks('```\\nnot closed <b>').map(h => blockNode(h).innerText)"),
            ["not closed <b>"],
        )

    def test_nothing_hostile_becomes_an_element(self):
        page = self.page
        for text in (
            '[x](https://a"onmouseover=alert(1))',
            '```"><img src=x>\n</code><script>',
            "| <b> | [x](javascript:1) |\n|-|-|\n| <img src=x> | y |",
            "- <svg/onload=alert(1)>\n  > <b>",
            '[`<img>`](https://x" y)',
            "<img src=x onerror=alert(1)> <script>alert(1)</script> <style>*{}</style>",
            "[x](data:text/html,<script>alert(1)</script>) ![x](javascript:alert(1))",
            "<https://x.y/><svg><math><mtext><b>",
            "$<img src=x onerror=alert(1)>$ $$\\text{<b>}$$",
        ):
            page.js(
                "window.box = document.createElement('div');"
                f"box.innerHTML = markdown({json.dumps(text)})"
            )
            self.assertEqual(
                page.js(
                    "box.querySelectorAll('img, script, style, svg, [onmouseover], b').length"
                    " + [...box.querySelectorAll('a')].filter(a => !/^https?:$/"
                    ".test(a.protocol)).length"
                ),
                0,
                text,
            )

    def test_hostile_markdown_is_shown_in_time(self):
        for text in (
            "'*'.repeat(5e4)",
            "'*a '.repeat(2e4)",
            "'`'.repeat(5e4)",
            "'['.repeat(5e4)",
            "'[a](http://'.repeat(5e3)",
            "'|a|\\n|' + '- '.repeat(5e4) + 'x'",
            "'- - '.repeat(3e4) + 'x'",
            "' '.repeat(1e5) + 'x'",
            "'~~a '.repeat(2e4)",
            "'_a '.repeat(2e4)",
            "('_a '.repeat(1200) + '\\n\\n').repeat(20)",
            "'$a '.repeat(2e4)",
            "'\\\\('.repeat(2e4)",
            "'$$'.repeat(2e4)",
            "'> '.repeat(2e4) + 'x'",
            "'a<b '.repeat(2e4)",
            "'https://a.b '.repeat(5e3)",
            "'![a]('.repeat(5e3)",
            "'# a' + ' #'.repeat(3e4) + 'x'",
            "'- a\\n\\n'.repeat(2e4)",
            "Array.from({length: 300}, (_, i) => ' '.repeat(2 * i) + '- a').join('\\n')",
        ):
            took = self.page.js(
                f"(() => {{ const text = {text}, begin = performance.now(); blocks(text); "
                "return performance.now() - begin; })()"
            )
            self.assertLess(took, 5000, text)

    def test_the_servers_values_stand_in_empty_settings(self):
        self.server.props = {"default_generation_settings": {"n_ctx": 4096, "params": {
            "temperature": 0.7, "top_p": 0.95, "top_k": 20, "max_tokens": -1, "seed": -1}}}
        page = self.tab()
        page.wait("$('s-temperature').placeholder === '0.7'")
        self.assertEqual(page.js("$('s-top_k').placeholder"), "20")
        self.assertEqual(page.js("$('s-max_tokens').placeholder"), "as many as fit")
        self.assertEqual(page.js("$('s-seed').placeholder"), "another each time")
        self.assertEqual(page.js("$('s-min_p').placeholder"), "")
        # They are shown, not sent.
        self.ask(page, "Hi")
        self.assertNotIn("temperature", self.server.asked[-1])
        page.js("$('settings').click()")
        page.picture("settings")

    def test_a_gauge_shows_how_full_the_context_is(self):
        self.server.props = {"default_generation_settings": {"n_ctx": 1000, "params": {}}}
        page = self.tab()
        page.wait("contextTokens === 1000")
        self.assertTrue(page.js("$('gauge').hidden"))
        self.server.usage = 290
        self.ask(page, "Hi")
        self.assertEqual(page.js("$('gauge').innerText.trim()"), "300 of 1,000 tokens")
        self.assertEqual(page.js("$('gauge').querySelector('meter').value"), 300)
        self.server.usage = 950
        self.ask(page, "More")
        self.assertIn("960 of 1,000 tokens: nearly full", page.js("$('gauge').innerText"))
        page.picture("gauge")
        # It belongs to the conversation, and comes back with it.
        self.settle(page)
        self.load(page)
        page.wait("!$('gauge').hidden")
        self.assertIn("960 of", page.js("$('gauge').innerText"))
        page.js("fresh()")
        self.assertTrue(page.js("$('gauge').hidden"))

    def test_one_of_several_models_is_chosen(self):
        loaded, unloaded = {"value": "loaded"}, {"value": "unloaded"}
        self.server.models = [{"id": "big", "status": {"value": "unloaded", "failed": True,
                                                       "error": "too large"}},
                              {"id": "org/small", "status": loaded}, {"id": "new", "status": unloaded}]
        page = self.tab()
        page.wait("!$('models').hidden")
        self.assertTrue(page.js("$('model').hidden"))
        self.assertEqual(page.js("[...$('models').options].map(o => o.textContent)"),
                         ["big (cannot be loaded)", "org/small", "new (not loaded)"])
        self.assertEqual(page.js("$('models').value"), "org/small", "the one in memory")
        self.ask(page, "Hi")
        self.assertEqual(self.server.asked[-1]["model"], "org/small")
        page.js("$('models').value = 'new'; $('models').dispatchEvent(new Event('change'))")
        self.ask(page, "Hi")
        self.assertEqual(self.server.asked[-1]["model"], "new")
        self.assertIn("new", page.js("[...document.querySelectorAll('.message.assistant .foot')]"
                                     ".at(-1).innerText"))
        self.assertIn("/props?model=new", self.server.paths)
        # The plan of a model that is not loaded is not asked for: that would load it.
        page.js("tab('server')")
        page.wait("$('plan').innerText.includes('new is not loaded')")
        self.assertFalse([path for path in self.server.paths if path.startswith("/plan")])
        page.picture("models")
        # It is remembered, and falls back where the model is gone.
        self.settle(page)
        self.load(page)
        page.wait("$('models').value === 'new'")
        self.server.models = self.server.models[:2]
        self.load(page)
        page.wait("!$('models').hidden")
        self.assertEqual(page.js("$('models').value"), "org/small")

    def test_figures_that_are_refused_say_why(self):
        self.server.stats_error = "these figures count all keys together"
        self.page.js("tab('server')")
        self.page.wait("$('figures').innerText.includes('count all keys together')")

    def test_conversations_are_renamed(self):
        page = self.page
        self.ask(page, "First name")
        self.click(page, ".item button[aria-label^=Rename]")
        self.assertEqual(page.js("document.activeElement.value"), "First name")
        page.js("document.activeElement.value = '  Another\\n name '")
        page.key("Enter", 13)
        self.assertEqual(page.js(TITLES), ["Another name"])
        self.assertEqual(page.js("document.title"), "Another name \u00b7 ktx")
        # F2 on the title; Escape keeps it, and does not stop anything else.
        page.js("document.querySelector('.item .title').focus()")
        page.key("F2", 113)
        page.js("document.activeElement.value = 'Lost'")
        page.key("Escape", 27)
        self.assertEqual(page.js(TITLES), ["Another name"])
        # Another tab shows it, and a reload keeps it.
        self.settle(page)
        other = self.tab()
        self.assertEqual(other.js(TITLES), ["Another name"])
        self.click(other, ".item button[aria-label^=Rename]")
        other.js("document.activeElement.value = 'From the other tab'")
        other.key("Enter", 13)
        page.wait(f"{TITLES}[0] === 'From the other tab'", 10)

    def test_keys_do_what_the_mouse_does(self):
        page = self.page
        self.ask(page, "Hi")
        page.key("Escape", 27)  # out of the box
        self.assertEqual(page.js("document.activeElement.tagName"), "BODY")
        page.key("r", 82)
        page.wait("answers.size === 0 && document.querySelector('.versions') !== null")
        self.assertEqual(self.versions(page), ["2/2"])
        page.key("ArrowLeft", 37)
        self.assertEqual(self.versions(page), ["1/2"])
        page.key("ArrowRight", 39)
        self.assertEqual(self.versions(page), ["2/2"])
        page.key("e", 69)
        self.assertEqual(page.js("document.activeElement.value"), "Hi")
        page.call("Input.insertText", text="r / c")  # letters in a box are letters
        self.assertEqual(page.js("document.activeElement.value"), "Hir / c")
        page.key("Escape", 27)
        page.js("document.activeElement.blur()")
        page.key("/", 191)
        self.assertEqual(page.js("document.activeElement.id"), "search")
        page.key("Escape", 27)
        page.js("document.activeElement.blur()")
        page.key("i", 73)
        self.assertEqual(page.js("document.activeElement.id"), "input")
        self.assertEqual(len(self.server.asked), 2)

    def test_long_lines_fit_a_phone(self):
        page = self.tab(width=390, height=800)
        self.ask(page, "x" * 300)
        page.js(
            """$('messages').append(render({id: 'x', role: 'assistant', state: 'done', parent: null,
            content: ['# Head', 'y'.repeat(300), '```python', 'z = ' + '1 + '.repeat(100), '```',
              '|' + 'column|'.repeat(30), '|' + '-|'.repeat(30), '|' + 'cell|'.repeat(30), '',
              '1. one', '   - two', '     `' + 'c'.repeat(200) + '`'].join('\\n')}))"""
        )
        page.js("notice('file', 'n'.repeat(200), [['Try again', () => {}]])")
        page.js("toast('Deleted: ' + 't'.repeat(200), 'Undo', () => {})")
        self.assertLessEqual(page.js("document.documentElement.scrollWidth"), 390)
        self.assertLessEqual(page.js("document.getElementById('chat').scrollWidth"), 390)
        page.picture("phone-long")
        page.js("document.querySelector('.message.user button:last-child').click()")
        self.assertLessEqual(page.js("document.documentElement.scrollWidth"), 390)


if __name__ == "__main__":
    unittest.main(verbosity=1)
