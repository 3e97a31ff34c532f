"""What the page at / keeps, and what may happen to it: run by run.py.

The page comes from ktx-run; in front of it stands a model that does what it is asked for
(scripted_server.py), so that answers can be cut off where a test wants it.
"""
import json
import os
import tempfile
import time
import unittest

from chromium import Browser
from scripted_server import ScriptedServer

URL = os.environ["KTX_URL"]
SHOWN = "[...document.querySelectorAll('.message .body')].map(b => b.innerText.trim())"
NOTICES = "document.getElementById('notices').innerText"
TITLES = "[...document.querySelectorAll('.item .title')].map(t => t.title)"


class Storage(unittest.TestCase):
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

    def press(self, tab, label, message=-1):
        """The button of a message, by its text."""
        found = tab.js(f"""(() => {{
            const node = [...document.querySelectorAll('.message')].at({message});
            const found = [...node.querySelectorAll('button')].find(b => b.textContent === '{label}');
            found?.click();
            return Boolean(found);
        }})()""")
        self.assertTrue(found, f"no button {label}")

    def settle(self, tab):
        """Waits until everything is written."""
        tab.wait("unsaved.chats.size + unsaved.messages.size === 0", 20)

    def versions(self, tab):
        return tab.js("[...document.querySelectorAll('.versions')].map(v => v.innerText"
                      ".replace(/[^0-9/]/g, ''))")

    # ---- one tab ----

    def test_an_edit_that_is_cancelled_changes_nothing(self):
        page = self.page
        self.ask(page, "first")
        self.ask(page, "second")
        before = page.js(SHOWN)
        for end in ("button", "Escape", "reload"):
            self.press(page, "Edit", 0)
            page.js("document.querySelector('.editor textarea').value = 'something else'")
            self.assertEqual(page.js("document.querySelectorAll('.message').length"), 4)
            if end == "button":
                page.js("document.querySelector('.editor button').click()")
            elif end == "Escape":
                page.key("Escape", 27)
            if end != "reload":
                self.assertEqual(page.js(SHOWN), before, end)
                self.assertEqual(page.js("document.activeElement.dataset.action"), "edit")
        self.load(page)
        self.assertEqual(page.js(SHOWN), before)

    def test_an_edit_is_a_branch_and_both_can_be_walked(self):
        page = self.page
        self.ask(page, "first")
        self.ask(page, "second")
        before = page.js(SHOWN)
        self.press(page, "Edit", 0)
        page.js("document.querySelector('.editor textarea').value = 'changed'")
        page.key("Enter", 13, text="\r")
        page.wait(f"{SHOWN}.length === 2 && document.getElementById('stop').hidden")
        self.assertEqual(page.js(SHOWN), ["changed", "answer 3: changed"])
        self.assertEqual(self.server.asked[-1]["messages"], [{"role": "user", "content": "changed"}])
        self.assertEqual(self.versions(page), ["2/2"])
        self.settle(page)
        self.load(page)
        self.assertEqual(page.js(SHOWN), ["changed", "answer 3: changed"])
        self.press(page, "‹", 0)
        self.assertEqual(page.js(SHOWN), before, "with all that followed")
        self.assertEqual(self.versions(page), ["1/2"])
        self.assertEqual(page.js("document.activeElement.dataset.action"), "next", "for the keyboard")
        self.settle(page)
        self.load(page)
        self.assertEqual(page.js(SHOWN), before, "the version that was looked at")

    def test_a_retry_keeps_the_earlier_answer(self):
        page = self.page
        self.ask(page, "first")
        self.ask(page, "second")
        self.press(page, "Retry", 1)
        page.wait(f"{SHOWN}.join() === 'first,answer 3: first'")
        self.press(page, "Retry", 1)
        page.wait(f"{SHOWN}.join() === 'first,answer 4: first'")
        self.assertEqual(self.versions(page), ["3/3"])
        self.press(page, "‹", 1)
        self.assertEqual(page.js(SHOWN), ["first", "answer 3: first"])
        self.press(page, "‹", 1)
        self.assertEqual(page.js(SHOWN), ["first", "answer 1: first", "second", "answer 2: second"])
        self.settle(page)
        self.load(page)
        self.assertEqual(self.versions(page), ["1/3"])

    def test_what_is_deleted_comes_back(self):
        page = self.page
        for text in ("one", "two"):
            page.js("fresh()")
            self.ask(page, text)
        self.assertEqual(page.js(TITLES), ["two", "one"])
        delete = "document.querySelector('.item [aria-label^=Delete]').click()"
        page.js(delete)
        self.assertEqual(page.js(TITLES), ["one"])
        page.picture("undo")
        page.js("document.querySelector('#toast button').click()")
        page.wait(f"{SHOWN}.join() === 'two,answer 2: two'")
        self.assertEqual(page.js(TITLES), ["two", "one"])
        # Also after a reload, from the trash.
        page.js(delete)
        self.settle(page)
        self.load(page)
        self.assertEqual(page.js(TITLES), ["one"])
        page.js("document.getElementById('trash').click()")
        self.assertEqual(page.js(TITLES), ["two"])
        page.picture("trash")
        page.js("[...document.querySelectorAll('.item button')].find(b => b.textContent === 'Restore')"
                ".click()")
        self.assertEqual(page.js(TITLES), ["two", "one"], "the trash is empty and the list is back")
        # For good, on confirmation only.
        page.js(delete)
        page.js("document.getElementById('trash').click()")
        page.js("window.confirm = () => false; document.querySelector('.item [aria-label^=\"Delete for good\"]').click()")
        self.assertEqual(page.js(TITLES), ["two"])
        page.js("window.confirm = () => true; document.querySelector('.item [aria-label^=\"Delete for good\"]').click()")
        self.assertEqual(page.js(TITLES), ["one"])
        self.settle(page)
        self.load(page)
        self.assertEqual(page.js("[conversations.size, document.getElementById('trash').hidden]"),
                         [1, True])

    def test_delete_all_can_be_undone(self):
        page = self.page
        for text in ("one", "two", "three"):
            page.js("fresh()")
            self.ask(page, text)
        page.js("document.getElementById('settings').click(); document.getElementById('forget').click()")
        self.assertEqual(page.js(TITLES), [])
        page.js("document.querySelector('#toast button').click()")
        self.assertEqual(page.js(TITLES), ["three", "two", "one"])

    def test_a_thousand_conversations_are_all_kept(self):
        page = self.page
        chats = [{"id": f"c{i}", "title": f"Title {i}", "used": i, "leaf": "b", "messages": [
            {"id": "a", "role": "user", "content": f"question {i} {'needle' * (i == 3)}"},
            {"id": "b", "parent": "a", "role": "assistant", "content": f"Reply {i}."}]}
            for i in range(1000)]
        file = json.dumps({"format": "ktx-conversations", "version": 1, "chats": chats})
        page.js(f"importConversations({json.dumps(file)})")
        self.ask(page, "one more")
        self.settle(page)
        self.load(page)
        self.assertEqual(page.js("kept().length"), 1001)
        # A hundred at a time, the newest first; all by the button.
        titles = page.js(TITLES)
        self.assertEqual([len(titles), titles[0], titles[1]], [100, "one more", "Title 999"])
        page.picture("many")
        for _ in range(10):
            page.js("[...document.querySelectorAll('#list button')]"
                    ".find(b => b.textContent.startsWith('Show more')).click()")
        self.assertEqual(len(page.js(TITLES)), 1001)
        # Search reads titles and messages, in any case.
        page.js("document.getElementById('search').value = 'NEEDLE'; $('search').oninput()")
        page.wait(f"{TITLES}.join() === 'Title 3'")
        self.assertIn("1 conversation found", page.js("document.getElementById('found').innerText"))
        page.picture("search")
        page.js("document.querySelector('.item .title').click()")
        page.wait(f"{SHOWN}.join() === 'question 3 needle,Reply 3.'")
        page.js("document.getElementById('search').value = 'title 77'; $('search').oninput()")
        page.wait(f"{TITLES}.length === 11")

    def test_search_finds_another_version_and_shows_it(self):
        page = self.page
        self.ask(page, "first")
        self.press(page, "Edit", 0)
        page.js("document.querySelector('.editor textarea').value = 'çà et là'")
        page.key("Enter", 13, text="\r")
        page.wait(f"{SHOWN}[1] === 'answer 2: çà et là' && document.getElementById('stop').hidden")
        self.settle(page)
        page.js("document.getElementById('search').value = 'answer 1'; $('search').oninput()")
        page.wait("document.querySelector('.snippet')?.innerText.includes('answer 1: first')")
        page.js("document.querySelector('.item .title').click()")
        page.wait(f"{SHOWN}[1] === 'answer 1: first'")
        page.js("document.getElementById('search').value = 'ÇÀ ET'; $('search').oninput()")
        page.wait("document.querySelector('.snippet')?.innerText.includes('çà et là')")

    # ---- answers that are cut off ----

    def test_a_reload_in_mid_answer_keeps_what_was_there(self):
        page = self.page
        self.type(page, "slow 200")
        page.wait(f"({SHOWN}[1] ?? '').includes('word30')")
        self.load(page)
        text = page.js(SHOWN)[1]
        self.assertIn("word25", text)
        self.assertNotIn("word199", text)
        page.wait("document.querySelector('.assistant .ending').innerText.startsWith('Cut off')")
        # Continue makes another version and asks with what was there.
        page.picture("cut-off")
        self.press(page, "Continue")
        page.wait(f"{SHOWN}[1].includes('word0') && document.getElementById('stop').hidden", 30)
        self.assertEqual(self.server.asked[-1]["messages"][-1]["role"], "assistant")
        self.assertIn("word25", self.server.asked[-1]["messages"][-1]["content"])
        self.assertEqual(self.versions(page), ["2/2"])
        self.assertTrue(page.js(SHOWN)[1].startswith(text.split(" word1 ")[0]))

    def test_a_crash_in_mid_answer_keeps_what_was_there(self):
        page = self.page
        self.type(page, "slow 200")
        page.wait(f"({SHOWN}[1] ?? '').includes('word60')")
        page.crash()
        page = self.tab()
        text = page.js(SHOWN)[1]
        self.assertIn("word20", text)
        page.wait("document.querySelector('.assistant .ending').innerText.startsWith('Cut off')")

    def test_a_server_that_ends_in_mid_answer(self):
        page = self.page
        for question, said in (("die 20", "the connection to the server was lost"),
                               ("end 20", "the connection ended before the answer did")):
            page.js("fresh()")
            self.ask(page, question)
            self.assertIn("word19", page.js(SHOWN)[1], question)
            self.assertEqual(page.js("document.querySelector('.error').innerText"), said)
            self.settle(page)
            self.load(page)
            self.assertIn("word19", page.js(SHOWN)[1])
            self.assertEqual(page.js("document.querySelector('.error').innerText"), said)
        self.ask(page, "and now")
        self.assertEqual([m["role"] for m in self.server.asked[-1]["messages"]],
                         ["user", "assistant", "user"], "what there was of it is a part of the talk")

    def test_a_server_that_is_gone_keeps_the_question(self):
        page = self.page
        page.js("{ const was = window.fetch; window.fetch = (url, more) => url.endsWith('completions')"
                " ? Promise.reject(new TypeError('Failed to fetch')) : was(url, more); }")
        self.ask(page, "anybody there")
        self.assertEqual(page.js("document.querySelector('.error').innerText"),
                         "the server does not answer")
        self.settle(page)
        self.load(page)
        self.assertEqual(page.js(SHOWN), ["anybody there", ""])
        self.ask(page, "and now")
        self.assertEqual(self.server.asked[-1]["messages"],
                         [{"role": "user", "content": "anybody there\n\nand now"}])

    def test_an_answer_at_its_limit_can_go_on(self):
        page = self.page
        self.ask(page, "length 3")
        self.assertIn("limit of tokens", page.js("document.querySelector('.assistant .ending').innerText"))
        self.press(page, "Continue")
        page.wait(f"{SHOWN}[1] === 'word0 word1 word2 word0 word1 word2'")
        self.settle(page)

    def test_an_answer_goes_on_while_another_conversation_is_read(self):
        page = self.page
        self.ask(page, "other")
        page.js("fresh()")
        self.type(page, "slow 40")
        page.wait(f"({SHOWN}[1] ?? '').includes('word5')")
        page.js("[...document.querySelectorAll('.item .title')].find(t => t.title === 'other').click()")
        page.wait(f"{SHOWN}[0] === 'other'")
        self.assertTrue(page.js("document.getElementById('stop').hidden"))
        self.assertEqual(page.js("document.querySelectorAll('.item.answering').length"), 1)
        page.wait("answers.size === 0")
        page.js("[...document.querySelectorAll('.item .title')].find(t => t.title === 'slow 40').click()")
        page.wait(f"{SHOWN}[0] === 'slow 40'")
        self.assertIn("word39", page.js(SHOWN)[1])

    def test_a_draft_outlives_a_reload(self):
        page = self.page
        self.ask(page, "first")
        page.js("document.getElementById('input').focus()")
        page.call("Input.insertText", text="half a thou")
        self.load(page)
        self.assertEqual(page.js("document.getElementById('input').value"), "half a thou")
        page.js("fresh()")
        self.assertEqual(page.js("document.getElementById('input').value"), "")

    # ---- two tabs ----

    def test_two_tabs_write_at_once_and_both_stay(self):
        first, second = self.page, self.tab()
        for i in range(3):
            first.js("fresh()")
            second.js("fresh()")
            self.type(first, f"slow 5 {i}".replace(f" {i}", ""))
            self.type(second, f"right {i}")
            self.ask(first, f"left {i}") if first.js("!answers.has(open)") else None
            for tab in (first, second):
                tab.wait("answers.size === 0")
        self.settle(first)
        self.settle(second)
        self.load(first)
        titles = first.js(TITLES)
        self.assertEqual(len(titles), 6, titles)
        for i in range(3):
            self.assertIn(f"right {i}", titles)
        second.wait(f"{TITLES}.length === 6")

    def test_two_tabs_in_one_conversation_make_branches(self):
        first = self.page
        self.ask(first, "begin")
        self.settle(first)
        second = self.tab()
        self.assertEqual(second.js(SHOWN), ["begin", "answer 1: begin"])
        # At once: neither has heard of the other's question.
        for tab in (first, second):
            tab.js("channel.onmessage = null")
        self.type(first, "left")
        self.type(second, "right")
        for tab in (first, second):
            tab.wait("answers.size === 0")
            self.settle(tab)
        third = self.tab()
        self.assertEqual(third.js("tree.byId.size"), 6)
        self.assertEqual(self.versions(third), ["2/2"])
        texts = {third.js(SHOWN)[2]}
        self.press(third, "‹", 2)
        texts.add(third.js(SHOWN)[2])
        self.assertEqual(texts, {"left", "right"})

    def test_another_tab_is_followed(self):
        first, second = self.page, self.tab()
        self.ask(first, "begin")
        second.wait(f"{TITLES}.join() === 'begin'")
        second.js("document.querySelector('.item .title').click()")
        second.wait(f"{SHOWN}.length === 2")
        self.type(first, "slow 60")
        second.wait("document.querySelector('[aria-busy=true] .ending')?.innerText"
                    ".includes('in another tab')")
        second.wait(f"({SHOWN}[3] ?? '').includes('word59')")
        second.wait("!document.querySelector('[aria-busy=true]')")
        # Deleted in one, gone from the other; gone on with, it is back.
        first.js("document.querySelector('.item [aria-label^=Delete]').click()")
        second.wait(f"{TITLES}.length === 0")
        self.ask(second, "still here")
        first.wait(f"{TITLES}.join() === 'begin'")

    def test_deleted_for_good_in_one_tab_stays_deleted(self):
        first, second = self.page, self.tab()
        self.type(second, "slow 60")
        first.wait(f"{TITLES}.length === 1")
        first.js("forgetChats([...conversations.keys()])")
        self.settle(first)
        second.wait("answers.size === 0")
        self.settle(second)
        self.load(first)
        self.assertEqual(first.js("conversations.size"), 0)

    # ---- what earlier pages kept ----

    OLD = [{"id": "new", "title": "Newest", "messages": [
        {"role": "user", "content": "q1"},
        {"role": "assistant", "content": "a1", "reasoning": "hm", "speed": "3 tokens"},
        {"role": "user", "content": "q2"},
        {"role": "assistant", "content": "", "error": "the server does not answer"}]},
        {"id": "old", "title": "Oldest", "messages": [{"role": "user", "content": "alone"},
                                                      {"role": "assistant", "content": "par",
                                                       "streaming": True}]}]

    def put_old(self, value):
        text = value if isinstance(value, str) else json.dumps(value)
        self.page.js(f"localStorage.setItem('ktx.chats', {json.dumps(text)})")
        self.load(self.page)

    def test_conversations_of_an_earlier_page_are_taken_over(self):
        page = self.page
        self.put_old(self.OLD)
        self.assertEqual(page.js(TITLES), ["Newest", "Oldest"])
        self.assertEqual(page.js(SHOWN), ["q1", "a1", "q2", ""])
        self.assertEqual(page.js("path()[1].reasoning"), "hm")
        self.assertEqual(page.js("localStorage.getItem('ktx.chats')"), None, "read back, then removed")
        self.load(page)
        self.assertEqual(page.js(TITLES), ["Newest", "Oldest"])
        # An old page in another tab writes on: what is new in it comes along, once.
        changed = json.loads(json.dumps(self.OLD))
        changed[0]["messages"][2]["content"] = "q2, edited there"
        for _ in range(2):
            self.put_old(changed)
            self.assertEqual(page.js("kept().length"), 2)
            self.assertEqual(page.js("tree.byId.size"), 6)
        # Deleted for good, it does not come back with the old text.
        page.js("forgetChats(['old'])")
        self.settle(page)
        self.put_old(self.OLD)
        self.assertEqual(page.js(TITLES), ["Newest"])

    def test_a_thousand_old_conversations_are_taken_over(self):
        self.put_old([{"id": f"i{i}", "title": f"T{i}",
                       "messages": [{"role": "user", "content": f"q{i}"}]} for i in range(1000)])
        self.assertEqual(self.page.js("kept().length"), 1000)
        self.assertEqual(self.page.js(TITLES)[0], "T0")

    def test_damaged_old_data_is_kept_and_said(self):
        page = self.page
        for damaged in ('[{"id": "x", "mess', '{"a": 1}', '"text"',
                        json.dumps(self.OLD + [None, 7, {"id": 5}, {"id": "bad", "messages": [
                            {"role": "user", "content": ["?"]}, {"role": "user", "content": "fine"}]}])):
            self.put_old(damaged)
            self.assertEqual(page.js("localStorage.getItem('ktx.chats')"), damaged)
            self.assertIn("damaged", page.js(NOTICES))
        self.assertEqual(sorted(page.js(TITLES)), ["Newest", "Oldest", "fine"])
        page.picture("damaged")
        page.js("[...document.querySelectorAll('.notice button')].find(b => b.textContent === 'Remove').click()")
        self.load(page)
        self.assertEqual(page.js(NOTICES), "")
        self.assertEqual(len(page.js(TITLES)), 3)

    def test_damaged_settings_do_no_harm(self):
        for damaged in ("null", "[]", '"x"', "7", "{", '{"temperature": {}, "dark": "?"}'):
            self.page.js(f"localStorage.setItem('ktx.settings', {json.dumps(damaged)})")
            self.load(self.page)
            self.ask(self.page, "still there?")

    def test_damaged_records_are_shown_as_far_as_they_go(self):
        page = self.page
        self.ask(page, "sound")
        self.settle(page)
        page.js("""(async () => {
            const transaction = database.transaction(['chats', 'messages'], 'readwrite');
            const [chats, messages] = ['chats', 'messages'].map(n => transaction.objectStore(n));
            chats.put({id: 'odd', title: {}, used: 1e300, leaf: 'nowhere', trashed: 'maybe'});
            chats.put({id: 7});
            const say = (chat, id, parent, more) => messages.put({chat, id, parent, seq: 1, role: 'user',
              content: id, ...more});
            say('odd', 'root', null);
            say('odd', 'orphan', 'missing');
            say('odd', 'ring1', 'ring2');
            say('odd', 'ring2', 'ring1');
            say('odd', 'no text', null, {content: 5});
            say('odd', 'no role', null, {role: 'wizard'});
            say('lost', 'a message without its conversation', null);
            messages.put({chat: 3, id: 4});
            await committed(transaction);
        })()""")
        self.load(page)
        self.assertEqual(sorted(page.js(TITLES)), ["New chat", "a message without its conversation",
                                                   "sound"])
        page.js("openChat('odd')")
        page.wait("open === 'odd'")
        self.assertEqual(page.js("tree.byId.size"), 4)
        self.assertEqual(page.js("tree.below.get(null).length"), 3, "the ring is cut once")
        page.js("showVersion(path()[0], -1)")
        self.assertTrue(page.js(SHOWN))

    # ---- storage that fails ----

    def test_full_storage_is_said_and_nothing_is_lost(self):
        page = self.page
        self.ask(page, "before")
        self.settle(page)
        page.js("""IDBObjectStore.prototype.realPut = IDBObjectStore.prototype.put;
            IDBObjectStore.prototype.put = function (record) {
              if (record.gone) return this.realPut(record);
              throw new DOMException('full', 'QuotaExceededError');
            }""")
        self.ask(page, "while it is full")
        page.wait(f"{NOTICES}.includes('storage for this page is full')")
        page.picture("full")
        self.assertEqual(page.js(SHOWN)[2:], ["while it is full", "answer 2: while it is full"])
        self.assertIn("while it is full", page.js("exportConversations().then(p => p.join(''))"))
        self.assertIs(page.js("(() => { const e = new Event('beforeunload', {cancelable: true}); "
                              "dispatchEvent(e); return e.defaultPrevented; })()"), True)
        # Another conversation is looked at, and this one again.
        chat = page.js("open")
        page.js("fresh()")
        page.js(f"openChat('{chat}')")
        page.wait(f"{SHOWN}.length === 4")
        # There is room again.
        page.js("IDBObjectStore.prototype.put = IDBObjectStore.prototype.realPut")
        page.js("[...document.querySelectorAll('.notice button')].find(b => b.textContent === 'Try again').click()")
        self.settle(page)
        page.wait(f"{NOTICES} === ''")
        self.load(page)
        self.assertEqual(len(page.js(SHOWN)), 4)

    def test_the_quota_of_the_browser_itself(self):
        page = self.page
        self.ask(page, "before")
        self.settle(page)
        page.call("Storage.overrideQuotaForOrigin", origin=self.server.url, quotaSize=300000)
        self.ask(page, "x" * 1000000)
        page.wait(f"{NOTICES}.includes('storage for this page is full')")
        page.call("Storage.overrideQuotaForOrigin", origin=self.server.url)
        page.js("flush()")
        self.settle(page)
        page.wait(f"{NOTICES} === ''")

    def test_without_a_database_the_page_works_and_says_so(self):
        self.page.close()
        forbidden = ("Object.defineProperty(window, 'indexedDB', {get() { "
                     "throw new DOMException('denied', 'SecurityError'); }});")
        silent = "IDBFactory.prototype.open = () => ({});"
        broken = ("IDBFactory.prototype.open = () => { const r = {error: new DOMException('broken', "
                  "'UnknownError')}; setTimeout(() => r.onerror()); return r; };")
        nothing = forbidden + ("for (const name of ['localStorage', 'sessionStorage']) "
                               "Object.defineProperty(window, name, {get() { "
                               "throw new DOMException('denied', 'SecurityError'); }});")
        missing = forbidden + "delete window.BroadcastChannel;"
        for before in (forbidden, silent, broken, nothing, missing):
            page = self.tab(before)
            self.assertIn("does not keep conversations here", page.js(NOTICES), before)
            self.ask(page, "first")
            page.js("fresh()")
            self.ask(page, "second")
            self.assertEqual(page.js(TITLES), ["second", "first"])
            page.js("document.querySelectorAll('.item .title')[1].click()")
            page.wait(f"{SHOWN}[0] === 'first'")
            page.js("document.querySelector('.item [aria-label^=Delete]').click()")
            self.assertEqual(page.js(TITLES), ["first"])
            self.assertIn("second", page.js("exportConversations().then(p => p.join(''))"))
            page.picture("private")
            page.close()

    def test_old_conversations_are_shown_without_a_database(self):
        self.page.js(f"localStorage.setItem('ktx.chats', {json.dumps(json.dumps(self.OLD))})")
        self.page.close()
        page = self.tab("IDBFactory.prototype.open = () => { throw new DOMException('no', 'UnknownError'); };")
        self.assertEqual(page.js(TITLES), ["Newest", "Oldest"])
        self.assertEqual(page.js("JSON.parse(localStorage.getItem('ktx.chats')).length"), 2)

    def test_a_database_that_is_deleted_under_the_page(self):
        page = self.page
        self.ask(page, "first")
        page.js("new Promise(done => { const r = indexedDB.deleteDatabase('ktx'); "
                "r.onsuccess = r.onerror = done; })")
        self.ask(page, "second")
        self.settle(page)
        self.load(page)
        self.assertEqual(page.js(TITLES), ["first"])
        self.assertEqual(page.js(SHOWN)[-2:], ["second", "answer 2: second"])

    # ---- files ----

    def test_an_export_is_imported_elsewhere_and_never_overwrites(self):
        page = self.page
        self.ask(page, "first")
        self.press(page, "Retry", 1)
        page.wait(f"{SHOWN}[1] === 'answer 2: first'")
        page.js("fresh()")
        self.ask(page, "second")
        self.settle(page)
        file = page.js("exportConversations().then(p => p.join(''))")
        self.assertEqual(len(json.loads(file)["chats"]), 2)
        other = self.chromium.context()
        here, self.context = self.context, other
        try:
            there = self.tab()
            self.assertIn("2 conversations with 5 messages",
                          there.js(f"importConversations({json.dumps(file)})"))
            self.settle(there)
            self.load(there)
            self.assertEqual(there.js(TITLES), ["second", "first"])
            there.js("document.querySelectorAll('.item .title')[1].click()")
            there.wait(f"{SHOWN}[1] === 'answer 2: first'")
            self.assertEqual(self.versions(there), ["2/2"])
            self.ask(there, "more")
            self.settle(there)
            # Again: nothing twice, nothing of what came since is lost.
            self.assertIn("2 were here already", there.js(f"importConversations({json.dumps(file)})"))
            self.assertEqual(there.js("tree.byId.size"), 5)
            # The same ids with other texts are other versions.
            changed = file.replace("answer 2: first", "forged").replace('"title":"first"', '"title":"forged"')
            there.js(f"importConversations({json.dumps(changed)})")
            self.settle(there)
            self.load(there)
            self.assertEqual(there.js("[tree.byId.size, current().title]"), [6, "first"])
            self.assertIn("answer 2: first", there.js(SHOWN))
        finally:
            self.context = here
            self.chromium.forget(other)

    def test_a_file_that_is_none_is_refused(self):
        page = self.page
        self.ask(page, "first")
        for text, said in (("{", "not JSON"), ("{}", "holds no conversations"), ("7", "holds no"),
                           ('{"format": "ktx-conversations", "version": 2, "chats": []}', "version is 2")):
            page.js(f"importFile(new File([{json.dumps(text)}], 'a.json'))")
            self.assertIn("a.json was not imported", page.js(NOTICES))
            self.assertIn(said, page.js(NOTICES))
        evil = {"format": "ktx-conversations", "version": 1, "chats": [
            {"id": "__proto__", "title": "<img src=x onerror=alert(1)>", "messages": [
                {"id": "constructor", "role": "assistant", "content": "<img src=x onerror=alert(1)>",
                 "tool_calls": [{"function": {"name": "<b>"}}], "error": "<i>", "speed": "<u>"},
                {"id": "constructor", "role": "user", "content": 7}, 5, None]}, {"id": ""}, 3]}
        page.js(f"importFile(new File([{json.dumps(json.dumps(evil))}], 'a.json'))")
        self.assertIn("1 conversation with 1 message; 5 entries could not be read", page.js(NOTICES))
        page.js("openChat('__proto__')")
        page.wait("open === '__proto__'")
        self.assertEqual(page.js("document.querySelectorAll('img, main i, main u').length"), 0)
        self.settle(page)

    def test_the_file_can_be_saved_and_chosen(self):
        page = self.page
        with tempfile.TemporaryDirectory() as folder:
            self.chromium.send(None, "Browser.setDownloadBehavior", behavior="allow",
                               browserContextId=self.context, downloadPath=folder)
            self.ask(page, "first")
            page.js("document.getElementById('settings').click(); document.getElementById('export').click()")
            for _ in range(100):
                names = [n for n in os.listdir(folder) if n.endswith(".json")]
                if names:
                    break
                time.sleep(0.05)
            self.assertRegex(names[0], r"^ktx-conversations-\d{4}-\d\d-\d\d\.json$")
            page.js("forgetChats([...conversations.keys()])")
            node = page.call("DOM.getDocument")["root"]["nodeId"]
            found = page.call("DOM.querySelector", nodeId=node, selector="#import-file")["nodeId"]
            page.call("DOM.setFileInputFiles", nodeId=found, files=[os.path.join(folder, names[0])])
            page.wait(f"{NOTICES}.includes('Imported 1 conversation with 2 messages')")
            self.assertEqual(page.js(TITLES), ["first"])
            self.settle(page)


if __name__ == "__main__":
    unittest.main(verbosity=2)
