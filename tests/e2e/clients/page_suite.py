"""The page at / in a headless Chromium, driven over its DevTools pipe: run by run.py."""
import base64
import json
import os
import pathlib
import subprocess
import tempfile
import time
import unittest

URL = os.environ["KTX_URL"]


class Browser:
    """One page of one Chromium. Commands go through a pipe, so nothing but Python is needed."""

    def __init__(self, width=1100, height=800):
        to_browser, self.write_fd = os.pipe()
        self.read_fd, from_browser = os.pipe()
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)

        def arrange():
            # Chromium reads commands from descriptor 3 and answers on 4.
            source, target = os.dup(to_browser), os.dup(from_browser)
            os.dup2(source, 3)
            os.dup2(target, 4)

        self.process = subprocess.Popen(
            [os.environ["KTX_BROWSER"], "--headless", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--remote-debugging-pipe", "--no-first-run",
             f"--user-data-dir={self.profile.name}", f"--window-size={width},{height}",
             "about:blank"],
            preexec_fn=arrange, close_fds=False, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.last, self.held, self.session, self.problems = 0, b"", None, []
        for _ in range(600):
            targets = self.call("Target.getTargets")["targetInfos"]
            pages = [t for t in targets if t["type"] == "page"]
            if pages:
                break
            time.sleep(0.1)
        self.session = self.call("Target.attachToTarget", targetId=pages[0]["targetId"],
                                 flatten=True)["sessionId"]
        self.call("Runtime.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)

    def call(self, method, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_fd, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.held:
                more = os.read(self.read_fd, 1 << 20)
                if not more:
                    raise RuntimeError("the browser ended")
                self.held += more
            line, self.held = self.held.split(b"\0", 1)
            answer = json.loads(line)
            if answer.get("method") == "Runtime.exceptionThrown":
                self.problems.append(answer["params"]["exceptionDetails"])
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                return answer["result"]

    def js(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True,
                           returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def wait(self, expression, seconds=60):
        end = time.time() + seconds
        while time.time() < end:
            if self.js(expression):
                return
            time.sleep(0.05)
        raise AssertionError(f"never true: {expression}; page: {self.js('document.body.innerText')}")

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait(f"document.readyState === 'complete' && location.href === {json.dumps(url)}")

    def picture(self, name):
        folder = os.environ.get("KTX_PICTURES")
        if folder:
            data = self.call("Page.captureScreenshot")["data"]
            pathlib.Path(folder, name + ".png").write_bytes(base64.b64decode(data))

    def close(self):
        try:
            self.call("Browser.close")
        except (RuntimeError, OSError):
            pass
        self.process.wait(60)
        self.profile.cleanup()


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()
        cls.browser.open(URL + "/")

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()

    def setUp(self):
        self.browser.js("localStorage.clear()")
        self.browser.open(URL + f"/?{self.id()}")
        self.browser.wait("document.getElementById('model').textContent === 'qwen3moe'")

    def tearDown(self):
        self.assertEqual(self.browser.problems, [])

    def ask(self, text):
        self.browser.js(f"document.getElementById('input').value = {json.dumps(text)}; "
                        "document.getElementById('ask').requestSubmit()")

    def done(self):
        self.browser.wait("document.getElementById('stop').hidden")

    def last(self):
        return self.browser.js("[...document.querySelectorAll('.message.assistant .body')]"
                               ".at(-1)?.innerText")

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
        self.assertEqual(b.js("document.getElementById('input').value"),
                         "Tell me a story about a fox.")

    def test_an_answer_can_be_stopped(self):
        b = self.browser
        b.js("settings.max_tokens = 4000; settings.temperature = 2")
        self.ask("Tell me a very long story.")
        b.wait("!document.getElementById('stop').hidden")
        b.js("document.onkeydown({key: 'Escape'})")
        self.done()
        b.wait("fetch('stats').then(r => r.json()).then(s => s.requests_running === 0)")
        self.assertEqual(b.js("document.querySelectorAll('.error').length"), 0)

    def test_markdown_is_shown_and_html_is_not(self):
        html = self.browser.js("markdown('# T\\n**b** `<i>` [x](https://a.b) <img src=x "
                               "onerror=alert(1)>\\n- one\\n- two\\n```js\\nlet a < b;\\n```\\n"
                               "|a|b|\\n|-|-|\\n|1|2|\\n[y](javascript:alert(1))')")
        for part in ("<h3>T</h3>", "<b>b</b>", "<li>one</li>", "let a &#60; b;", "<td>1</td>",
                     'href="https://a.b"'):
            self.assertIn(part, html)
        for part in ("<img", 'href="javascript', "<i>"):
            self.assertNotIn(part, html)

    def test_reasoning_and_calls_have_their_place(self):
        text = self.browser.js(
            "render({role: 'assistant', content: 'Sunny.', reasoning: 'Look it up', tool_calls: "
            "[{function: {name: 'get_weather', arguments: '{}'}}]}, 0).textContent")
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

    def key(self, key, code, modifiers=0, text=""):
        for kind in ("keyDown", "keyUp"):
            self.browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                              windowsVirtualKeyCode=code, modifiers=modifiers,
                              **({"text": text} if kind == "keyDown" and text else {}))

    def test_the_keyboard_is_enough(self):
        b = self.browser
        b.js("settings.max_tokens = 20")
        b.picture("empty")
        b.js("document.getElementById('input').focus()")
        b.call("Input.insertText", text="First line")
        self.key("Enter", 13, modifiers=8, text="\r")  # Shift: a line
        b.call("Input.insertText", text="second line")
        self.assertEqual(b.js("document.getElementById('input').value"), "First line\nsecond line")
        self.key("Enter", 13, text="\r")
        b.wait("document.querySelectorAll('.message').length === 2")
        self.done()
        self.assertEqual(b.js("document.getElementById('input').value"), "")
        self.key("k", 75, modifiers=2)  # Ctrl: a new conversation
        b.wait("document.querySelectorAll('.message').length === 0")
        self.assertEqual(b.js("document.activeElement.id"), "input")
        self.assertEqual(b.js("document.querySelectorAll('.item').length"), 1)
        # Tab reaches every control, and each has a name.
        names = set()
        for _ in range(30):
            self.key("Tab", 9)
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
        self.assertEqual(b.js("requestBody(current()).repeat_penalty"), 1.2)

    def test_an_error_is_told(self):
        self.browser.js("settings.top_p = 5")
        self.ask("Hi")
        self.done()
        self.assertIn("'top_p' is 5", self.browser.js("document.querySelector('.error').innerText"))


class Phone(unittest.TestCase):
    def test_it_fits_a_phone_and_the_dark(self):
        b = Browser(390, 800)
        try:
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
            b.close()


if __name__ == "__main__":
    unittest.main(verbosity=1)
