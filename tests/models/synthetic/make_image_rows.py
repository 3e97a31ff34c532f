#!/usr/bin/env python3
"""Rows, prompts and answers of a model that sees, by transformers: what tests/e2e/image_models_test.cc compares with.

    make_image_rows.py mmproj.gguf model.gguf config.json image.png IDS N > rows.txt

IDS are the ids of the prompt, those of an image below 0. Weights are taken from the GGUFs, decoded to F32. Prints the
image's rows (not every number), some logits, then the ids of N tokens of greedy decoding. Needs torch, transformers, gguf, pillow,
numpy.
"""
import json
import sys

import gguf
import numpy as np
import torch
from PIL import Image, ImageOps
from transformers import Gemma3Config, Gemma3ForConditionalGeneration
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil


def tensors(reader):
    return {t.name: torch.from_numpy(np.array(gguf.dequantize(t.data, t.tensor_type), dtype=np.float32)
                                     .reshape(tuple(int(n) for n in reversed(t.shape)))) for t in reader.tensors}


def number(reader, key):
    return reader.fields[key].contents()


TOWER = {"ln1": "layer_norm1", "ln2": "layer_norm2", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_out": "self_attn.out_proj", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"}
LAYER = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
         "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def state(tower, model):
    out = {}
    eye, text = "model.vision_tower.", "model.language_model."
    if tower["v.blk.0.ffn_down.weight"].shape[1] == tower["v.post_ln.weight"].shape[0]:  # the names of old files
        swap = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}
        tower = {".".join(swap.get(part, part) for part in name.split(".")): value for name, value in tower.items()}
    for name, value in tower.items():
        parts = name.split(".")
        if name.startswith("v.blk."):
            out[f"{eye}encoder.layers.{parts[2]}.{TOWER[parts[3]]}.{parts[4]}"] = value
        elif name.startswith("v.patch_embd"):
            out[f"{eye}embeddings.patch_embedding.{parts[-1]}"] = value
        elif name.startswith("v.position_embd"):
            out[f"{eye}embeddings.position_embedding.weight"] = value
        elif name.startswith("v.post_ln"):
            out[f"{eye}post_layernorm.{parts[-1]}"] = value
        elif name.startswith("mm.soft_emb_norm"):
            out["model.multi_modal_projector.mm_soft_emb_norm.weight"] = value - 1
        else:
            out["model.multi_modal_projector.mm_input_projection_weight"] = value
    for name, value in model.items():
        parts = name.split(".")
        if "norm" in name:
            value = value - 1
        if name.startswith("blk."):
            out[f"{text}layers.{parts[1]}.{LAYER[parts[2]]}.weight"] = value
        else:
            out[{"token_embd.weight": text + "embed_tokens.weight", "output_norm.weight": text + "norm.weight"}[name]] = value
    out["lm_head.weight"] = out[text + "embed_tokens.weight"]
    return out


def main():
    mmproj, gguf_path, config_path, image_path, ids, count = sys.argv[1:]
    eye, reader = gguf.GGUFReader(mmproj), gguf.GGUFReader(gguf_path)
    of = lambda key: number(eye, "clip.vision." + key)
    columns = of("image_size") // of("patch_size")
    side = columns // of("projector.scale_factor")
    ids = [int(i) for i in ids.split(",")]
    with open(config_path) as file:
        text = json.load(file)
    vocabulary = text["vocab_size"]
    config = Gemma3Config(
        text_config=text, mm_tokens_per_image=side * side, image_token_index=0,
        vision_config={"model_type": "siglip_vision_model", "hidden_size": of("embedding_length"), "image_size": of("image_size"),
                       "intermediate_size": of("feed_forward_length"), "num_attention_heads": of("attention.head_count"),
                       "num_hidden_layers": of("block_count"), "patch_size": of("patch_size"), "vision_use_head": False,
                       "layer_norm_eps": of("attention.layer_norm_epsilon"), "hidden_act": "gelu_pytorch_tanh"})
    config._attn_implementation = "eager"
    with torch.no_grad():
        model = Gemma3ForConditionalGeneration(config).eval()
        missing, more = model.load_state_dict(state(tensors(eye), tensors(reader)), strict=False)
        if [name for name in missing if "inv_freq" not in name and "position_ids" not in name] or more:
            sys.exit(f"missing: {missing}, more: {more}")
        image = ImageOps.exif_transpose(Image.open(image_path)).convert("RGB")
        processor = Gemma3ImageProcessorPil(size={"height": of("image_size"), "width": of("image_size")},
                                         image_mean=list(of("image_mean")), image_std=list(of("image_std")))
        pixels = torch.as_tensor(np.array(processor(images=[image])["pixel_values"]), dtype=torch.float32)
        features = model.model.get_image_features(pixels).pooler_output
        rows = features.flatten().tolist()
        every = 37 * max(1, len(rows) // 2304)
        print("every", every)
        print("rows", " ".join(f"{value:.6g}" for value in rows[::every]))
        # An id of its own stands for the image: the processor's would be beyond a small vocabulary.
        is_image = torch.tensor([[i < 0 for i in ids]])
        table = model.get_input_embeddings()
        answer = []
        for _ in range(int(count)):
            whole = torch.tensor([[max(i, 0) for i in ids] + answer])
            embeds = table(whole)
            embeds[0, :len(ids)][is_image[0]] = features.reshape(-1, embeds.shape[-1])
            types = torch.zeros_like(whole)
            types[0, :len(ids)] = is_image[0].int()
            logits = model(inputs_embeds=embeds, token_type_ids=types, use_cache=False).logits[0, -1, :vocabulary]
            if not answer:
                print("logits", " ".join(f"{value:.6g}" for value in logits[::97].tolist()))
            answer.append(int(logits.argmax()))
        print("ids", " ".join(str(i) for i in answer))


main()
