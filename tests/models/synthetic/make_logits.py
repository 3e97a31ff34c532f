"""Logits of a synthetic GGUF, computed apart from ktx: by transformers in F32, from weights that
the module graph assigns to the modules of the Hugging Face model.

    pip install torch transformers gguf
    synth-gguf seed_oss/config.json --types f32 --strong -o m.gguf
    ktx-compile m.gguf --emit=module-ir --stop-after=match-rules > m.ktxir
    python3 make_logits.py seed_oss/config.json m.gguf m.ktxir \
        7,300,12,12,255,1,64,33,290,8,15,15 > seed_oss/logits.txt

Prints for each token the best id, its logit, and the logit of id 0.

Ling 2.0, which transformers does not have, is GLM-4.5 under other names, and MiniCPM is Granite.
"""
import json
import re
import sys

import numpy as np
import torch
import transformers
from gguf import GGUFReader
from gguf.quants import dequantize

config_file, gguf_file, graph_file, tokens = sys.argv[1:5]
# Files of these have rows of q and k in the order of pairs; transformers has halves.
PAIRED_ROWS = {"granite", "granitemoehybrid", "granitemoe", "granitemoeshared", "llama", "ministral3", "mistral",
               "mixtral", "smollm3", "arcee", "muse_glimmer", "olmo"}

config_json = json.load(open(config_file))
OTHER_NAMES = {}
if config_json["model_type"] == "bailing_moe_v2":
    config_json.update(model_type="glm4_moe", architectures=["Glm4MoeForCausalLM"],
                       n_routed_experts=config_json["num_experts"],
                       n_shared_experts=config_json["num_shared_experts"], pad_token_id=None)
    OTHER_NAMES = {"word_embeddings": "embed_tokens", ".attention.": ".self_attn.",
                   "query_layernorm": "q_norm", "key_layernorm": "k_norm", ".dense.": ".o_proj."}
in_halves = config_json["model_type"] == "PanguEmbedded"
if config_json["model_type"] in ("internlm2", "xverse", "PanguEmbedded"):  # Llamas by other names
    config_json.update(model_type="llama", architectures=["LlamaForCausalLM"],
                       attention_bias=config_json.get("bias", False))
if config_json["model_type"] == "baichuan":
    config_json.update(model_type="llama", architectures=["LlamaForCausalLM"])
if config_json["model_type"] == "qwen":
    config_json.update(model_type="qwen2", architectures=["Qwen2ForCausalLM"],
                       intermediate_size=config_json["intermediate_size"] // 2,
                       num_key_value_heads=config_json["num_attention_heads"],
                       rms_norm_eps=config_json["layer_norm_epsilon"])
if config_json["model_type"] == "minicpm":
    heads = config_json["num_attention_heads"]
    config_json.update(model_type="granite", architectures=["GraniteForCausalLM"],
                       embedding_multiplier=config_json["scale_emb"],
                       residual_multiplier=config_json["scale_depth"] / config_json["num_hidden_layers"] ** 0.5,
                       logits_scaling=config_json["hidden_size"] / config_json["dim_model_base"],
                       attention_multiplier=(config_json["hidden_size"] / heads) ** -0.5)
if config_json["model_type"] == "dbrx":
    OTHER_NAMES = {"model.layers.": "transformer.blocks.", "model.embed_tokens": "transformer.wte",
                   "model.norm": "transformer.norm_f", "input_layernorm": "norm_attn_norm.norm_1",
                   "post_attention_layernorm": "norm_attn_norm.norm_2",
                   "self_attn.o_proj": "norm_attn_norm.attn.out_proj",
                   "self_attn.Wqkv": "norm_attn_norm.attn.Wqkv",
                   "mlp.gate.": "ffn.router.layer.", "mlp.experts.": "ffn.experts.mlp."}
if config_json["model_type"] == "gemma4_text":  # what files have elsewhere
    OTHER_NAMES = {".router.norm.weight": ".router.scale",
                   ".router.proj.factors": ".router.per_expert_scale"}
if config_json["model_type"] == "glm5_next":  # a part that sees is made in any case: a small one
    config_json["vision_config"] = dict(depth=1, hidden_size=32, num_heads=2, intermediate_size=32,
                                        out_hidden_size=32, projection_intermediate_size=32)
    OTHER_NAMES = {".indexer.position_bias": ".indexer.index_kpool_compress_ape",
                   ".indexer.pool_gate": ".indexer.index_kpool_compress_gate"}
if config_json["model_type"] == "qwen4_exp_text":
    OTHER_NAMES = {".ple.conv": ".ple.conv1d.weight"}
if config_json["model_type"] == "falcon_h1":  # files hold weights with the factors in them
    for key in [k for k in config_json if "multiplier" in k]:
        config_json.pop(key)
config = transformers.AutoConfig.for_model(**config_json)
config._attn_implementation = "eager"
text = config.get_text_config()
tied = getattr(config, "tie_word_embeddings", getattr(text, "tie_word_embeddings", False))
name = config_json["architectures"][0]  # EXAONE 3 is a Llama there
make = getattr(transformers, name, None) or transformers.AutoModelForCausalLM.from_config
model = make(config).float().eval()
if config_json["model_type"] == "nemotron_h":  # nemotron_h.cc says why
    for layer in model.model.layers:
        if hasattr(layer.mixer, "time_step_limit"):
            layer.mixer.time_step_limit = (0.0, float("inf"))
state = dict(model.state_dict())
state.update(model.named_buffers())
left = {n for n in state if n != "transformer.bias" and not n.endswith(("inv_freq", "embed_scale", "mup_vector", "input_scale",
                                            "per_layer_projection_scale", "layer_multipliers",
                                            "ngram_heads_vocab_sizes", "ngram_heads_offsets"))
        and not n.startswith("model.visual.")}
if any(n.startswith("model.language_model.") for n in state):
    left = {n for n in left if n.startswith(("model.language_model.", "lm_head."))}

tensors = {}
reader = GGUFReader(gguf_file)
for tensor in reader.tensors:
    numbers = tensor.tensor_type.name == "I32"  # of experts
    rows = tensor.data if numbers else dequantize(tensor.data, tensor.tensor_type)
    rows = rows.astype(np.float32)
    rows = rows.reshape([int(n) for n in reversed(tensor.shape)])
    tensors[tensor.name] = torch.from_numpy(rows.copy())


class TwoNorms(torch.nn.Module):
    """In the place of a norm without weights, which Muse Glimmer calls for queries and then for keys:
    files have weights for both, and the queries' hold qk_scale_factor."""

    def __init__(self, eps):
        super().__init__()
        self.eps, self.weights, self.calls = eps, {}, 0

    def forward(self, x):
        weight = self.weights["kq"[self.calls % 2 == 0]]
        self.calls += 1
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * weight


def put_qk_norm(path, value):
    layer = model.model.language_model.layers[int(path.split(".")[2])].self_attn
    if not isinstance(layer.qk_norm, TwoNorms):
        layer.qk_norm = TwoNorms(text.rms_norm_eps)
    keys = path.endswith("_of_keys")
    layer.qk_norm.weights["k" if keys else "q"] = value / (1 if keys else layer.qk_scale_factor)


def put(name, value):
    for other, ours in OTHER_NAMES.items():
        name = name.replace(other, ours)
    if name.startswith("model.hc_head.") and name not in state:
        name = name.replace("hc_head.", "hc_head.hc_")
    if name.endswith(".gate.table"):
        name = name.replace(".table", ".tid2eid")
    if config.model_type == "gpt2" and name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
        value = value.T  # there
    if "query_key_value" in name and config.model_type == "falcon":  # by key heads there
        if text.new_decoder_architecture:
            size, keys = text.hidden_size // text.num_attention_heads, text.num_kv_heads
            parts = torch.split(value, [text.hidden_size, keys * size, keys * size])
            value = torch.cat([part.reshape(keys, -1, *value.shape[1:]) for part in parts], 1)
            value = value.flatten(0, 1)
    elif "query_key_value" in name and config.model_type in ("bloom", "gpt_neox"):  # by heads there
        heads = value.reshape(3, text.num_attention_heads, -1, *value.shape[1:])
        value = heads.transpose(0, 1).reshape(value.shape)
    elif "query_key_value" in name:
        q, kv = text.num_attention_heads * text.head_dim, text.num_key_value_heads * text.head_dim
        for part, rows in zip("qkv", torch.split(value, [q, kv, kv])):
            put(name.replace("query_key_value", part + "_proj"), rows)
        return
    own = name.replace(".gate.weight", ".gate.wg.weight")  # a linear of its own
    if name not in state and own in state:
        name = own
    if name not in state and name.endswith(".router.weight"):
        name = name.replace(".weight", ".gate.weight")
    if name not in state and name.replace(".weight", ".norms.0.weight") in state:
        for head, row in enumerate(value):
            put(name.replace(".weight", f".norms.{head}.weight"), row)
        return
    if name not in state:  # of a model that sees, the language model
        name = name.replace("model.", "model.language_model.", 1)
    with torch.no_grad():
        state[name].copy_(value.reshape(state[name].shape))
    left.discard(name)


for name, tensor in tensors.items():  # numbers that the graph has worked in
    if match := re.match(r"blk.(\d+).layer_output_scale.weight", name):
        put(f"model.layers.{match[1]}.layer_scalar", tensor)


def halves(rows, heads):
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def put_delta(path, params):  # of Kimi delta attention: parts of other modules there
    put(path + ".forget_gate.A_log", torch.log(abs(params["decay"])))
    put(path + ".forget_gate.dt_bias", params["dt_bias"])
    put(path + ".conv1d.weight", torch.cat([params["conv_" + p].flatten(0, 2) for p in "qkv"]))


def untiled(path, name, value):
    """Value heads of Qwen4-Exp's delta nets, which files have so that equal key heads are not neighbours."""
    keys, dim = text.linear_num_key_heads, text.linear_value_head_dim
    repeats = text.linear_num_value_heads // keys
    first = 0

    def turn(rows, size):
        heads = rows.reshape(repeats, keys, size, *rows.shape[1:])
        return heads.swapaxes(0, 1).reshape(rows.shape)

    if path.endswith("out_proj"):
        return turn(value.T, dim).T
    if path.endswith("in_proj_qkv") or name == "conv":
        value = value.reshape(-1, value.shape[-1])
        first = 2 * keys * text.linear_key_head_dim
        return torch.cat([value[:first], turn(value[first:], dim)])
    return turn(value, dim if path.endswith("in_proj_z") else 1)


DELTA = {"conv": "conv1d.weight", "decay": "A_log", "dt_bias": "dt_bias"}


def put_qwen4(path, params):
    """Whether the module's parameters are not those of files."""
    if path.endswith(".indexer.index_q_proj"):
        other = modules[path.replace("index_q_proj", "index_k_proj")]
        both = torch.cat([params["weight"], other["weight"]])
        put(path.replace("index_q_proj", "index_qk_proj.weight"), both)
    elif path.endswith(".linear_attn"):
        for name, value in params.items():
            value = untiled(path, name, value.flatten() if name != "conv" else value)
            put(f"{path}.{DELTA[name]}", torch.log(-value) if name == "decay" else value)
    elif ".linear_attn.in_proj" in path or path.endswith(".linear_attn.out_proj"):
        put(path + ".weight", untiled(path, "weight", params["weight"]))
    else:
        return path.endswith(".indexer.index_k_proj")
    return True


STATE_SPACE = {"conv": "conv1d.weight", "conv_bias": "conv1d.bias", "skip": "D",
               "dt_bias": "dt_bias"}


def put_state_space(path, params):
    put(path + ".A_log", torch.log(-params["decay"]))
    for name, key in STATE_SPACE.items():
        if name in params:
            put(f"{path}.{key}", params[name])


modules, path = {}, None
for line in open(graph_file):
    if match := re.match(r'module (\S+) :', line):
        path = match[1]
    elif match := re.match(r"  param (\S+) \S+ \[.*\] = (\S+)$", line):
        modules.setdefault(path, {})[match[1]] = tensors[match[2]]

for path, params in modules.items():
    if config.model_type == "qwen4_exp_text" and put_qwen4(path, params):
        continue
    if path.endswith((".input_linear", ".gate_up_proj")) and "gate" in params:
        put(path + ".weight", torch.cat([params["gate"], params["up"]]))
        continue
    if "gate" in params and "up" in params:
        if "gate_bias" in params:  # gpt-oss: gate and up by turns, transposed
            both = torch.stack([params["gate"], params["up"]], dim=2).flatten(1, 2)
            put(path + ".gate_up_proj", both.transpose(1, 2))
            put(path + ".down_proj", params["down"].transpose(1, 2))
            both = torch.stack([params["gate_bias"], params["up_bias"]], dim=2).flatten(1, 2)
            put(path + ".gate_up_proj_bias", both)
            put(path + ".down_proj_bias", params["down_bias"])
            continue
        if config.model_type == "dbrx":  # all experts in one matrix each, the last transposed
            for part, value in zip(("w1", "v1", "w2"), (params["gate"], params["up"],
                                                        params["down"].transpose(1, 2))):
                put(f"{path}.{part}", value.flatten(0, 1))
            continue
        both, down = torch.cat([params["gate"], params["up"]], dim=1), params["down"]
        if config.model_type == "llama4_text":  # transposed
            both, down = both.transpose(1, 2), down.transpose(1, 2)
        put(path + ".gate_up_proj", both)
        put(path + ".down_proj", down)
        continue
    if "up" in params and "down" in params:  # experts without a gate
        put(path + ".up_proj", params["up"])
        put(path + ".down_proj", params["down"])
        continue
    if "streams" in params:  # AltUp's projections, a list there
        for stream, matrix in enumerate(params["streams"]):
            put(f"{path}.{stream}.weight", matrix)
        continue
    if "output_scale" in params:
        put(path + ".correct_output_scale", params["output_scale"])
        continue
    if "conv_q" in params:
        put_delta(path, params)
        continue
    if "skip" in params:
        put_state_space(path, params)
        continue
    if path.endswith(".conv") and "conv" in params:
        put(path + ".conv.weight", params["conv"])
        continue
    if "k_b" in params:
        both = [torch.cat([k.T, v]) for k, v in zip(params["k_b"], params["v_b"])]
        put(path + ".weight", torch.cat(both))
        continue
    for name, value in params.items():
        key = f"{path}.{name}"
        if name == "correction_bias":
            block = path.rsplit(".", 1)[0] + "."
            key, = [k for k in state if k.replace("language_model.", "").startswith(block) and
                    k.endswith(("correction_bias", "expert_bias"))]
        if path == "lm_head" and name == "weight" and tied:
            continue
        paired = config.model_type in PAIRED_ROWS and not in_halves
        if paired and path.endswith(("q_proj", "k_proj")):
            q = path.endswith("q_proj")
            value = halves(value, text.num_attention_heads if q else text.num_key_value_heads)
        if ".qk_norm" in path and config.model_type == "muse_glimmer":
            put_qk_norm(path, halves(value, 1))
            continue
        one_more = ("gemma", "gemma3_text", "nemotron", "minimax_m3_vl_text",
                    "step3p7", "muse_glimmer")  # files hold 1 + w
        one_more += ("qwen4_exp_text",) if ".linear_attn." not in path else ()
        plain = config.model_type == "muse_glimmer" and path == "model.norm"
        if config.model_type in one_more and "norm" in path and name == "weight" and not plain:
            value = value - 1
        put(key, value)
for factor in ("alpha_p", "alpha_n", "beta", "eps"):  # which are no tensors
    if config.model_type == "apertus":
        for layer, value in enumerate(reader.fields["xielu." + factor].contents()):
            put(f"model.layers.{layer}.mlp.act_fn.{factor}", torch.tensor([value]))
if tied:
    left.discard("lm_head.weight")
left = {name for name in left if not (config.model_type == "falcon_mamba" and "_layernorm" in name)}
assert not left, f"no tensors for {sorted(left)}"

with torch.no_grad():
    ids = torch.tensor([[int(t) for t in tokens.split(",")]])
    # Scores of texts are those of each token here.
    if hasattr(model, "score"):
        logits = model.score(model.model(ids).last_hidden_state)[0]
    else:
        logits = model(ids).logits[0]
for row in logits:
    best = int(row.argmax())
    print(f"{best} {row[best]:.5f} {row[0]:.5f}")
