"""The programs of two coding agents, unchanged, each for a session of ten turns with tools against
our server: run by run.py. The model is scripted: after N results of tools it says the N-th call.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import zlib

from scripted_gguf import write_scripted

BUILD = pathlib.Path(os.environ["KTX_BUILD"])
# A digest of the conversation, so that prompts are short; the number of results picks the script.
TEMPLATE = (
    "{# <tool_call> #}{%- set ns = namespace(n=0) -%}"
    "{%- for m in messages -%}{%- if m.role == 'tool' -%}{%- set ns.n = ns.n + 1 -%}{%- endif -%}"
    "<|im_start|>{{ m.role }}\n{{ m.content[:80] if m.content else '' }}<|im_end|>\n{%- endfor -%}"
    "{%- if tools -%}{%- for t in tools -%}{{ t.function.name }} {% endfor -%}{%- endif -%}"
    "{%- if add_generation_prompt -%}<|im_start|>assistant\n<|k{{ ns.n }}|>{%- endif -%}")
FINAL = "The session is over."


def call(name, **arguments):
    return ("I go on.\n<tool_call>\n" + json.dumps({"name": name, "arguments": arguments})
            + "\n</tool_call>")


def png():
    """A picture of one pixel."""
    def chunk(kind, data):
        return (len(data).to_bytes(4, "big") + kind + data
                + zlib.crc32(kind + data).to_bytes(4, "big"))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", b"\0\0\0\1\0\0\0\1\x08\2\0\0\0")
            + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"IEND", b""))


def package_file(package, *parts):
    """A program within an installed package, or a reason to skip."""
    try:
        folder = pathlib.Path(__import__(package).__file__).parent
    except ImportError as error:
        raise unittest.SkipTest(f"{package} is not installed") from error
    path = folder.joinpath(*parts)
    if not path.exists():
        raise unittest.SkipTest(f"{package} has no {path.name}")
    return path


class Session:
    """A server with a scripted model, and a folder for the agent to work in."""

    def __init__(self, calls):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ktx-agents-"))
        self.work, self.home = self.folder / "work", self.folder / "home"
        self.work.mkdir()
        self.home.mkdir()
        (self.work / "dot.png").write_bytes(png())
        (self.work / "notes.txt").write_text("first line\nsecond line\n")
        gguf, plan = self.folder / "m.gguf", self.folder / "scripted.ktxplan"
        write_scripted(gguf, TEMPLATE, [*calls, FINAL], 8192)
        subprocess.run([BUILD / "ktx-compile", "-q", gguf, "-o", plan], check=True)
        self.log, self.access = self.folder / "log", self.folder / "access"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [BUILD / "ktx-run", "serve", plan, "--port=0", "--temp=0", "-t", "1",
                 "--max-batch=2", "--access-log", self.access], stderr=log)
        while self.process.poll() is None:
            text = self.log.read_text()
            if "is ready" in text:
                self.url = re.search(r"listening on (\S+)", text)[1]
                return
            time.sleep(0.1)
        raise RuntimeError(f"the server did not start: {text}")

    def run(self, *command, **variables):
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "TERM": "dumb",
                       # No host but the server can be reached.
                       "HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9",
                       "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", **variables}
        return subprocess.run([str(word) for word in command], cwd=self.work, env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)

    def requests(self, path):
        lines = [json.loads(line) for line in self.access.read_text().splitlines()]
        return [line for line in lines if line["path"].startswith(path)]

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Agents(unittest.TestCase):
    def session(self, calls):
        session = Session(calls)
        self.addCleanup(session.close)
        return session

    def test_codex(self):
        codex = package_file("codex_cli_bin", "bin", "codex")
        shell = lambda command: call("exec_command", cmd=command)
        session = self.session([
            shell("cat notes.txt"), call("view_image", path="dot.png"), shell("echo two > two.txt"),
            call("multi_agent_v1__close_agent", target="nobody"), call("get_goal"),
            shell("cat two.txt"), shell("exit 3"),
            shell("apply_patch <<'E'\n*** Begin Patch\n*** Update File: notes.txt\n@@\n-first line\n"
                  "+changed line\n*** End Patch\nE"),
            call("no_such_tool", a=1), shell("cat notes.txt")])
        config = session.home / "config.toml"
        config.write_text(f'''model = "scripted"
model_provider = "ktx"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.ktx]
name = "ktx"
base_url = "{session.url}/v1"
wire_api = "responses"
''')
        options = ["--skip-git-repo-check", "--json", "--dangerously-bypass-approvals-and-sandbox"]
        done = session.run(codex, "exec", *options, "Go on until the session is over.",
                           CODEX_HOME=str(session.home))
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-2000:])
        self.assertIn(FINAL, done.stdout)
        self.assertEqual((session.work / "two.txt").read_text(), "two\n")
        self.assertIn("changed line", (session.work / "notes.txt").read_text(), done.stdout[-4000:])
        asked = session.requests("/v1/responses")
        self.assertEqual([line["status"] for line in asked], [200] * 11, done.stdout[-3000:])
        # A second question in the same session brings the whole history back.
        again = session.run(codex, "exec", *options, "resume", "--last", "And now?",
                            CODEX_HOME=str(session.home))
        self.assertEqual(again.returncode, 0, again.stdout[-3000:] + again.stderr[-2000:])
        self.assertIn(FINAL, again.stdout)
        self.assertEqual(session.requests("/v1/responses")[-1]["status"], 200)

    def test_claude_code(self):
        claude = package_file("claude_agent_sdk", "_bundled", "claude")
        session = self.session([
            call("Bash", command="echo one > one.txt", description="writes"),
            call("Read", file_path="notes.txt"), call("Read", file_path="dot.png"),
            call("Write", file_path="three.txt", content="3\n"), call("Bash", command="cat three.txt"),
            call("ToolSearch", query="select:WebFetch", max_results=2),
            call("Edit", file_path="notes.txt", old_string="first", new_string="changed"),
            call("Bash", command="exit 4"), call("NoSuchTool", a=1),
            call("Bash", command="cat notes.txt")])
        options = ["--output-format", "stream-json", "--verbose", "--allowedTools",
                   "Bash,Read,Write,Edit,ToolSearch"]
        variables = {"ANTHROPIC_BASE_URL": session.url, "ANTHROPIC_API_KEY": "none",
                     "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1",
                     "DISABLE_TELEMETRY": "1"}
        done = session.run(claude, "-p", "Go on until the session is over.", *options, **variables)
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-2000:])
        events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        self.assertEqual(events[-1]["result"], FINAL, done.stdout[-3000:])
        self.assertEqual((session.work / "one.txt").read_text(), "one\n")
        self.assertEqual((session.work / "three.txt").read_text(), "3\n", done.stdout[-4000:])
        self.assertIn("changed line", (session.work / "notes.txt").read_text())
        asked = session.requests("/v1/messages")
        self.assertEqual({line["status"] for line in asked}, {200})
        self.assertGreaterEqual(len(asked), 11)
        again = session.run(claude, "-p", "--continue", "And now?", *options, **variables)
        self.assertEqual(again.returncode, 0, again.stdout[-3000:] + again.stderr[-2000:])
        self.assertEqual({line["status"] for line in session.requests("/v1/messages")}, {200})


if __name__ == "__main__":
    unittest.main(verbosity=1)
