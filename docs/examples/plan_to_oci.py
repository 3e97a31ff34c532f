#!/usr/bin/env python3
"""Makes an OCI layout of a plan, as CNCF ModelPack names it, for any tool that copies images:

    plan_to_oci.py model.ktxplan model.ktxplan.root.minisig -o layout -t q4
    skopeo copy --preserve-digests oci:layout:q4 docker://registry.example/models/llama:q4
    skopeo copy --preserve-digests docker://registry.example/models/llama:q4 oci:pulled:q4
    plan_to_oci.py --unpack pulled -o .          files by their names, digests checked

The plan is one layer, neither packed nor compressed, so that it can be mapped where a runtime keeps it. Files
are linked where the file system allows. The same plan gives the same manifest: no time is in it.
"""
import argparse
import contextlib
import hashlib
import json
import mmap
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import read_plan

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
ARTIFACT = "application/vnd.cncf.model.manifest.v1+json"
CONFIG = "application/vnd.cncf.model.config.v1+json"
WEIGHT = "application/vnd.cncf.model.weight.v1.raw"
DOC = "application/vnd.cncf.model.doc.v1.raw"  # signatures, licences
PATH = "org.cncf.model.filepath"


def digest_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(4 << 20):
            digest.update(block)
    return "sha256:" + digest.hexdigest()


def blob_path(layout, digest):
    read_plan.check(re.fullmatch("sha256:[0-9a-f]{64}", str(digest)), f"not a digest: {digest}")
    return os.path.join(layout, "blobs", *digest.split(":"))


def place(source, target):
    """What was there before is replaced, as a whole."""
    work = target + ".work"
    with contextlib.suppress(FileNotFoundError):
        os.remove(work)
    try:
        os.link(source, work)
    except OSError:
        shutil.copyfile(source, work)
    os.replace(work, target)
    with contextlib.suppress(FileNotFoundError):  # stays where both were links to one file
        os.remove(work)


def add_file(layout, path, media_type):
    digest = digest_of(path)
    place(path, blob_path(layout, digest))
    return {"mediaType": media_type, "digest": digest, "size": os.path.getsize(path),
            "annotations": {PATH: os.path.basename(path)}}


def add_json(layout, value, media_type):
    data = json.dumps(value, separators=(",", ":")).encode()
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    with open(blob_path(layout, digest), "wb") as file:
        file.write(data)
    return {"mediaType": media_type, "digest": digest, "size": len(data)}


def config_of(path, layers):
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        plan = read_plan.Plan(data)
        facts = json.loads(plan.section("facts"))
        general = json.loads(plan.section("provenance")).get("general", {})
    descriptor = {"name": facts.get("name") or facts["architecture"], "family": facts["architecture"],
                  "title": general.get("basename"), "version": general.get("version"), "revision": plan.root,
                  "licenses": [general["license"]] if "license" in general else None}
    return {"descriptor": {key: value for key, value in descriptor.items() if value},
            "config": {"architecture": "transformer", "format": "ktxplan"},
            "modelfs": {"type": "layers", "diffIds": [layer["digest"] for layer in layers]}}


def pack(files, layout, tag):
    os.makedirs(os.path.join(layout, "blobs", "sha256"), exist_ok=True)
    layers = [add_file(layout, path, WEIGHT if i == 0 else DOC) for i, path in enumerate(files)]
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "artifactType": ARTIFACT,
                "config": add_json(layout, config_of(files[0], layers), CONFIG), "layers": layers}
    entry = add_json(layout, manifest, MANIFEST)
    entry["annotations"] = {"org.opencontainers.image.ref.name": tag}
    with open(os.path.join(layout, "oci-layout"), "w") as file:
        json.dump({"imageLayoutVersion": "1.0.0"}, file)
    with open(os.path.join(layout, "index.json"), "w") as file:
        json.dump({"schemaVersion": 2, "manifests": [entry]}, file)
    print(f"{entry['digest']}  {layout}:{tag}")


def unpack(layout, folder):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(layout, "index.json")) as file:
        entry = json.load(file)["manifests"][0]
    path = blob_path(layout, entry["digest"])
    read_plan.check(digest_of(path) == entry["digest"], "the manifest is not what the index names")
    with open(path) as file:
        manifest = json.load(file)
    for layer in manifest["layers"]:
        name = layer.get("annotations", {}).get(PATH, "")
        read_plan.check(name and name == os.path.basename(name) and not name.startswith("."), f"no file name: '{name}'")
        source = blob_path(layout, layer["digest"])
        read_plan.check(digest_of(source) == layer["digest"], f"{name} is not what the manifest names")
        place(source, os.path.join(folder, name))
        print(f"{layer['digest']}  {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", help="the plan, then what belongs to it: signatures, a licence")
    parser.add_argument("-o", default="layout", metavar="FOLDER", help="the layout, or where files are unpacked")
    parser.add_argument("-t", default="latest", metavar="TAG")
    parser.add_argument("--unpack", metavar="LAYOUT")
    args = parser.parse_args()
    try:
        if args.unpack:
            unpack(args.unpack, args.o)
        else:
            read_plan.check(args.files, "no plan given; try: plan_to_oci.py model.ktxplan -o layout -t q4")
            pack(args.files, args.o, args.t)
    except (read_plan.PlanError, OSError, ValueError, KeyError, IndexError, TypeError) as error:
        sys.exit(f"plan_to_oci.py: {error}")


if __name__ == "__main__":
    main()
