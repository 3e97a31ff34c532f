#!/usr/bin/env python3
"""Writes the small model whose plans are kept here: a llama of two layers, with weights that compress well.

    make_model.py m.gguf
    ktx-compile m.gguf --target target.yaml -o 3.4.ktxplan && xz -9e 3.4.ktxplan

with the ktx-compile of a commit that writes this format (git log -G 'kMinor = ' lib/plan/plan_format.h).
"""
import random
import struct
import sys

HIDDEN, INNER, LAYERS, HEADS = 32, 64, 2, 2
PIECES = "▁ a b c d e o n ce on ▁on ▁once ▁a ▁fox fox the ▁the up ▁up upon ▁upon t h p u x f ▁f ▁t ▁u fo th . ▁. i s is ▁is ! ? ▁it"
TOKENS = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + PIECES.split()
KINDS = [2, 3, 3] + [6] * 256  # unknown, control, byte; all others are normal (1)
U32, I32, F32, TEXT, LIST = 4, 5, 6, 8, 9


def text(value):
  return struct.pack("<Q", len(value.encode())) + value.encode()


PACK = {U32: lambda v: struct.pack("<I", v), I32: lambda v: struct.pack("<i", v), F32: lambda v: struct.pack("<f", v),
        TEXT: text}


def pair(key, kind, value):
  return text(key) + struct.pack("<I", kind) + PACK[kind](value)


def pairs(key, kind, values):
  return text(key) + struct.pack("<IIQ", LIST, kind, len(values)) + b"".join(PACK[kind](v) for v in values)


def metadata():
  sizes = {"context_length": 128, "embedding_length": HIDDEN, "block_count": LAYERS, "feed_forward_length": INNER,
           "attention.head_count": HEADS, "attention.head_count_kv": HEADS, "rope.dimension_count": HIDDEN // HEADS,
           "vocab_size": len(TOKENS)}
  return [pair("general.architecture", TEXT, "llama"), pair("general.name", TEXT, "old plan"),
          *(pair(f"llama.{key}", U32, value) for key, value in sizes.items()),
          pair("llama.attention.layer_norm_rms_epsilon", F32, 1e-5), pair("llama.rope.freq_base", F32, 10000.0),
          pair("tokenizer.ggml.model", TEXT, "llama"), pairs("tokenizer.ggml.tokens", TEXT, TOKENS),
          pairs("tokenizer.ggml.scores", F32, [-float(i) for i in range(len(TOKENS))]),
          pairs("tokenizer.ggml.token_type", I32, KINDS + [1] * (len(TOKENS) - len(KINDS))),
          *(pair(f"tokenizer.ggml.{name}_token_id", U32, i) for i, name in enumerate(["unknown", "bos", "eos"])),
          pair("tokenizer.chat_template", TEXT,
               "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}")]


def tensors():
  """[(name, dimensions, type, bytes)]"""
  draw = random.Random(5)

  def matrix(name, rows, cols, unit):  # F16
    values = (draw.choice([-2, -1, 0, 0, 1, 2]) * unit for _ in range(rows * cols))
    return name, [cols, rows], 1, b"".join(struct.pack("<e", v) for v in values)

  def norm(name):  # F32
    return name, [HIDDEN], 0, struct.pack("<f", 1.0) * HIDDEN

  yield matrix("token_embd.weight", len(TOKENS), HIDDEN, 0.25)
  for layer in range(LAYERS):
    block = f"blk.{layer}."
    yield norm(block + "attn_norm.weight")
    for part in ("q", "k", "v", "output"):
      yield matrix(f"{block}attn_{part}.weight", HIDDEN, HIDDEN, 0.125)
    yield norm(block + "ffn_norm.weight")
    for part in ("gate", "up"):
      yield matrix(f"{block}ffn_{part}.weight", INNER, HIDDEN, 0.125)
    yield matrix(block + "ffn_down.weight", HIDDEN, INNER, 0.125)
  yield norm("output_norm.weight")
  yield matrix("output.weight", len(TOKENS), HIDDEN, 0.25)


def padded(data):
  return data + b"\0" * (-len(data) % 32)


def main():
  meta, all_tensors = metadata(), list(tensors())
  head, data = b"GGUF" + struct.pack("<IQQ", 3, len(all_tensors), len(meta)) + b"".join(meta), b""
  for name, dimensions, kind, values in all_tensors:
    head += text(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, kind, len(data))
    data += padded(values)
  with open(sys.argv[1], "wb") as out:
    out.write(padded(head) + data)


main()
