#!/usr/bin/env python3
"""Reads a .ktxplan with nothing but Python and docs/plan-format.md: the tables of a plan as JSON.

    read_plan.py model.ktxplan                     all tables
    read_plan.py model.ktxplan --weight NAME OUT   the bytes of one packed weight

Every offset, size, index and count is checked before use; a wrong one ends it with a message. So are the
SHA-256 of all but the weights, and XXH3 where the package xxhash is installed.
"""
import hashlib
import json
import mmap
import struct
import sys

try:
    import xxhash
except ImportError:
    xxhash = None

NONE = 0xFFFFFFFF
SECTIONS = {1: "strings", 2: "target", 3: "facts", 4: "gguf-header", 5: "module-graph", 6: "segments", 7: "blobs",
            8: "slices", 9: "values", 10: "buffers", 11: "operands", 12: "weight-uses", 13: "attrs", 14: "steps",
            15: "kv-slots", 16: "tokenizer", 17: "chat-template", 18: "provenance", 19: "chunks", 20: "weights",
            21: "parts", 22: "launches", 23: "launch-steps", 24: "drafter", 25: "draft-tokens", 26: "self-test",
            27: "source-hashes", 28: "digests"}
# Struct formats of the records, and their fields; "s:" is the number of a string, "h:" a hash of two words.
RECORDS = {
    "segments": ("<IIQQII", "s:device kind offset size first_blob blob_count"),
    "blobs": ("<IHHQQqqqIIQQ", "s:name dtype layout offset size rows cols matrices first_slice slice_count h:hash h:"),
    "slices": ("<IIqqq", "tensor blob first_row row_count blob_row"),
    "values": ("<IBBHIIq", "s:name type rows reserved rows_per_row buffer width"),
    "buffers": ("<QQQ", "fixed_bytes bytes_per_token bytes_per_output"),
    "operands": ("<III", "value offset width"),
    "weight-uses": ("<I", "blob"),
    "steps": ("<IIiIIIIIIIIIII", "op s:module layer s:device first_input input_count first_output output_count "
                                 "first_weight weight_count attrs_offset attrs_size s:exact s:fast"),
    "kv-slots": ("<iiiiIi", "layer kv_heads key_dim value_dim s:device window"),
    "chunks": ("<IIQQ", "segment chunk h:hash h:"),
    "parts": ("<IIIII", "kind s:device s:from first_step step_count"),
    "launches": ("<IIIIIIHHII", "fused_op s:kernel first_step step_count least_tokens most_tokens least_sm most_sm "
                                "needs least_run"),
    "launch-steps": ("<I", "step"),
    "draft-tokens": ("<i", "token"),
    "source-hashes": ("<QQ", "h:hash h:"),
}
TENSOR = ("<IHHIIqqQQ", "s:name dtype reserved shard reserved2 row_elems rows offset size")


class PlanError(Exception):
    """What is wrong."""


def check(condition, message):
    if not condition:
        raise PlanError(message)


def hex_hash(low, high):
    return f"{high:016x}{low:016x}"


class Plan:
    def __init__(self, data):
        self.data = data
        check(len(data) >= 64, "shorter than a prefix of 64 bytes")
        (magic, self.major, self.minor, header, size, count, least, low, high) = struct.unpack_from("<8sHHIQIIQQ", data)
        check(magic == b"KTXPLAN\x1a", "not a plan")
        check(self.major == 3 and least <= 8, f"format {self.major}.{self.minor}, this reader knows 3.0 to 3.8")
        check(count <= 256 and header == 64 + 48 * count, f"a header of {header} bytes for {count} sections")
        check(header <= size == len(data), f"{len(data)} bytes, expected {size} and a header of {header}")
        self.hash = hex_hash(low, high)
        self.check_hash(bytes(data[:32]) + bytes(16) + bytes(data[48:header]), low, high, "the header")
        self.sections, self.bytes_of = [], {}
        for i in range(count):
            number, flags, offset, size, low, high, _ = struct.unpack_from("<IIQQQQQ", data, 64 + 48 * i)
            name = SECTIONS.get(number, f"number {number}")
            check(offset <= len(data) and size <= len(data) - offset, f"section {name} lies outside of the file")
            check(number in SECTIONS or not flags & 1, f"{name} is required and unknown")
            self.sections.append({"name": name, "offset": offset, "size": size, "hash": hex_hash(low, high)})
            if name in ("weights", "drafter"):
                continue
            check(name not in self.bytes_of, f"section {name} stands twice")
            self.bytes_of[name] = bytes(data[offset:offset + size])
            self.check_hash(self.bytes_of[name], low, high, f"section {name}")
        self.root = self.check_digests(bytes(data[:header])) if "digests" in self.bytes_of else None
        self.strings = self.read_strings()
        self.tables = {name: self.read_table(name) for name in RECORDS if name in self.bytes_of}
        self.tensors = self.read_tensors()
        self.check_indices()

    def check_hash(self, data, low, high, what):
        if xxhash is not None:
            check(xxhash.xxh3_128_intdigest(data) == high << 64 | low, f"the hash of {what} is wrong")

    def check_digests(self, header):
        digests, at = self.bytes_of["digests"], 0
        for name, size in ((s["name"], s["size"]) for s in self.sections if s["name"] != "digests"):
            for begin in range(0, max(size, name == "self-test"), 64 << 20):
                data = self.bytes_of.get(name, b"")[begin:begin + (64 << 20)]  # of weights: nothing
                check(not data or hashlib.sha256(data).digest() == digests[at:at + 32], f"section {name} was changed")
                at += 32
        check(at == len(digests), f"{len(digests)} bytes of digests, expected {at}")
        return "sha256:" + hashlib.sha256(header + digests).hexdigest()

    def section(self, name):
        check(name in self.bytes_of, f"section {name} is missing")
        return self.bytes_of[name]

    def read_strings(self):
        data = self.section("strings")
        check(len(data) >= 8, "section strings is too short")
        count = struct.unpack_from("<I", data)[0]
        check(8 + 8 * count <= len(data), f"{count} strings do not fit their section")
        text = data[8 + 8 * count:]
        strings = []
        for i in range(count):
            offset, size = struct.unpack_from("<II", data, 8 + 8 * i)
            check(offset + size <= len(text), f"string {i} lies outside of its section")
            strings.append(text[offset:offset + size].decode("utf-8", "replace"))
        return strings

    def record(self, form, data, offset, what):
        layout, fields = form
        values = struct.unpack_from(layout, data, offset)
        out = {}
        for i, field in enumerate(fields.split()):
            kind, _, name = field.rpartition(":")
            if kind == "s":
                check(values[i] == NONE or values[i] < len(self.strings), f"{what}: no string {values[i]}")
                out[name] = None if values[i] == NONE else self.strings[values[i]]
            elif kind == "h":
                if name:
                    out[name] = hex_hash(values[i], values[i + 1])
            elif not name.startswith("reserved"):
                out[name] = values[i]
        return out

    def read_table(self, name):
        data, size = self.bytes_of[name], struct.calcsize(RECORDS[name][0])
        check(len(data) % size == 0, f"section {name} has {len(data)} bytes, no multiple of {size}")
        return [self.record(RECORDS[name], data, at, f"{name} {at // size}") for at in range(0, len(data), size)]

    def read_tensors(self):
        data = self.section("gguf-header")
        check(len(data) >= 8, "section gguf-header is too short")
        shards, tensors = struct.unpack_from("<II", data)
        check(8 + 32 * shards + 48 * tensors <= len(data), "the tensors do not fit section gguf-header")
        return [self.record(TENSOR, data, 8 + 32 * shards + 48 * i, f"tensor {i}") for i in range(tensors)]

    def check_indices(self):
        t = self.tables
        for segment in t["segments"]:
            check(segment["offset"] + segment["size"] <= len(self.data), "a segment lies outside of the file")
            check(segment["first_blob"] + segment["blob_count"] <= len(t["blobs"]), "a segment has blobs that are none")
            for blob in t["blobs"][segment["first_blob"]:segment["first_blob"] + segment["blob_count"]]:
                check(segment["offset"] <= blob["offset"] and blob["offset"] + blob["size"] <=
                      segment["offset"] + segment["size"], f"weight {blob['name']} lies outside of its segment")
        for item in t["slices"]:
            check(item["tensor"] < len(self.tensors) and item["blob"] < len(t["blobs"]), "a slice of what is not there")
        for operand in t["operands"]:
            check(operand["value"] == NONE or operand["value"] < len(t["values"]), "an operand without a value")
        for step in t["steps"]:
            for first, count, table in (("first_input", "input_count", "operands"),
                                        ("first_output", "output_count", "operands"),
                                        ("first_weight", "weight_count", "weight-uses")):
                check(step[first] + step[count] <= len(t[table]), f"a step of {step['module']} reads behind {table}")
            check(step["attrs_offset"] + step["attrs_size"] <= len(self.section("attrs")), "attributes outside")

    def weight(self, name):
        found = [blob for blob in self.tables["blobs"] if blob["name"] == name]
        check(found, f"no weight {name}")
        return self.data[found[0]["offset"]:found[0]["offset"] + found[0]["size"]]

    def to_json(self):
        out = {"format": f"{self.major}.{self.minor}", "file_bytes": len(self.data), "header_hash": self.hash}
        out["root"] = self.root
        for name in ("facts", "target", "provenance", "chat-template"):
            out[name] = json.loads(self.section(name))
        out["sections"] = self.sections
        out["tensors"] = self.tensors
        return {**out, **self.tables}


def main(args):
    try:
        with open(args[0], "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            plan = Plan(data)
            if len(args) == 4 and args[1] == "--weight":
                with open(args[3], "wb") as out:
                    out.write(plan.weight(args[2]))
            else:
                print(json.dumps(plan.to_json()))
    except (PlanError, OSError, ValueError, KeyError, IndexError) as error:
        sys.exit(f"{args[0] if args else 'read_plan.py'}: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
