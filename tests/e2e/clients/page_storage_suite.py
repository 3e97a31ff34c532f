"""What the page at / keeps: versions, deleted conversations, answers that were cut off, two tabs.

Run by run.py. What storage does to it: page_trouble_suite.py.
"""
import json
import time
import unittest

from page_case import SHOWN, TITLES, PageCase


class Storage(PageCase):
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
        self.assertEqual(
            self.server.asked[-1]["messages"], [{"role": "user", "content": "changed"}]
        )
        self.assertEqual(self.versions(page), ["2/2"])
        self.settle(page)
        self.load(page)
        self.assertEqual(page.js(SHOWN), ["changed", "answer 3: changed"])
        self.press(page, "‹", 0)
        self.assertEqual(page.js(SHOWN), before, "with all that followed")
        self.assertEqual(self.versions(page), ["1/2"])
        self.assertEqual(
            page.js("document.activeElement.dataset.action"), "next", "for the keyboard"
        )
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
        page.js(
            "[...document.querySelectorAll('.item button')].find(b => b.textContent === 'Restore')"
            ".click()"
        )
        self.assertEqual(page.js(TITLES), ["two", "one"], "the trash is empty and the list is back")
        # For good, on confirmation only.
        page.js(delete)
        page.js("document.getElementById('trash').click()")
        page.js("window.confirm = () => false")
        self.click(page, ".item [aria-label^='Delete for good']")
        self.assertEqual(page.js(TITLES), ["two"])
        page.js("window.confirm = () => true")
        self.click(page, ".item [aria-label^='Delete for good']")
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
        page.js(
            "document.getElementById('settings').click(); document.getElementById('forget').click()"
        )
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
        page.wait(f"{SHOWN}[1] === 'answer 2: çà et là' && answers.size === 0")
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
        # Saved every half second: what is older than that is there.
        page.wait(f"({SHOWN}[1] ?? '').includes('word80')")
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

    WORDS = "".join(f"word{i} " for i in range(40))

    def test_a_reload_goes_on_with_the_answer(self):
        page = self.page
        self.server.keeps = True
        self.type(page, "slow 40")
        page.wait("path()[1]?.content.includes('word3')")
        self.load(page)
        page.wait("path()[1]?.content.includes('word8')")
        self.load(page)
        page.wait("path()[1]?.state === 'done'")
        self.assertGreaterEqual(self.server.read_again, 1)
        self.assertEqual(page.js("path()[1].content"), self.WORDS, "no word is lost or there twice")
        self.assertEqual(len(self.server.asked), 1, "it was computed once")
        self.assertEqual(page.js("path()[1].stream ?? path()[1].before ?? ''"), "")
        self.settle(page)
        # Ended, it is not asked for again.
        times = self.server.read_again
        self.load(page)
        page.wait("path()[1]?.state === 'done'")
        self.assertEqual(self.server.read_again, times)

    def test_a_continued_answer_goes_on_behind_its_beginning(self):
        page = self.page
        self.ask(page, "length 5")
        self.server.keeps = True
        page.js("path()[0].content = 'slow 40'")
        self.press(page, "Continue")
        page.wait("path()[1]?.content.includes('word7')")
        self.load(page)
        page.wait("path()[1]?.state === 'done'")
        self.assertEqual(page.js("path()[1].content"), self.WORDS[:30] + self.WORDS)

    def test_an_answer_that_goes_on_can_be_stopped(self):
        page = self.page
        self.server.keeps = True
        self.type(page, "slow 2000")
        page.wait("path()[1]?.content.includes('word3')")
        self.load(page)
        page.wait("path()[1]?.content.includes('word8') && answers.size === 1")
        self.click(page, "#stop")
        page.wait("path()[1]?.state === 'stopped'")
        for _ in range(100):
            if not self.server.streams:
                break
            time.sleep(0.05)
        self.assertEqual(self.server.streams, {}, "the server ends it as well")

    def test_a_lost_connection_is_taken_up_again(self):
        page = self.page
        self.server.keeps = True
        self.ask(page, "die 20")
        self.assertEqual(page.js("path()[1].content"), self.WORDS)
        self.assertEqual(page.js("path()[1].state"), "done")

    def test_one_tab_reads_an_answer(self):
        page, other = self.page, self.tab()
        self.server.keeps = True
        self.type(page, "slow 400")
        page.wait("path()[1]?.content.includes('word3')")
        other.wait("kept().length === 1")
        other.js("openChat(kept()[0].id)")
        other.wait("path()[1]?.content.includes('word8')")
        self.assertEqual(self.server.read_again, 0)
        # Its tab is closed: the other one takes it over.
        page.close()
        other.wait("path()[1]?.state === 'done'")
        self.assertEqual(other.js("path()[1].content"), "".join(f"word{i} " for i in range(400)))
        self.assertEqual(self.server.read_again, 1)

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
        self.assertEqual(
            [m["role"] for m in self.server.asked[-1]["messages"]],
            ["user", "assistant", "user"],
            "what there was of it is a part of the talk",
        )

    def test_a_server_that_is_gone_keeps_the_question(self):
        page = self.page
        page.js(
            "{ const was = window.fetch; window.fetch = (url, more) => url.endsWith('completions')"
            " ? Promise.reject(new TypeError('Failed to fetch')) : was(url, more); }"
        )
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
        self.assertIn(
            "limit of tokens", page.js("document.querySelector('.assistant .ending').innerText")
        )
        self.press(page, "Continue")
        page.wait(f"{SHOWN}[1] === 'word0 word1 word2 word0 word1 word2'")
        self.settle(page)

    def test_an_answer_goes_on_while_another_conversation_is_read(self):
        page = self.page
        self.ask(page, "other")
        page.js("fresh()")
        self.type(page, "slow 40")
        page.wait(f"({SHOWN}[1] ?? '').includes('word5')")
        self.click(page, ".item .title", "other")
        page.wait(f"{SHOWN}[0] === 'other'")
        self.assertTrue(page.js("document.getElementById('stop').hidden"))
        self.assertEqual(page.js("document.querySelectorAll('.item.answering').length"), 1)
        page.wait("answers.size === 0")
        self.click(page, ".item .title", "slow 40")
        page.wait(f"{SHOWN}[0] === 'slow 40'")
        self.assertIn("word39", page.js(SHOWN)[1])

    def test_a_draft_outlives_a_reload(self):
        page = self.page
        # An example of an empty conversation leaves what is typed alone.
        page.js("document.getElementById('input').value = 'typed'")
        self.click(page, ".empty button", "Name three rivers.")
        page.wait(f"{SHOWN}.length === 2 && answers.size === 0")
        self.assertEqual(page.js("document.getElementById('input').value"), "typed")
        page.js("document.getElementById('input').value = ''")
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
            self.type(first, f"left {i}")
            self.type(second, f"right {i}")
            for tab in (first, second):
                tab.wait("answers.size === 0")
        self.settle(first)
        self.settle(second)
        self.load(first)
        titles = first.js(TITLES)
        self.assertEqual(sorted(titles), [f"{side} {i}" for side in ("left", "right")
                                          for i in range(3)])
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
        # Neither came first: which one is shown is not said.
        shown = self.versions(third)
        self.assertIn(shown, (["1/2"], ["2/2"]))
        texts = {third.js(SHOWN)[2]}
        self.press(third, "‹" if shown == ["2/2"] else "›", 2)
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


if __name__ == "__main__":
    unittest.main(verbosity=1)
