// Attributes of the step ops: plain structs of 4-byte fields, stored in plans as
// they are. Each lists its fields once, in fields(); printing, parsing and
// checking expand from that list.
//
//   AttentionAttrs a; a.fields([](const char* name, auto& field) { ... });
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <variant>

#include "lib/ops/step_ops.h"

namespace ktx {

struct NoAttrs {
  int32_t unused = 0;
  template <class F>
  void fields(F&&) {}
};

struct RmsNormAttrs {
  float eps = 0;
  int32_t groups = 1;  // per row: heads for q/k norms, else 1; weights of all, or rows of each
  template <class F>
  void fields(F&& f) {
    f("eps", eps), f("groups", groups);
  }
};

// Deviation: the square root of the mean of (x - mean)^2, and eps.
struct LayerNormAttrs {
  float eps = 0;
  int32_t groups = 1;  // per row: heads, or 1
  template <class F>
  void fields(F&& f) {
    f("eps", eps), f("groups", groups);
  }
};

// For learned positions, and for the row that all tokens of a text share (token type 0).
struct EmbedRowAttrs {
  int32_t row = -1;  // of all tokens; -1: that of the token's position
  template <class F>
  void fields(F&& f) {
    f("row", row);
  }
};

// Row r of a token is xq.width elements from x[offset + r * stride].
struct QuantizeAttrs {
  int32_t rows_per_token = 1;  // heads or experts per token; each row is quantised alone
  int32_t stride = 0;          // elements from one such row to the next in x
  template <class F>
  void fields(F&& f) {
    f("rows_per_token", rows_per_token), f("stride", stride);
  }
};

struct MatmulAttrs {
  int32_t accumulate = 0;  // 1: y += (a residual), 0: y =
  template <class F>
  void fields(F&& f) {
    f("accumulate", accumulate);
  }
};

// Weight blob: `heads` matrices. transposed = 0: matrix h is [n, k] and
// y[h, n] = w_h . x[h, k]. transposed = 1: matrix h is [k, n] and
// y[h, n] = w_h^T . x[h, k] (MLA with an unsplit attn_kv_b: its quant blocks lie
// along n). row_begin: first row of each head's matrix that takes part, and
// row_count how many (an unsplit attn_kv_b holds k rows, then v rows).
// Head h reads k elements from x[h * x_stride] and writes n elements to
// y[h * y_stride], both from the start of their views: q heads are [nope | rope]
// wide and go to [latent | rope] wide ones. xq rows are dense, one per head.
struct MatmulHeadsAttrs {
  int32_t heads = 1;
  int32_t transposed = 0;
  int32_t row_begin = 0;
  int32_t row_count = 0;
  int32_t x_stride = 0;
  int32_t y_stride = 0;
  template <class F>
  void fields(F&& f) {
    f("heads", heads), f("transposed", transposed), f("row_begin", row_begin),
        f("row_count", row_count), f("x_stride", x_stride), f("y_stride", y_stride);
  }
};

// In each head of x (head_dim apart) the elements [rotary_begin, rotary_begin +
// rotary_dim) are rotated and written to the same number of elements from
// y_begin of each head of y (y_head_dim apart); nothing else of y is written.
// In place: y is x, y_head_dim = head_dim, y_begin = rotary_begin.
// interleaved = 1 pairs (2i, 2i+1), 0 pairs (i, i + rotary_dim/2); an
// interleaved head stays interleaved in y. cos and sin are multiplied by mscale
// (yarn). angle = float(position) * inv_freq[i], in F32.
struct RopeAttrs {
  int32_t heads = 1;
  int32_t head_dim = 0;
  int32_t rotary_begin = 0;
  int32_t y_head_dim = 0;
  int32_t y_begin = 0;
  int32_t rotary_dim = 0;
  int32_t interleaved = 0;
  float mscale = 1;
  template <class F>
  void fields(F&& f) {
    f("heads", heads), f("head_dim", head_dim), f("rotary_begin", rotary_begin),
        f("y_head_dim", y_head_dim), f("y_begin", y_begin), f("rotary_dim", rotary_dim),
        f("interleaved", interleaved), f("mscale", mscale);
  }
};

struct KvStoreAttrs {
  int32_t slot = 0;  // number of the KV slot (one per attention layer)
  template <class F>
  void fields(F&& f) {
    f("slot", slot);
  }
};

// q is [T, heads, key_dim]; y is [T, heads, value_dim]. Head h reads KV head
// h / (heads / kv_heads). value_in_key = 1: there is no value cache, the value is
// the first value_dim elements of the key (MLA in absorbed form: one KV head,
// key = [latent | rotary], value = latent).
// A token sees the positions from first_position() to its own. window = 0: all of them; chunked =
// 0: the last `window`, its own among them (sliding window); chunked = 1: those of its own chunk of
// `window` positions (Llama 4). (text_attention's window reaches as far behind it as before it.)
// softcap > 0: a score s becomes softcap * tanh(s / softcap) (Gemma 2), after `scale`.
// alibi > 0: a score then loses alibi_slope() of its head for each position between the two tokens.
struct AttentionAttrs {
  int32_t slot = 0;
  int32_t heads = 1;
  int32_t kv_heads = 1;
  int32_t key_dim = 0;
  int32_t value_dim = 0;
  int32_t value_in_key = 0;
  float scale = 1;
  int32_t window = 0;
  int32_t chunked = 0;
  float softcap = 0;
  float alibi = 0;                             // 0: none
  static constexpr uint32_t kFirstBytes = 40;  // without alibi
  template <class F>
  void fields(F&& f) {
    f("slot", slot), f("heads", heads), f("kv_heads", kv_heads), f("key_dim", key_dim),
        f("value_dim", value_dim), f("value_in_key", value_in_key), f("scale", scale),
        f("window", window), f("chunked", chunked), f("softcap", softcap), f("alibi", alibi);
  }
};

// The slope of a head (ALiBi, Press et al. 2021, arXiv 2108.12409): of p heads, a power of two,
// head h has 2^(-alibi * (h + 1) / p); heads behind the largest such number have those of twice as
// many heads, every other one.
inline float alibi_slope(const AttentionAttrs& a, int64_t head) {
  const auto whole = static_cast<int64_t>(std::bit_floor(static_cast<uint32_t>(a.heads)));
  const double part = head < whole
                          ? static_cast<double>(head + 1) / static_cast<double>(whole)
                          : (2 * static_cast<double>(head - whole) + 1) / (2.0 * double(whole));
  return static_cast<float>(std::exp2(-a.alibi * part));
}

// The first position that a token at `position` sees.
constexpr int64_t first_position(const AttentionAttrs& a, int64_t position) {
  if (a.window == 0) return 0;
  if (a.chunked != 0) return position / a.window * a.window;
  return position < a.window ? 0 : position - a.window + 1;
}

// The positions that sparse attention reads (DeepSeek-V3.2's indexer). A token at position p scores
// each position s up to p over the keys of a KV slot of one head,
//
//   score[s] = scale * sum over heads of weights[h] * max(0, q[h] . key[s])
//
// and takes the top_k best, the lower one of two equals; all p + 1 of them where they are no more.
// Without weights they are 1.
//
// every > 1: it chooses among the entries of a compressed slot (CompressAttrs) instead of
// positions, and sees (p + 1) / every entries. open = 1: the chosen ones are followed by the number
// of the entry that the token's own position is in, where that entry is not whole yet.
struct ChoosePositionsAttrs {
  int32_t slot = 0;
  int32_t heads = 1;
  int32_t key_dim = 0;
  int32_t top_k = 0;
  float scale = 1;
  int32_t every = 1;
  int32_t open = 0;
  static constexpr uint32_t kFirstBytes = 20;              // without every and open
  int64_t width() const { return int64_t{top_k} + open; }  // of a token's list
  template <class F>
  void fields(F&& f) {
    f("slot", slot), f("heads", heads), f("key_dim", key_dim), f("top_k", top_k), f("scale", scale),
        f("every", every), f("open", open);
  }
};

// The index of the last one among the positions that a token at `position` chooses.
constexpr int64_t last_chosen(int64_t top_k, int64_t position) {
  return position < top_k ? position : top_k - 1;
}

// The blocks of positions that block attention reads (MiniMax-M3's indexer). Positions stand in
// blocks of `block`, counted from position 0. Each head scores a block by the best of its keys, of
// a KV slot of one head,
//
//   score[b] = largest of q[h] . key[s] over positions s of block b
//
// The last `local` blocks up to the token's own are taken in any case, and of those before them the
// best, until there are top_k; of two equals the lower one. All where they are no more.
struct ChooseBlocksAttrs {
  int32_t slot = 0;
  int32_t heads = 1;  // each chooses for itself
  int32_t key_dim = 0;
  int32_t top_k = 0;  // blocks of a head
  int32_t block = 0;  // positions
  int32_t local = 1;  // blocks, the token's own among them
  template <class F>
  void fields(F&& f) {
    f("slot", slot), f("heads", heads), f("key_dim", key_dim), f("top_k", top_k), f("block", block),
        f("local", local);
  }
};

// The index of the last one among the positions of the blocks that a token at `position` chooses,
// which is its own. (It ends the last block, and all blocks before that are whole.)
constexpr int64_t last_of_blocks(int64_t top_k, int64_t block, int64_t position) {
  return last_chosen(top_k, position / block) * block + position % block;
}

// The same for the entries that a choose_positions step with open = 1 has chosen, which are blocks
// of `every` positions: at most `most`, and the positions behind the last whole entry.
constexpr int64_t last_of_entries(int64_t most, int64_t every, int64_t position) {
  const int64_t whole = (position + 1) / every;
  return (whole < most ? whole : most) * every + (position + 1) % every - 1;
}

// Attention over chosen blocks: KV head g reads those that head g of a choose_blocks step has
// chosen, or all KV heads those of a choose_positions step. open = 1: these are entries with an
// open one behind them (ChoosePositionsAttrs). value_in_key: as in AttentionAttrs.
struct BlockAttentionAttrs {
  int32_t slot = 0;
  int32_t heads = 1;
  int32_t kv_heads = 1;
  int32_t key_dim = 0;
  int32_t value_dim = 0;
  int32_t block = 0;
  float scale = 1;
  int32_t value_in_key = 0;
  int32_t open = 0;
  static constexpr uint32_t kFirstBytes = 28;  // without value_in_key and open
  template <class F>
  void fields(F&& f) {
    f("slot", slot), f("heads", heads), f("kv_heads", kv_heads), f("key_dim", key_dim),
        f("value_dim", value_dim), f("block", block), f("scale", scale),
        f("value_in_key", value_in_key), f("open", open);
  }
};

// The same attention over all positions.
constexpr AttentionAttrs whole_attention(const BlockAttentionAttrs& a) {
  return {a.slot, a.heads, a.kv_heads, a.key_dim, a.value_dim, a.value_in_key, a.scale};
}

// Keys of compressed attention (DeepSeek-V4): each `every` positions make one entry, a row of `dim`
// in slot `entries`. Slot `slot` has rows and scores of the positions by channel; heads of 16
// channels are its heads, so that it is never rounded to Q8_0. Channel c of entry e is
//
//   sum over its positions s of softmax(score[s, c] + bias[s % every, c]) * row[s, c]
//
// over positions e * every to (e + 1) * every - 1. overlapped = 1: a position has 2 * dim channels.
// The second half counts for its own entry, the first one for the entry behind that: of entry e
// positions (e - 1) * every on take part, the first `every` with channels c, the others with
// dim + c. Without a bias there are no scores either: the slot has rows alone, and an entry is the
// mean of its own. Then the entry is normed by its root mean square, where there are weights for
// that, and its last rotary_dim elements (from_first = 1: its first ones), of which there may be
// none, are rotated by the first of its positions, e * every.
//
// Entry e stands in the block of its last position (e + 1) * every - 1, so that a block depends on
// the tokens up to its end alone. A token at position p sees entries [0, (p + 1) / every).
struct CompressAttrs {
  int32_t slot = 0;
  int32_t entries = 0;
  int32_t every = 1;
  int32_t overlapped = 0;
  int32_t dim = 0;
  int32_t rotary_dim = 0;
  int32_t interleaved = 0;
  float mscale = 1;  // of cos and sin
  float eps = 0;     // of the norm
  int32_t from_first = 0;
  static constexpr uint32_t kFirstBytes = 36;  // without from_first
  constexpr int64_t channels() const { return int64_t{dim} * (overlapped != 0 ? 2 : 1); }
  int64_t window() const { return int64_t{every} * (overlapped != 0 ? 2 : 1); }  // positions
  int32_t rotary_begin() const { return from_first != 0 ? 0 : dim - rotary_dim; }
  template <class F>
  void fields(F&& f) {
    f("slot", slot), f("entries", entries), f("every", every), f("overlapped", overlapped),
        f("dim", dim), f("rotary_dim", rotary_dim), f("interleaved", interleaved),
        f("mscale", mscale), f("eps", eps), f("from_first", from_first);
  }
};
inline constexpr int32_t kCompressedChannels = 16;  // of a head of the slot

// Entries that a token at `position` sees.
constexpr int64_t entries_seen(int64_t every, int64_t position) {
  return (position + 1) / every;
}
// Elements of a token in a slot of entries of `dim`; `every` divides 64 or is a multiple of it.
constexpr int32_t entry_token_elems(int32_t dim, int32_t every) {
  const int32_t rows = every < 64 ? every : 64;
  return (dim + rows - 1) / rows;
}
constexpr bool entries_fit_blocks(int32_t every) {
  return every > 1 && (64 % every == 0 || every % 64 == 0);
}

// Attention of heads that share one key, which is the value as well, over entries of a compressed
// slot and then over the last `window` positions, its own among them. The entries are all that the
// token sees, or those that choose_positions has chosen.
struct CompressedAttentionAttrs {
  int32_t slot = 0;  // of the positions
  int32_t entries = 0;
  int32_t heads = 1;
  int32_t dim = 0;
  int32_t every = 1;
  int32_t window = 0;
  float scale = 1;
  template <class F>
  void fields(F&& f) {
    f("slot", slot), f("entries", entries), f("heads", heads), f("dim", dim), f("every", every),
        f("window", window), f("scale", scale);
  }
};

// The same attention over a list of rows, without a window.
constexpr AttentionAttrs whole_attention(const CompressedAttentionAttrs& a) {
  return {a.slot, a.heads, 1, a.dim, a.dim, 1, a.scale};
}

// Hyper-connections: the residual stream is `streams` rows side by side. Each part of a layer reads
// a sum of them and gives back to all; the weights are made of a linear of the normed streams,
// mixes = [pre | post | comb], streams, streams and streams^2 numbers:
//
//   pre = sigmoid(mixes * scale[0] + base) + eps
//   post = 2 * sigmoid(mixes * scale[1] + base)
//   comb = softmax(mixes * scale[2] + base) of each row of streams numbers, + eps
//
// comb is then normalised by columns, x / (sum + eps), and iterations - 1 times by rows and by
// columns (Sinkhorn and Knopp), so that rows and columns have sums of nearly 1.
// iterations = 0: there is pre alone.
struct StreamWeightsAttrs {
  int32_t streams = 1;
  int32_t iterations = 0;
  float eps = 0;
  int64_t width() const { return iterations == 0 ? streams : int64_t{streams} * (streams + 2); }
  int64_t scales() const { return iterations == 0 ? 1 : 3; }
  template <class F>
  void fields(F&& f) {
    f("streams", streams), f("iterations", iterations), f("eps", eps);
  }
};
inline constexpr int32_t kMaxStreams = 16;

// AltUp (Gemma 3n): a layer computes one of several residual streams, the active one. What it
// reads is predicted of all streams before, and what it gives corrects all of them behind. Both are
// mix_streams with weights [post | comb] made of a few coefficients a token:
//
//   predict   post = 0                   comb[s, d] = coefs[d, s] + (s == d)
//   correct   post[d] = 1 + coefs[d]     comb[s, d] = (s == d) - (s == active) * post[d]
//
// so that a corrected stream d is x[d] + (1 + coefs[d]) * (part - x[active]).
struct AltUpWeightsAttrs {
  int32_t streams = 1;
  int32_t active = 0;
  int32_t corrects = 0;  // else it predicts
  int64_t coefs() const { return corrects != 0 ? streams : int64_t{streams} * streams; }
  int64_t width() const { return int64_t{streams} * (streams + 1); }
  template <class F>
  void fields(F&& f) {
    f("streams", streams), f("active", active), f("corrects", corrects);
  }
};

// Attention residuals: a part of a layer reads x and what streams were earlier, each by its share
//
//   softmax over them of  sum over h of score[h] * s[h] / sqrt(mean square of s + eps)
//
// so that the sum of all that layers give is not all that a later one sees.
struct AttendStreamsAttrs {
  float eps = 0;
  template <class F>
  void fields(F&& f) {
    f("eps", eps);
  }
};

// The mean square of x is eps at least.
struct MatchRmsAttrs {
  float eps = 0;
  template <class F>
  void fields(F&& f) {
    f("eps", eps);
  }
};

// For gates of which a share is left out, all alike were they spread normally (Gemma 3n):
// deviations is the quantile of that share (lib/support/normal_quantile.h). The deviation is that
// of all elements, the root of the mean of (x - mean)^2.
struct GaussianTopKAttrs {
  float deviations = 0;
  template <class F>
  void fields(F&& f) {
    f("deviations", deviations);
  }
};

// SqrtSoftplus: sqrt(log(1 + exp(x))). SparseMixer (Phi-3.5-MoE): top_k rounds in place of
// steps 1 to 5, each of the experts that are left: the largest logit m wins, and its weight is its
// share in the softmax of those logits x that are near, (m - x) / max(|x|, m) <= kSparseMixerReach.
enum class Scoring : int32_t { Softmax = 0, Sigmoid = 1, SqrtSoftplus = 2, SparseMixer = 3 };
inline constexpr int32_t kScorings = 4;
inline constexpr double kSparseMixerReach = 0.02;  // twice router_jitter_noise
enum class GroupScore : int32_t { Best = 0, SumOfTwoBest = 1 };

// 1. score = softmax(logits) over all experts, or a function of each.
// 2. choice = score + bias (when there is a bias).
// 3. groups > 1: a group's score is its best choice, or the sum of its two best;
//    only the best groups_used groups stay.
// 4. The k best choices win (ties: lower expert number), in falling order, on every device: a
//    token's rank r is its choice r (GroupExpertsAttrs).
// 5. weight = score (without bias), / (sum + 1e-20) if normalize, * scale, * factor.
// With a table, whose row of the token's id has k experts, those are the choices instead of 2 to 4.
struct RouterAttrs {
  int32_t experts = 0;
  int32_t top_k = 0;
  int32_t scoring = 0;  // enum Scoring
  int32_t normalize = 0;
  float scale = 1;
  int32_t groups = 1;
  int32_t groups_used = 1;
  int32_t group_score = 0;  // enum GroupScore
  template <class F>
  void fields(F&& f) {
    f("experts", experts), f("top_k", top_k), f("scoring", scoring), f("normalize", normalize),
        f("scale", scale), f("groups", groups), f("groups_used", groups_used),
        f("group_score", group_score);
  }
};

// The pairs of a token's choices [first_rank, first_rank + ranks) alone, in the router's order, of
// which the first is the best; ranks = 0: of all choices. guests = 1: `places` is where experts are
// at first. Between passes experts whose weights the CPU has come to matrices of a GPU, which
// others leave (runtime/experts/expert_guests.h).
struct GroupExpertsAttrs {
  int32_t experts = 0;
  int32_t top_k = 0;
  int32_t first_rank = 0;
  int32_t ranks = 0;
  int32_t guests = 0;
  static constexpr uint32_t kFirstBytes = 8;  // experts and top_k, which the first format had
  int32_t pairs_of_token() const { return ranks == 0 ? top_k : ranks; }
  template <class F>
  void fields(F&& f) {
    f("experts", experts), f("top_k", top_k), f("first_rank", first_rank), f("ranks", ranks),
        f("guests", guests);
  }
};

// Gated linear units: y = act(min(gate, limit)) * clamp(up, -limit, limit); limit = 0: not clamped.
// With Situ both limits are soft: bent(x, limit) = limit * tanh(x / limit), or x where limit = 0.
enum class Activation : int32_t {
  Silu = 0,      // g * sigmoid(g)                       SwiGLU
  GeluTanh = 1,  // g * sigmoid(2 sqrt(2 / pi) (g + 0.044715 g^3)), gelu by tanh        GeGLU
  GptOss = 2,    // g * sigmoid(1.702 g), and up + 1 instead of up
  Sigmoid = 3,   // sigmoid(g)                           gates of attention
  Product = 4,   // g                                    gates of short convolutions
  Relu = 5,      // max(g, 0)                            with g = up, units of ReluSquared
  SiluUpTo = 6,  // min(g * sigmoid(g), limit)           of the gate before it is clamped
  Situ = 7,      // bent(g, limit) * sigmoid(g)          times bent(up, up_limit)    SiTU
};
inline constexpr int32_t kActivations = 8;

struct GluAttrs {
  int32_t activation = 0;  // enum Activation
  float limit = 0;
  float up_limit = 0;                         // of Situ
  static constexpr uint32_t kFirstBytes = 8;  // without up_limit
  template <class F>
  void fields(F&& f) {
    f("activation", activation), f("limit", limit), f("up_limit", up_limit);
  }
};

// For units without a gate, for heads that score texts, and for queries, keys and values.
enum class UnitFunction : int32_t {
  Silu = 0,         // x * sigmoid(x)
  GeluTanh = 1,     // gelu by tanh, as in Activation
  GeluErf = 2,      // x * (1 + erf(x / sqrt(2))) / 2
  Relu = 3,         // max(x, 0)
  ReluSquared = 4,  // max(x, 0)^2
  Tanh = 5,
  // rise * x^2 + slope * x above 0, else fall * (exp(min(x, limit)) - 1 - x) + slope * x    xIELU
  Xielu = 6,
  Clamp = 7,       // x between -limit and limit
  SignedRoot = 8,  // the root of max(|x|, 1e-6), with the sign of x; 0 for 0
};
inline constexpr int32_t kUnitFunctions = 9;
inline constexpr float kLeastRooted = 1e-6F;

struct ActivateAttrs {
  int32_t function = 0;  // enum UnitFunction
  float limit = 0;       // of Clamp and Xielu
  float rise = 0;        // these are of Xielu
  float fall = 0;
  float slope = 0;
  static constexpr uint32_t kFirstBytes = 4;  // function
  template <class F>
  void fields(F&& f) {
    f("function", function), f("limit", limit), f("rise", rise), f("fall", fall), f("slope", slope);
  }
};

struct ExpertsAttrs {
  int32_t experts = 0;
  int32_t top_k = 0;
  int32_t accumulate = 0;  // experts_down: 1: y += (a residual), 0: y =
  int32_t activation = 0;  // experts_gate_up, as in GluAttrs
  float limit = 0;
  int32_t by_pair = 0;  // experts_down: 1: y[T,k,H] has a row for each pair, which are not summed
  float up_limit = 0;   // as limit
  static constexpr uint32_t kFirstBytes = 20;  // without by_pair and up_limit
  GluAttrs glu() const { return {activation, limit, up_limit}; }
  template <class F>
  void fields(F&& f) {
    f("experts", experts), f("top_k", top_k), f("accumulate", accumulate),
        f("activation", activation), f("limit", limit), f("by_pair", by_pair),
        f("up_limit", up_limit);
  }
};

struct AllReduceAttrs {
  int32_t accumulate = 0;  // 1: y += (a residual), 0: y =
  template <class F>
  void fields(F&& f) {
    f("accumulate", accumulate);
  }
};

// For experts that are divided over hosts.
struct SumExpertsAttrs {
  int32_t top_k = 0;
  int32_t accumulate = 0;  // 1: y += (a residual), 0: y =
  template <class F>
  void fields(F&& f) {
    f("top_k", top_k), f("accumulate", accumulate);
  }
};

// For gates of attention's output that are one number a head (Step-3.5, Laguna):
// y[h] = x[h] * f(gate[h]), of heads that are equal parts of x.
enum class HeadGate : int32_t { Sigmoid = 0, Softplus = 1 };
inline constexpr int32_t kHeadGates = 2;

struct HeadScaleAttrs {
  int32_t heads = 1;
  int32_t function = 0;  // enum HeadGate
  template <class F>
  void fields(F&& f) {
    f("heads", heads), f("function", function);
  }
};

// For embeddings, residuals and logits that a family multiplies by a constant (Granite, MiniCPM,
// Gemma).
struct ScaleAttrs {
  float factor = 1;
  template <class F>
  void fields(F&& f) {
    f("factor", factor);
  }
};

// For queries that grow beyond the context that a model was first trained with (Ministral 3,
// Mistral 4, Llama 4): y = x * (1 + growth * ln(1 + floor(position / context))).
struct PositionScaleAttrs {
  float growth = 0;
  int32_t context = 1;
  template <class F>
  void fields(F&& f) {
    f("growth", growth), f("context", context);
  }
};

// A causal convolution of each channel by itself, over its last `taps` inputs, or of those before
// the token every dilation-th, zeros before the first token, with a bias where there is one; then
// silu, or nothing where plain = 1. State number `state` keeps past() inputs of each channel.
struct CausalConvAttrs {
  int32_t state = 0;
  int32_t channels = 1;
  int32_t taps = 2;
  int32_t plain = 0;
  int32_t dilation = 1;
  static constexpr uint32_t kFirstBytes = 12;  // without plain and dilation
  int64_t past() const { return (int64_t{taps} - 1) * dilation; }
  int64_t state_floats() const { return past() * channels; }
  template <class F>
  void fields(F&& f) {
    f("state", state), f("channels", channels), f("taps", taps), f("plain", plain),
        f("dilation", dilation);
  }
};

// Rows of a table, chosen by hashes of the last tokens' ids (Qwen4-Exp). For each n from 2 to
// `size` there are `heads` rows, all chosen by one hash of the last n ids:
//
//   mixed[n] = xor of multipliers[i] * id[i] over i < n        id[i]: i tokens before this one
//   row[n, h] = offsets[n, h] + mixed[n] % sizes[n, h]
//
// A token behind one with id `end` does not see the tokens before that one: their ids count as
// `end`, as do those before the first token. State number `state` keeps the last size - 1 ids.
//
// Weights of the step: the table, and these numbers (kernels/embed/ngram_rows.h).
struct EmbedNgramsAttrs {
  int32_t state = 0;
  int32_t size = 2;
  int32_t heads = 1;
  int32_t end = 0;
  int64_t state_floats() const { return int64_t{size} - 1; }
  int64_t rows() const { return (int64_t{size} - 1) * heads; }  // of a token
  template <class F>
  void fields(F&& f) {
    f("state", state), f("size", size), f("heads", heads), f("end", end);
  }
};
inline constexpr int32_t kMaxNgramSize = 8;
inline constexpr int32_t kMaxNgramRows = 256;
inline constexpr int32_t kNgramDigits = 4;  // of a number of the hash

// Gated delta rule. A row of x is [key_heads queries | key_heads keys | value_heads values] of
// head_dim. State number `state` keeps a head_dim x head_dim matrix M for each value head, zero
// before the first token. A token does, for each value head h with key head
// h / (value_heads / key_heads), or h % key_heads where tiled = 1:
//
//   q, k = x / sqrt(sum of squares + 1e-6)      q *= 1 / sqrt(head_dim)
//   M *= exp(decay[h] * softplus(a[h] + dt_bias[h]))       (decay < 0)
//   M += k (sigmoid(b[h]) * (v - k^T M))^T                 y = q^T M
//
// Without an operand a, b holds both: for each key head the bs of its value heads, then their as.
// by_channel = 1 (Kimi delta attention): a and dt_bias have head_dim numbers for each head, and row
// i of M is kept by a[h, i] and dt_bias[h, i]. lower_bound < 0: as exp() has it, decay is that
// bound at most (Ling 3): M *= exp(lower_bound * sigmoid(|decay[h]| * (a[h, i] + dt_bias[h, i]))).
struct DeltaRuleAttrs {
  int32_t state = 0;
  int32_t key_heads = 1;
  int32_t value_heads = 1;
  int32_t head_dim = 1;
  int32_t tiled = 0;
  int32_t by_channel = 0;
  float lower_bound = 0;
  static constexpr uint32_t kFirstBytes = 24;  // without lower_bound
  int64_t state_floats() const { return int64_t{value_heads} * head_dim * head_dim; }
  int64_t decays() const { return int64_t{value_heads} * (by_channel != 0 ? head_dim : 1); }
  template <class F>
  void fields(F&& f) {
    f("state", state), f("key_heads", key_heads), f("value_heads", value_heads),
        f("head_dim", head_dim), f("tiled", tiled), f("by_channel", by_channel),
        f("lower_bound", lower_bound);
  }
};

// A state-space layer (Mamba-2). A row of x is [heads values of head_dim | groups input vectors |
// groups output vectors], the vectors of state_dim numbers. State number `state` keeps a
// state_dim x head_dim matrix M for each head, zero before the first token. A token does, for each
// head h with group h / (heads / groups):
//
//   step = softplus(dt[h] + dt_bias[h]), at least step_min, at most step_max (0: no limit)
//   M = M * exp(decay[h] * step) + in (step * value)^T     (decay < 0)
//   y = out^T M + skip[h] * value
struct StateSpaceAttrs {
  int32_t state = 0;
  int32_t heads = 1;
  int32_t head_dim = 1;
  int32_t groups = 1;
  int32_t state_dim = 1;
  float step_min = 0;
  float step_max = 0;
  static constexpr uint32_t kFirstBytes = 20;                  // without limits of steps
  int64_t width() const { return int64_t{heads} * head_dim; }  // of the values, and of y
  int64_t channels() const { return width() + int64_t{2} * groups * state_dim; }
  int64_t state_floats() const { return width() * state_dim; }
  template <class F>
  void fields(F&& f) {
    f("state", state), f("heads", heads), f("head_dim", head_dim), f("groups", groups),
        f("state_dim", state_dim), f("step_min", step_min), f("step_max", step_max);
  }
};

// A state-space layer (Mamba-1): each channel has a state of state_dim numbers. A row of in_out is
// [input vector | output vector]. State number `state` keeps M[state_dim, channels], zero before
// the first token. A token does, for each channel c and number i of the state:
//
//   step = softplus(dt[c])
//   M[i, c] = M[i, c] * exp(decay[c, i] * step) + in[i] * (step * x[c])     (decay < 0)
//   y[c] = sum over i of out[i] * M[i, c] + skip[c] * x[c]
struct SelectiveScanAttrs {
  int32_t state = 0;
  int32_t channels = 1;
  int32_t state_dim = 1;
  int64_t state_floats() const { return int64_t{channels} * state_dim; }
  template <class F>
  void fields(F&& f) {
    f("state", state), f("channels", channels), f("state_dim", state_dim);
  }
};

// For logits (Gemma 2): y = cap * tanh(x / cap).
struct SoftcapAttrs {
  float cap = 1;
  template <class F>
  void fields(F&& f) {
    f("cap", cap);
  }
};

// For images: a row is a patch, and patches stand line by line in the grid of the pass's image. A
// square of side * side patches becomes one row.
enum class Unfold : int32_t {
  None,      // their mean
  Channels,  // all of their elements, those of one channel side by side
  Patches,   // all of their elements, one patch behind the other
};
struct PoolRowsAttrs {
  int32_t side = 1;
  int32_t unfold = 0;  // enum Unfold
  int64_t patches() const { return int64_t{side} * side; }
  // From the square's first row to its last one.
  int64_t reach(int64_t columns) const { return (side - 1) * columns + side - 1; }
  template <class F>
  void fields(F&& f) {
    f("side", side), f("unfold", unfold);
  }
};

// The three positions that a token has where images are part of a text. Those of a text are alike;
// an image has its beginning as time, and lines and columns count from there. A patch that a tower
// reads has no time.
enum class TokenAxis : int32_t { Time, Line, Column };
inline constexpr int kTokenAxes = 3;

// Rotation by these. Pairs are as in RopeAttrs, those of the first rotary_dim elements of a head:
// `lines` of them turn by the line, `columns` by the column, the others by time. The three stand
// one behind the other in this order: time, line, column; or, woven, they take turns (time, line,
// column, time, ...) until lines and columns are used up, and the rest turns by time.
struct RopeGridAttrs {
  int32_t heads = 1;
  int32_t head_dim = 0;
  int32_t interleaved = 0;
  int32_t rotary_dim = 0;
  int32_t lines = 0;
  int32_t columns = 0;
  int32_t woven = 0;
  float mscale = 1;
  TokenAxis axis_of(int64_t pair) const {
    if (woven == 0) {
      const int64_t times = rotary_dim / 2 - lines - columns;
      return pair < times           ? TokenAxis::Time
             : pair < times + lines ? TokenAxis::Line
                                    : TokenAxis::Column;
    }
    const int64_t turn = pair / 3;
    return pair % 3 == 1 && turn < lines     ? TokenAxis::Line
           : pair % 3 == 2 && turn < columns ? TokenAxis::Column
                                             : TokenAxis::Time;
  }
  template <class F>
  void fields(F&& f) {
    f("heads", heads), f("head_dim", head_dim), f("interleaved", interleaved),
        f("rotary_dim", rotary_dim), f("lines", lines), f("columns", columns), f("woven", woven),
        f("mscale", mscale);
  }
};

// A table of side * side rows, which covers an image of any grid: its corners are the image's.
struct EmbedGridAttrs {
  int32_t side = 1;
  template <class F>
  void fields(F&& f) {
    f("side", side);
  }
};

// The row of an image has a part that takes the token's place, and may have others, which are added
// behind the first layers.
struct GivenRowsAttrs {
  int32_t part = 0;
  template <class F>
  void fields(F&& f) {
    f("part", part);
  }
};

using StepAttrs =
    std::variant<NoAttrs, RmsNormAttrs, QuantizeAttrs, MatmulAttrs, MatmulHeadsAttrs, RopeAttrs,
                 KvStoreAttrs, AttentionAttrs, RouterAttrs, GroupExpertsAttrs, GluAttrs,
                 ExpertsAttrs, ScaleAttrs, SoftcapAttrs, PositionScaleAttrs, CausalConvAttrs,
                 DeltaRuleAttrs, LayerNormAttrs, ActivateAttrs, EmbedRowAttrs, ChoosePositionsAttrs,
                 SumExpertsAttrs, StateSpaceAttrs, ChooseBlocksAttrs, BlockAttentionAttrs,
                 CompressAttrs, CompressedAttentionAttrs, StreamWeightsAttrs, AllReduceAttrs,
                 HeadScaleAttrs, AltUpWeightsAttrs, MatchRmsAttrs, GaussianTopKAttrs,
                 SelectiveScanAttrs, AttendStreamsAttrs, PoolRowsAttrs, RopeGridAttrs,
                 EmbedNgramsAttrs, EmbedGridAttrs, GivenRowsAttrs>;

// What a row of step_ops.def says, for code that is compiled for one op: AttrsOf<StepOp::Rope> is
// RopeAttrs, has_trait<StepOp::Rope>(kInPlace) is true.
template <StepOp op>
struct StepOpTypes;
#define KTX_STEP_OP(id, name, attrs, in, out, weights, traits, rule, sentence) \
  template <>                                                                  \
  struct StepOpTypes<StepOp::id> {                                             \
    using Attrs = attrs;                                                       \
    static constexpr uint32_t kTraits = traits;                                \
  };
#include "lib/ops/step_ops.def"
#undef KTX_STEP_OP
template <StepOp op>
using AttrsOf = typename StepOpTypes<op>::Attrs;
template <StepOp op>
constexpr bool has_trait(OpTrait trait) {
  return (StepOpTypes<op>::kTraits & trait) != 0;
}

// The attribute struct of an op, with its defaults.
StepAttrs default_attrs(StepOp op);
// The same with what stands in a plan. Fields that came later (behind kFirstBytes of the struct)
// may be missing there, and then have their defaults.
StepAttrs attrs_from_bytes(StepOp op, std::span<const std::byte> bytes);
template <class Attrs>
Attrs attrs_from_bytes(std::span<const std::byte> bytes) {
  Attrs attrs;
  std::memcpy(&attrs, bytes.data(), std::min(bytes.size(), sizeof(attrs)));
  return attrs;
}
// How many bytes of them a plan has: without such fields where they have their defaults.
uint32_t stored_bytes(const StepAttrs& attrs);
// Whether a plan may have so many of an op.
bool attrs_size_fits(StepOp op, uint64_t bytes);

// Whether the step adds to what y holds already.
bool accumulates(const StepAttrs& attrs);

// What a step uses of what sequences keep (lib/program/sequence_kinds.def), by attributes of these
// names; -1: none.
struct KeptUse {
  std::array<int32_t, 2> slots = {-1, -1};  // KV slots `slot` and `entries`
  int32_t state = -1;                       // a state of a fixed size, read and written
  int64_t state_floats = 0;                 // its state_floats()
};
KeptUse kept_by(const StepAttrs& attrs);
// The slot that a step with kStores writes: the last that it uses; -1: none.
int32_t stored_slot(StepOp op, const StepAttrs& attrs);

}  // namespace ktx
