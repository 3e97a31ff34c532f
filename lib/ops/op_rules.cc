#include "lib/ops/op_rules.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "lib/formats/shape_limits.h"
#include "lib/support/strings.h"

namespace ktx {
namespace {

// "gate" of "gate up", "xq" of "x xq?".
std::string_view operand_name(std::string_view operands, size_t i) {
  const auto names = split(operands, ' ');
  return names[i].substr(0, names[i].find('?'));
}

// One function per op, or for several (column `rule` of step_ops.def). That required operands
// are there, and that attributes are finite, has been checked.

void check_embed(OpCheck& s) {
  const OpWeight& table = s.weight(0);
  s.require(table.dtype != DType::I32, "table has integer elements");
  s.shape("y", s.out(0), ValueType::F32, table.cols);
  s.require(table.matrices == 1 && table.rows >= s.flow.vocab_size,
            "table has {} rows for {} tokens", table.rows * table.matrices, s.flow.vocab_size);
}

void check_given_hidden(OpCheck& s) {
  const OpOperand& y = s.out(0);
  s.shape("y", y, ValueType::F32, y.width);
  s.require(y.offset == 0 && y.width == y.value_width && y.rows_per_row == 1,
            "y is not a whole row");
}

// That positions stay inside of the table is the runtime's to see to.
void check_embed_row(OpCheck& s) {
  const OpWeight& table = s.weight(0);
  s.require(table.dtype != DType::I32, "table has integer elements");
  s.shape("y", s.out(0), ValueType::F32, table.cols);
  s.require(table.matrices == 1, "table is {} matrices, expected 1", table.matrices);
  s.in_range("row", s.attrs<EmbedRowAttrs>().row, -1, table.rows - 1);
}

// Of a norm over equal groups of a row: the elements of its vectors; none where a rule is broken
// that they hang on.
template <class Attrs>
std::optional<int64_t> check_norm(OpCheck& s) {
  const auto& a = s.attrs<Attrs>();
  const OpOperand& x = s.in(0);
  if (!s.in_range("groups", a.groups, 1, kMaxHeads)) return std::nullopt;
  s.require(a.eps >= 0, "eps is {}", a.eps);
  s.require(x.type == ValueType::F32, "x is not F32");
  s.shape("y", s.out(0), ValueType::F32, x.width, x.rows);
  if (!s.require(x.width % a.groups == 0, "{} groups in {} elements", a.groups, x.width)) {
    return std::nullopt;
  }
  const int64_t part = x.width / a.groups;
  if (s.weight(0).rows > 1) {
    s.matrices("weight", s.weight(0), 1, a.groups, part);
  } else {
    s.vector("weight", s.weight(0), part);
  }
  return part;
}

void check_rms_norm(OpCheck& s) {
  check_norm<RmsNormAttrs>(s);
}

void check_layer_norm(OpCheck& s) {
  const auto part = check_norm<LayerNormAttrs>(s);
  if (part && s.weight(1).present()) s.vector("bias", s.weight(1), *part);
}

void check_quantize(OpCheck& s) {
  const auto& a = s.attrs<QuantizeAttrs>();
  const OpOperand& x = s.in(0);
  const OpOperand& xq = s.out(0);
  if (!s.in_range("rows_per_token", a.rows_per_token, 1, kMaxHeads)) return;
  if (!s.in_range("stride", a.stride, 1, kMaxDim)) return;
  s.require(x.type == ValueType::F32, "x is not F32");
  s.product_input("xq", xq, a.rows_per_token, xq.value_width, x.rows);
  const int64_t end = int64_t{a.rows_per_token - 1} * a.stride + xq.value_width;
  s.require(end <= x.width, "{} rows of {}, {} apart, of {} elements", a.rows_per_token,
            xq.value_width, a.stride, x.width);
}

void check_matmul(OpCheck& s) {
  const OpOperand& x = s.in(0);
  const OpOperand& y = s.out(0);
  const OpWeight& w = s.weight(0);
  s.in_range("accumulate", s.attrs<MatmulAttrs>().accumulate, 0, 1);
  s.shape("x", x, ValueType::F32, w.cols, x.rows);
  if (s.in(1).present()) s.product_input("xq", s.in(1), 1, w.cols, x.rows);
  s.shape("y", y, ValueType::F32, w.rows, x.rows);
  s.require(w.matrices == 1, "w is {} matrices, expected 1", w.matrices);
  if (s.weight(1).present()) s.vector("bias", s.weight(1), y.width);
}

void check_matmul_heads(OpCheck& s) {
  const auto& a = s.attrs<MatmulHeadsAttrs>();
  const OpOperand& x = s.in(0);
  const OpOperand& y = s.out(0);
  const OpWeight& w = s.weight(0);
  if (!s.in_range("heads", a.heads, 1, kMaxHeads) ||
      !s.in_range("transposed", a.transposed, 0, 1) ||
      !s.in_range("row_begin", a.row_begin, 0, w.rows) ||
      !s.in_range("row_count", a.row_count, 1, w.rows - a.row_begin)) {
    return;
  }
  const int64_t k = a.transposed ? a.row_count : w.cols;
  const int64_t n = a.transposed ? w.cols : a.row_count;
  if (!s.in_range("x_stride", a.x_stride, k, kMaxDim)) return;
  if (!s.in_range("y_stride", a.y_stride, n, kMaxDim)) return;
  s.matrices("w", w, a.heads, w.rows, w.cols);
  s.shape("x", x, ValueType::F32, x.width);
  s.shape("y", y, ValueType::F32, y.width);
  s.require((a.heads - 1) * int64_t{a.x_stride} + k <= x.width,
            "{} heads of {}, {} apart, of {} elements of x", a.heads, k, a.x_stride, x.width);
  s.require((a.heads - 1) * int64_t{a.y_stride} + n <= y.width,
            "{} heads of {}, {} apart, of {} elements of y", a.heads, n, a.y_stride, y.width);
  if (s.in(1).present()) s.product_input("xq", s.in(1), a.heads, k);
}

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

void check_kv_store(OpCheck& s) {
  const auto& a = s.attrs<KvStoreAttrs>();
  if (!s.in_range("slot", a.slot, 0, static_cast<int64_t>(s.flow.kv_slots.size()) - 1)) return;
  const KvShape& slot = s.flow.kv_slots[a.slot];
  s.shape("key", s.in(0), ValueType::F32, slot.kv_heads * slot.key_dim);
  if (s.require(s.in(1).present() == (slot.value_dim > 0), "value {} for a slot with values of {}",
                s.in(1).present() ? "given" : "missing", slot.value_dim) &&
      slot.value_dim > 0) {
    s.shape("value", s.in(1), ValueType::F32, slot.kv_heads * slot.value_dim);
  }
  s.require(!s.flow.slot_stored[a.slot], "slot {} is stored twice", a.slot);
  s.flow.slot_stored[a.slot] = true;
}

void check_attention(OpCheck& s, const AttentionAttrs& a) {
  if (!s.in_range("slot", a.slot, 0, static_cast<int64_t>(s.flow.kv_slots.size()) - 1) ||
      !s.in_range("heads", a.heads, 1, kMaxHeads) ||
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
  if (!s.op.weights.empty() && s.weight(0).present()) s.vector("sinks", s.weight(0), a.heads);
  s.shape("q", s.in(0), ValueType::F32, int64_t{a.heads} * a.key_dim);
  s.shape("y", s.out(0), ValueType::F32, int64_t{a.heads} * a.value_dim);
  s.require(s.flow.slot_stored[a.slot], "slot {} is read before it is stored", a.slot);
}

void check_attention(OpCheck& s) {
  check_attention(s, s.attrs<AttentionAttrs>());
}

// Without windows: all positions are seen.
void check_text_attention(OpCheck& s) {
  const auto& a = s.attrs<AttentionAttrs>();
  s.require(a.window == 0 && a.chunked == 0 && a.value_in_key == 0,
            "a window of {} in attention over the whole text", a.window);
  check_attention(s);
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
  if (!s.in_range("entries", slot, 0, static_cast<int64_t>(s.flow.kv_slots.size()) - 1) ||
      !s.in_range("dim", dim, 1, kMaxDim) ||
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

void check_choose_positions(OpCheck& s) {
  const auto& a = s.attrs<ChoosePositionsAttrs>();
  if (!s.in_range("slot", a.slot, 0, static_cast<int64_t>(s.flow.kv_slots.size()) - 1) ||
      !s.in_range("heads", a.heads, 1, kMaxHeads) ||
      !s.in_range("top_k", a.top_k, 1, kMaxChosenPositions)) {
    return;
  }
  if (a.every == 1) {
    check_indexer(s, a);
  } else {
    check_entries(s, a.slot, a.key_dim, a.every);
    s.shape("q", s.in(0), ValueType::F32, int64_t{a.heads} * a.key_dim);
  }
  s.shape("weights", s.in(1), ValueType::F32, a.heads);
  s.shape("positions", s.out(0), ValueType::I32, a.top_k);
  s.require(s.out(0).whole(), "positions are a part of a value");
  s.require(s.flow.slot_stored[a.slot], "slot {} is read before it is stored", a.slot);
}

void check_sparse_attention(OpCheck& s) {
  const auto& a = s.attrs<AttentionAttrs>();
  check_attention(s);
  const Producer* writer = s.written_by("positions", s.in(1), StepOp::ChoosePositions, 0);
  if (!s.ok() || !writer) return;
  s.require(a.window == 0 && s.flow.kv_slots[a.slot].window == 0,
            "a window of {} over a slot that keeps {} positions, of chosen positions", a.window,
            s.flow.kv_slots[a.slot].window);
  s.shape("positions", s.in(1), ValueType::I32,
          std::get<ChoosePositionsAttrs>(writer->attrs).top_k);
  s.require(s.in(1).whole(), "positions are a part of a value");
}

void check_choose_blocks(OpCheck& s) {
  const auto& a = s.attrs<ChooseBlocksAttrs>();
  if (!s.in_range("slot", a.slot, 0, static_cast<int64_t>(s.flow.kv_slots.size()) - 1) ||
      !s.in_range("heads", a.heads, 1, kMaxHeads) ||
      !s.in_range("block", a.block, 1, kMaxIndexBlock) ||
      !s.in_range("top_k", a.top_k, 1, kMaxChosenPositions / a.block) ||
      !s.in_range("local", a.local, 1, a.top_k)) {
    return;
  }
  check_indexer(s, a);
  s.shape("blocks", s.out(0), ValueType::I32, int64_t{a.heads} * a.top_k);
  s.require(s.out(0).whole(), "blocks are a part of a value");
  s.require(s.flow.slot_stored[a.slot], "slot {} is read before it is stored", a.slot);
}

void check_block_attention(OpCheck& s) {
  const auto& a = s.attrs<BlockAttentionAttrs>();
  check_attention(s, whole_attention(a));
  const Producer* writer = s.written_by("blocks", s.in(1), StepOp::ChooseBlocks, 0);
  if (!s.ok() || !writer) return;
  const auto& choice = std::get<ChooseBlocksAttrs>(writer->attrs);
  s.require(s.flow.kv_slots[a.slot].window == 0, "a slot that keeps {} positions",
            s.flow.kv_slots[a.slot].window);
  s.require(choice.block == a.block && choice.heads == a.kv_heads,
            "{} key heads read blocks of {}, but {} heads choose blocks of {}", a.kv_heads, a.block,
            choice.heads, choice.block);
  s.shape("blocks", s.in(1), ValueType::I32, int64_t{choice.heads} * choice.top_k);
  s.require(s.in(1).whole(), "blocks are a part of a value");
}

void check_compress(OpCheck& s) {
  const auto& a = s.attrs<CompressAttrs>();
  check_entries(s, a.entries, a.dim, a.every);
  if (!s.ok() || !s.in_range("slot", a.slot, 0, static_cast<int64_t>(s.flow.kv_slots.size()) - 1) ||
      !s.in_range("overlapped", a.overlapped, 0, 1) ||
      !s.in_range("rotary_dim", a.rotary_dim, 2, a.dim) ||
      !s.in_range("every", a.every, 2, kMaxCompressed)) {
    return;
  }
  s.in_range("interleaved", a.interleaved, 0, 1);
  s.require(a.rotary_dim % 2 == 0, "rotary_dim is {}, expected an even number", a.rotary_dim);
  s.require(a.eps >= 0, "eps is {}", a.eps);
  const KvShape& slot = s.flow.kv_slots[a.slot];
  s.require(slot.key_dim == kCompressedChannels && slot.value_dim == kCompressedChannels &&
                slot.kv_heads * kCompressedChannels == a.channels(),
            "{} channels in a slot with {} heads of {} and {}", a.channels(), slot.kv_heads,
            slot.key_dim, slot.value_dim);
  s.require(slot.window == 0 || slot.window >= a.window(),
            "entries of {} positions of a slot that keeps {}", a.window(), slot.window);
  s.matrices("bias", s.weight(0), 1, a.every, a.channels());
  s.vector("norm", s.weight(1), a.dim);
  s.vector("inv_freq", s.weight(2), a.rotary_dim / 2);
  s.require(s.flow.slot_stored[a.slot], "slot {} is read before it is stored", a.slot);
  s.require(!s.flow.slot_stored[a.entries], "slot {} is stored twice", a.entries);
  s.flow.slot_stored[a.entries] = true;
}

void check_compressed_attention(OpCheck& s) {
  const auto& a = s.attrs<CompressedAttentionAttrs>();
  check_entries(s, a.entries, a.dim, a.every);
  if (!s.ok() || !s.in_range("slot", a.slot, 0, static_cast<int64_t>(s.flow.kv_slots.size()) - 1) ||
      !s.in_range("window", a.window, 1, kMaxDim)) {
    return;
  }
  const KvShape& slot = s.flow.kv_slots[a.slot];
  s.require(slot.window == 0 || a.window <= slot.window,
            "a window of {} over a slot that keeps {} positions", a.window, slot.window);
  AttentionAttrs own = whole_attention(a);
  own.window = a.window;
  check_attention(s, own);
  s.require(s.flow.slot_stored[a.entries], "slot {} is read before it is stored", a.entries);
  if (!s.ok() || !s.in(1).present()) return;
  const Producer* writer = s.written_by("chosen", s.in(1), StepOp::ChoosePositions, 0);
  if (!writer) return;
  const auto& choice = std::get<ChoosePositionsAttrs>(writer->attrs);
  s.require(choice.every == a.every, "entries of {} positions, chosen among those of {}", a.every,
            choice.every);
  s.shape("chosen", s.in(1), ValueType::I32, choice.top_k);
  s.require(s.in(1).whole(), "chosen is a part of a value");
}

void check_stream_weights(OpCheck& s) {
  const auto& a = s.attrs<StreamWeightsAttrs>();
  constexpr int64_t kMaxIterations = 1000;
  if (!s.in_range("streams", a.streams, 1, kMaxStreams)) return;
  s.in_range("iterations", a.iterations, 0, kMaxIterations);
  s.require(a.eps >= 0, "eps is {}", a.eps);
  s.shape("mixes", s.in(0), ValueType::F32, a.width(), s.in(0).rows);
  s.shape("weights", s.out(0), ValueType::F32, a.width(), s.in(0).rows);
  s.vector("scale", s.weight(0), a.scales());
  s.vector("base", s.weight(1), a.width());
}

void check_collapse_streams(OpCheck& s) {
  const OpOperand& x = s.in(0);
  const int64_t streams = s.in(1).width;
  s.require(streams <= kMaxStreams, "{} streams, expected at most {}", streams, kMaxStreams);
  s.shape("x", x, ValueType::F32, streams * s.out(0).width, x.rows);
  s.shape("weights", s.in(1), ValueType::F32, streams, x.rows);
  s.shape("y", s.out(0), ValueType::F32, s.out(0).width, x.rows);
}

void check_mix_streams(OpCheck& s) {
  const OpOperand& x = s.in(0);
  const int64_t streams = x.width / std::max<int64_t>(s.in(1).width, 1);
  if (!s.in_range("streams", streams, 1, kMaxStreams)) return;
  s.shape("x", x, ValueType::F32, streams * s.in(1).width, x.rows);
  s.shape("part", s.in(1), ValueType::F32, s.in(1).width, x.rows);
  s.shape("weights", s.in(2), ValueType::F32, streams * (streams + 1), x.rows);
  s.shape("y", s.out(0), ValueType::F32, x.width, x.rows);
}

// Each state belongs to one step.
void check_state(OpCheck& s, int32_t state, int64_t floats) {
  constexpr int64_t kMaxStates = 1 << 16, kMaxStateFloats = int64_t{1} << 32;
  if (!s.in_range("state", state, 0, kMaxStates - 1)) return;
  s.require(floats <= kMaxStateFloats, "a state of {} floats, expected at most {}", floats,
            kMaxStateFloats);
  std::vector<bool>& used = s.flow.state_used;
  if (static_cast<int64_t>(used.size()) <= state) used.resize(static_cast<size_t>(state) + 1);
  s.require(!used[state], "state {} is used twice", state);
  used[state] = true;
}

void check_causal_conv(OpCheck& s) {
  const auto& a = s.attrs<CausalConvAttrs>();
  if (!s.in_range("channels", a.channels, 1, kMaxDim) || !s.in_range("taps", a.taps, 2, 64)) return;
  s.shape("x", s.in(0), ValueType::F32, a.channels);
  s.shape("y", s.out(0), ValueType::F32, a.channels);
  s.matrices("w", s.weight(0), 1, a.channels, a.taps);
  if (s.weight(1).present()) s.vector("bias", s.weight(1), a.channels);
  s.in_range("plain", a.plain, 0, 1);
  check_state(s, a.state, a.state_floats());
}

void check_delta_rule(OpCheck& s) {
  const auto& a = s.attrs<DeltaRuleAttrs>();
  if (!s.in_range("key_heads", a.key_heads, 1, kMaxHeads) ||
      !s.in_range("value_heads", a.value_heads, 1, kMaxHeads) ||
      !s.in_range("head_dim", a.head_dim, 1, kMaxDeltaHead)) {
    return;
  }
  s.in_range("tiled", a.tiled, 0, 1);
  if (!s.in_range("by_channel", a.by_channel, 0, 1)) return;
  s.require(a.lower_bound == 0 || (a.lower_bound < 0 && a.by_channel != 0), "lower_bound is {}",
            a.lower_bound);
  s.require(a.value_heads % a.key_heads == 0, "{} value heads share {} key heads", a.value_heads,
            a.key_heads);
  const int64_t heads = int64_t{a.key_heads} * 2 + a.value_heads;
  s.shape("x", s.in(0), ValueType::F32, heads * a.head_dim);
  const bool apart = s.in(2).present();
  s.shape("b", s.in(1), ValueType::F32, int64_t{a.value_heads} * (apart ? 1 : 2));
  s.require(apart || a.by_channel == 0, "a is missing");
  if (apart) s.shape("a", s.in(2), ValueType::F32, a.decays());
  s.vector("decay", s.weight(0), a.value_heads);
  s.vector("dt_bias", s.weight(1), a.decays());
  s.shape("y", s.out(0), ValueType::F32, int64_t{a.value_heads} * a.head_dim);
  check_state(s, a.state, a.state_floats());
}

void check_state_space(OpCheck& s) {
  const auto& a = s.attrs<StateSpaceAttrs>();
  if (!s.in_range("heads", a.heads, 1, kMaxHeads) ||
      !s.in_range("head_dim", a.head_dim, 1, kMaxDeltaHead) ||
      !s.in_range("groups", a.groups, 1, kMaxHeads) ||
      !s.in_range("state_dim", a.state_dim, 1, kMaxDeltaHead)) {
    return;
  }
  s.require(a.heads % a.groups == 0, "{} heads share {} groups", a.heads, a.groups);
  s.shape("x", s.in(0), ValueType::F32, a.channels());
  s.shape("dt", s.in(1), ValueType::F32, a.heads);
  s.vector("decay", s.weight(0), a.heads);
  s.vector("skip", s.weight(1), a.heads);
  s.vector("dt_bias", s.weight(2), a.heads);
  s.shape("y", s.out(0), ValueType::F32, a.width());
  check_state(s, a.state, a.state_floats());
}

// Row-wise ops whose operands are all alike.
void check_same_rows(OpCheck& s) {
  const OpOperand& x = s.in(0);
  for (size_t i = 0; i < s.inputs.size(); ++i) {
    s.shape(operand_name(s.op.inputs, i), s.in(i), ValueType::F32, x.width, x.rows);
  }
  for (size_t o = 0; o < s.outputs.size(); ++o) {
    s.shape(operand_name(s.op.outputs, o), s.out(o), ValueType::F32, x.width, x.rows);
  }
}

// A gated linear unit's attributes.
void check_activation(OpCheck& s, const GluAttrs& a) {
  s.in_range("activation", a.activation, 0, kActivations - 1);
  s.require(a.limit >= 0, "limit is {}", a.limit);
}

void check_glu(OpCheck& s) {
  check_activation(s, s.attrs<GluAttrs>());
  check_same_rows(s);
}

void check_activate(OpCheck& s) {
  s.in_range("function", s.attrs<ActivateAttrs>().function, 0, kUnitFunctions - 1);
  check_same_rows(s);
}

void check_softcap(OpCheck& s) {
  s.require(s.attrs<SoftcapAttrs>().cap > 0, "cap is {}", s.attrs<SoftcapAttrs>().cap);
  check_same_rows(s);
}

void check_position_scale(OpCheck& s) {
  const auto& a = s.attrs<PositionScaleAttrs>();
  s.require(a.growth >= 0, "growth is {}", a.growth);
  s.in_range("context", a.context, 1, INT32_MAX);
  s.shape("x", s.in(0), ValueType::F32, s.in(0).width);
  s.shape("y", s.out(0), ValueType::F32, s.in(0).width);
}

void check_router(OpCheck& s) {
  const auto& a = s.attrs<RouterAttrs>();
  if (!s.in_range("experts", a.experts, 1, kMaxHeads) ||
      !s.in_range("top_k", a.top_k, 1, a.experts) ||
      !s.in_range("groups", a.groups, 1, a.experts) ||
      !s.in_range("groups_used", a.groups_used, 1, a.groups)) {
    return;
  }
  s.in_range("scoring", a.scoring, 0, kScorings - 1);
  s.in_range("normalize", a.normalize, 0, 1);
  s.in_range("group_score", a.group_score, 0, 1);
  const int32_t group = a.experts / a.groups;
  s.require(a.experts % a.groups == 0, "{} experts in {} groups", a.experts, a.groups);
  s.require(int64_t{group} * a.groups_used >= a.top_k, "{} experts of {} groups of {}", a.top_k,
            a.groups_used, group);
  s.shape("logits", s.in(0), ValueType::F32, a.experts);
  s.shape("ids", s.out(0), ValueType::I32, a.top_k);
  s.shape("weights", s.out(1), ValueType::F32, a.top_k);
  s.require(s.out(0).whole(), "ids are a part of a value");
  if (s.weight(0).present()) s.vector("bias", s.weight(0), a.experts);
  if (s.weight(1).present()) s.vector("factors", s.weight(1), a.experts);
  if (!s.weight(2).present()) return;
  const OpWeight& table = s.weight(2);
  s.require(table.dtype == DType::I32 && table.matrices == 1 && table.cols == a.top_k &&
                table.rows >= s.flow.vocab_size,
            "table is {} of {}, expected I32 [{}, {}]",
            shape_text(table.cols, table.rows, table.matrices), name(table.dtype), a.top_k,
            s.flow.vocab_size);
  s.require(!s.weight(0).present() && a.groups == 1, "a table and a bias or groups");
}

void check_group_experts(OpCheck& s) {
  const auto& a = s.attrs<GroupExpertsAttrs>();
  const Producer* writer = s.written_by("ids", s.in(0), StepOp::Router, 0);
  if (!writer) return;
  const auto& router = std::get<RouterAttrs>(writer->attrs);
  const bool some = s.weight(0).present();  // not all of the router's experts
  s.require((some ? router.experts >= a.experts : router.experts == a.experts) &&
                router.top_k == a.top_k && a.experts > 0,
            "{} of {} experts, but the router gives {} of {}", a.top_k, a.experts, router.top_k,
            router.experts);
  if (a.ranks == 0) {
    s.require(a.first_rank == 0, "choices from {} on, but none of them", a.first_rank);
  } else if (s.in_range("first_rank", a.first_rank, 0, a.top_k - 1)) {
    s.in_range("ranks", a.ranks, 1, a.top_k - a.first_rank);
  }
  if (some) {
    s.vector("places", s.weight(0), router.experts);
    s.require(s.weight(0).dtype == DType::F32, "places is not F32");
  }
  s.shape("ids", s.in(0), ValueType::I32, a.top_k);
  s.shape("order", s.out(0), ValueType::I32, a.top_k);
  s.shape("offsets", s.out(1), ValueType::I32, int64_t{a.experts} + 1, RowKind::Single);
  s.require(s.in(0).whole() && s.out(0).whole() && s.out(1).whole(),
            "ids, order or offsets are a part of a value");
}

// The operands that experts_gate_up and experts_down share.
bool check_expert_order(OpCheck& s, const ExpertsAttrs& a) {
  const Producer* order = s.written_by("order", s.in(2), StepOp::GroupExperts, 0);
  const Producer* offsets = s.written_by("offsets", s.in(3), StepOp::GroupExperts, 1);
  if (!order || !offsets) return false;
  const auto& grouped = std::get<GroupExpertsAttrs>(order->attrs);
  if (!s.require(order->step == offsets->step, "order and offsets come from different steps") ||
      !s.require(grouped.experts == a.experts && grouped.top_k == a.top_k,
                 "{} of {} experts, grouped as {} of {}", a.top_k, a.experts, grouped.top_k,
                 grouped.experts)) {
    return false;
  }
  s.shape("order", s.in(2), ValueType::I32, a.top_k);
  s.shape("offsets", s.in(3), ValueType::I32, int64_t{a.experts} + 1, RowKind::Single);
  return s.ok();
}

// A vector for each expert, in one row or in one row each.
void check_expert_bias(OpCheck& s, const OpWeight& bias, int64_t experts, int64_t width) {
  s.require(bias.matrices == 1 && bias.rows == experts && bias.cols == width,
            "bias is {} x [{}, {}], expected [{}, {}]", bias.matrices, bias.cols, bias.rows, width,
            experts);
}

void check_experts_gate_up(OpCheck& s) {
  const auto& a = s.attrs<ExpertsAttrs>();
  if (!check_expert_order(s, a)) return;
  const OpOperand& x = s.in(0);
  const OpWeight& gate = s.weight(0);
  s.require(a.accumulate == 0, "accumulate is {}, expected 0", a.accumulate);
  check_activation(s, a.glu());
  for (size_t i = 2; i < 4; ++i) {
    if (s.weight(i).present()) check_expert_bias(s, s.weight(i), a.experts, gate.rows);
    if (s.weight(i + 2).present()) s.vector("factors", s.weight(i + 2), a.experts);
  }
  s.matrices("gate", gate, a.experts, gate.rows, x.width);
  s.matrices("up", s.weight(1), a.experts, gate.rows, x.width);
  s.shape("x", x, ValueType::F32, gate.cols);
  if (s.in(1).present()) s.product_input("xq", s.in(1), 1, gate.cols);
  s.rows_of("h", s.out(0), ValueType::F32, a.top_k, gate.rows);
}

void check_experts_down(OpCheck& s) {
  const auto& a = s.attrs<ExpertsAttrs>();
  if (!check_expert_order(s, a)) return;
  const OpWeight& down = s.weight(0);
  s.in_range("accumulate", a.accumulate, 0, 1);
  s.require(a.activation == 0 && a.limit == 0, "an activation of down");
  if (s.weight(1).present()) check_expert_bias(s, s.weight(1), a.experts, down.rows);
  s.matrices("down", down, a.experts, down.rows, down.cols);
  s.rows_of("h", s.in(0), ValueType::F32, a.top_k, down.cols);
  if (s.in(1).present()) s.product_input("hq", s.in(1), a.top_k, down.cols);
  s.shape("weights", s.in(4), ValueType::F32, a.top_k);
  if (!s.in_range("by_pair", a.by_pair, 0, 1)) return;
  if (a.by_pair == 0) {
    s.shape("y", s.out(0), ValueType::F32, down.rows);
    return;
  }
  s.require(a.accumulate == 0, "rows of pairs are not added to what y has");
  s.rows_of("y", s.out(0), ValueType::F32, a.top_k, down.rows);
}

void check_sum_experts(OpCheck& s) {
  const auto& a = s.attrs<SumExpertsAttrs>();
  s.in_range("accumulate", a.accumulate, 0, 1);
  const Producer* router = s.written_by("ids", s.in(1), StepOp::Router, 0);
  const Producer* pairs = s.written_by("pairs", s.in(0), StepOp::ExpertsDown, 0);
  if (!router || !pairs) return;
  s.require(std::get<RouterAttrs>(router->attrs).top_k == a.top_k, "top_k is {}, the router's {}",
            a.top_k, std::get<RouterAttrs>(router->attrs).top_k);
  s.shape("ids", s.in(1), ValueType::I32, a.top_k);
  s.require(s.in(1).whole(), "ids is a part of a value");
  s.rows_of("pairs", s.in(0), ValueType::F32, a.top_k, s.out(0).width);
  s.shape("y", s.out(0), ValueType::F32, s.out(0).width);
}

void check_sigmoid_scale(OpCheck& s) {
  const OpOperand& x = s.in(0);
  s.shape("x", x, ValueType::F32, x.width, x.rows);
  s.shape("gate", s.in(1), ValueType::F32, 1, x.rows);
  s.shape("y", s.out(0), ValueType::F32, x.width, x.rows);
}

void check_head_scale(OpCheck& s) {
  const auto& a = s.attrs<HeadScaleAttrs>();
  const OpOperand& x = s.in(0);
  s.in_range("function", a.function, 0, kHeadGates - 1);
  if (!s.require(a.heads > 0 && x.width % a.heads == 0, "{} heads do not divide a row of {}",
                 a.heads, x.width)) {
    return;
  }
  s.shape("x", x, ValueType::F32, x.width, x.rows);
  s.shape("gate", s.in(1), ValueType::F32, a.heads, x.rows);
  s.shape("y", s.out(0), ValueType::F32, x.width, x.rows);
  s.require(x.whole() && s.in(1).whole() && s.out(0).whole(), "an operand is a part of a value");
}

void check_gather_rows(OpCheck& s) {
  const OpOperand& x = s.in(0);
  s.shape("x", x, ValueType::F32, x.width);
  s.shape("y", s.out(0), ValueType::F32, x.width, RowKind::Output);
}

void check_transfer(OpCheck& s) {
  const OpOperand& x = s.in(0);
  const OpOperand& y = s.out(0);
  s.require(x.whole() && y.whole(), "only whole values are transferred");
  s.shape("y", y, x.type, x.width, x.rows);
  s.require(x.rows_per_row == y.rows_per_row && x.value_width == y.value_width,
            "y has another shape than x");
  if (!s.in(1).present() && !s.in(2).present()) return;
  if (!s.require(s.in(1).present() && s.in(2).present(), "order without offsets, or these alone")) {
    return;
  }
  const Producer* order = s.written_by("order", s.in(1), StepOp::GroupExperts, 0);
  const Producer* offsets = s.written_by("offsets", s.in(2), StepOp::GroupExperts, 1);
  if (!order || !offsets) return;
  const auto& grouped = std::get<GroupExpertsAttrs>(order->attrs);
  s.require(order->step == offsets->step, "order and offsets come from different steps");
  s.shape("order", s.in(1), ValueType::I32, grouped.top_k);
  s.shape("offsets", s.in(2), ValueType::I32, int64_t{grouped.experts} + 1, RowKind::Single);
  s.require(x.type == ValueType::F32 && x.rows == RowKind::Token &&
                (x.rows_per_row == 1 || x.rows_per_row == grouped.top_k),
            "x has no row for each token, or for each of its {} pairs", grouped.top_k);
}

void check_all_reduce(OpCheck& s) {
  s.in_range("accumulate", s.attrs<AllReduceAttrs>().accumulate, 0, 1);
  const OpOperand& y = s.out(0);
  for (size_t i = 0; i < s.inputs.size(); ++i) {
    if (!s.in(i).present()) continue;
    s.shape("a part", s.in(i), ValueType::F32, y.width, y.rows);
    s.require(s.in(i).whole(), "a part of a value");
  }
  s.require(y.whole(), "y is a part of a value");
  s.shape("y", y, ValueType::F32, y.width, y.rows);
}

using Rule = void (*)(OpCheck&);
constexpr Rule kRules[] = {
#define KTX_STEP_OP(id, name, attrs, in, out, weights, traits, rule, sentence) check_##rule,
#include "lib/ops/step_ops.def"
#undef KTX_STEP_OP
};

void check_present(OpCheck& s) {
  for (size_t i = 0; i < s.inputs.size(); ++i) {
    s.require(s.in(i).present() || optional_operand(s.op.inputs, i), "input {} ({}) is missing", i,
              s.op.inputs);
  }
  for (size_t i = 0; i < s.outputs.size(); ++i) {
    s.require(s.out(i).present(), "output {} ({}) is missing", i, s.op.outputs);
  }
  for (size_t i = 0; i < s.weights.size(); ++i) {
    s.require(s.weight(i).present() || optional_operand(s.op.weights, i),
              "weight {} ({}) is missing", i, s.op.weights);
    s.require(s.weight(i).dtype != DType::I32 || operand_name(s.op.weights, i) == "table",
              "weight {} has integer elements", i);
  }
}

void check_finite(OpCheck& s) {
  std::visit(
      [&](auto attrs) {
        attrs.fields([&](const char* name, auto& field) {
          s.require(std::isfinite(static_cast<float>(field)), "{} is {}", name, field);
        });
      },
      s.step_attrs);
}

}  // namespace

bool operand_count_fits(std::string_view operands, int64_t count) {
  const int64_t most = operand_count(operands);
  int64_t least = most;
  while (least > 0 && optional_operand(operands, least - 1)) --least;
  return least <= count && count <= most;
}

void check_op(OpCheck& s) {
  check_present(s);
  check_finite(s);
  if (s.ok()) kRules[static_cast<uint32_t>(s.op.op)](s);
}

void note_outputs(OpCheck& s, int64_t step) {
  // A copy counts as written by who wrote the original.
  if (s.op.op == StepOp::Transfer) {
    s.flow.producer[s.out(0).value] = s.flow.producer[s.in(0).value];
    return;
  }
  for (size_t o = 0; o < s.outputs.size(); ++o) {
    s.flow.producer[s.out(o).value] = {step, static_cast<int64_t>(o), s.op.op, s.step_attrs};
  }
}

}  // namespace ktx
