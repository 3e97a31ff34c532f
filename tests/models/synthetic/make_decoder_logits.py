"""Logits of a synthetic GGUF of a model that transformers does not have, computed apart from ktx: in
F32 by torch, from the tensors by their names in the file, as the publishers' code and llama.cpp's
graphs of these architectures define the models.

    synth-gguf orion/config.json --types f32 --strong -o m.gguf
    python3 make_decoder_logits.py m.gguf 7,300,12,12,255,1,64,33,290,8,15,15 > orion/logits.txt

Prints for each token the best id, its logit, and the logit of id 0, as make_logits.py does.
"""
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from gguf import GGUFReader

# positions: halves (i, i + n / 2) or pairs (2i, 2i + 1) are rotated, or scores fall (ALiBi).
KINDS = {
    "baichuan": dict(positions="alibi"),  # 13B
    "refact": dict(positions="alibi"),
    "orion": dict(positions="halves", layer_norm=True),
    "openelm": dict(positions="halves", head_norms="before"),
    "plamo": dict(positions="halves", beside=True),
    "maincoder": dict(positions="pairs", head_norms="behind"),
    "jais": dict(positions="alibi", layer_norm=True, whole_scale=True),
    "codeshell": dict(positions="halves", layer_norm=True),
    "smallthinker": dict(positions="halves", early_router=True),
}

reader = GGUFReader(sys.argv[1])
ids = torch.tensor([int(t) for t in sys.argv[2].split(",")])
arch = reader.fields["general.architecture"].contents()
kind = KINDS[arch]
tensors = {t.name: torch.from_numpy(np.array(t.data, dtype=np.float32)).reshape(
    [int(n) for n in reversed(t.shape)]) for t in reader.tensors}


def key(name, otherwise=None):
    field = reader.fields.get(f"{arch}.{name}")
    return field.contents() if field else otherwise


def of_layer(value, layer):
    return value[layer] if isinstance(value, list) else value


def linear(name, x):
    return F.linear(x, tensors[name + ".weight"], tensors.get(name + ".bias"))


def norm(name, x):
    weight = tensors[name + ".weight"]
    if kind.get("layer_norm"):
        return F.layer_norm(x, x.shape[-1:], weight, tensors.get(name + ".bias"),
                            key("attention.layer_norm_epsilon"))
    eps = key("attention.layer_norm_rms_epsilon")
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotate(x):  # [tokens, heads, head_dim]
    n = x.shape[-1]
    angles = torch.outer(torch.arange(len(x)).double(),
                         key("rope.freq_base", 10000.0) ** (-torch.arange(0, n, 2).double() / n))
    cos, sin = angles.cos().float()[:, None], angles.sin().float()[:, None]
    if kind["positions"] == "pairs":
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    a, b = x[..., :n // 2], x[..., n // 2:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def slopes(heads):  # Press et al. 2021
    most = key("attention.max_alibi_bias", 8.0)
    whole = 2 ** int(math.log2(heads))
    first = [2 ** (-most * (i + 1) / whole) for i in range(whole)]
    return torch.tensor(first + [2 ** (-most * (2 * i + 1) / (2 * whole)) for i in range(heads - whole)])


def attention(blk, layer, x):
    heads = of_layer(key("attention.head_count"), layer)
    keys = of_layer(key("attention.head_count_kv", heads), layer)
    dim = key("attention.key_length", x.shape[-1] // heads)
    if blk + "attn_qkv.weight" in tensors:
        q, k, v = linear(blk + "attn_qkv", x).split([heads * dim, keys * dim, keys * dim], -1)
    else:
        q, k, v = (linear(blk + "attn_" + part, x) for part in "qkv")
    q, k, v = (part.reshape(len(x), -1, dim) for part in (q, k, v))
    window, turns = 0, kind["positions"] != "alibi"
    if key("attention.sliding_window"):  # SmallThinker: not in every fourth layer from the first on
        turns = layer % 4 != 0
        window = key("attention.sliding_window") if turns else 0
    norms = kind.get("head_norms")
    if norms == "before":
        q, k = norm(blk + "attn_q_norm", q), norm(blk + "attn_k_norm", k)
    if turns:
        q, k = rotate(q), rotate(k)
    if norms == "behind":
        q, k = norm(blk + "attn_q_norm", q), norm(blk + "attn_k_norm", k)
    k, v = (part.repeat_interleave(heads // keys, 1) for part in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) / (dim if kind.get("whole_scale") else dim ** 0.5)
    back = torch.arange(len(x))[:, None] - torch.arange(len(x))
    if kind["positions"] == "alibi":
        scores = scores - slopes(heads)[:, None, None] * back
    unseen = (back < 0) | ((back >= window) if window else False)
    scores = scores.masked_fill(unseen, -torch.inf)
    out = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)
    return linear(blk + "attn_output", out.flatten(1))


def mlp(blk, x):
    up = linear(blk + "ffn_up", x)
    if blk + "ffn_gate.weight" not in tensors:
        return linear(blk + "ffn_down", F.gelu(up, approximate="tanh"))
    return linear(blk + "ffn_down", F.silu(linear(blk + "ffn_gate", x)) * up)


def experts(blk, x, scored):
    logits = linear(blk + "ffn_gate_inp", scored)
    scores = logits.softmax(-1) if key("expert_gating_func") == 1 else logits.sigmoid()
    weights, chosen = scores.topk(key("expert_used_count"))
    weights = weights / weights.sum(-1, keepdim=True)
    gate, up, down = (tensors[f"{blk}ffn_{part}_exps.weight"] for part in ("gate", "up", "down"))
    rows = []
    for row, numbers, shares in zip(x, chosen, weights):
        rows.append(sum(w * (down[e] @ (F.relu(gate[e] @ row) * (up[e] @ row)))
                        for e, w in zip(numbers, shares)))
    return torch.stack(rows)


x = tensors["token_embd.weight"][ids]
for layer in range(key("block_count")):
    blk, before = f"blk.{layer}.", x
    normed = norm(blk + "attn_norm", x)
    x = x + attention(blk, layer, normed)
    read = normed if kind.get("beside") else norm(blk + "ffn_norm", x)
    x = x + (experts(blk, read, before) if kind.get("early_router") else mlp(blk, read))
head = "output.weight" if "output.weight" in tensors else "token_embd.weight"
for row in norm("output_norm", x) @ tensors[head].T:
    best = int(row.argmax())
    print(f"{best} {row[best]:.6f} {row[0]:.6f}")
