#!/usr/bin/env python3
"""Writes python_matches.txt: what Python's re.search makes of every pattern of the
real rule files. Usage: make_python_matches.py SHARED KTX_COMPILE > python_matches.txt"""
import glob, json, os, re, subprocess, sys
import yaml

shared, program = sys.argv[1:3]
paths = []
for config in sorted(glob.glob(shared + "/configs/*.json")):
    keys = json.load(open(config))
    experts = next((keys[k] for k in ("n_routed_experts", "num_local_experts", "num_experts") if keys.get(k)), 0)
    parts = ["", ".w1", ".w2", ".w3", ".act_fn"] if keys["model_type"] == "mixtral" else \
            ["", ".gate_proj", ".up_proj", ".down_proj", ".act_fn"]
    out = subprocess.run([program, "--list-unruled", "--hf-config", config], capture_output=True, text=True).stdout
    for line in out.splitlines():
        path = line.split("\t")[0]
        path = "" if path == "(root)" else path
        paths.append(path)
        if path.endswith(".experts"):
            paths += [f"{path}.{e}{part}" for e in range(experts) for part in parts]
for name in sorted(glob.glob(shared + "/ktransformers-rules/*.yaml")):
    for number, rule in enumerate(yaml.safe_load(open(name)), 1):
        pattern = rule["match"].get("name")
        if pattern is None:
            continue
        found, count, value = re.compile(pattern), 0, 0xcbf29ce484222325
        for i, path in enumerate(paths):
            if found.search(path):
                count += 1
                for byte in i.to_bytes(4, "little"):
                    value = ((value ^ byte) * 0x100000001b3) & 0xffffffffffffffff
        print(f"{os.path.basename(name)[:-5]} | {number} | {count} {value:016x}")
