"""Logits of an OLMo 2 GGUF, computed apart from ktx: numpy, in float64, after the equations of the
Hugging Face model.

    pip install numpy gguf
    synth-gguf config.json --types f32 -o olmo2.gguf
    python3 make_olmo2_logits.py olmo2.gguf 7,300,12

Prints for each token the best id, its logit, and the logit of id 0.
"""
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

gguf = GGUFReader(sys.argv[1])
tokens = [int(t) for t in sys.argv[2].split(",")]
keys = {name: field.contents() for name, field in gguf.fields.items() if name.startswith("olmo2.")}
weights = {}
for tensor in gguf.tensors:
    rows = dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
    weights[tensor.name] = rows.reshape([int(n) for n in reversed(tensor.shape)])

heads = keys["olmo2.attention.head_count"]
kv_heads = keys["olmo2.attention.head_count_kv"]
head_dim = keys["olmo2.embedding_length"] // heads
eps = keys["olmo2.attention.layer_norm_rms_epsilon"]
inv_freq = keys["olmo2.rope.freq_base"] ** (-np.arange(0, head_dim, 2) / head_dim)


def norm(x, weight):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def rotate(x):  # [tokens, heads, head_dim]
    angles = np.arange(len(x))[:, None] * np.concatenate([inv_freq, inv_freq])
    low, high = np.split(x, 2, axis=-1)
    turned = np.concatenate([-high, low], axis=-1)
    return x * np.cos(angles)[:, None] + turned * np.sin(angles)[:, None]


def attention(x, w):
    q = norm(x @ w("attn_q").T, w("attn_q_norm")).reshape(len(x), heads, head_dim)
    k = norm(x @ w("attn_k").T, w("attn_k_norm")).reshape(len(x), kv_heads, head_dim)
    v = (x @ w("attn_v").T).reshape(len(x), kv_heads, head_dim)
    q, k = rotate(q), rotate(k)
    k, v = (np.repeat(each, heads // kv_heads, axis=1) for each in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(head_dim)
    scores += np.triu(np.full(scores.shape[1:], -np.inf), 1)
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    scores /= scores.sum(axis=-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", scores, v).reshape(len(x), -1) @ w("attn_output").T


def mlp(x, w):
    gate = x @ w("ffn_gate").T
    return (gate / (1 + np.exp(-gate)) * (x @ w("ffn_up").T)) @ w("ffn_down").T


x = weights["token_embd.weight"][tokens]
for layer in range(keys["olmo2.block_count"]):
    w = lambda name: weights[f"blk.{layer}.{name}.weight"]
    x = x + norm(attention(x, w), w("post_attention_norm"))
    x = x + norm(mlp(x, w), w("post_ffw_norm"))
logits = norm(x, weights["output_norm.weight"]) @ weights["output.weight"].T
for row in logits:
    print(f"{{{row.argmax()}, {row.max():.6f}, {row[0]:.6f}}},")
