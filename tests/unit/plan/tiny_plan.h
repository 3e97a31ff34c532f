// A plan small enough for tests to break in every way: every op at least once, a
// router, MLA heads, a weight of each kind, carried and constant weights.
//
//   TinyPlan tiny = make_tiny_plan();
//   write_plan(tiny, path);            // through PlanWriter and pack_blobs
//
// Every value has its own buffer and nothing computes anything meaningful: only shapes and
// links matter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/formats/dtype.h"
#include "lib/plan/pack_blobs.h"
#include "lib/plan/plan_contents.h"
#include "lib/plan/plan_writer.h"
#include "lib/plan/verify_records.h"

namespace ktx::plan {

class TinyPlan {
 public:
  PlanContents contents;
  std::vector<BlobSource> sources;
  std::string gguf;  // the source file; sources point into it

  uint32_t value(std::string_view name, ValueType type, RowKind rows, int64_t width,
                 uint32_t rows_per_row = 1) {
    ValueRecord record = {};
    record.name = contents.strings.intern(name);
    record.type = static_cast<uint8_t>(type);
    record.rows = static_cast<uint8_t>(rows);
    record.rows_per_row = rows_per_row;
    record.width = width;
    record.buffer = static_cast<uint32_t>(contents.buffers.size());
    BufferRecord buffer = {};
    const uint64_t bytes = value_row_bytes(record);
    if (rows == RowKind::Token) buffer.bytes_per_token = bytes;
    if (rows == RowKind::Output) buffer.bytes_per_output = bytes;
    if (rows == RowKind::Single) buffer.fixed_bytes = bytes;
    contents.buffers.push_back(buffer);
    contents.values.push_back(record);
    return static_cast<uint32_t>(contents.values.size() - 1);
  }
  uint32_t f32(std::string_view name, int64_t width, RowKind rows = RowKind::Token) {
    return value(name, ValueType::F32, rows, width);
  }

  // A tensor of the source and the blob that holds it, in one row-major layout.
  uint32_t weight(std::string_view name, DType dtype, int64_t rows, int64_t cols,
                  int64_t matrices = 1) {
    const uint32_t tensor = add_tensor(name, dtype, rows * matrices, cols);
    SliceRecord slice = {};
    slice.tensor = tensor;
    slice.row_count = rows * matrices;
    return blob(name, dtype, rows, cols, matrices, {&slice, 1});
  }
  uint32_t blob(std::string_view name, DType dtype, int64_t rows, int64_t cols, int64_t matrices,
                std::span<const SliceRecord> slices) {
    BlobRecord record = {};
    record.name = contents.strings.intern(name);
    record.dtype = static_cast<uint16_t>(dtype);
    record.rows = rows;
    record.cols = cols;
    record.matrices = matrices;
    blob_slices_.emplace_back(slices.begin(), slices.end());
    return contents.add_blob(record, slices);
  }
  uint32_t constant(std::string_view name, std::span<const float> values) {
    blob_slices_.emplace_back();
    return contents.add_constant(contents.strings.intern(name), values);
  }
  uint32_t add_tensor(std::string_view name, DType dtype, int64_t rows, int64_t cols) {
    GgufTensorRecord record = {};
    record.name = contents.strings.intern(name);
    record.dtype = static_cast<uint16_t>(dtype);
    record.row_elems = cols;
    record.rows = rows;
    record.size = static_cast<uint64_t>(*row_bytes(dtype, cols) * rows);
    contents.gguf.tensors.push_back(record);
    return static_cast<uint32_t>(contents.gguf.tensors.size() - 1);
  }

  struct In {
    uint32_t value = kNone;
    uint32_t offset = 0;
    uint32_t width = 0;  // 0: to the end
  };
  void step(StepOp op, int layer, std::vector<In> inputs, std::vector<In> outputs,
            std::vector<uint32_t> weights, const StepAttrs& attrs) {
    StepRecord record = {};
    record.op = static_cast<uint32_t>(op);
    record.module = contents.strings.intern("model.layers." + std::to_string(layer));
    record.layer = layer;
    record.device = contents.strings.intern("cpu");
    record.first_input = contents.add_operands(operands(inputs));
    record.input_count = static_cast<uint32_t>(inputs.size());
    record.first_output = contents.add_operands(operands(outputs));
    record.output_count = static_cast<uint32_t>(outputs.size());
    record.first_weight = contents.add_weight_uses(weights);
    record.weight_count = static_cast<uint32_t>(weights.size());
    record.attrs_size = stored_bytes(attrs);
    record.attrs_offset = contents.add_attrs(attrs);
    for (uint32_t& kernel : record.kernel) kernel = contents.strings.intern("scalar");
    contents.steps.push_back(record);
  }

  // Lays the source file out and points the sources at it.
  void finish() {
    std::string header = "GGUF, a header of the test's own";
    header.resize((header.size() + 31) / 32 * 32);
    uint64_t at = header.size();
    for (GgufTensorRecord& tensor : contents.gguf.tensors) {
      tensor.offset = at;
      at = (at + tensor.size + 31) / 32 * 32;
    }
    gguf = header;
    gguf.resize(at);
    uint64_t state = 1;
    for (const GgufTensorRecord& tensor : contents.gguf.tensors) {
      for (uint64_t i = 0; i < tensor.size; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        gguf[tensor.offset + i] = static_cast<char>(state >> 56);
      }
    }
    contents.gguf.shards = {{header, gguf.size(), 32}};
    contents.parts = {{0, contents.strings.intern("cpu"), kNone, 0,
                       static_cast<uint32_t>(contents.steps.size())}};
    point_sources_at(std::as_bytes(std::span(gguf)));
  }

  void point_sources_at(std::span<const std::byte> file) {
    sources.clear();
    for (size_t b = 0; b < contents.blobs.size(); ++b) {
      const BlobRecord& record = contents.blobs[b];
      const auto row = *row_bytes(static_cast<DType>(record.dtype), record.cols);
      BlobSource source;
      for (const SliceRecord& slice : blob_slices_[b]) {
        const GgufTensorRecord& tensor = contents.gguf.tensors[slice.tensor];
        source.slices.push_back(
            file.subspan(tensor.offset + slice.first_row * row, slice.row_count * row));
      }
      sources.push_back(std::move(source));
    }
  }

 private:
  std::vector<OperandRecord> operands(const std::vector<In>& list) const {
    std::vector<OperandRecord> out;
    for (const In& in : list) {
      uint32_t width = in.width;
      if (in.value != kNone && width == 0) {
        const ValueRecord& value = contents.values[in.value];
        width = static_cast<uint32_t>(value.width * value.rows_per_row) - in.offset;
      }
      out.push_back({in.value, in.offset, in.value == kNone ? 0 : width});
    }
    return out;
  }

  std::vector<std::vector<SliceRecord>> blob_slices_;
};

// Two layers of hidden width 64: plain attention and a dense MLP, then absorbed
// MLA and experts; behind them, where every op is wanted, the steps of a delta net, of a state
// space, of models with layer norm, of sparse attention and of images.
inline TinyPlan make_tiny_plan(bool every_op = false) {
  constexpr int kVocab = 48, kHidden = 64, kHeads = 4, kHeadDim = 32, kWidth = 96;
  constexpr int kLatent = 32, kRope = 16, kNope = 32, kValue = 32, kExperts = 4, kTopK = 2;
  TinyPlan t;
  PlanContents& c = t.contents;
  c.target.name = "host";
  c.target.devices = {{"cpu", 0}};
  c.facts.architecture = "tiny";
  c.facts.family = "TinyForCausalLM";
  c.facts.name = "tiny";
  c.facts.vocab_size = kVocab;
  c.facts.hidden_size = kHidden;
  c.facts.layers = 2;
  c.facts.context_length = 512;
  c.facts.default_ctx = 512;
  c.provenance.ktx_version = "test";
  c.chat_template.source = "{{ messages }}";
  c.module_graph = "module model : Tiny\n";
  c.tokenizer = "a tokenizer's bytes";

  const uint32_t embed_w = t.weight("token_embd.weight", DType::Q8_0, kVocab, kHidden);
  const std::vector<float> freq(kHeadDim / 2, 0.5f);
  const uint32_t freq_w = t.constant("inv_freq", freq);
  const uint32_t mla_freq_w = t.constant("mla_inv_freq", std::span(freq).first(kRope / 2));
  const uint32_t norm_w = t.weight("attn_norm.weight", DType::F32, 1, kHidden);
  // Query and key fused in one blob of two tensors; the value in another format.
  const uint32_t q_t = t.add_tensor("attn_q.weight", DType::Q4_0, kHeads * kHeadDim, kHidden);
  const uint32_t k_t = t.add_tensor("attn_k.weight", DType::Q4_0, 2 * kHeadDim, kHidden);
  SliceRecord qk[2] = {};
  qk[0].tensor = q_t, qk[0].row_count = kHeads * kHeadDim;
  qk[1].tensor = k_t, qk[1].row_count = 2 * kHeadDim;
  const uint32_t qk_w = t.blob("attn_qk", DType::Q4_0, 6 * kHeadDim, kHidden, 1, qk);
  const uint32_t v_w = t.weight("attn_v.weight", DType::Q8_0, 2 * kHeadDim, kHidden);
  const uint32_t v_b = t.weight("attn_v.bias", DType::F32, 1, 2 * kHeadDim);
  const uint32_t head_norm_w = t.weight("attn_q_norm.weight", DType::F32, 1, kHeadDim);
  const uint32_t o_w = t.weight("attn_output.weight", DType::F16, kHidden, kHeads * kHeadDim);
  const uint32_t gate_w = t.weight("ffn_gate.weight", DType::Q4_0, kWidth, kHidden);
  const uint32_t up_w = t.weight("ffn_up.weight", DType::Q4_0, kWidth, kHidden);
  const uint32_t down_w = t.weight("ffn_down.weight", DType::Q8_0, kHidden, kWidth);
  const uint32_t mla_q_w = t.weight("mla_q.weight", DType::F32, kHeads * (kNope + kRope), kHidden);
  const uint32_t kv_a_w = t.weight("attn_kv_a.weight", DType::F32, kLatent + kRope, kHidden);
  const uint32_t kv_norm_w = t.weight("attn_kv_a_norm.weight", DType::F32, 1, kLatent);
  const uint32_t kv_b_w =
      t.weight("attn_kv_b.weight", DType::Q8_0, kNope + kValue, kLatent, kHeads);
  const uint32_t mla_o_w = t.weight("mla_output.weight", DType::F32, kHidden, kHeads * kValue);
  const uint32_t router_w = t.weight("ffn_gate_inp.weight", DType::F32, kExperts, kHidden);
  const uint32_t bias_w = t.weight("exp_probs_b", DType::F32, 1, kExperts);
  const uint32_t factors_w = t.weight("ffn_down_exps.scale", DType::F32, 1, kExperts);
  const uint32_t up_factors_w = t.weight("ffn_up_exps.scale", DType::F32, 1, kExperts);
  const uint32_t gate_e = t.weight("ffn_gate_exps.weight", DType::Q4_0, kWidth, kHidden, kExperts);
  const uint32_t up_e = t.weight("ffn_up_exps.weight", DType::Q4_0, kWidth, kHidden, kExperts);
  const uint32_t down_e = t.weight("ffn_down_exps.weight", DType::Q8_0, kHidden, kWidth, kExperts);
  const uint32_t shared_w = t.weight("ffn_gate_inp_shexp.weight", DType::F32, 1, kHidden);
  uint32_t conv_w = kNone, decay_w = kNone, skip_w = kNone, scan_decay_w = kNone, dt_w = kNone,
           layer_w = kNone, layer_b = kNone, ape_w = kNone, entry_norm_w = kNone, mix_w = kNone,
           mix_scale = kNone, mix_base = kNone, ngram_hash = kNone, places_w = kNone;
  if (every_op) {
    std::vector<float> digits;  // of multipliers, sizes and offsets, to base 2^16
    for (const float number : {3, 5, 7, 11, 13, 0, 11}) {
      digits.insert(digits.end(), {number, 0, 0, 0});
    }
    ngram_hash = t.constant("hash", digits);
    places_w = t.weight("places.weight", DType::F16, 9, kHidden);
    ape_w = t.weight("attn_compressor_ape.weight", DType::F32, 4, 32);
    entry_norm_w = t.weight("attn_compressor_norm.weight", DType::F32, 1, 16);
    mix_w = t.weight("hc_attn_fn.weight", DType::F32, 8, kHidden);
    mix_scale = t.weight("hc_attn_scale.weight", DType::F32, 1, 3);
    mix_base = t.weight("hc_attn_base.weight", DType::F32, 1, 8);
    conv_w = t.weight("ssm_conv1d.weight", DType::F32, kHidden, 4);
    decay_w = t.weight("ssm_a", DType::F32, 1, 2);
    skip_w = t.weight("ssm_d", DType::F32, 1, 2);
    scan_decay_w = t.weight("ssm_a1", DType::F32, 2, 16);
    dt_w = t.weight("ssm_dt.bias", DType::F32, 1, 2);
    layer_w = t.weight("ffn_norm.weight", DType::F32, 1, kHidden);
    layer_b = t.weight("ffn_norm.bias", DType::F32, 1, kHidden);
  }
  c.close_segment("cpu", SegmentKind::Weights);
  t.weight("rope_freqs.weight", DType::F32, 1, 16);
  c.close_segment("none", SegmentKind::Carried);

  c.kv_slots.push_back({0, 2, kHeadDim, kHeadDim, c.strings.intern("cpu"), 0});
  c.kv_slots.push_back({1, 1, kLatent + kRope, 0, c.strings.intern("cpu"), 0});
  if (every_op) {
    c.kv_slots.push_back({1, 1, 16, 0, c.strings.intern("cpu"), 0});
    // Rows and scores of entries of 4 positions, the entries, and the positions beside them.
    c.kv_slots.push_back({1, 2, 16, 16, c.strings.intern("cpu"), 8});
    c.kv_slots.push_back({1, 1, 4, 0, c.strings.intern("cpu"), 0});
    c.kv_slots.push_back({1, 1, 16, 0, c.strings.intern("cpu"), 8});
    c.kv_slots.push_back({1, 1, 16, 0, c.strings.intern("cpu"), 4});
    c.kv_slots.push_back({1, 1, 4, 0, c.strings.intern("cpu"), 0});
  }

  const uint32_t x = t.f32("x", kHidden);
  const uint32_t n = t.f32("n", kHidden);
  const uint32_t nq = t.value("nq", ValueType::Q8, RowKind::Token, kHidden);
  const uint32_t qkv = t.f32("qkv", 8 * kHeadDim);
  const uint32_t att = t.f32("att", kHeads * kHeadDim);
  const uint32_t gate = t.f32("gate", kWidth);
  const uint32_t up = t.f32("up", kWidth);
  const uint32_t h = t.f32("h", kWidth);
  const uint32_t sum = t.f32("sum", kHidden);

  t.step(StepOp::Embed, -1, {}, {{x}}, {embed_w}, NoAttrs{});
  t.step(StepOp::RmsNorm, 0, {{x}}, {{n}}, {norm_w}, RmsNormAttrs{1e-6f, 1});
  t.step(StepOp::Quantize, 0, {{n}}, {{nq}}, {}, QuantizeAttrs{1, kHidden});
  const uint32_t kQk = 6 * kHeadDim, kQ = kHeads * kHeadDim;
  t.step(StepOp::Matmul, 0, {{n}, {nq}}, {{qkv, 0, kQk}}, {qk_w}, MatmulAttrs{});
  t.step(StepOp::Matmul, 0, {{n}}, {{qkv, kQk}}, {v_w, v_b}, MatmulAttrs{});
  t.step(StepOp::RmsNorm, 0, {{qkv, 0, kQ}}, {{qkv, 0, kQ}}, {head_norm_w},
         RmsNormAttrs{1e-6f, kHeads});
  RopeAttrs rope;
  rope.heads = 6, rope.head_dim = rope.y_head_dim = rope.rotary_dim = kHeadDim;
  t.step(StepOp::Rope, 0, {{qkv, 0, kQk}}, {{qkv, 0, kQk}}, {freq_w}, rope);
  t.step(StepOp::KvStore, 0, {{qkv, kQ, 2 * kHeadDim}, {qkv, kQk}}, {}, {}, KvStoreAttrs{0});
  t.step(StepOp::Attention, 0, {{qkv, 0, kQ}}, {{att}}, {},
         AttentionAttrs{0, kHeads, 2, kHeadDim, kHeadDim, 0, 0.18f});
  t.step(StepOp::Matmul, 0, {{att}, {}}, {{x}}, {o_w, kNone}, MatmulAttrs{1});
  t.step(StepOp::Matmul, 0, {{x}}, {{gate}}, {gate_w}, MatmulAttrs{});
  t.step(StepOp::Matmul, 0, {{x}}, {{up}}, {up_w}, MatmulAttrs{});
  t.step(StepOp::Glu, 0, {{gate}, {up}}, {{h}}, {}, GluAttrs{});
  t.step(StepOp::Matmul, 0, {{h}}, {{sum}}, {down_w}, MatmulAttrs{});
  t.step(StepOp::Add, 0, {{x}, {sum}}, {{x}}, {}, NoAttrs{});

  const uint32_t mq = t.f32("mla_q", kHeads * (kNope + kRope));
  const uint32_t kva = t.f32("kv_a", kLatent + kRope);
  const uint32_t key = t.f32("mla_key", kLatent + kRope);
  const uint32_t absorbed = t.f32("mla_absorbed", kHeads * (kLatent + kRope));
  const uint32_t latent = t.f32("mla_latent", kHeads * kLatent);
  const uint32_t latent_q = t.value("mla_latent_q", ValueType::Q8, RowKind::Token, kLatent, kHeads);
  const uint32_t vals = t.f32("mla_values", kHeads * kValue);
  t.step(StepOp::Matmul, 1, {{x}}, {{mq}}, {mla_q_w}, MatmulAttrs{});
  t.step(StepOp::Matmul, 1, {{x}}, {{kva}}, {kv_a_w}, MatmulAttrs{});
  t.step(StepOp::RmsNorm, 1, {{kva, 0, kLatent}}, {{key, 0, kLatent}}, {kv_norm_w},
         RmsNormAttrs{1e-6f, 1});
  RopeAttrs k_rope;
  k_rope.heads = 1, k_rope.head_dim = k_rope.y_head_dim = kLatent + kRope;
  k_rope.rotary_begin = k_rope.y_begin = kLatent, k_rope.rotary_dim = kRope;
  t.step(StepOp::Rope, 1, {{kva}}, {{key}}, {mla_freq_w}, k_rope);
  RopeAttrs q_rope = k_rope;
  q_rope.heads = kHeads, q_rope.head_dim = kNope + kRope, q_rope.rotary_begin = kNope;
  t.step(StepOp::Rope, 1, {{mq}}, {{absorbed}}, {mla_freq_w}, q_rope);
  t.step(StepOp::KvStore, 1, {{key}}, {}, {}, KvStoreAttrs{1});
  t.step(StepOp::MatmulHeads, 1, {{mq}}, {{absorbed}}, {kv_b_w},
         MatmulHeadsAttrs{kHeads, 1, 0, kNope, kNope + kRope, kLatent + kRope});
  t.step(StepOp::Attention, 1, {{absorbed}}, {{latent}}, {},
         AttentionAttrs{1, kHeads, 1, kLatent + kRope, kLatent, 1, 0.1f});
  t.step(StepOp::Quantize, 1, {{latent}}, {{latent_q}}, {}, QuantizeAttrs{kHeads, kLatent});
  t.step(StepOp::MatmulHeads, 1, {{latent}, {latent_q}}, {{vals}}, {kv_b_w},
         MatmulHeadsAttrs{kHeads, 0, kNope, kValue, kLatent, kValue});
  t.step(StepOp::Matmul, 1, {{vals}}, {{x}}, {mla_o_w}, MatmulAttrs{1});

  const uint32_t scores = t.f32("scores", kExperts);
  const uint32_t ids = t.value("ids", ValueType::I32, RowKind::Token, kTopK);
  const uint32_t probs = t.f32("probs", kTopK);
  const uint32_t order = t.value("order", ValueType::I32, RowKind::Token, kTopK);
  const uint32_t offsets = t.value("offsets", ValueType::I32, RowKind::Single, kExperts + 1);
  const uint32_t eh = t.value("eh", ValueType::F32, RowKind::Token, kWidth, kTopK);
  const uint32_t ehq = t.value("ehq", ValueType::Q8, RowKind::Token, kWidth, kTopK);
  const uint32_t shared_gate = t.f32("shared_gate", 1);
  t.step(StepOp::Matmul, 1, {{x}}, {{scores}}, {router_w}, MatmulAttrs{});
  RouterAttrs router;
  router.experts = kExperts, router.top_k = kTopK, router.groups = 2, router.groups_used = 1;
  t.step(StepOp::Router, 1, {{scores}}, {{ids}, {probs}}, {bias_w, factors_w}, router);
  t.step(StepOp::GroupExperts, 1, {{ids}}, {{order}, {offsets}}, {},
         GroupExpertsAttrs{kExperts, kTopK});
  t.step(StepOp::ExpertsGateUp, 1, {{x}, {}, {order}, {offsets}}, {{eh}},
         {gate_e, up_e, kNone, kNone, kNone, up_factors_w}, ExpertsAttrs{kExperts, kTopK, 0});
  t.step(StepOp::Quantize, 1, {{eh}}, {{ehq}}, {}, QuantizeAttrs{kTopK, kWidth});
  t.step(StepOp::ExpertsDown, 1, {{eh}, {ehq}, {order}, {offsets}, {probs}}, {{x}}, {down_e},
         ExpertsAttrs{kExperts, kTopK, 1});
  t.step(StepOp::Matmul, 1, {{x}}, {{shared_gate}}, {shared_w}, MatmulAttrs{});
  t.step(StepOp::SigmoidScale, 1, {{x}, {shared_gate}}, {{x}}, {}, NoAttrs{});
  t.step(StepOp::PositionScale, 1, {{x}}, {{x}}, {}, PositionScaleAttrs{0.1f, 64});

  if (every_op) {  // one key head and two value heads of 16
    t.step(StepOp::HeadScale, 1, {{x}, {shared_gate}}, {{x}}, {}, HeadScaleAttrs{1, 1});
    const uint32_t mixed = t.f32("mixed", kHidden);
    const uint32_t read = t.f32("read", 32);
    // The experts once more, as a host adds up what others have computed.
    const uint32_t pairs = t.value("pairs", ValueType::F32, RowKind::Token, kHidden, kTopK);
    ExpertsAttrs by_pair{kExperts, kTopK};
    by_pair.by_pair = 1;
    t.step(StepOp::ExpertsDown, 1, {{eh}, {ehq}, {order}, {offsets}, {probs}}, {{pairs}}, {down_e},
           by_pair);
    t.step(StepOp::SumExperts, 1, {{pairs}, {ids}}, {{x}}, {}, SumExpertsAttrs{kTopK, 1});
    t.step(StepOp::CausalConv, 1, {{x}}, {{mixed}}, {conv_w}, CausalConvAttrs{0, kHidden, 4, 1});
    t.step(StepOp::DeltaRule, 1, {{mixed}, {x, 0, 4}}, {{read}}, {decay_w, dt_w},
           DeltaRuleAttrs{1, 1, 2, 16, 0});
    t.step(StepOp::StateSpace, 1, {{mixed}, {x, 0, 2}}, {{read}}, {decay_w, skip_w, dt_w},
           StateSpaceAttrs{2, 2, 16, 1, 16, 0.001f, 4});
    t.step(StepOp::SelectiveScan, 1, {{mixed, 0, 2}, {x, 0, 2}, {x, 0, 32}}, {{read, 0, 2}},
           {scan_decay_w, decay_w}, SelectiveScanAttrs{3, 2, 16});
    t.step(StepOp::LayerNorm, 1, {{x}}, {{x}}, {layer_w, layer_b}, LayerNormAttrs{1e-5f, 1});
    t.step(StepOp::Activate, 1, {{x}}, {{x}}, {}, ActivateAttrs{});
    // Two heads of 16 choose 8 positions for the latent attention.
    const uint32_t positions = t.value("positions", ValueType::I32, RowKind::Token, 8);
    t.step(StepOp::KvStore, 1, {{x, 32, 16}}, {}, {}, KvStoreAttrs{2});
    t.step(StepOp::ChoosePositions, 1, {{x, 0, 32}, {x, 48, 2}}, {{positions}}, {},
           ChoosePositionsAttrs{2, 2, 16, 8, 0.1f});
    t.step(StepOp::SparseAttention, 1, {{absorbed}, {positions}}, {{latent}}, {},
           AttentionAttrs{1, kHeads, 1, kLatent + kRope, kLatent, 1, 0.1f});
    // And three blocks of four positions for each KV head of the first layer.
    const uint32_t blocks = t.value("blocks", ValueType::I32, RowKind::Token, 6);
    t.step(StepOp::ChooseBlocks, 1, {{x, 0, 32}}, {{blocks}}, {},
           ChooseBlocksAttrs{2, 2, 16, 3, 4, 1});
    t.step(StepOp::BlockAttention, 1, {{qkv, 0, kQ}, {blocks}}, {{att}}, {},
           BlockAttentionAttrs{0, kHeads, 2, kHeadDim, kHeadDim, 4, 0.18f});
    // Four heads of 16 read 8 entries and the last 8 positions.
    const uint32_t chosen = t.value("chosen", ValueType::I32, RowKind::Token, 8);
    t.step(StepOp::KvStore, 1, {{x, 0, 32}, {x, 32, 32}}, {}, {}, KvStoreAttrs{3});
    t.step(StepOp::Compress, 1, {}, {}, {ape_w, entry_norm_w, mla_freq_w},
           CompressAttrs{3, 4, 4, 1, 16, kRope, 1, 1, 1e-6f});
    t.step(StepOp::KvStore, 1, {{x, 32, 16}}, {}, {}, KvStoreAttrs{5});
    t.step(StepOp::ChoosePositions, 1, {{x, 0, 32}, {x, 48, 2}}, {{chosen}}, {},
           ChoosePositionsAttrs{4, 2, 16, 8, 0.1f, 4});
    t.step(StepOp::CompressedAttention, 1, {{x}, {chosen}}, {{n}}, {},
           CompressedAttentionAttrs{5, 4, 4, 16, 4, 8, 0.2f});
    // The latent attention reads 8 entries and the positions behind the last whole one.
    const uint32_t pools = t.value("pools", ValueType::I32, RowKind::Token, 9);
    t.step(StepOp::ChoosePositions, 1, {{x, 0, 32}, {x, 48, 2}}, {{pools}}, {},
           ChoosePositionsAttrs{4, 2, 16, 8, 0.1f, 4, 1});
    t.step(StepOp::BlockAttention, 1, {{absorbed}, {pools}}, {{latent}}, {},
           BlockAttentionAttrs{1, kHeads, 1, kLatent + kRope, kLatent, 4, 0.1f, 1, 1});
    // The stream as two.
    const uint32_t mixes = t.f32("mixes", 8);
    const uint32_t collapsed = t.f32("collapsed", 32);
    const uint32_t attended = t.f32("attended", kHidden);
    t.step(StepOp::Matmul, 1, {{x}}, {{mixes}}, {mix_w}, MatmulAttrs{});
    t.step(StepOp::StreamWeights, 1, {{mixes}}, {{mixes}}, {mix_scale, mix_base},
           StreamWeightsAttrs{2, 20, 1e-6f});
    t.step(StepOp::CollapseStreams, 1, {{x}, {mixes, 0, 2}}, {{collapsed}}, {}, NoAttrs{});
    t.step(StepOp::MixStreams, 1, {{x}, {collapsed}, {mixes, 2, 6}}, {{x}}, {}, NoAttrs{});
    const uint32_t altup = t.f32("altup", 6);
    t.step(StepOp::AltUpWeights, 1, {{x, 0, 4}}, {{altup}}, {}, AltUpWeightsAttrs{2, 1, 0});
    t.step(StepOp::MixStreams, 1, {{x}, {collapsed}, {altup}}, {{x}}, {}, NoAttrs{});
    t.step(StepOp::MatchRms, 1, {{x}, {collapsed}}, {{x}}, {}, MatchRmsAttrs{1e-5f});
    t.step(StepOp::GaussianTopK, 1, {{x}}, {{x}}, {}, GaussianTopKAttrs{0.5f});
    t.step(StepOp::AttendStreams, 1, {{x}, {n}, {n}}, {{attended}}, {norm_w},
           AttendStreamsAttrs{1e-5f});
    t.step(StepOp::Glu, 1, {{x}, {attended}}, {{attended}}, {},
           GluAttrs{static_cast<int32_t>(Activation::Situ), 4, 25});
    // Rows of images, and what makes them of patches.
    c.facts.takes_images = true;
    c.facts.image.size = 12, c.facts.image.patch = 3, c.facts.image.pool = 2;
    c.facts.image.width = kHidden, c.facts.image.resize = "bicubic", c.facts.image.mark = "<i>";
    c.facts.image.mean = {0, 0, 0}, c.facts.image.deviation = {1, 1, 1};
    const uint32_t pooled = t.f32("pooled", kHidden, RowKind::Output);
    const uint32_t unfolded = t.f32("unfolded", 4 * kHidden, RowKind::Output);
    c.facts.image.more_parts = 1;
    const uint32_t places = t.f32("places", kHidden);
    t.step(StepOp::GivenRows, 1, {{x}}, {{x}}, {}, GivenRowsAttrs{0});
    t.step(StepOp::GivenRows, 1, {{x}}, {{x}}, {}, GivenRowsAttrs{1});
    t.step(StepOp::EmbedGrid, 1, {}, {{places}}, {places_w}, EmbedGridAttrs{3});
    t.step(StepOp::RopeGrid, 1, {{x}}, {{x}}, {freq_w},
           RopeGridAttrs{2, kHeadDim, 1, kHeadDim, 4, 6, 1, 1});
    t.step(StepOp::PoolRows, 1, {{x}}, {{pooled}}, {}, PoolRowsAttrs{2, 0});
    t.step(StepOp::PoolRows, 1, {{x}}, {{unfolded}}, {}, PoolRowsAttrs{2, 1});
    // Two streams that keep what they have, products of both, and rows for two and three tokens.
    t.step(StepOp::MixStreams, 1, {{x}, {collapsed}, {mixes, 0, 2}}, {{x}}, {}, NoAttrs{});
    t.step(StepOp::DotStreams, 1, {{x}, {n}}, {{mixes, 0, 2}}, {}, ScaleAttrs{0.5f});
    const uint32_t ngrams = t.f32("ngrams", 2 * kHidden);
    t.step(StepOp::EmbedNgrams, 1, {}, {{ngrams}}, {embed_w, ngram_hash},
           EmbedNgramsAttrs{4, 3, 1, 2});
    // Means of four rows, which heads choose together for both key heads of the first layer.
    t.step(StepOp::KvStore, 1, {{x, 0, 16}}, {}, {}, KvStoreAttrs{6});
    t.step(StepOp::Compress, 1, {}, {}, {kNone, entry_norm_w, mla_freq_w},
           CompressAttrs{6, 7, 4, 0, 16, kRope, 0, 1, 1e-6f, 1});
    t.step(StepOp::ChoosePositions, 1, {{x, 0, 32}}, {{pools}}, {},
           ChoosePositionsAttrs{7, 2, 16, 8, 0.1f, 4, 1});
    t.step(StepOp::BlockAttention, 1, {{qkv, 0, kQ}, {pools}}, {{att}}, {},
           BlockAttentionAttrs{0, kHeads, 2, kHeadDim, kHeadDim, 4, 0.18f, 0, 1});
    t.step(StepOp::CausalConv, 1, {{x}}, {{mixed}}, {conv_w}, CausalConvAttrs{5, kHidden, 4, 0, 3});
  }

  const uint32_t last = t.f32("last", kHidden, RowKind::Output);
  const uint32_t logits = t.f32("logits", kVocab, RowKind::Output);
  t.step(StepOp::GatherRows, -1, {{x}}, {{last}}, {}, NoAttrs{});
  t.step(StepOp::Scale, -1, {{last}}, {{last}}, {}, ScaleAttrs{0.5f});
  t.step(StepOp::Matmul, -1, {{last}}, {{logits}}, {embed_w}, MatmulAttrs{});
  c.facts.logits_value = logits;
  t.finish();
  return t;
}

inline Status write_plan(const TinyPlan& tiny, const std::string& path, int threads = 2) {
  PlanWriter writer = KTX_TRY(PlanWriter::create(path, tiny.contents));
  PackOptions options;
  options.threads = threads;
  KTX_TRY(pack_blobs(writer, tiny.sources, options));
  return writer.finish();
}

}  // namespace ktx::plan
