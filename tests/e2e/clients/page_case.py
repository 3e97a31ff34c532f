"""A page in front of a model that does what it is asked for (scripted_server.py).

The page comes from ktx-run. Each test has a browser profile of its own.
"""
import json
import os
import time
import unittest

from chromium import Browser
from scripted_server import ScriptedServer

URL = os.environ["KTX_URL"]
SHOWN = "[...document.querySelectorAll('.message .body')].map(b => b.innerText.trim())"
NOTICES = "document.getElementById('notices').innerText"
TITLES = "[...document.querySelectorAll('.item .title')].map(t => t.title)"


class PageCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.chromium = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.chromium.close()

    def setUp(self):
        self.server = ScriptedServer(URL)
        self.context = self.chromium.context()
        self.page = self.tab()

    def tearDown(self):
        self.server.released.set()
        self.chromium.forget(self.context)
        self.server.shutdown()
        self.server.server_close()
        problems, self.chromium.problems = self.chromium.problems, []
        self.assertEqual(problems, [])

    def tab(self, before="", **size):
        tab = self.chromium.tab(self.context, **size)
        if before:
            tab.call("Page.addScriptToEvaluateOnNewDocument", source=before)
        self.load(tab)
        return tab

    def load(self, tab):
        tab.open(self.server.url + f"/?{time.monotonic_ns()}")
        tab.wait("document.documentElement.dataset.ready", 20)

    def type(self, tab, text):
        tab.js(f"document.getElementById('input').value = {json.dumps(text)}; "
               "document.getElementById('ask').requestSubmit()")

    def ask(self, tab, text):
        self.type(tab, text)
        tab.wait("document.getElementById('stop').hidden && "
                 "!document.querySelector('[aria-busy=true]')", 20)

    def click(self, tab, selector, text=""):
        """The first element of a selector, with a text if given."""
        found = tab.js(
            f"""(() => {{
            const found = [...document.querySelectorAll({json.dumps(selector)})]
              .find(e => !{json.dumps(text)} || e.textContent === {json.dumps(text)});
            found?.click();
            return Boolean(found);
        }})()"""
        )
        self.assertTrue(found, f"no {selector} {text}")

    def press(self, tab, label, message=-1):
        """The button of a message, by its text."""
        found = tab.js(
            f"""(() => {{
            const node = [...document.querySelectorAll('.message')].at({message});
            const found = [...node.querySelectorAll('button')]
              .find(b => b.textContent === '{label}');
            found?.click();
            return Boolean(found);
        }})()"""
        )
        self.assertTrue(found, f"no button {label}")

    def settle(self, tab):
        """Waits until everything is written."""
        tab.wait("unsaved.chats.size + unsaved.messages.size === 0", 20)

    def versions(self, tab):
        return tab.js("[...document.querySelectorAll('.versions')].map(v => v.innerText"
                      ".replace(/[^0-9/]/g, ''))")
