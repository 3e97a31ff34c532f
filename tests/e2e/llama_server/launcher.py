#!/usr/bin/env python3
"""Starts ktx-run serve in place of llama-server, with the options that the tests give it.

Each row of OPTIONS is an option of llama-server: how many values it has, and what it becomes.
An option without a counterpart ends the start with a message, so that its tests fail as
"the server died" and not by chance.

    KTX_LLAMA_RUN=.../ktx-run KTX_LLAMA_PLANS=.../plans launcher.py --hf-repo ... --port 8080 ...
"""
import json
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CONFIG = json.loads((HERE / "models.json").read_text())


def same(name):
    return lambda value: [name, value]


def nothing(*_):
    return []


def template(value):
    return ["--chat-template", CONFIG["templates"].get(value, value)]


def reasoning_format(value):
    if value == "none":
        sys.exit("launcher: reasoning is never left in the content")
    return []


def alias(value):
    # Theirs are a set, whose first one names the model.
    return ["--name", sorted(value.split(","))[0], "--alias", value]


# The values of these are needed together.
TOGETHER = {"--hf-repo", "--hf-file", "--model", "--ctx-size", "--parallel", "--kv-unified",
            "--model-draft"}
OPTIONS = {
    "--host": (1, same("--host")),
    "--port": (1, same("--port")),
    "--temp": (1, same("--temp")),
    "--seed": (1, same("--seed")),
    "--alias": (1, alias),
    "--tags": (1, same("--tags")),
    "--context-shift": (0, lambda: ["--context-shift"]),
    "--n-predict": (1, lambda value: [] if value == "-1" else ["-n", value]),
    "--threads": (1, same("-t")),
    "--batch-size": (1, same("--chunk")),
    "--pooling": (1, same("--pooling")),
    "--api-key": (1, same("--api-key")),
    "--cors-origins": (1, same("--cors")),
    "--slot-save-path": (1, same("--slot-dir")),
    "--chat-template": (1, template),
    "--chat-template-file": (1, same("--chat-template-file")),
    # Theirs sets enable_thinking unless it is off; here "auto" leaves it to the template.
    "--reasoning": (1, lambda value: ["--reasoning", "off" if value == "off" else "on"]),
    "--reasoning-format": (1, reasoning_format),
    "--spec-draft-n-max": (1, same("--lookup")),
    "--models-max": (1, same("--models-max")),
    "--no-models-autoload": (0, lambda: ["--models-autoload", "off"]),
    "--sleep-idle-seconds": (1, same("--sleep-idle-seconds")),
    "--slots": (0, nothing),  # there without an option
    "--no-slots": (0, lambda: ["--slots", "off"]),
    "--no-ui": (0, lambda: ["--web-ui", "off"]),
    # What this server does anyway, or what has no meaning for it.
    "--metrics": (0, nothing),
    "--embedding": (0, nothing),
    "--cont-batching": (0, nothing),
    "--jinja": (0, nothing),
    "--no-jinja": (0, nothing),
    "--offline": (0, nothing),
    "--verbose": (0, lambda: ["--verbose"]),
    "--ubatch-size": (1, nothing),
    "--n-gpu-layers": (1, nothing),
    "--spec-type": (1, nothing),
    "--spec-draft-n-min": (1, nothing),
    "--cache-ram": (1, nothing),
    "--no-cache-idle-slots": (0, nothing),
    "--backend_sampling": (0, nothing),
    "-fa": (1, nothing),
}


def router_folder(plans):
    """A folder with the models of a router; each server has its own, as tests delete from it."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="router-", dir=plans))
    for name, plan in CONFIG["router"].items():
        path = folder / f"{name}.ktxplan"
        path.parent.mkdir(exist_ok=True)
        # Where a test wants to see its model loading, a large one that is read first.
        large = plan == "gemma3" and "during_model_load" in os.environ.get("PYTEST_CURRENT_TEST", "")
        path.symlink_to(plans / ("large.ktxplan" if large else f"{plan}.ktxplan"))
    return folder


def main():
    together, given = {}, []
    words = sys.argv[1:]
    while words:
        name = words.pop(0)
        if name in TOGETHER:
            together[name] = "" if name == "--kv-unified" else words.pop(0)
            continue
        if name not in OPTIONS:
            sys.exit(f"launcher: no counterpart of {name}")
        count, make = OPTIONS[name]
        values, words = words[:count], words[count:]
        given += make(*values)
    asked = " ".join(together[key] for key in ("--model", "--hf-repo", "--hf-file")
                     if key in together)
    alias = given[given.index("--alias") + 1] if "--alias" in given else ""
    plans = pathlib.Path(os.environ["KTX_LLAMA_PLANS"])
    model = CONFIG["by alias"].get(alias, CONFIG["models"].get(asked))
    if not asked:
        source = router_folder(plans)
        given += ["--edit-models", "--verify"]
    elif model is None:
        sys.exit(f"launcher: no model stands for {asked}")
    else:
        source = plans / f"{model}.ktxplan"
    own = CONFIG["own templates"].get(asked)
    if own and not any(word.startswith("--chat-template") for word in given):
        given += ["--chat-template-file", f"../../../models/templates/{own}.jinja"]
    if "--api-key" in given:
        given.append("--public-models")  # as theirs
    sequences = int(together.get("--parallel", 4))
    if "--cors" not in given:
        given += ["--cors", "*"]  # their default
    given += ["--max-batch", str(sequences)]
    if "--ctx-size" in together:
        # Theirs is shared by all sequences.
        share = 1 if "--kv-unified" in together else sequences
        given += ["--ctx", str(int(together["--ctx-size"]) // share)]
    run = os.environ["KTX_LLAMA_RUN"]
    os.execv(run, [run, "serve", str(source), *given])


if __name__ == "__main__":
    main()
