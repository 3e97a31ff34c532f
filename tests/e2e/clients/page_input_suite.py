"""How people write to the page at / and read from it: input methods, both directions of writing,
files, screen readers, long answers. Run by run.py.
"""

import json
import unittest

from page_case import NOTICES, SHOWN, PageCase


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

    def test_markdown_of_real_answers(self):
        for text, html in (
            (
                "1. a\n   - b\n   - c\n2. d",
                "<ol><li>a<ul><li>b</li><li>c</li></ul></li><li>d</li></ol>",
            ),
            ("3. c\n4. d", '<ol start="3"><li>c</li><li>d</li></ol>'),
            ("1. a\n\n2. b", "<ol><li>a</li><li>b</li></ol>"),
            ("````\n```\n````", '<div class="code"><pre data-lang=""><code>```</code></pre></div>'),
            ("a\n---\nb", None),
            ("`a*b*c` **x**", "<p><code>a*b*c</code> <b>x</b></p>"),
            ("2 * 3 * 4", "<p>2 * 3 * 4</p>"),
            (
                "[a](https://b.c/d_(e)*f*)",
                '<p><a href="https://b.c/d_(e)*f*" target="_blank" '
                'rel="noopener noreferrer">a</a></p>',
            ),
            ("\u4e2d\u6587**\u5f3a\u8c03**", "<p>\u4e2d\u6587<b>\u5f3a\u8c03</b></p>"),
            ("a \u00000\u0000 b", "<p>a 0 b</p>"),
            ("\\*not\\*", "<p>*not*</p>"),
        ):
            if html is not None:
                self.assertEqual("".join(self.blocks(text)), html, text)
        # Nothing hostile becomes an element or a script's address.
        page = self.page
        for text in (
            '[x](https://a"onmouseover=alert(1))',
            '```"><img src=x>\n</code><script>',
            "| <b> | [x](javascript:1) |\n|-|-|\n| <img src=x> | y |",
            "- <svg/onload=alert(1)>\n  > <b>",
            '[`<img>`](https://x" y)',
        ):
            page.js(
                "window.box = document.createElement('div');"
                f"box.innerHTML = markdown({json.dumps(text)})"
            )
            self.assertEqual(
                page.js(
                    "box.querySelectorAll('img, script, svg, [onmouseover], b').length"
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
            "'# a' + ' #'.repeat(3e4) + 'x'",
            "'- a\\n\\n'.repeat(2e4)",
            "Array.from({length: 300}, (_, i) => ' '.repeat(2 * i) + '- a').join('\\n')",
        ):
            took = self.page.js(
                f"(() => {{ const text = {text}, begin = performance.now(); blocks(text); "
                "return performance.now() - begin; })()"
            )
            self.assertLess(took, 5000, text)

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
