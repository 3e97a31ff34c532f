"""Writes a GGUF whose model says what a test wants: after the control token <|kN|> the N-th script.

    write_scripted("m.gguf", template, ["I look.", "Done."])

Each token decides the next one: attention and feed-forward part add nothing, and the head's row of a
token is the embedding of the one it follows (tests/support/scripted_model.h is the same in C++).
"""
import random
import struct

U32, I32, F32, BOOL, STR, ARRAY = 4, 5, 6, 7, 8, 9  # GGUF's numbers of types
HIDDEN, FORWARD = 256, 32


def alphabet():
    """Bytes as GPT-2's vocabularies write them."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {**{byte: chr(byte) for byte in shown},
            **{byte: chr(256 + i) for i, byte in enumerate(hidden)}}


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, what):
    if kind == STR:
        return string(what)
    if kind == ARRAY:
        inner, items = what
        return struct.pack("<IQ", inner, len(items)) + b"".join(value(inner, i) for i in items)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], what)


def floats(rows):
    return b"".join(struct.pack(f"<{len(row)}f", *row) for row in rows)


def write_scripted(path, template, scripts, ctx, piece=6):
    byte_text = alphabet()
    tokens = [byte_text[i] for i in range(256)] + ["\u0120t"]
    types = [1] * len(tokens)
    controls = ["<|im_start|>", "<|im_end|>"] + [f"<|k{i}|>" for i in range(len(scripts))]
    tokens += controls
    types += [3] * len(controls)
    end = tokens.index("<|im_end|>")
    follows = {}
    for i, script in enumerate(scripts):
        last, data = tokens.index(f"<|k{i}|>"), script.encode()
        for at in range(0, len(data), piece):
            follows[last] = len(tokens)
            last = len(tokens)
            tokens.append("".join(byte_text[byte] for byte in data[at:at + piece]))
            types.append(1)
        follows[last] = end
    draw = random.Random(7)
    table = [[draw.choice((-1.0, 1.0)) for _ in range(HIDDEN)] for _ in tokens]
    head = [[0.0] * HIDDEN for _ in tokens]
    for before, behind in follows.items():
        head[behind] = [a + b for a, b in zip(head[behind], table[before])]
    zeros = lambda columns, rows: ([columns, rows], b"\0" * (4 * columns * rows))
    norm = ([HIDDEN], floats([[1.0] * HIDDEN]))
    tensors = {"token_embd": ([HIDDEN, len(tokens)], floats(table)), "output_norm": norm,
               "output": ([HIDDEN, len(tokens)], floats(head)),
               "blk.0.attn_norm": norm, "blk.0.ffn_norm": norm,
               **{f"blk.0.{name}": zeros(HIDDEN, HIDDEN)
                  for name in ("attn_q", "attn_k", "attn_v", "attn_output")},
               "blk.0.ffn_gate": zeros(HIDDEN, FORWARD), "blk.0.ffn_up": zeros(HIDDEN, FORWARD),
               "blk.0.ffn_down": zeros(FORWARD, HIDDEN)}
    keys = [("general.architecture", STR, "llama"), ("general.name", STR, "scripted"),
            ("llama.block_count", U32, 1), ("llama.context_length", U32, ctx),
            ("llama.embedding_length", U32, HIDDEN), ("llama.feed_forward_length", U32, FORWARD),
            ("llama.attention.head_count", U32, 2), ("llama.attention.head_count_kv", U32, 2),
            ("llama.attention.layer_norm_rms_epsilon", F32, 1e-6),
            ("llama.rope.freq_base", F32, 10000.0),
            ("tokenizer.ggml.model", STR, "gpt2"), ("tokenizer.ggml.pre", STR, "gpt-2"),
            ("tokenizer.ggml.tokens", ARRAY, (STR, tokens)),
            ("tokenizer.ggml.token_type", ARRAY, (I32, types)),
            ("tokenizer.ggml.merges", ARRAY, (STR, ["\u0120 t"])),
            ("tokenizer.ggml.eos_token_id", U32, end),
            ("tokenizer.ggml.add_bos_token", BOOL, False),
            ("tokenizer.chat_template", STR, template)]
    write_gguf(path, keys, {name + ".weight": tensor for name, tensor in tensors.items()})


def write_gguf(path, keys, tensors):
    """Keys are (name, type, value); tensors, all F32, are name: (shape, bytes)."""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for key, kind, what in keys:
        out += string(key) + struct.pack("<I", kind) + value(kind, what)
    data = b""
    for name, (shape, content) in tensors.items():
        out += string(name) + struct.pack("<I", len(shape))
        out += struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", 0, len(data))
        data += content + b"\0" * (-len(content) % 32)
    with open(path, "wb") as file:
        file.write(out + b"\0" * (-len(out) % 32) + data)
