#!/usr/bin/env python3
"""Rows, prompts and answers of a model that sees, by transformers: what tests/e2e/*_images_test.cc compare with.

    make_image_rows.py mmproj.gguf model.gguf config.json IDS N IMAGE... > rows.txt

IDS are the ids of the prompt, -1 - i for the tokens of the i-th image. An IMAGE is a file, or NAME=WIDTHxHEIGHT of the
pattern in tests/support/image_samples.h. Weights are taken from the GGUFs, decoded to F32. Prints each image's rows (not
every number), some logits, then the ids of N tokens of greedy decoding. Needs torch, transformers, gguf, numpy, and
Pillow up to 12: later ones resize some images in another order. What is transparent is laid on white, as ktx does it.
"""
import json
import os
import sys

import gguf
import numpy as np
import torch
from PIL import Image, ImageOps
from transformers import (Gemma3Config, Gemma3ForConditionalGeneration, Mistral3Config,
                          Mistral3ForConditionalGeneration, Qwen3_5Config, Qwen3_5ForConditionalGeneration,
                          Qwen3VLConfig, Qwen3VLForConditionalGeneration, Qwen3VLMoeConfig,
                          Qwen3VLMoeForConditionalGeneration)
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil


def tensors(reader):
    return {t.name: torch.from_numpy(np.array(gguf.dequantize(t.data, t.tensor_type), dtype=np.float32)
                                     .reshape(tuple(int(n) for n in reversed(t.shape)))) for t in reader.tensors}


def halves(value, heads):
    """Rows of q or k in the order of halves; files have them in that of pairs."""
    return value.reshape(heads, -1, 2, value.shape[-1]).transpose(1, 2).reshape(value.shape)


SIGLIP = {"ln1": "layer_norm1", "ln2": "layer_norm2", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
          "attn_v": "self_attn.v_proj", "attn_out": "self_attn.out_proj", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"}
PIXTRAL = {"ln1": "attention_norm", "ln2": "ffn_norm", "attn_q": "attention.q_proj", "attn_k": "attention.k_proj",
           "attn_v": "attention.v_proj", "attn_out": "attention.o_proj", "ffn_gate": "feed_forward.gate_proj",
           "ffn_up": "feed_forward.up_proj", "ffn_down": "feed_forward.down_proj"}
LAYER = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "attn_norm": "input_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
GEMMA_LAYER = LAYER | {"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
                       "post_ffw_norm": "post_feedforward_layernorm"}
QWEN_VISION = {"ln1": "norm1", "ln2": "norm2", "attn_qkv": "attn.qkv", "attn_out": "attn.proj", "ffn_up": "mlp.linear_fc1",
               "ffn_down": "mlp.linear_fc2"}
QWEN_LAYER = LAYER | {"ffn_norm": "post_attention_layernorm", "post_attention_norm": "post_attention_layernorm",
                      "ffn_gate_inp": "mlp.gate", "attn_qkv": "linear_attn.in_proj_qkv", "attn_gate": "linear_attn.in_proj_z",
                      "ssm_alpha": "linear_attn.in_proj_a", "ssm_beta": "linear_attn.in_proj_b",
                      "ssm_out": "linear_attn.out_proj", "ssm_norm": "linear_attn.norm", "ssm_conv1d": "linear_attn.conv1d"}
MISTRAL_LAYER = LAYER | {"ffn_norm": "post_attention_layernorm"}
TEXT = "model.language_model."
STEM = {"token_embd.weight": TEXT + "embed_tokens.weight", "output_norm.weight": TEXT + "norm.weight",
        "output.weight": "lm_head.weight"}


class Gemma3:
    def __init__(self, of, text):
        columns = of("image_size") // of("patch_size")
        side = columns // of("projector.scale_factor")
        self.config = Gemma3Config(
            text_config=text, mm_tokens_per_image=side * side, image_token_index=0,
            vision_config={"model_type": "siglip_vision_model", "hidden_size": of("embedding_length"),
                           "image_size": of("image_size"), "intermediate_size": of("feed_forward_length"),
                           "num_attention_heads": of("attention.head_count"), "num_hidden_layers": of("block_count"),
                           "patch_size": of("patch_size"), "vision_use_head": False,
                           "layer_norm_eps": of("attention.layer_norm_epsilon"), "hidden_act": "gelu_pytorch_tanh"})
        self.make = Gemma3ForConditionalGeneration
        self.processor = Gemma3ImageProcessorPil(size={"height": of("image_size"), "width": of("image_size")},
                                                 image_mean=list(of("image_mean")), image_std=list(of("image_std")))

    def state(self, tower, model):
        out = {}
        eye = "model.vision_tower."
        if tower["v.blk.0.ffn_down.weight"].shape[1] == tower["v.post_ln.weight"].shape[0]:  # the names of old files
            swap = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}
            tower = {".".join(swap.get(part, part) for part in name.split(".")): value for name, value in tower.items()}
        for name, value in tower.items():
            parts = name.split(".")
            if name.startswith("v.blk."):
                out[f"{eye}encoder.layers.{parts[2]}.{SIGLIP[parts[3]]}.{parts[4]}"] = value
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
                out[f"{TEXT}layers.{parts[1]}.{GEMMA_LAYER[parts[2]]}.weight"] = value
            else:
                out[STEM[name]] = value
        out["lm_head.weight"] = out[TEXT + "embed_tokens.weight"]
        return out

    def features(self, model, image):
        pixels = torch.as_tensor(np.array(self.processor(images=[image])["pixel_values"]), dtype=torch.float32)
        return model.model.get_image_features(pixels).pooler_output

    def logits(self, model, whole, embeds, is_image, rows):  # an image's tokens see each other
        return model(inputs_embeds=embeds, use_cache=False, token_type_ids=is_image.int()).logits


class Mistral3:
    def __init__(self, of, text):
        square = of("patch_size") * of("spatial_merge_size")
        self.heads = of("attention.head_count"), text["num_attention_heads"], text["num_key_value_heads"]
        self.config = Mistral3Config(
            text_config=text, image_token_index=0, spatial_merge_size=of("spatial_merge_size"),
            multimodal_projector_bias=of.has("mm.1.bias"), tie_word_embeddings=False,
            vision_config={"model_type": "pixtral", "hidden_size": of("embedding_length"), "image_size": of("image_size"),
                           "intermediate_size": of("feed_forward_length"), "hidden_act": "silu",
                           "num_attention_heads": self.heads[0], "num_hidden_layers": of("block_count"),
                           "patch_size": of("patch_size")})
        self.make = Mistral3ForConditionalGeneration
        self.processor = PixtralImageProcessorPil(size={"longest_edge": of("image_size")},
                                                  patch_size={"height": square, "width": square},
                                                  image_mean=list(of("image_mean")), image_std=list(of("image_std")))

    def state(self, tower, model):
        out = {}
        eye, projector = "model.vision_tower.", "model.multi_modal_projector."
        names = {"v.patch_embd.weight": eye + "patch_conv.weight", "v.pre_ln.weight": eye + "ln_pre.weight",
                 "mm.input_norm.weight": projector + "norm.weight",
                 "mm.patch_merger.weight": projector + "patch_merger.merging_layer.weight"}
        for name, value in tower.items():
            parts = name.split(".")
            if parts[-2] in ("attn_q", "attn_k"):
                value = halves(value, self.heads[0])
            if name.startswith("v.blk."):
                out[f"{eye}transformer.layers.{parts[2]}.{PIXTRAL[parts[3]]}.{parts[4]}"] = value
            elif name.startswith(("mm.1.", "mm.2.")):
                out[f"{projector}linear_{parts[1]}.{parts[2]}"] = value
            elif name != "v.token_embd.img_break":
                out[names[name]] = value
        for name, value in model.items():
            parts = name.split(".")
            if name.startswith("blk."):
                if parts[2] in ("attn_q", "attn_k"):
                    value = halves(value, self.heads[1 if parts[2] == "attn_q" else 2])
                out[f"{TEXT}layers.{parts[1]}.{MISTRAL_LAYER[parts[2]]}.weight"] = value
            else:
                out[STEM[name]] = value
        return out

    def features(self, model, image):
        both = self.processor(images=[image])
        pixels = torch.as_tensor(np.array(both["pixel_values"]), dtype=torch.float32)
        sizes = [tuple(int(n) for n in both["image_sizes"][0])]
        # As get_image_features(), which fails where an image is one token.
        seen = model.model.vision_tower(pixels, image_sizes=sizes).last_hidden_state
        return model.model.multi_modal_projector(seen.squeeze(0), torch.tensor(sizes))

    def logits(self, model, whole, embeds, is_image, rows):
        return model(inputs_embeds=embeds, use_cache=False).logits


class Qwen3:
    FORMS = {"qwen3_vl_text": (Qwen3VLConfig, Qwen3VLForConditionalGeneration),
             "qwen3_vl_moe_text": (Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration),
             "qwen3_5_text": (Qwen3_5Config, Qwen3_5ForConditionalGeneration)}

    def __init__(self, of, text):
        side = of("image_size") // of("patch_size")
        self.layers = [i for i, part in enumerate(of("is_deepstack_layers")) if part]
        make, self.make = self.FORMS[text["model_type"]]
        self.hybrid = text["model_type"] == "qwen3_5_text"
        more = {} if self.hybrid else {"deepstack_visual_indexes": self.layers}
        self.config = make(
            text_config=text, tie_word_embeddings=False,
            vision_config={"depth": of("block_count"), "hidden_size": of("embedding_length"),
                           "intermediate_size": of("feed_forward_length"), "num_heads": of("attention.head_count"),
                           "patch_size": of("patch_size"), "spatial_merge_size": of("spatial_merge_size"),
                           "out_hidden_size": of("projection_dim"), "num_position_embeddings": side * side,
                           "hidden_act": "gelu_pytorch_tanh", **more})
        self.processor = Qwen2VLImageProcessorPil(
            size={"shortest_edge": of("image_min_pixels"), "longest_edge": of("image_max_pixels")},
            patch_size=of("patch_size"), merge_size=of("spatial_merge_size"), temporal_patch_size=2,
            image_mean=list(of("image_mean")), image_std=list(of("image_std")))
        self.grids = []

    def state(self, tower, model):
        out = {}
        eye = "model.visual."
        frames = [tower.pop("v.patch_embd.weight" + end) for end in ("", ".1")]
        out[eye + "patch_embed.proj.weight"] = torch.stack(frames, 2)
        names = {"v.patch_embd": "patch_embed.proj", "v.position_embd": "pos_embed", "v.post_ln": "merger.norm",
                 "mm.0": "merger.linear_fc1", "mm.2": "merger.linear_fc2"}
        for name, value in tower.items():
            parts = name.split(".")
            if name.startswith("v.blk."):
                out[f"{eye}blocks.{parts[2]}.{QWEN_VISION[parts[3]]}.{parts[4]}"] = value
            elif name.startswith("v.deepstack."):
                part = parts[3].replace("fc", "linear_fc")
                out[f"{eye}deepstack_merger_list.{self.layers.index(int(parts[2]))}.{part}.{parts[4]}"] = value
            else:
                out[eye + names[name.rsplit(".", 1)[0]] + "." + parts[-1]] = value
        for name, value in model.items():
            parts = name.split(".")
            layer = f"{TEXT}layers.{parts[1]}."
            if self.hybrid and "norm" in name and "ssm_norm" not in name:
                value = value - 1
            if name.endswith("ffn_gate_exps.weight"):
                up = model[name.replace("ffn_gate", "ffn_up")]
                out[layer + "mlp.experts.gate_up_proj"] = torch.cat([value, up], 1)
            elif name.endswith("ffn_down_exps.weight"):
                out[layer + "mlp.experts.down_proj"] = value
            elif name.endswith("ssm_a"):
                out[layer + "linear_attn.A_log"] = torch.log(-value)
            elif name.endswith("ssm_dt.bias"):
                out[layer + "linear_attn.dt_bias"] = value
            elif name.endswith("ssm_conv1d.weight"):
                out[layer + "linear_attn.conv1d.weight"] = value.unsqueeze(1)
            elif name.startswith("blk."):
                if "ffn_up_exps" not in name:
                    out[f"{layer}{QWEN_LAYER[parts[2]]}.weight"] = value
            else:
                out[STEM[name]] = value
        return out

    def features(self, model, image):
        both = self.processor(images=[image], return_tensors="pt")
        self.grids.append(both["image_grid_thw"])
        seen = model.model.get_image_features(both["pixel_values"].float(), both["image_grid_thw"])
        return torch.cat([seen.pooler_output[0]] + [part[0] for part in getattr(seen, "deepstack_features", [])], -1)

    def logits(self, model, whole, embeds, is_image, rows):
        width = embeds.shape[-1]
        grids = torch.cat([self.grids[i] for i in self.shown])
        positions, _ = model.model.get_rope_index(whole, mm_token_type_ids=is_image.int(), image_grid_thw=grids)
        more = {} if self.hybrid else {"visual_pos_masks": is_image,
                                       "deepstack_visual_embeds": list(rows.split(width, -1)[1:])}
        out = model.model.language_model(inputs_embeds=embeds, position_ids=positions, use_cache=False, **more)
        return model.lm_head(out.last_hidden_state)


class Keys:
    def __init__(self, reader):
        self.reader = reader

    def __call__(self, key):
        return self.reader.fields["clip.vision." + key].contents()

    def has(self, tensor):
        return any(t.name == tensor for t in self.reader.tensors)


def pattern(width, height):
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
    return Image.fromarray((x * x * 3 + y * 7 * (c + 1) + x * y + 31 * c).astype(np.uint8))


def named_image(text):
    name, _, size = text.partition("=")
    if size:
        return name, pattern(*map(int, size.split("x")))
    image = ImageOps.exif_transpose(Image.open(text))
    if image.mode in ("LA", "RGBA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return os.path.splitext(os.path.basename(text))[0], image


def main():
    mmproj, gguf_path, config_path, ids, count, *images = sys.argv[1:]
    eye, reader = gguf.GGUFReader(mmproj), gguf.GGUFReader(gguf_path)
    ids = [int(i) for i in ids.split(",")]
    with open(config_path) as file:
        text = json.load(file)
    vocabulary = text["vocab_size"]
    projector = eye.fields["clip.projector_type"].contents()
    family = {"gemma3": Gemma3, "pixtral": Mistral3, "qwen3vl_merger": Qwen3}[projector](Keys(eye), text)
    family.config._attn_implementation = "eager"
    with torch.no_grad():
        model = family.make(family.config).eval()
        missing, more = model.load_state_dict(family.state(tensors(eye), tensors(reader)), strict=False)
        if [name for name in missing if "inv_freq" not in name and "position_ids" not in name] or more:
            sys.exit(f"missing: {missing}, more: {more}")
        features = []
        for text in images:
            name, image = named_image(text)
            features.append(family.features(model, image))
            rows = features[-1].flatten().tolist()
            every = 37 * max(1, len(rows) // 2304) * (1 if len(features) == 1 else 7)
            of = "" if len(features) == 1 else ":" + name
            print(f"every{of}", every)
            print(f"rows{of}", " ".join(f"{value:.6g}" for value in rows[::every]))
        # An id of its own stands for an image: the processor's would be beyond a small vocabulary.
        is_image = torch.tensor([[i < 0 for i in ids]])
        family.shown = list(dict.fromkeys(-1 - i for i in ids if i < 0))
        shown = torch.cat([features[i].flatten(0, -2) for i in family.shown])
        table = model.get_input_embeddings()
        answer = []
        for _ in range(int(count)):
            whole = torch.tensor([[max(i, 0) for i in ids] + answer])
            embeds = table(whole)
            embeds[0, :len(ids)][is_image[0]] = shown[:, :embeds.shape[-1]]
            here = torch.zeros_like(whole, dtype=torch.bool)
            here[0, :len(ids)] = is_image[0]
            logits = family.logits(model, whole, embeds, here, shown)[0, -1, :vocabulary]
            if not answer:
                print("logits", " ".join(f"{value:.6g}" for value in logits[::97].tolist()))
            answer.append(int(logits.argmax()))
        print("ids", " ".join(str(i) for i in answer))


main()
