#!/usr/bin/env python3
"""Runs the official clients, unchanged, against `ktx-run serve`.

    tests/e2e/clients/run.py BUILD_FOLDER SUITE

Suites: openai, ollama, anthropic, images, structured, frameworks, agents, page, page_input,
page_storage, page_trouble.

The packages are installed into BUILD_FOLDER/clients-venv (those of `structured`, `frameworks` and
`agents` into folders of their own) once. Exit status: 0 all passed,
1 something failed, 77 skipped (no network, no venv, no browser): the reason is printed.
"""
import fcntl
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from tower_gguf import TEMPLATE, write_tower

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PACKAGES = ["openai", "ollama", "anthropic"]
# In a folder of their own: what they need must not choose the versions of the others.
MORE_PACKAGES = {"structured": ["instructor", "jsonschema"],
                 "frameworks": ["litellm", "langchain-openai", "langchain-ollama", "outlines",
                                "llama-index-llms-openai-like"],
                 # The programs of Codex CLI and Claude Code.
                 "agents": ["openai-codex-cli-bin>=0.163", "claude-agent-sdk>=0.2.180"]}


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(77)


def prepare_venv(build, suite):
    """The Python of a virtual environment that has the packages."""
    more = MORE_PACKAGES.get(suite, [])
    packages = more if suite == "agents" else PACKAGES + more
    folder = build / (f"clients-venv-{suite}" if more else "clients-venv")
    # Suites run side by side, and two of them share a folder.
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return install(folder, packages)


def install(folder, packages):
    python, stamp = folder / "bin" / "python", folder / "ready"
    if stamp.exists() and stamp.read_text() == " ".join(packages):
        return python
    if (folder / "failed").exists() and time.time() - (folder / "failed").stat().st_mtime < 600:
        skip("the packages could not be installed some minutes ago")
    try:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, capture_output=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check",
                        "--retries", "1", "--timeout", "10", *packages],
                       check=True, capture_output=True, timeout=480)
    except (subprocess.SubprocessError, OSError) as error:
        if folder.exists():
            (folder / "failed").touch()
        detail = getattr(error, "stderr", b"") or b""
        skip(f"cannot install {packages}: {detail.decode(errors='replace')[-300:] or error}")
    stamp.write_text(" ".join(packages))
    return python


def gguf_of(model):
    """Some of the tests' models are not in the repository."""
    for root in (ROOT / "tests/models", ROOT.parent / "shared/models"):
        path = root / model / f"{model}-q4_k_m.gguf"
        if path.exists():
            return path
    skip(f"no model {model} here")


class Puller:
    """ktx-run serve --allow-pull of an empty folder, and a hub on this machine that it fetches from."""

    def __init__(self, build):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ktx-clients-"))
        files = self.folder / "hub/o/small-GGUF"
        files.mkdir(parents=True)
        (self.folder / "models").mkdir()
        shutil.copy(gguf_of("llama"), files / "small-Q4_K_M.gguf")
        self.hub = subprocess.Popen(
            [sys.executable, HERE.parent / "hub/fake_hub.py", self.folder / "hub", "--log",
             self.folder / "hub.log"], stdout=subprocess.PIPE, text=True)
        environment = dict(os.environ, KTX_CACHE=str(self.folder / "cache"), HF_TOKEN="",
                           HF_ENDPOINT=f"http://127.0.0.1:{self.hub.stdout.readline().strip()}",
                           no_proxy="*")
        self.process, self.url = start(
            [build / "ktx-run", "serve", self.folder / "models", "--allow-pull", "--port=0"],
            self.folder / "log", environment)

    def close(self):
        self.hub.kill()
        return end(self.process, self.folder)


def start(command, log, environment=None):
    """A server, and its address."""
    with open(log, "w") as out:
        process = subprocess.Popen(command, stderr=out, env=environment)
    while process.poll() is None:
        text = log.read_text()
        if "is ready" in text:
            return process, re.search(r"listening on (\S+)", text)[1]
        time.sleep(0.1)
    sys.exit(f"the server did not start: {log.read_text()}")


def end(process, folder):
    process.send_signal(signal.SIGTERM)
    status = process.wait()
    shutil.rmtree(folder)
    return status


class Server:
    """ktx-run serve with a small model on a free port."""

    def __init__(self, build, *options, model="qwen3moe", sees=False):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ktx-clients-"))
        plan = self.folder / f"{model}.ktxplan"
        gguf = gguf_of(model)
        more = []
        if sees:
            write_tower(self.folder / "mmproj.gguf", width=256)
            more = ["--mmproj", self.folder / "mmproj.gguf"]
            (self.folder / "template.jinja").write_text(TEMPLATE)
            options = [*options, "--chat-template-file", self.folder / "template.jinja"]
        subprocess.run([build / "ktx-compile", "-q", gguf, "-o", plan, *more], check=True)
        self.process, self.url = start([build / "ktx-run", "serve", plan, "--port=0", *options],
                                       self.folder / "log")

    def close(self):
        return end(self.process, self.folder)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, suite = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    python = sys.executable if suite.startswith("page") else prepare_venv(build, suite)
    browser = None
    if suite.startswith("page"):
        names = ("chromium", "chromium-browser", "google-chrome")
        browser = next(filter(None, map(shutil.which, names)), None)
        if browser is None:
            skip("no Chromium here")
    if suite == "agents":  # whose models are its own
        environment = dict(os.environ, KTX_BUILD=str(build), PYTHONDONTWRITEBYTECODE="1")
        sys.exit(subprocess.run([python, HERE / "agents_suite.py"], env=environment).returncode)
    sees = suite == "images"
    server = Server(build, "--max-batch", "4", "--max-queue", "64",
                    model="gemma3" if sees else "qwen3moe", sees=sees)
    # One that asks for a key and is soon full.
    narrow = None
    # One whose model reasons.
    reasoner = Server(build, model="deepseek3") if suite in ("openai", "ollama") else None
    puller = Puller(build) if suite == "ollama" else None
    if suite == "openai":
        narrow = Server(build, "--api-key", "secret", "--max-batch", "1", "--max-queue", "1")
    environment = dict(os.environ, KTX_URL=server.url,
                       KTX_NARROW_URL=narrow.url if narrow else "",
                       KTX_PULL_URL=puller.url if puller else "",
                       KTX_REASONER_URL=reasoner.url if reasoner else "", KTX_BROWSER=browser or "",
                       NO_PROXY="*", no_proxy="*", PYTHONDONTWRITEBYTECODE="1")
    status = subprocess.run([python, HERE / f"{suite}_suite.py"], env=environment).returncode
    ended = max([each.close() for each in (server, narrow, reasoner, puller) if each], key=abs)
    if ended != 0:
        print(f"the server ended with status {ended}")
    sys.exit(status or ended)


if __name__ == "__main__":
    main()
