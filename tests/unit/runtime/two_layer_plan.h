// A plan of two layers with random weights, made by hand: dense attention and MLP,
// then attention and a mixture of experts. Small enough to run in microseconds,
// yet with every kind of step that a decoder of grouped-query attention needs.
#pragma once

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "kernels/kernel_id.h"
#include "lib/formats/dtype.h"
#include "lib/ops/step_attrs.h"
#include "lib/plan/pack_blobs.h"
#include "lib/plan/plan_contents.h"
#include "lib/plan/plan_writer.h"
#include "lib/plan/verify_records.h"
#include "lib/runtime/sampling/random.h"

namespace ktx::runtime {

struct View {
  uint32_t value = plan::kNone;
  int64_t offset = 0;
  int64_t width = 0;
};

class PlanBuilder {
 public:
  explicit PlanBuilder(uint64_t seed) : random_(seed) {}

  plan::PlanContents contents;

  View value(const std::string& name, int64_t width, RowKind rows = RowKind::Token,
             ValueType type = ValueType::F32, uint32_t rows_per_row = 1) {
    plan::ValueRecord record = {};
    record.name = contents.strings.intern(name);
    record.type = static_cast<uint8_t>(type);
    record.rows = static_cast<uint8_t>(rows);
    record.rows_per_row = rows_per_row;
    record.buffer = static_cast<uint32_t>(contents.buffers.size());
    record.width = width;
    const uint64_t bytes = (plan::value_row_bytes(record) + 63) / 64 * 64;
    plan::BufferRecord buffer = {};
    (rows == RowKind::Token    ? buffer.bytes_per_token
     : rows == RowKind::Output ? buffer.bytes_per_output
                               : buffer.fixed_bytes) = bytes;
    contents.buffers.push_back(buffer);
    contents.values.push_back(record);
    return {static_cast<uint32_t>(contents.values.size()) - 1, 0,
            width * static_cast<int64_t>(rows_per_row)};
  }

  // Random weights; the scales of quantised blocks are small and finite.
  uint32_t weight(const std::string& name, DType dtype, int64_t rows, int64_t cols,
                  int64_t matrices = 1, float scale = 0.15f) {
    const auto bytes_per_row = *row_bytes(dtype, cols);
    std::vector<std::byte> bytes(bytes_per_row * rows * matrices);
    const int64_t block = info(dtype).block_bytes;
    for (int64_t at = 0; at < static_cast<int64_t>(bytes.size()); at += block) {
      if (dtype == DType::F32) {
        const float w = static_cast<float>((random_.uniform() * 2 - 1) * scale);
        std::memcpy(&bytes[at], &w, 4);
      } else {  // Q8_0, Q4_0: a half scale first
        for (int64_t i = 0; i < block; ++i) bytes[at + i] = static_cast<std::byte>(random_.next());
        const float top = dtype == DType::Q8_0 ? 127.0f : 8.0f;
        const uint16_t half = float_to_half(scale / top);
        std::memcpy(&bytes[at], &half, 2);
      }
    }
    plan::GgufTensorRecord tensor = {};
    tensor.name = contents.strings.intern(name);
    tensor.dtype = static_cast<uint16_t>(dtype);
    tensor.row_elems = cols;
    tensor.rows = rows * matrices;
    tensor.size = bytes.size();
    tensor.offset = gguf_bytes_;
    gguf_bytes_ += (bytes.size() + 31) / 32 * 32;
    plan::SliceRecord slice = {};
    slice.tensor = static_cast<uint32_t>(contents.gguf.tensors.size());
    slice.row_count = rows * matrices;
    contents.gguf.tensors.push_back(tensor);
    plan::BlobRecord blob = {};
    blob.name = tensor.name;
    blob.dtype = tensor.dtype;
    blob.rows = rows;
    blob.cols = cols;
    blob.matrices = matrices;
    const uint32_t index = contents.add_blob(blob, {&slice, 1});
    bytes_.resize(index + 1);
    bytes_[index] = std::move(bytes);
    return index;
  }

  uint32_t constant(const std::string& name, const std::vector<float>& values) {
    const uint32_t index = contents.add_constant(contents.strings.intern(name), values);
    bytes_.resize(index + 1);
    return index;
  }

  void step(StepOp op, std::vector<View> in, std::vector<View> out, std::vector<uint32_t> weights,
            const StepAttrs& attrs = NoAttrs{}) {
    const auto operands = [&](const std::vector<View>& views) {
      std::vector<plan::OperandRecord> list;
      for (const View& v : views) {
        list.push_back({v.value, static_cast<uint32_t>(v.offset), static_cast<uint32_t>(v.width)});
      }
      return contents.add_operands(list);
    };
    plan::StepRecord record = {};
    record.op = static_cast<uint32_t>(op);
    record.module = contents.strings.intern("model." + std::to_string(contents.steps.size()));
    record.layer = -1;
    record.device = contents.strings.intern("cpu");
    record.first_input = operands(in);
    record.input_count = static_cast<uint32_t>(in.size());
    record.first_output = operands(out);
    record.output_count = static_cast<uint32_t>(out.size());
    record.first_weight = contents.add_weight_uses(weights);
    record.weight_count = static_cast<uint32_t>(weights.size());
    record.attrs_offset = contents.add_attrs(attrs);
    record.attrs_size = stored_bytes(attrs);
    const DType dtype = weights.empty() || weights[0] == plan::kNone
                            ? DType::F32
                            : static_cast<DType>(contents.blobs[weights[0]].dtype);
    for (int precision = 0; precision < 2; ++precision) {
      const std::string_view family =
          kernels::kernel_family(op, static_cast<kernels::Precision>(precision), dtype);
      const uint32_t id = family.empty() ? plan::kNone : contents.strings.intern(family);
      record.kernel[precision] = id;
    }
    contents.steps.push_back(record);
  }

  View quantize(View x, uint32_t rows_per_token = 1) {
    const int64_t width = x.width / rows_per_token;
    const View xq = value("q8." + std::to_string(contents.values.size()), width, RowKind::Token,
                          ValueType::Q8, rows_per_token);
    step(StepOp::Quantize, {x}, {xq}, {},
         QuantizeAttrs{static_cast<int32_t>(rows_per_token), static_cast<int32_t>(width)});
    return xq;
  }

  void finish(const std::string& path) {
    contents.close_segment("cpu", plan::SegmentKind::Weights);
    contents.gguf.shards.push_back({std::string(64, 'g'), gguf_bytes_, 32});
    std::vector<plan::BlobSource> sources(contents.blobs.size());
    for (size_t i = 0; i < sources.size(); ++i) {
      if (contents.blobs[i].slice_count > 0) sources[i].slices = {bytes_[i]};
    }
    contents.parts = {{0, contents.strings.intern("cpu"), plan::kNone, 0,
                       static_cast<uint32_t>(contents.steps.size())}};
    auto writer = plan::PlanWriter::create(path, std::move(contents), {});
    if (!writer) return fail(writer.error().message);
    plan::PackOptions options;
    options.threads = 1;
    if (const auto packed = plan::pack_blobs(*writer, sources, options); !packed) {
      return fail(packed.error().message);
    }
    if (const auto done = writer->finish(); !done) fail(done.error().message);
  }

  static void fail(const std::string& message) {
    std::fprintf(stderr, "tiny plan: %s\n", message.c_str());
    std::abort();
  }

 private:
  Random random_;
  uint64_t gguf_bytes_ = 64;
  std::vector<std::vector<std::byte>> bytes_;
};

constexpr int64_t kTinyVocab = 96;

// `dtype`: F32, Q8_0 or Q4_0, of the products' weights.
inline void write_tiny_plan(const std::string& path, DType dtype) {
  constexpr int32_t kHidden = 64, kHeads = 4, kKvHeads = 2, kDim = 32, kMlp = 160;
  constexpr int32_t kExperts = 4, kTopK = 2, kExpertWidth = 96;
  PlanBuilder b(7);
  plan::PlanFacts& facts = b.contents.facts;
  facts.architecture = "tiny";
  facts.family = "TinyForCausalLM";
  facts.vocab_size = kTinyVocab;
  facts.hidden_size = kHidden;
  facts.layers = 2;
  facts.context_length = 512;
  facts.default_ctx = 256;
  b.contents.provenance.ktx_version = KTX_VERSION;

  std::vector<float> freqs;
  for (int i = 0; i < kDim / 2; ++i) freqs.push_back(1.0f / static_cast<float>(1 << i));
  const uint32_t inv_freq = b.constant("inv_freq", freqs);
  const uint32_t table = b.weight("token_embd", dtype, kTinyVocab, kHidden, 1, 1.0f);
  const auto norm_weight = [&](const std::string& name, int64_t width) {
    return b.weight(name, DType::F32, 1, width, 1, 1.5f);
  };

  const View x = b.value("x", kHidden);
  b.step(StepOp::Embed, {}, {x}, {table});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string at = "blk." + std::to_string(layer) + ".";
    const View n = b.value(at + "n", kHidden);
    b.step(StepOp::RmsNorm, {x}, {n}, {norm_weight(at + "norm", kHidden)}, RmsNormAttrs{1e-5f, 1});
    const View nq = b.quantize(n);
    const auto linear = [&](const std::string& name, View in, View in_q, int64_t width) {
      const View y = b.value(at + name, width);
      b.step(StepOp::Matmul, {in, in_q}, {y},
             {b.weight(at + name + "_w", dtype, width, in.width), plan::kNone}, MatmulAttrs{0});
      return y;
    };
    const View q = linear("q", n, nq, kHeads * kDim);
    const View k = linear("k", n, nq, kKvHeads * kDim);
    const View v = linear("v", n, nq, kKvHeads * kDim);
    b.step(StepOp::RmsNorm, {q}, {q}, {norm_weight(at + "q_norm", kDim)},
           RmsNormAttrs{1e-5f, kHeads});
    b.step(StepOp::PositionScale, {q}, {q}, {}, PositionScaleAttrs{0.1f, 3});
    RopeAttrs rope;
    rope.heads = kHeads;
    rope.head_dim = rope.y_head_dim = rope.rotary_dim = kDim;
    b.step(StepOp::Rope, {q}, {q}, {inv_freq}, rope);
    rope.heads = kKvHeads;
    b.step(StepOp::Rope, {k}, {k}, {inv_freq}, rope);
    plan::KvSlotRecord slot = {};
    slot.layer = layer;
    slot.kv_heads = kKvHeads;
    slot.key_dim = slot.value_dim = kDim;
    slot.device = b.contents.strings.intern("cpu");
    b.contents.kv_slots.push_back(slot);
    b.step(StepOp::KvStore, {k, v}, {}, {}, KvStoreAttrs{layer});
    const View a = b.value(at + "attn", kHeads * kDim);
    b.step(StepOp::Attention, {q}, {a}, {},
           AttentionAttrs{layer, kHeads, kKvHeads, kDim, kDim, 0, 0.177f});
    b.step(StepOp::Matmul, {a, b.quantize(a)}, {x},
           {b.weight(at + "o", dtype, kHidden, kHeads * kDim),
            b.weight(at + "o_bias", DType::F32, 1, kHidden)},
           MatmulAttrs{1});
    const View m = b.value(at + "m", kHidden);
    b.step(StepOp::RmsNorm, {x}, {m}, {norm_weight(at + "norm2", kHidden)}, RmsNormAttrs{1e-5f, 1});
    const View mq = b.quantize(m);
    if (layer == 0) {
      const View gate = linear("gate", m, mq, kMlp), up = linear("up", m, mq, kMlp);
      const View h = b.value(at + "h", kMlp);
      b.step(StepOp::Glu, {gate, up}, {h}, {}, GluAttrs{});
      const View down = linear("down", h, b.quantize(h), kHidden);
      b.step(StepOp::Scale, {down}, {down}, {}, ScaleAttrs{0.75f});
      const View score = b.value(at + "score", 1);
      b.step(StepOp::Matmul, {m, {}}, {score},
             {b.weight(at + "score_w", DType::F32, 1, kHidden), plan::kNone}, MatmulAttrs{0});
      b.step(StepOp::SigmoidScale, {down, score}, {down}, {});
      b.step(StepOp::Add, {x, down}, {x}, {});
      continue;
    }
    const View logits = b.value(at + "router", kExperts);
    b.step(StepOp::Matmul, {m, {}}, {logits},
           {b.weight(at + "router_w", DType::F32, kExperts, kHidden), plan::kNone}, MatmulAttrs{0});
    const View ids = b.value(at + "ids", kTopK, RowKind::Token, ValueType::I32);
    const View weights = b.value(at + "weights", kTopK);
    RouterAttrs router;
    router.experts = kExperts;
    router.top_k = kTopK;
    router.normalize = 1;
    b.step(StepOp::Router, {logits}, {ids, weights}, {plan::kNone}, router);
    const View order = b.value(at + "order", kTopK, RowKind::Token, ValueType::I32);
    const View offsets = b.value(at + "offsets", kExperts + 1, RowKind::Single, ValueType::I32);
    b.step(StepOp::GroupExperts, {ids}, {order, offsets}, {}, GroupExpertsAttrs{kExperts, kTopK});
    const View h = b.value(at + "h", kExpertWidth, RowKind::Token, ValueType::F32, kTopK);
    b.step(StepOp::ExpertsGateUp, {m, mq, order, offsets}, {h},
           {b.weight(at + "gate_exps", dtype, kExpertWidth, kHidden, kExperts),
            b.weight(at + "up_exps", dtype, kExpertWidth, kHidden, kExperts)},
           ExpertsAttrs{kExperts, kTopK, 0});
    b.step(StepOp::ExpertsDown, {h, b.quantize(h, kTopK), order, offsets, weights}, {x},
           {b.weight(at + "down_exps", dtype, kHidden, kExpertWidth, kExperts)},
           ExpertsAttrs{kExperts, kTopK, 1});
  }
  const View last = b.value("last", kHidden, RowKind::Output);
  b.step(StepOp::GatherRows, {x}, {last}, {});
  b.step(StepOp::RmsNorm, {last}, {last}, {norm_weight("norm", kHidden)}, RmsNormAttrs{1e-5f, 1});
  const View logits = b.value("logits", kTinyVocab, RowKind::Output);
  b.step(StepOp::Matmul, {last, {}}, {logits},
         {b.weight("output", DType::F32, kTinyVocab, kHidden), plan::kNone}, MatmulAttrs{0});
  facts.logits_value = logits.value;
  b.finish(path);
}

// The path of a tiny plan in the temporary directory; removed with the object.
class TinyPlan {
 public:
  explicit TinyPlan(DType dtype = DType::Q8_0)
      : path_(
            (std::filesystem::temp_directory_path() / ("ktx_tiny_" + std::to_string(::getpid()) +
                                                       "_" + std::string(name(dtype)) + ".ktxplan"))
                .string()) {
    write_tiny_plan(path_, dtype);
  }
  ~TinyPlan() { std::filesystem::remove(path_); }
  TinyPlan(const TinyPlan&) = delete;
  TinyPlan& operator=(const TinyPlan&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace ktx::runtime
