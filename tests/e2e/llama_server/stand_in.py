"""Makes a GGUF that answers as the models of llama.cpp's tests do out of one of our test models.

Theirs are base models: they tell stories and hardly ever end. Ours were trained to end. So the
texts of the tokens that end an answer are changed, and the file names another token as its end.
For /infill three unused tokens get the names of those that fill in the middle.

    change(source, target, fim=True)
    split(source, folder, "name", 3)       # name-00001-of-00003.gguf, as gguf-split does
"""
import struct

ENDS = {"<|eot_id|>": "<|eot_no|>", "<|end_of_text|>": "<|no_of_text|>",
        "<|im_end|>": "<|im_no|>", "<|endoftext|>": "<|noendoftext|>"}
FIM = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY, I32 = 8, 9, 5
CONTROL = 3


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        self.at += size
        return self.data[self.at - size:self.at]

    def number(self, form):
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0]

    def text(self):
        return self.take(self.number("Q")).decode(errors="surrogateescape")

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            inner, count = self.number("I"), self.number("Q")
            if inner == STRING:
                return inner, [self.text() for _ in range(count)]
            return inner, [self.take(SIZES[inner]) for _ in range(count)]
        return self.take(SIZES[kind])


def packed_text(text):
    data = text.encode(errors="surrogateescape")
    return struct.pack("<Q", len(data)) + data


def packed(kind, value):
    if kind == STRING:
        return packed_text(value)
    if kind == ARRAY:
        inner, items = value
        parts = map(packed_text, items) if inner == STRING else items
        return struct.pack("<IQ", inner, len(items)) + b"".join(parts)
    return value


def read_head(read):
    """The values of a GGUF by their keys, and its tensors: name, shape, type, place."""
    read.take(8)
    count_tensors, count = read.number("Q"), read.number("Q")
    values, tensors = {}, []
    for _ in range(count):
        key = read.text()
        kind = read.number("I")
        values[key] = (kind, read.value(kind))
    for _ in range(count_tensors):
        name = read.text()
        shape = [read.number("Q") for _ in range(read.number("I"))]
        tensors.append((name, shape, read.number("I"), read.number("Q")))
    return values, tensors


def split(source, folder, prefix, shards):
    read = Reader(source.read_bytes())
    values, tensors = read_head(read)
    data = read.data[-(-read.at // 32) * 32:]
    ends = sorted(place for *_, place in tensors)[1:] + [len(data)]
    end_of = dict(zip(sorted(place for *_, place in tensors), ends))
    for shard in range(shards):
        own = tensors[len(tensors) * shard // shards:len(tensors) * (shard + 1) // shards]
        head = dict(values) if shard == 0 else {}
        head |= {"split.no": (2, struct.pack("<H", shard)),
                 "split.count": (2, struct.pack("<H", shards)),
                 "split.tensors.count": (I32, struct.pack("<i", len(tensors)))}
        out = bytearray(struct.pack("<4sIQQ", b"GGUF", 3, len(own), len(head)))
        for key, (kind, value) in head.items():
            out += packed_text(key) + struct.pack("<I", kind) + packed(kind, value)
        weights = bytearray()
        for name, shape, kind, place in own:
            weights += bytes(-len(weights) % 32)
            out += packed_text(name) + struct.pack("<I", len(shape))
            out += b"".join(struct.pack("<Q", size) for size in shape)
            out += struct.pack("<IQ", kind, len(weights))
            weights += data[place:end_of[place]]
        out += bytes(-len(out) % 32)
        (folder / f"{prefix}-{shard + 1:05}-of-{shards:05}.gguf").write_bytes(out + weights)


def change(source, target, fim=False):
    read = Reader(source.read_bytes())
    head = read.take(8)
    tensors, count = read.number("Q"), read.number("Q")
    values = {}
    for _ in range(count):
        key = read.text()
        kind = read.number("I")
        values[key] = (kind, read.value(kind))
    begin = read.at
    for _ in range(tensors):
        read.text()
        read.take(8 * read.number("I") + 4 + 8)
    infos, rest = read.data[begin:read.at], read.data[-(-read.at // 32) * 32:]

    tokens = values["tokenizer.ggml.tokens"][1][1]
    types = values["tokenizer.ggml.token_type"][1][1]
    unused = len(tokens) - 1
    for index, token in enumerate(tokens):
        tokens[index] = ENDS.get(token, token)
    for index, name in enumerate(FIM if fim else []):
        tokens[unused - 1 - index] = name
        types[unused - 1 - index] = struct.pack("<i", CONTROL)
    kind, _ = values["tokenizer.ggml.eos_token_id"]
    values["tokenizer.ggml.eos_token_id"] = (kind, struct.pack("<I", unused))
    kind, template = values["tokenizer.chat_template"]
    for theirs, ours in ENDS.items():
        template = template.replace(theirs, ours)
    values["tokenizer.chat_template"] = (kind, template)

    out = bytearray(head + struct.pack("<QQ", tensors, len(values)))
    for key, (kind, value) in values.items():
        out += packed_text(key) + struct.pack("<I", kind) + packed(kind, value)
    out += infos
    out += bytes(-len(out) % 32)
    target.write_bytes(out + rest)
