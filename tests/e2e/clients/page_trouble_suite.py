"""The page at / over storage that is old, damaged, full or forbidden, and its files.

Run by run.py.
"""

import json
import os
import tempfile
import time
import unittest

from page_case import NOTICES, SHOWN, TITLES, PageCase


class Trouble(PageCase):
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
        self.assertEqual(
            page.js("localStorage.getItem('ktx.chats')"), None, "read back, then removed"
        )
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
        for damaged in (
            '[{"id": "x", "mess',
            '{"a": 1}',
            '"text"',
            json.dumps(
                self.OLD
                + [
                    None,
                    7,
                    {"id": 5},
                    {
                        "id": "bad",
                        "messages": [
                            {"role": "user", "content": ["?"]},
                            {"role": "user", "content": "fine"},
                        ],
                    },
                ]
            ),
        ):
            self.put_old(damaged)
            self.assertEqual(page.js("localStorage.getItem('ktx.chats')"), damaged)
            self.assertIn("damaged", page.js(NOTICES))
        self.assertEqual(sorted(page.js(TITLES)), ["Newest", "Oldest", "fine"])
        page.picture("damaged")
        self.click(page, ".notice button", "Remove")
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
            const say = (chat, id, parent, more) => messages.put(
              {chat, id, parent, seq: 1, role: 'user', content: id, ...more});
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
        self.assertIn("in this tab only: 2 messages", page.js(NOTICES))
        # Dismissed, it comes back with the next message that is not kept.
        self.click(page, ".notice [aria-label=Dismiss]")
        self.assertEqual(page.js(NOTICES), "")
        self.ask(page, "and still")
        page.wait(f"{NOTICES}.includes('in this tab only: 4 messages')")
        self.assertEqual(page.js(SHOWN)[2:4], ["while it is full", "answer 2: while it is full"])
        self.assertIn("while it is full", page.js("exportConversations().then(p => p.join(''))"))
        self.assertIs(page.js("(() => { const e = new Event('beforeunload', {cancelable: true}); "
                              "dispatchEvent(e); return e.defaultPrevented; })()"), True)
        # Another conversation is looked at, and this one again.
        chat = page.js("open")
        page.js("fresh()")
        page.js(f"openChat('{chat}')")
        page.wait(f"{SHOWN}.length === 6")
        # There is room again.
        page.js("IDBObjectStore.prototype.put = IDBObjectStore.prototype.realPut")
        self.click(page, ".notice button", "Try again")
        self.settle(page)
        page.wait(f"{NOTICES} === ''")
        self.load(page)
        self.assertEqual(len(page.js(SHOWN)), 6)

    def test_without_a_database_the_page_works_and_says_so(self):
        self.page.close()
        forbidden = ("Object.defineProperty(window, 'indexedDB', {get() { "
                     "throw new DOMException('denied', 'SecurityError'); }});")
        silent = "IDBFactory.prototype.open = () => ({});"
        broken = (
            "IDBFactory.prototype.open = () => { const r = {error: new DOMException('broken', "
            "'UnknownError')}; setTimeout(() => r.onerror()); return r; };"
        )
        nothing = forbidden + ("for (const name of ['localStorage', 'sessionStorage']) "
                               "Object.defineProperty(window, name, {get() { "
                               "throw new DOMException('denied', 'SecurityError'); }});")
        missing = forbidden + "delete window.BroadcastChannel;"
        for before in (forbidden, silent, broken, nothing, missing):
            page = self.tab(before)
            self.assertIn("does not keep conversations here", page.js(NOTICES), before)
            self.ask(page, "first")
            self.click(page, ".notice [aria-label=Dismiss]")
            page.js("fresh()")
            self.ask(page, "second")
            self.assertEqual(page.js(NOTICES), "", "once is enough")
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
        page = self.tab(
            "IDBFactory.prototype.open = () => { throw new DOMException('no', 'UnknownError'); };"
        )
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
            self.assertIn(
                "2 were here already", there.js(f"importConversations({json.dumps(file)})")
            )
            self.assertEqual(there.js("tree.byId.size"), 5)
            # The same ids with other texts are other versions.
            changed = file.replace("answer 2: first", "forged").replace(
                '"title":"first"', '"title":"forged"'
            )
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
        for text, said in (
            ("{", "not JSON"),
            ("{}", "holds no conversations"),
            ("7", "holds no"),
            ('{"format": "ktx-conversations", "version": 2, "chats": []}', "version is 2"),
        ):
            page.js(f"importFile(new File([{json.dumps(text)}], 'a.json'))")
            self.assertIn("a.json was not imported", page.js(NOTICES))
            self.assertIn(said, page.js(NOTICES))
        evil = {
            "format": "ktx-conversations",
            "version": 1,
            "chats": [
                {
                    "id": "__proto__",
                    "title": "<img src=x onerror=alert(1)>",
                    "messages": [
                        {
                            "id": "constructor",
                            "role": "assistant",
                            "content": "<img src=x onerror=alert(1)>",
                            "tool_calls": [{"function": {"name": "<b>"}}],
                            "error": "<i>",
                            "speed": "<u>",
                        },
                        {"id": "constructor", "role": "user", "content": 7},
                        5,
                        None,
                    ],
                },
                {"id": ""},
                3,
            ],
        }
        page.js(f"importFile(new File([{json.dumps(json.dumps(evil))}], 'a.json'))")
        self.assertIn("1 conversation with 1 message; 5 parts could not be read", page.js(NOTICES))
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
            self.click(page, "#settings")
            self.click(page, "#export")
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
    unittest.main(verbosity=1)
