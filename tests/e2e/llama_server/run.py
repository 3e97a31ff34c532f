#!/usr/bin/env python3
"""Runs the tests of llama.cpp's server against ktx-run serve.

    tests/e2e/llama_server/run.py BUILD_FOLDER [ARGUMENTS OF PYTEST...]

The tests are llama.cpp's (tools/server/tests and models/templates of its repository, August
2026) and are not part of this one: KTX_LLAMA_CPP names a folder that has them. They are copied,
and where they have constants of their model (a text, a number of tokens) these are replaced by
those of ours (facts.json). launcher.py starts our server in place of theirs with the model that
models.json names.

Where a test wants some model of a kind (a reasoner, one that calls tools), ours has the chat
template of theirs; a model whose loading is to be seen has random weights (synth-gguf).

Functions that do not pass stand in the table of docs/serve.md, each with its reason. Exit status:
0 as in the table, 1 another function failed, or one of the table passed; 77 skipped (no tests, no
network, no venv): the reason is printed. With arguments of pytest (-k completion) the table is
not compared.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE.parent / "clients"), str(HERE)]
import run as clients  # noqa: E402: the virtual environments and `skip`
import stand_in  # noqa: E402

# Names in models.json: our test model, and how it is changed (stand_in.py).
MODELS = {"qwen2": ("qwen2", None), "gemma3": ("gemma3", None), "base": ("llama", {}), "base-fim": ("llama", {"fim": True}),
          "base-tools": ("qwen2", {})}


def replace_facts(folder):
    """Constants of their model become those of ours; each must still be there."""
    facts = json.loads((HERE / "facts.json").read_text())
    for name, pairs in facts.items():
        module, _, function = name.partition(".")
        path = folder / "unit" / f"{module}.py"
        text = path.read_text()
        if function:
            # From the end of the function before, so that decorators are included.
            at = re.search(rf"^def {function}\(", text, re.M).start()
            begin = text.rfind("\n\n\n", 0, at)
            begin = max(begin, text.rfind("\ndef ", 0, at))
            after = re.search(r"^(@|def |class )", text[at + 1:], re.M)
            end = at + 1 + after.start() if after else len(text)
        else:
            begin, end = 0, len(text)
        part = text[begin:end]
        for theirs, ours in pairs:
            if theirs not in part:
                sys.exit(f"facts.json: {name} has no {theirs!r}")
            part = part.replace(theirs, ours)
        path.write_text(text[:begin] + part + text[end:])


def make_split(build, folder, plans):
    """The stand-in of a base model in three shards."""
    stand_in.split(folder / "base.gguf", folder, "split", 3)
    subprocess.run([build / "ktx-compile", "-q", folder / "split-00001-of-00003.gguf", "-o",
                    plans / "split.ktxplan"], check=True)


def make_large(build, folder, plans):
    """A model whose loading can be seen: random weights, 300 MB; none where synth-gguf is not built."""
    synth = build / "tools/dev/synth-gguf"
    if not synth.exists():
        print(f"{synth} is not built: the tests that watch a model load are skipped")
        (plans / "large.ktxplan").symlink_to(plans / "gemma3.ktxplan")
        return
    subprocess.run([synth, ROOT / "tests/configs/SmolLM3-3B.json", "--layers", "2",
                    "-o", folder / "large.gguf"], check=True)
    subprocess.run([build / "ktx-compile", "-q", folder / "large.gguf", "-o", plans / "large.ktxplan"],
                   check=True)


def known_failures():
    """The functions of the table in docs/serve.md."""
    text = (ROOT / "docs/serve.md").read_text()
    part = text.partition("### Tests of llama.cpp's server that do not pass")[2]
    part = part.partition("\n## ")[0]
    return set(re.findall(r"`(test_\w+\.test_\w+)`", part))


def report(results, compare):
    passed = {name for name, cases in results.items()
              if cases and all(case[0] == "passed" for case in cases.values())}
    others = sorted(set(results) - passed)
    for name in others:
        cases = results[name]
        bad = {key: case for key, case in cases.items() if case[0] != "passed"}
        first = next(iter(bad.values()))
        lines = [line[1:].strip() for line in first[1].splitlines() if line.startswith("E ")]
        why = lines[0] if lines else (first[1].strip().splitlines() or [""])[-1]
        print(f"{first[0]:8} {name} ({len(bad)} of {len(cases)}): {why[:160]}")
    print(f"{len(passed)} of {len(results)} functions passed")
    if not compare:
        return 0
    known = known_failures()
    wrong = 0
    for name in others:
        if name not in known:
            print(f"FAILED: {name}, which is not in the table of docs/serve.md")
            wrong = 1
    for name in sorted(known & passed):
        print(f"PASSED: {name}; take it out of the table of docs/serve.md")
        wrong = 1
    return wrong


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    source = pathlib.Path(os.environ.get("KTX_LLAMA_CPP", "/nonexistent"))
    if not (source / "tools/server/tests/utils.py").exists():
        clients.skip("KTX_LLAMA_CPP names no folder with llama.cpp's tools/server/tests")
    clients.MORE_PACKAGES["llama_server"] = ["pytest", "requests", "wget", "numpy", "aiohttp",
                                             "prometheus-client"]
    python = clients.prepare_venv(build, "llama_server")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ktx-llama-"))
    try:
        tests = folder / "tools/server/tests"
        shutil.copytree(source / "tools/server/tests", tests)
        shutil.copytree(source / "models/templates", folder / "models/templates")
        (tests / "tmp").mkdir(exist_ok=True)
        replace_facts(tests)
        plans = folder / "plans"
        plans.mkdir()
        for name, (model, how) in MODELS.items():
            gguf = ROOT / f"tests/models/{model}/{model}-q4_k_m.gguf"
            if how is not None:
                stand_in.change(gguf, folder / f"{name}.gguf", **how)
                gguf = folder / f"{name}.gguf"
            subprocess.run([build / "ktx-compile", "-q", gguf, "-o", plans / f"{name}.ktxplan"],
                           check=True)
        make_split(build, folder, plans)
        make_large(build, folder, plans)
        results = folder / "results.json"
        environment = dict(os.environ, SLOW_TESTS="1", PYTHONPATH=f"{HERE}:{tests}", KTX_LLAMA_PLANS=str(plans),
                           KTX_LLAMA_RUN=str(build / "ktx-run"), KTX_LLAMA_RESULTS=str(results),
                           LLAMA_SERVER_BIN_PATH=str(HERE / "launcher.py"),
                           NO_PROXY="*", no_proxy="*", PYTHONDONTWRITEBYTECODE="1")
        arguments = sys.argv[2:]
        log = build / "llama_server.log"
        with open(log, "w") as out:
            named = any(word.startswith("unit/") for word in arguments)
            where = [] if named else ["unit"]
            subprocess.run([python, "-m", "pytest", "-p", "ported", "-q", *where, *arguments],
                           cwd=tests, env=environment, stdout=out, stderr=subprocess.STDOUT)
        print(f"all that was printed: {log}")
        shutil.copy(results, build / "llama_server.json")
        sys.exit(report(json.loads(results.read_text()), not arguments))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
