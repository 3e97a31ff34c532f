"""Writes the GGUF of a projector of Gemma 3's kind with random weights: an image is 9 tokens.

    write_tower("mmproj.gguf", width=256)
"""
import random

from scripted_gguf import ARRAY, BOOL, F32, STR, U32, floats, write_gguf

IMAGE, PATCH, POOL, HIDDEN, HEADS, INNER = 36, 6, 2, 40, 4, 56
# That of the small model shows no images.
TEMPLATE = ("{{ bos_token }}{% for m in messages %}<start_of_turn>{{ m.role }}\n"
            "{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
            "{% if part.type == 'image' %}<start_of_image>{% else %}{{ part.text }}{% endif %}"
            "{% endfor %}{% endif %}<end_of_turn>\n{% endfor %}"
            "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}")


def write_tower(path, width):
    draw = random.Random(1)

    def tensor(middle, reach, *shape):
        count = 1
        for size in shape:
            count *= size
        return [*shape], floats([[draw.uniform(middle - reach, middle + reach)
                                  for _ in range(count)]])

    tensors = {"v.patch_embd.weight": tensor(0, 0.2, PATCH, PATCH, 3, HIDDEN),
               "v.patch_embd.bias": tensor(0, 0.3, HIDDEN),
               "v.position_embd.weight": tensor(0, 1, HIDDEN, (IMAGE // PATCH) ** 2)}

    def norm(name):
        tensors[name + ".weight"] = tensor(1, 0.5, HIDDEN)
        tensors[name + ".bias"] = tensor(0, 0.3, HIDDEN)

    def linear(name, columns, rows):
        tensors[name + ".weight"] = tensor(0, 0.3, columns, rows)
        tensors[name + ".bias"] = tensor(0, 0.3, rows)

    norm("v.blk.0.ln1")
    for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
        linear("v.blk.0." + name, HIDDEN, HIDDEN)
    norm("v.blk.0.ln2")
    linear("v.blk.0.ffn_up", HIDDEN, INNER)
    linear("v.blk.0.ffn_down", INNER, HIDDEN)
    norm("v.post_ln")
    tensors["mm.soft_emb_norm.weight"] = tensor(1, 0.3, HIDDEN)
    tensors["mm.input_projection.weight"] = tensor(0, 0.3, width, HIDDEN)
    vision = "clip.vision."
    keys = [("general.architecture", STR, "clip"), ("general.type", STR, "mmproj"),
            ("clip.projector_type", STR, "gemma3"), ("clip.has_vision_encoder", BOOL, True),
            ("clip.use_gelu", BOOL, True), (vision + "projection_dim", U32, width),
            (vision + "image_size", U32, IMAGE), (vision + "patch_size", U32, PATCH),
            (vision + "embedding_length", U32, HIDDEN), (vision + "feed_forward_length", U32, INNER),
            (vision + "block_count", U32, 1), (vision + "attention.head_count", U32, HEADS),
            (vision + "projector.scale_factor", U32, POOL),
            (vision + "attention.layer_norm_epsilon", F32, 1e-6),
            (vision + "image_mean", ARRAY, (F32, [0.5, 0.5, 0.5])),
            (vision + "image_std", ARRAY, (F32, [0.5, 0.5, 0.5]))]
    write_gguf(path, keys, tensors)
