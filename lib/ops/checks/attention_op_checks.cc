// Rotation, the cache of keys and values, and attention over it.
#include "lib/ops/checks/op_checks.h"

#include <algorithm>

#include "lib/formats/shape_limits.h"

namespace ktx::op_checks {
namespace {

void check_attention(OpCheck& s, const AttentionAttrs& a) {
  if (!s.has_slot("slot", a.slot) || !s.in_range("heads", a.heads, 1, kMaxHeads) ||
      !s.in_range("value_in_key", a.value_in_key, 0, 1)) {
    return;
  }
  const KvShape& slot = s.flow.kv_slots[a.slot];
  s.require(a.kv_heads == slot.kv_heads && a.key_dim == slot.key_dim,
            "{} heads of {} over a slot with {} of {}", a.kv_heads, a.key_dim, slot.kv_heads,
            slot.key_dim);
  s.require(a.heads % slot.kv_heads == 0, "{} heads share {} key heads", a.heads, slot.kv_heads);
  if (a.value_in_key) {
    s.require(slot.value_dim == 0, "values in the key over a slot with values of {}",
              slot.value_dim);
    s.in_range("value_dim", a.value_dim, 1, slot.key_dim);
  } else {
    s.require(slot.value_dim > 0 && a.value_dim == slot.value_dim,
              "values of {} over a slot with values of {}", a.value_dim, slot.value_dim);
  }
  s.in_range("window", a.window, 0, kMaxDim);
  s.in_range("chunked", a.chunked, 0, a.window > 0 ? 1 : 0);
  s.require(slot.window == 0 || (a.window > 0 && a.window <= slot.window),
            "a window of {} over a slot that keeps {} positions", a.window, slot.window);
  s.require(a.softcap >= 0, "softcap is {}", a.softcap);
  const bool all = s.op.op == StepOp::Attention || s.op.op == StepOp::TextAttention;
  s.require(a.alibi >= 0 && (a.alibi == 0 || all), "alibi is {}", a.alibi);
  if (!s.op.weights.empty() && s.weight(0).present()) s.vector("sinks", s.weight(0), a.heads);
  s.shape("q", s.in(0), ValueType::F32, int64_t{a.heads} * a.key_dim);
  s.shape("y", s.out(0), ValueType::F32, int64_t{a.heads} * a.value_dim);
  s.reads_slot(a.slot);
}

// An indexer's queries, and the slot of its keys.
template <class Attrs>
void check_indexer(OpCheck& s, const Attrs& a) {
  const KvShape& slot = s.flow.kv_slots[a.slot];
  s.require(slot.kv_heads == 1 && slot.value_dim == 0 && slot.key_dim == a.key_dim,
            "one head of {} without values over a slot with {} of {} and values of {}", a.key_dim,
            slot.kv_heads, slot.key_dim, slot.value_dim);
  s.require(slot.window == 0, "a slot that keeps {} positions", slot.window);
  s.shape("q", s.in(0), ValueType::F32, int64_t{a.heads} * a.key_dim);
}

// A slot that has a row of `dim` for each `every` positions.
void check_entries(OpCheck& s, int32_t slot, int32_t dim, int32_t every) {
  if (!s.has_slot("entries", slot) || !s.in_range("dim", dim, 1, kMaxDim) ||
      !s.require(entries_fit_blocks(every),
                 "an entry of {} positions, expected 2 to 64 or a "
                 "multiple of 64",
                 every)) {
    return;
  }
  const KvShape& shape = s.flow.kv_slots[slot];
  s.require(shape.kv_heads == 1 && shape.value_dim == 0 && shape.window == 0 &&
                shape.key_dim == entry_token_elems(dim, every),
            "entries of {} for {} positions each in a slot with {} heads of {}, values of {} and "
            "a window of {}",
            dim, every, shape.kv_heads, shape.key_dim, shape.value_dim, shape.window);
}

}  // namespace

void check_rope(OpCheck& s) {
  const auto& a = s.attrs<RopeAttrs>();
  const OpOperand& x = s.in(0);
  const OpOperand& y = s.out(0);
  if (!s.in_range("heads", a.heads, 1, kMaxHeads) ||
      !s.in_range("head_dim", a.head_dim, 1, kMaxDim) ||
      !s.in_range("y_head_dim", a.y_head_dim, 1, kMaxDim) ||
      !s.in_range("rotary_dim", a.rotary_dim, 2, std::min(a.head_dim, a.y_head_dim)) ||
      !s.in_range("rotary_begin", a.rotary_begin, 0, a.head_dim - a.rotary_dim) ||
      !s.in_range("y_begin", a.y_begin, 0, a.y_head_dim - a.rotary_dim)) {
    return;
  }
  s.in_range("interleaved", a.interleaved, 0, 1);
  s.require(a.rotary_dim % 2 == 0, "rotary_dim is {}, expected an even number", a.rotary_dim);
  s.shape("x", x, ValueType::F32, x.width);
  s.shape("y", y, ValueType::F32, y.width);
  s.require(a.heads * int64_t{a.head_dim} <= x.width, "{} heads of {} in {} elements of x", a.heads,
            a.head_dim, x.width);
  s.require(a.heads * int64_t{a.y_head_dim} <= y.width, "{} heads of {} in {} elements of y",
            a.heads, a.y_head_dim, y.width);
  s.vector("inv_freq", s.weight(0), a.rotary_dim / 2);
  s.require(s.weight(0).dtype == DType::F32, "inv_freq is not F32");
  s.require(!x.same_as(y) || (a.y_head_dim == a.head_dim && a.y_begin == a.rotary_begin),
            "in place with another place of the rotary part");
}

void check_rope_grid(OpCheck& s) {
  const auto& a = s.attrs<RopeGridAttrs>();
  const OpOperand& x = s.in(0);
  if (!s.in_range("heads", a.heads, 1, kMaxHeads) ||
      !s.in_range("head_dim", a.head_dim, 2, kMaxDim) ||
      !s.in_range("rotary_dim", a.rotary_dim, 2, a.head_dim) ||
      !s.in_range("lines", a.lines, 0, a.rotary_dim / 2) ||
      !s.in_range("columns", a.columns, 0, a.rotary_dim / 2 - a.lines)) {
    return;
  }
  s.in_range("interleaved", a.interleaved, 0, 1);
  s.in_range("woven", a.woven, 0, 1);
  s.require(a.rotary_dim % 2 == 0, "rotary_dim is {}, expected an even number", a.rotary_dim);
  s.shape("x", x, ValueType::F32, a.heads * int64_t{a.head_dim});
  s.shape("y", s.out(0), ValueType::F32, x.width);
  s.require(x.same_as(s.out(0)), "y is not x");
  s.vector("inv_freq", s.weight(0), a.rotary_dim / 2);
  s.require(s.weight(0).dtype == DType::F32, "inv_freq is not F32");
}

void check_kv_store(OpCheck& s) {
  const auto& a = s.attrs<KvStoreAttrs>();
  if (!s.has_slot("slot", a.slot)) return;
  const KvShape& slot = s.flow.kv_slots[a.slot];
  s.shape("key", s.in(0), ValueType::F32, slot.kv_heads * slot.key_dim);
  if (s.require(s.in(1).present() == (slot.value_dim > 0), "value {} for a slot with values of {}",
                s.in(1).present() ? "given" : "missing", slot.value_dim) &&
      slot.value_dim > 0) {
    s.shape("value", s.in(1), ValueType::F32, slot.kv_heads * slot.value_dim);
  }
  s.stores_slot(a.slot);
}

void check_attention(OpCheck& s) {
  check_attention(s, s.attrs<AttentionAttrs>());
}

// The slot keeps all positions: windows reach forward, too.
void check_text_attention(OpCheck& s) {
  const auto& a = s.attrs<AttentionAttrs>();
  check_attention(s);
  s.require(a.chunked == 0 && a.value_in_key == 0, "chunks, or values in keys, of a whole text");
  if (a.slot < 0 || a.slot >= static_cast<int64_t>(s.flow.kv_slots.size())) return;
  s.require(s.flow.kv_slots[a.slot].window == 0, "a slot that keeps {} positions of a whole text",
            s.flow.kv_slots[a.slot].window);
}

void check_choose_positions(OpCheck& s) {
  const auto& a = s.attrs<ChoosePositionsAttrs>();
  if (!s.has_slot("slot", a.slot) || !s.in_range("heads", a.heads, 1, kMaxHeads) ||
      !s.in_range("top_k", a.top_k, 1, kMaxChosenPositions)) {
    return;
  }
  s.in_range("open", a.open, 0, a.every == 1 ? 0 : 1);
  if (a.every == 1) {
    check_indexer(s, a);
  } else {
    check_entries(s, a.slot, a.key_dim, a.every);
    s.shape("q", s.in(0), ValueType::F32, int64_t{a.heads} * a.key_dim);
  }
  if (s.in(1).present()) s.shape("weights", s.in(1), ValueType::F32, a.heads);
  s.shape("positions", s.out(0), ValueType::I32, a.width());
  s.require(s.out(0).whole(), "positions are a part of a value");
  s.reads_slot(a.slot);
}

void check_sparse_attention(OpCheck& s) {
  const auto& a = s.attrs<AttentionAttrs>();
  check_attention(s);
  const Producer* writer = s.written_by("positions", s.in(1), StepOp::ChoosePositions, 0);
  if (!s.ok() || !writer) return;
  s.require(a.window == 0 && s.flow.kv_slots[a.slot].window == 0,
            "a window of {} over a slot that keeps {} positions, of chosen positions", a.window,
            s.flow.kv_slots[a.slot].window);
  const auto& choice = std::get<ChoosePositionsAttrs>(writer->attrs);
  s.require(choice.every == 1, "positions are entries of {}", choice.every);
  s.shape("positions", s.in(1), ValueType::I32, choice.top_k);
  s.require(s.in(1).whole(), "positions are a part of a value");
}

void check_choose_blocks(OpCheck& s) {
  const auto& a = s.attrs<ChooseBlocksAttrs>();
  if (!s.has_slot("slot", a.slot) || !s.in_range("heads", a.heads, 1, kMaxHeads) ||
      !s.in_range("block", a.block, 1, kMaxIndexBlock) ||
      !s.in_range("top_k", a.top_k, 1, kMaxChosenPositions / a.block) ||
      !s.in_range("local", a.local, 1, a.top_k)) {
    return;
  }
  check_indexer(s, a);
  s.shape("blocks", s.out(0), ValueType::I32, int64_t{a.heads} * a.top_k);
  s.require(s.out(0).whole(), "blocks are a part of a value");
  s.reads_slot(a.slot);
}

void check_block_attention(OpCheck& s) {
  const auto& a = s.attrs<BlockAttentionAttrs>();
  check_attention(s, whole_attention(a));
  if (!s.in_range("open", a.open, 0, 1)) return;
  const Producer* writer = s.written_by(
      "blocks", s.in(1), a.open != 0 ? StepOp::ChoosePositions : StepOp::ChooseBlocks, 0);
  if (!s.ok() || !writer) return;
  s.require(s.flow.kv_slots[a.slot].window == 0, "a slot that keeps {} positions",
            s.flow.kv_slots[a.slot].window);
  if (a.open != 0) {
    const auto& choice = std::get<ChoosePositionsAttrs>(writer->attrs);
    s.require(choice.open != 0 && choice.every == a.block,
              "entries of {} with an open one, chosen among those of {}{}", a.block, choice.every,
              choice.open != 0 ? "" : " without");
    s.shape("blocks", s.in(1), ValueType::I32, choice.width());
    s.require(s.in(1).whole(), "blocks are a part of a value");
    return;
  }
  const auto& choice = std::get<ChooseBlocksAttrs>(writer->attrs);
  s.require(choice.block == a.block && choice.heads == a.kv_heads,
            "{} key heads read blocks of {}, but {} heads choose blocks of {}", a.kv_heads, a.block,
            choice.heads, choice.block);
  s.shape("blocks", s.in(1), ValueType::I32, int64_t{choice.heads} * choice.top_k);
  s.require(s.in(1).whole(), "blocks are a part of a value");
}

void check_compress(OpCheck& s) {
  const auto& a = s.attrs<CompressAttrs>();
  check_entries(s, a.entries, a.dim, a.every);
  if (!s.ok() || !s.has_slot("slot", a.slot) || !s.in_range("overlapped", a.overlapped, 0, 1) ||
      !s.in_range("rotary_dim", a.rotary_dim, 0, a.dim) ||
      !s.in_range("every", a.every, 2, kMaxCompressed)) {
    return;
  }
  s.in_range("interleaved", a.interleaved, 0, 1);
  s.require(a.rotary_dim % 2 == 0, "rotary_dim is {}, expected an even number", a.rotary_dim);
  s.require(a.eps >= 0, "eps is {}", a.eps);
  s.in_range("from_first", a.from_first, 0, 1);
  const KvShape& slot = s.flow.kv_slots[a.slot];
  const bool scored = s.weight(0).present();
  s.require(slot.key_dim == kCompressedChannels &&
                slot.value_dim == (scored ? kCompressedChannels : 0) &&
                slot.kv_heads * kCompressedChannels == a.channels(),
            "{} channels{} in a slot with {} heads of {} and {}", a.channels(),
            scored ? " with scores" : "", slot.kv_heads, slot.key_dim, slot.value_dim);
  s.require(scored || a.overlapped == 0, "overlapped entries without scores");
  s.require(slot.window == 0 || slot.window >= a.window(),
            "entries of {} positions of a slot that keeps {}", a.window(), slot.window);
  if (scored) s.matrices("bias", s.weight(0), 1, a.every, a.channels());
  if (s.weight(1).present()) s.vector("norm", s.weight(1), a.dim);
  if (s.require(s.weight(2).present() == (a.rotary_dim > 0), "inv_freq {} for {} rotated elements",
                s.weight(2).present() ? "given" : "missing", a.rotary_dim) &&
      a.rotary_dim > 0) {
    s.vector("inv_freq", s.weight(2), a.rotary_dim / 2);
  }
  s.reads_slot(a.slot);
  s.stores_slot(a.entries);
}

void check_compressed_attention(OpCheck& s) {
  const auto& a = s.attrs<CompressedAttentionAttrs>();
  check_entries(s, a.entries, a.dim, a.every);
  if (!s.ok() || !s.has_slot("slot", a.slot) || !s.in_range("window", a.window, 1, kMaxDim)) {
    return;
  }
  const KvShape& slot = s.flow.kv_slots[a.slot];
  s.require(slot.window == 0 || a.window <= slot.window,
            "a window of {} over a slot that keeps {} positions", a.window, slot.window);
  AttentionAttrs own = whole_attention(a);
  own.window = a.window;
  check_attention(s, own);
  s.reads_slot(a.entries);
  if (!s.ok() || !s.in(1).present()) return;
  const Producer* writer = s.written_by("chosen", s.in(1), StepOp::ChoosePositions, 0);
  if (!writer) return;
  const auto& choice = std::get<ChoosePositionsAttrs>(writer->attrs);
  s.require(choice.every == a.every && choice.open == 0,
            "entries of {} positions, chosen among those of {}{}", a.every, choice.every,
            choice.open != 0 ? " with an open one" : "");
  s.shape("chosen", s.in(1), ValueType::I32, choice.top_k);
  s.require(s.in(1).whole(), "chosen is a part of a value");
}

}  // namespace ktx::op_checks
