"""The module tree of a family beside that of transformers: paths, and whether rules that name the
class of transformers find the module.

    pip install torch transformers
    synth-gguf seed_oss/config.json --types q8_0 -o m.gguf
    ktx-compile m.gguf --emit=module-ir --stop-after=match-rules > m.ktxir
    python3 compare_tree.py seed_oss/config.json m.ktxir

Prints nothing where both agree. Known differences: the list of experts of transformers 4, of
which transformers 5 has one module (an alias), and modules without weights (dropout).
"""
import json
import re
import sys

import torch
import transformers

config_file, graph_file = sys.argv[1:3]
config = transformers.AutoConfig.for_model(**json.load(open(config_file)))
with torch.device("meta"):
    model = transformers.AutoModelForCausalLM.from_config(config)
theirs = {path: f"{type(m).__module__}.{type(m).__name__}" for path, m in model.named_modules()}

names, ours, current = {}, {}, None  # of a class: its aliases and bases
for line in open(graph_file):
    if match := re.match(r"class (\S+)", line):
        current = names.setdefault(match[1], {match[1]})
    elif match := re.match(r"  (aliases|bases) (.*)", line):
        current |= set(match[2].split())
    elif match := re.match(r"module (\S+) : (\S+)", line):
        ours[match[1].strip('"')] = match[2]


def without_layer(path):
    return re.sub(r"layers\.\d+", "layers.*", path)


lines = set()
for path in theirs.keys() | ours.keys():
    if ".experts." in path:
        continue
    at = without_layer(path)
    if path not in ours:
        lines.add(f"missing  {at} : {theirs[path]}")
    elif path not in theirs:
        lines.add(f"not there  {at} : {ours[path]}")
    elif theirs[path] not in names[ours[path]] and theirs[path].rsplit(".", 1)[1] not in names[ours[path]]:
        lines.add(f"another class  {at} : {ours[path]}, not {theirs[path]}")
print("\n".join(sorted(lines)), end="\n" if lines else "")
