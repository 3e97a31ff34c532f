"""A plugin of pytest: what their tests need to run against this server.

Their conftest loads every model once from the hub; ours are files. Results are written per
function, as JSON, to KTX_LLAMA_RESULTS: a function passed when each of its cases did.
"""
import json
import os


def pytest_configure(config):
    import utils

    utils.ServerPreset.load_all = staticmethod(lambda: None)
    # Draft models come from the hub; here the text itself is the draft (--lookup).
    utils.download_file = lambda url, output_file_path=None: url.split("/")[-1]


RESULTS = {}


def pytest_runtest_logreport(report):
    name = report.nodeid.split("[")[0].replace("unit/", "").replace(".py::", ".")
    cases = RESULTS.setdefault(name, {})
    outcome = report.outcome
    if report.when == "call" or outcome != "passed":
        case = report.nodeid.partition("[")[2].rstrip("]")
        why = "" if outcome == "passed" else str(report.longrepr)[-8000:]
        if cases.get(case, ["passed"])[0] == "passed":
            cases[case] = [outcome, why]


def pytest_sessionfinish(session):
    with open(os.environ["KTX_LLAMA_RESULTS"], "w") as out:
        json.dump(RESULTS, out, indent=1)
