"""What a synthetic encoder gives, computed apart from ktx by transformers in F32.

    pip install torch transformers gguf
    synth-gguf bert/config.json --types f32 --strong -o m.gguf
    python3 make_vectors.py bert/config.json m.gguf 7,300,12,12,255,1,64,33,290,8,15,15 \
        > bert/vectors.txt

Prints a line for each token with its hidden state, or with its scores, where the model has a head
for them and the token was the first.
"""
import json
import re
import sys

import numpy as np
import torch
import transformers
from gguf import GGUFReader
from gguf.quants import dequantize

config_file, gguf_file, tokens = sys.argv[1:4]
config_json = json.load(open(config_file))
kind = config_json["model_type"]
scores = config_json.get("score_count", 0)
if kind == "xlm-roberta":  # its positions begin behind that of padding
    config_json.update(pad_token_id=1, num_labels=scores)
permuted = kind == "llama_bidirec"  # rows of q and k are in the order of pairs
if permuted:  # which computes what EuroBERT does
    config_json.update(model_type="eurobert", architectures=["EuroBertModel"])
config = transformers.AutoConfig.for_model(**config_json)
config._attn_implementation = "eager"
make = getattr(transformers, config_json["architectures"][0])
plain = kind in ("bert", "nomic_bert", "jina_embeddings_v3")
gemma = kind == "gemma3_text"
llama = kind in ("eurobert", "llama_bidirec")
model = make(config, add_pooling_layer=False) if plain else make(config)
model = model.float().eval()
state = model.state_dict()
left = {name for name in state if not name.endswith("position_ids")}
base = "roberta." if kind == "xlm-roberta" else ""

BERT = {
    "token_embd": "embeddings.word_embeddings",
    "position_embd": "embeddings.position_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "token_embd_norm": "embeddings.LayerNorm",
    "attn_q": "attention.self.query",
    "attn_k": "attention.self.key",
    "attn_v": "attention.self.value",
    "attn_output": "attention.output.dense",
    "attn_output_norm": "attention.output.LayerNorm",
    "ffn_up": "intermediate.dense",
    "ffn_down": "output.dense",
    "layer_output_norm": "output.LayerNorm",
}
NOMIC = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_output_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "layer_output_norm": "post_mlp_layernorm",
}
JINA_3 = NOMIC | {"ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"}
GEMMA = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
}
LLAMA = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
MODERN = {
    "token_embd": "embeddings.tok_embeddings",
    "token_embd_norm": "embeddings.norm",
    "output_norm": "final_norm",
    "attn_norm": "attn_norm",
    "attn_output": "attn.Wo",
    "ffn_norm": "mlp_norm",
    "ffn_up": "mlp.Wi",
    "ffn_down": "mlp.Wo",
}
HEAD = {"cls": "classifier.dense", "cls.output": "classifier.out_proj"}


def theirs(name):
    leaf, end = name.rsplit(".", 1)
    if match := re.match(r"blk\.(\d+)\.(.*)", leaf):
        if kind == "modernbert":
            return f"layers.{match[1]}.{MODERN.get(match[2], 'attn.Wqkv')}.{end}"
        if gemma or llama:
            names = NOMIC | (GEMMA if gemma else LLAMA)
            return f"layers.{match[1]}.{names[match[2]]}.{end}"
        if kind in ("nomic_bert", "jina_embeddings_v3"):
            names = NOMIC if kind == "nomic_bert" else JINA_3
            return f"layers.{match[1]}.{names[match[2]]}.{end}"
        return f"{base}encoder.layer.{match[1]}.{BERT[match[2]]}.{end}"
    if gemma or llama:
        return f"{(GEMMA if gemma else LLAMA)[leaf]}.{end}"
    if kind == "modernbert":
        return f"{MODERN[leaf]}.{end}"
    if leaf in HEAD:
        return f"{HEAD[leaf]}.{end}"
    return f"{base}{BERT[leaf]}.{end}"


def halves(rows, heads):
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, rows.shape[1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


dense = {}  # sentence-transformers' modules behind EmbeddingGemma's pooling
with torch.no_grad():
    for tensor in GGUFReader(gguf_file).tensors:
        rows = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        rows = torch.from_numpy(rows.reshape([int(n) for n in reversed(tensor.shape)]).copy())
        if tensor.name.startswith("dense_"):
            dense[tensor.name] = rows
            continue
        name = theirs(tensor.name)
        to = state[name]
        if gemma and name.endswith("norm.weight"):  # a file holds 1 + w
            rows = rows - 1
        if permuted and name.endswith(("q_proj.weight", "k_proj.weight")):
            q = name.endswith("q_proj.weight")
            rows = halves(rows, config.num_attention_heads if q else config.num_key_value_heads)
        if tensor.name == "position_embd.weight" and kind == "xlm-roberta":
            to = to[2:]
        if name.endswith("Wqkv.weight"):  # one below the other
            to = to.chunk(3)["qkv".index(tensor.name.split("attn_")[1][0])]
        to.copy_(rows.reshape(to.shape))
        left.discard(name)
    assert not left, f"no tensors for {sorted(left)}"
    ids = torch.tensor([[int(t) for t in tokens.split(",")]])
    places = torch.arange(ids.shape[1])[None]
    if kind == "xlm-roberta":
        hidden = model.roberta(ids, position_ids=places + 2).last_hidden_state[0]
        rows = [model.classifier(row[None, None])[0] for row in hidden]
    else:
        rows = model(ids, position_ids=places).last_hidden_state[0]
        for weight in sorted(dense):
            rows = rows @ dense[weight].T
for row in rows:
    print(" ".join(f"{x:.5f}" for x in row))
