"""The page at / in a headless Chromium: run by run.py. What it keeps: page_storage_suite.py."""
import json
import os
import unittest

from chromium import Browser

URL = os.environ["KTX_URL"]


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.chromium = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.chromium.close()

    def setUp(self):
        self.context = self.chromium.context()
        self.browser = self.chromium.tab(self.context)
        self.browser.open(URL + "/")
        self.browser.wait("document.getElementById('model').textContent === 'qwen3moe'")
        self.browser.wait("document.documentElement.dataset.ready")

    def tearDown(self):
        self.chromium.forget(self.context)
        problems, self.chromium.problems = self.chromium.problems, []
        self.assertEqual(problems, [])

    def ask(self, text):
        self.browser.js(f"document.getElementById('input').value = {json.dumps(text)}; "
                        "document.getElementById('ask').requestSubmit()")

    def done(self):
        self.browser.wait("document.getElementById('stop').hidden")

    def last(self):
        return self.browser.js("[...document.querySelectorAll('.message.assistant .body')]"
                               ".at(-1)?.innerText")

    def test_a_reload_goes_on_with_the_answer_of_the_server(self):
        b = self.browser
        b.js("settings.temperature = 0; settings.max_tokens = 3000; store('settings', settings)")
        self.ask("Count to a thousand.")
        b.wait("((path()[1]?.content ?? '') + (path()[1]?.reasoning ?? '')).length > 20")
        b.open(URL + "/?in-the-middle")
        b.wait("['done', 'length'].includes(path()[1]?.state)")
        # The model is exact: an answer that was computed without a reload is the same.
        self.assertTrue(b.js("""(async () => {
            const reply = await fetch('v1/chat/completions', {method: 'POST', headers: headers(),
              body: JSON.stringify({...requestBody([path()[0]]), stream: false})});
            const {content, reasoning_content} = (await reply.json()).choices[0].message;
            return content === path()[1].content &&
              (reasoning_content ?? '') === (path()[1].reasoning ?? '');
        })()"""))
        b.js("settings.max_tokens = 40; store('settings', settings)")

    def test_a_conversation_survives_a_reload(self):
        b = self.browser
        b.js("settings.temperature = 0; settings.max_tokens = 40; store('settings', settings)")
        self.ask("Tell me a story about a fox.")
        self.done()
        first = self.last()
        self.assertGreater(len(first), 20)
        self.assertRegex(b.js("document.querySelector('.message.assistant .foot').innerText"),
                         r"t/s")
        self.ask("And then?")
        self.done()
        b.picture("chat")
        b.open(URL + "/?again")
        b.wait("document.querySelectorAll('.message').length === 4")
        b.js("[...document.querySelectorAll('.message.assistant button')]"
             ".filter(b => b.textContent === 'Retry')[0].click()")
        self.done()
        self.assertEqual(b.js("document.querySelectorAll('.message').length"), 2)
        self.assertEqual(self.last(), first, "greedy: the same again")
        b.js("[...document.querySelectorAll('.message.user button')]"
             ".filter(b => b.textContent === 'Edit')[0].click()")
        self.assertEqual(b.js("document.querySelector('.editor textarea').value"),
                         "Tell me a story about a fox.")

    def test_an_answer_at_its_limit_goes_on(self):
        b = self.browser
        b.js("settings.temperature = 0; settings.max_tokens = 12")
        self.ask("Tell me a story about a fox.")
        self.done()
        begin = self.last()
        b.js("settings.max_tokens = 20")
        b.js("[...document.querySelectorAll('.message.assistant button')]"
             ".find(b => b.textContent === 'Continue').click()")
        self.done()
        self.assertTrue(self.last().startswith(begin), self.last())
        self.assertGreater(len(self.last()), len(begin) + 10)
        self.assertIn("2/2", b.js("document.querySelector('.versions').innerText.replace(/\\s/g, '')"))

    def test_an_answer_can_be_stopped(self):
        b = self.browser
        b.js("settings.max_tokens = 4000; settings.temperature = 2")
        self.ask("Tell me a very long story.")
        b.wait("!document.getElementById('stop').hidden")
        b.js("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true}))")
        self.done()
        b.wait("fetch('stats').then(r => r.json()).then(s => s.requests_running === 0)")
        self.assertEqual(b.js("document.querySelectorAll('.error').length"), 0)

    def test_markdown_is_shown_and_html_is_not(self):
        if not self.browser.js("kHasMarkdown"):
            self.skipTest("built without marked and DOMPurify")
        html = self.browser.js("markdown('# T\\n**b** `<i>` [x](https://a.b) <img src=x "
                               "onerror=alert(1)>\\n- one\\n- two\\n```js\\nlet a < b;\\n```\\n"
                               "|a|b|\\n|-|-|\\n|1|2|\\n\\n[y](javascript:alert(1))')")
        for part in ("<h3>T</h3>", "<strong>b</strong>", "<li>one</li>", "a &lt; b;", "<td>1</td>",
                     'href="https://a.b"'):
            self.assertIn(part, html)
        for part in ("<img", 'href="javascript', "<i>"):
            self.assertNotIn(part, html)

    def test_reasoning_and_calls_have_their_place(self):
        text = self.browser.js(
            "render({role: 'assistant', content: 'Sunny.', reasoning: 'Look it up', tool_calls: "
            "[{function: {name: 'get_weather', arguments: '{}'}}]}).textContent")
        for part in ("Reasoning", "Look it up", "Calls get_weather", "Sunny."):
            self.assertIn(part, text)

    def test_the_server_tab_shows_plan_and_figures(self):
        b = self.browser
        b.js("document.getElementById('tab-server').click()")
        b.wait("document.querySelectorAll('.card').length > 5")
        b.wait("document.querySelectorAll('.layers div').length > 2")
        self.assertIn("Qwen3Moe", b.js("document.getElementById('plan').innerText"))
        b.picture("server")

    def test_figures_are_live(self):
        b = self.browser
        b.js("document.getElementById('tab-server').click()")
        b.wait("document.querySelectorAll('.card').length > 5")
        count = ("+[...document.querySelectorAll('.card')].find(c => c.innerText.includes("
                 "'requests so far')).querySelector('b').textContent.replaceAll(',', '')")
        before = b.js(count)
        for _ in range(3):
            b.js("fetch('v1/completions', {method: 'POST', body: JSON.stringify({prompt: 'Once', "
                 "max_tokens: 30})}).then(r => r.text())")
        b.wait(f"{count} >= {before + 3}")
        b.wait("document.querySelector('svg.spark path').getAttribute('d').includes('L')")

    def test_the_placement_picture_shows_devices(self):
        b = self.browser
        b.js("""{const plan = {model: 'm', family: 'F', parameters: 8e9, max_batch: 4, ctx: 4096,
             kv_type: 'F16', threads: 8, isa: 'avx512', memory: {weights: 5e9, activations: 1e8,
             kv_cache: 1e9}, placement: []};
             for (let layer = 0; layer < 36; layer++) {
               plan.placement.push({layer, device: 'cuda:0', bytes: 5e7});
               if (layer % 2) plan.placement.push({layer, device: 'cpu', bytes: 9e7});
             }
             const ask = window.fetch;
             window.fetch = (url, more) => url === 'plan'
               ? Promise.resolve(new Response(JSON.stringify(plan))) : ask(url, more);}""")
        b.js("document.getElementById('tab-server').click()")
        b.wait("document.querySelectorAll('.layers div').length === 36")
        self.assertIn("cuda:0: 1.7 GiB", b.js("document.querySelector('.legend').innerText"))
        one = b.js("document.querySelectorAll('.layers div')[1].style.background")
        self.assertRegex(one, r"gradient.*35\.\d+%")
        self.assertEqual(b.js("document.querySelectorAll('.layers div')[1].title"),
                         "cuda:0: 47.7 MiB\ncpu: 85.8 MiB")
        b.picture("placement")

    def test_the_keyboard_is_enough(self):
        b = self.browser
        b.js("settings.max_tokens = 20")
        b.picture("empty")
        b.js("document.getElementById('input').focus()")
        b.call("Input.insertText", text="First line")
        b.key("Enter", 13, modifiers=8, text="\r")  # Shift: a line
        b.call("Input.insertText", text="second line")
        self.assertEqual(b.js("document.getElementById('input').value"), "First line\nsecond line")
        b.key("Enter", 13, text="\r")
        b.wait("document.querySelectorAll('.message').length === 2")
        self.done()
        self.assertEqual(b.js("document.getElementById('input').value"), "")
        b.key("k", 75, modifiers=2)  # Ctrl: a new conversation
        b.wait("document.querySelectorAll('.message').length === 0")
        self.assertEqual(b.js("document.activeElement.id"), "input")
        self.assertEqual(b.js("document.querySelectorAll('.item').length"), 1)
        # Tab reaches every control, and each has a name.
        names = set()
        for _ in range(30):
            b.key("Tab", 9)
            names.add(b.js("(e => e.id || e.textContent || e.ariaLabel)(document.activeElement)"))
        for control in ("send", "settings", "new", "tab-server", "shade"):
            self.assertIn(control, names)
        self.assertEqual(b.js("[...document.querySelectorAll('button, input, select, textarea')]"
                              ".filter(e => !(e.textContent.trim() || e.ariaLabel || e.labels?.length"
                              " || e.title)).map(e => e.outerHTML)"), [])

    def test_an_empty_conversation_offers_questions(self):
        b = self.browser
        b.js("settings.max_tokens = 8")
        b.js("document.querySelector('.empty button').click()")
        b.wait("document.querySelectorAll('.message').length === 2")
        self.done()
        self.assertEqual(b.js("document.querySelectorAll('.empty').length"), 0)

    def test_settings_reach_the_server(self):
        b = self.browser
        b.js("document.getElementById('settings').click()")
        b.js("document.getElementById('s-max_tokens').value = 3; "
             "document.getElementById('s-repeat_penalty').value = 1.2")
        b.js("document.querySelector('dialog button.main').click()")
        self.assertEqual(b.js("settings.max_tokens"), "3", "before anything can be asked")
        self.ask("Count.")
        self.done()
        self.assertRegex(b.js("document.querySelector('.message.assistant .foot').innerText"),
                         r"\b3 tokens")
        self.assertEqual(b.js("requestBody(path()).repeat_penalty"), 1.2)

    def test_an_error_is_told(self):
        self.browser.js("settings.top_p = 5")
        self.ask("Hi")
        self.done()
        self.assertIn("'top_p' is 5", self.browser.js("document.querySelector('.error').innerText"))


class Phone(unittest.TestCase):
    def test_it_fits_a_phone_and_the_dark(self):
        chromium = Browser()
        try:
            b = chromium.tab(chromium.context(), width=390, height=800)
            b.call("Emulation.setEmulatedMedia",
                   features=[{"name": "prefers-color-scheme", "value": "dark"}])
            b.open(URL + "/")
            self.assertTrue(b.js("document.documentElement.classList.contains('dark')"))
            self.assertLessEqual(b.js("document.documentElement.scrollWidth"), 390)
            self.assertLess(b.js("document.getElementById('side').getBoundingClientRect().right"), 1)
            b.js("document.getElementById('menu').click()")
            b.wait("document.getElementById('side').getBoundingClientRect().left === 0")
            b.picture("phone-menu")
            b.js("document.querySelector('main').click()")
            b.wait("document.getElementById('side').getBoundingClientRect().right < 1")
            b.js("settings.max_tokens = 60; settings.temperature = 0")
            b.js("document.getElementById('input').value = 'Tell me a story about a fox.'; "
                 "document.getElementById('ask').requestSubmit()")
            b.wait("document.querySelectorAll('.message').length === 2")
            b.wait("document.getElementById('stop').hidden")
            b.picture("phone")
            self.assertLessEqual(b.js("document.documentElement.scrollWidth"), 390)
            b.js("document.getElementById('tab-server').click()")
            b.wait("document.querySelectorAll('.layers div').length > 2")
            self.assertLessEqual(b.js("document.documentElement.scrollWidth"), 390)
        finally:
            chromium.close()


if __name__ == "__main__":
    unittest.main(verbosity=1)
